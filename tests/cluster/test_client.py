"""The Python client on a cluster of Muster servers."""
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import muster as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture(autouse=True)
def clean_servers(shared_cluster):
    yield
    tf.Session.reset(shared_cluster.target())


def test_constants_on_every_task(shared_cluster):
    values = []
    for device in ("/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"):
        with tf.device(device):
            values.append(tf.constant(2.0) * 3.0)
    for number in range(2):
        with tf.Session(shared_cluster.target("worker", number)) as session:
            assert session.run(values) == [6.0, 6.0, 6.0]
            assert session.run(tf.add_n(values)) == 18.0


def test_variables_are_shared_between_sessions(shared_cluster):
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0, name="shared")
        r = tf.get_variable("resource", [], initializer=tf.zeros_initializer(), use_resource=True)
    more, more_r = tf.assign_add(v, 2.0), tf.assign_add(r, 1.0)
    with tf.Session(shared_cluster.target("worker", 0)) as first:
        first.run(tf.global_variables_initializer())
        assert first.run([more, more_r]) == [3.0, 1.0]
        with tf.Session(shared_cluster.target("worker", 1)) as second:
            assert second.run([v, r]) == [3.0, 1.0]
            second.run(more)
        assert first.run(v) == 5.0
    with tf.Session(shared_cluster.target("ps", 0)) as third:
        assert third.run(v) == 5.0


def test_the_graph_grows_between_runs(shared_cluster):
    with tf.Session(shared_cluster.target()) as session:
        a = tf.constant(1.0)
        assert session.run(a) == 1.0
        with tf.device("/job:ps/task:0"):
            b = a + 1.0
        assert session.run(b) == 2.0


def test_feeds_and_fetches_of_many_kinds(shared_cluster):
    x = tf.placeholder(tf.float32, [None, 2])
    s = tf.placeholder(tf.string, [])
    with tf.device("/job:ps/task:0"):
        y = {"sum": tf.reduce_sum(x), "name": tf.identity(s), "all": (x * 2.0, tf.shape(x))}
    with tf.Session(shared_cluster.target()) as session:
        result = session.run(y, {x: [[1, 2], [3, 4]], s: b"\x00\xff"})
        assert result["sum"] == 10.0 and result["name"] == b"\x00\xff"
        np.testing.assert_array_equal(result["all"][0], [[2, 4], [6, 8]])
        np.testing.assert_array_equal(result["all"][1], [2, 2])
        big = np.random.RandomState(0).rand(1000, 2).astype(np.float32)
        np.testing.assert_array_equal(session.run(y["all"][0], {x: big}), big * 2)
        assert session.run(tf.no_op()) is None


def test_training_gives_the_numbers_of_a_local_session(shared_cluster):
    def losses(target, setter):
        with tf.Graph().as_default():
            with tf.device(setter):
                x = tf.constant(np.random.RandomState(1).rand(32, 4).astype(np.float32))
                y = tf.reduce_sum(x, 1, keepdims=True)
                w = tf.get_variable("w", [4, 1], initializer=tf.constant_initializer(0.1))
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
                step = tf.train.AdamOptimizer(0.1).minimize(loss)
                init = tf.global_variables_initializer()
            with tf.Session(target) as session:
                session.run(init)
                return [session.run([loss, step])[0] for _ in range(30)]

    setter = tf.train.replica_device_setter(cluster=shared_cluster.jobs, worker_device="/job:worker/task:1")
    remote = losses(shared_cluster.target(), setter)
    np.testing.assert_allclose(remote, losses("", None), rtol=1e-5)
    assert remote[-1] < 0.5 * remote[0]


def test_conds_and_loops_across_tasks(shared_cluster):
    p = tf.placeholder(tf.bool, [])
    with tf.device("/job:ps/task:0"):
        a = tf.constant(5.0)

    def on_worker():
        with tf.device("/job:worker/task:1"):
            return a * 2.0

    chosen = tf.cond(p, on_worker, lambda: a - 1.0)

    def body(i, total):
        with tf.device("/job:worker/task:1"):
            total = total + tf.cast(i, tf.float32)
        with tf.device("/job:ps/task:0"):
            return i + 1, total * 1.0

    _, total = tf.while_loop(lambda i, _: i < 10, body, [tf.constant(0), tf.constant(0.0)])
    with tf.Session(shared_cluster.target()) as session:
        assert session.run(chosen, {p: True}) == 10.0
        assert session.run(chosen, {p: False}) == 4.0
        assert session.run(total) == 45.0
        assert session.run([total, chosen], {p: True}) == [45.0, 10.0]


def test_partial_run(shared_cluster):
    a, b, c = (tf.placeholder(tf.float32, []) for _ in range(3))
    with tf.device("/job:ps/task:0"):
        r1 = a + b
    r2 = r1 * c
    with tf.Session(shared_cluster.target()) as session:
        handle = session.partial_run_setup([r1, r2], [a, b, c])
        assert session.partial_run(handle, r1, {a: 1, b: 2}) == 3.0
        assert session.partial_run(handle, r2, {c: 5}) == 15.0


def test_callables(shared_cluster):
    x = tf.placeholder(tf.float32, [])
    with tf.device("/job:ps/task:0"):
        y = x * 2.0
    with tf.Session(shared_cluster.target()) as session:
        double = session.make_callable([y, {"x": x}], [x])
        for value in (1.0, 4.0):
            assert double(value) == [2 * value, {"x": value}]


def test_list_devices(shared_cluster):
    with tf.Session(shared_cluster.target()) as session:
        devices = session.list_devices()
    assert sorted(d.name for d in devices) == [
        "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0",
        "/job:worker/replica:0/task:1/device:CPU:0"]
    assert all(d.device_type == "CPU" and d.incarnation != 0 for d in devices)


def test_device_filters_hide_tasks(shared_cluster):
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
    with tf.Session(shared_cluster.target(), config=config) as session:
        session.run(tf.constant(1))  # makes the session
        assert not any("task:1" in d.name for d in session.list_devices())
        with tf.device("/job:worker/task:1"):
            hidden = tf.constant(1.0)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(hidden)


def test_reset_clears_variables(shared_cluster):
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)
    session = tf.Session(shared_cluster.target())
    session.run(v.initializer)
    tf.Session.reset(shared_cluster.target())
    with pytest.raises(tf.errors.OpError):
        session.run(v)
    with tf.Session(shared_cluster.target()) as later:
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            later.run(v)


def test_reset_of_one_container(shared_cluster):
    with tf.device("/job:ps/task:0"), tf.container("kept"):
        kept = tf.Variable(1.0)
    with tf.device("/job:ps/task:0"), tf.container("cleared"):
        cleared = tf.Variable(1.0)
    with tf.Session(shared_cluster.target()) as session:
        session.run(tf.global_variables_initializer())
    tf.Session.reset(shared_cluster.target(), ["cleared"])
    with tf.Session(shared_cluster.target()) as session:
        assert session.run(kept) == 1.0
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(cleared)
    tf.Session.reset(shared_cluster.target(), ["kept"])


def test_run_metadata(shared_cluster):
    with tf.device("/job:ps/task:0"):
        a = tf.Variable(2.0)
    with tf.device("/job:worker/task:1"):
        b = a * 3.0
    metadata = tf.RunMetadata()
    with tf.Session(shared_cluster.target()) as session:
        session.run(a.initializer)
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
        assert session.run(b, options=options, run_metadata=metadata) == 6.0
    devices = {d.device for d in metadata.step_stats.dev_stats}
    assert any("/job:ps" in d for d in devices) and any("task:1" in d for d in devices)
    assert metadata.partition_graphs


def test_errors_have_their_class_and_op(shared_cluster):
    x = tf.placeholder(tf.int32, [])
    with tf.device("/job:ps/task:0"):
        bad = tf.gather(tf.constant([1, 2, 3]), x, name="bad")
        unset = tf.Variable(1.0, name="unset")
    with tf.Session(shared_cluster.target()) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="7") as caught:
            session.run(bad, {x: 7})
        assert caught.value.op is not None and caught.value.op.name == "bad"
        with pytest.raises(tf.errors.FailedPreconditionError, match="unset"):
            session.run(unset)
        assert session.run(bad, {x: 2}) == 3


def test_a_device_that_is_not_there_is_named(shared_cluster):
    with tf.device("/job:chief"):
        nowhere = tf.constant(1)
    with tf.Session(shared_cluster.target()) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="chief"):
            session.run(nowhere)


def test_timeouts(shared_cluster):
    total = tf.while_loop(lambda i: i >= 0, lambda i: i * 0, [tf.constant(1)])
    with tf.Session(shared_cluster.target()) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(total, options=tf.RunOptions(timeout_in_ms=300))
        assert session.run(tf.constant(3)) == 3


@pytest.mark.parametrize("target", ["http://localhost:2222", "localhost:2222", "grpc://localhost:2222:8080",
                                    "grpc://localhost", "grpc://", "grpc://localhost:port"])
def test_wrong_targets_are_refused_at_once(target):
    tf.constant(1)
    started = time.time()
    with pytest.raises(tf.errors.OpError, match="grpc://"):
        tf.Session(target)
    assert time.time() - started < 15


def test_a_closed_session_says_so(shared_cluster):
    a = tf.constant(1)
    session = tf.Session(shared_cluster.target())
    session.run(a)
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(a)


def test_many_threads_use_one_session(shared_cluster):
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(0)
        more = tf.assign_add(v, 1, use_locking=True)
    with tf.Session(shared_cluster.target()) as session:
        session.run(v.initializer)
        threads = [threading.Thread(target=lambda: [session.run(more) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.run(v) == 80


ENDLESS = """
import sys, muster as tf
with tf.device("/job:ps/task:0"):
    total = tf.while_loop(lambda i: i >= 0, lambda i: i * 0, [tf.constant(1)])
with tf.Session(sys.argv[1]) as session:
    try:
        print("running", flush=True)
        session.run(total)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(session.run(tf.constant(42)), flush=True)
"""


def test_ctrl_c_ends_a_run_and_leaves_the_session(shared_cluster):
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, shared_cluster.target()], stdout=subprocess.PIPE,
                               text=True)
    try:
        assert process.stdout.readline() == "running\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        assert output == "interrupted\n42\n"
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_vanished_client_leaves_the_servers_working(shared_cluster):
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, shared_cluster.target()], stdout=subprocess.PIPE,
                               text=True)
    assert process.stdout.readline() == "running\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with tf.Session(shared_cluster.target()) as session:
        assert session.run(tf.constant(1)) == 1
