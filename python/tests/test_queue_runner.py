"""tf.train.QueueRunner and start_queue_runners (recovery-semantics §3.1)."""
import re
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from cluster_ports import free_ports

import muster as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def counter_queue(capacity=10, limit=5):
    """A queue, and an op that enqueues 1, 2, ... limit."""
    queue = tf.FIFOQueue(capacity, tf.int64, shapes=[()], name="q")
    count = tf.Variable(0, dtype=tf.int64, name="count", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    value = count.count_up_to(limit)
    return queue, queue.enqueue(value, name="enqueue")


def test_the_input_ends_without_error(graph):
    queue, enqueue = counter_queue()
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [enqueue, enqueue]))
    got = queue.dequeue()
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        assert [t.name for t in threads] == ["QueueRunnerThread-q-enqueue", "QueueRunnerThread-q-enqueue",
                                             "QueueRunnerThread-q-close_on_stop"]
        assert all(isinstance(t, threading.Thread) and t.daemon for t in threads)
        values = []
        with pytest.raises(tf.errors.OutOfRangeError) as info:
            while True:
                values.append(int(sess.run(got)))
        assert sorted(values) == list(range(5))
        assert "is closed and has insufficient elements (requested 1, current size 0)" in str(info.value)
        assert not coord.should_stop() and threads[2].is_alive()
        coord.request_stop()
        coord.join(threads)
        assert not any(t.is_alive() for t in threads)


def test_other_errors_stop_the_coordinator():
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()], name="q")
    broken = tf.check_numerics(tf.constant(0.0) / 0.0, "broken", name="check")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(broken)])
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = runner.create_threads(sess, coord, start=True)
        for call in (lambda: coord.join(threads), coord.raise_requested_exception):
            with pytest.raises(tf.errors.InvalidArgumentError, match="broken") as info:
                call()
        assert info.value.op.name == "check"
        assert coord._coordinator.requested is info.value
        assert runner.exceptions_raised == []


def test_without_a_coordinator_errors_are_kept(monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_value))
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()], name="q")
    broken = tf.check_numerics(tf.constant(0.0) / 0.0, "broken")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(broken)])
    with tf.Session() as sess:
        thread, = runner.create_threads(sess, start=True)
        thread.join()
        assert isinstance(runner.exceptions_raised[0], tf.errors.InvalidArgumentError)
        assert shown == runner.exceptions_raised and shown[0] is runner.exceptions_raised[0]


def test_a_full_queue_is_cancelled_at_the_stop():
    queue = tf.FIFOQueue(1, tf.float32, shapes=[()], name="q")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(1.0)])
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = runner.create_threads(sess, coord, daemon=True, start=True)
        assert runner.create_threads(sess, coord) == []
        time.sleep(0.1)
        start = time.time()
        coord.request_stop()
        coord.join(threads)
        assert time.time() - start < 5


def _steps_under_way(port):
    """At the server with these metrics."""
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=60) as reply:
        return float(re.search(r"^muster_steps_under_way\{.*\} (\S+)$", reply.read().decode(), re.M).group(1))


@pytest.mark.parametrize("where", ["local", "master", "grpc"])
def test_a_step_that_waits_for_something_else_is_cancelled(where):
    """The chief of a synchronous run waits for gradients; TensorFlow waits 120 s for it."""
    accumulator = tf.ConditionalAccumulator(tf.float32, shape=[], shared_name="acc")
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()], name="dummy_queue")
    taken = accumulator.take_grad(1)
    with tf.control_dependencies([taken]):
        enqueue = queue.enqueue(taken, name="sync")
    runner = tf.train.QueueRunner(queue, [enqueue])
    apply = accumulator.apply_grad(2.0, local_step=10)
    got = queue.dequeue()
    config = tf.ConfigProto()
    config.rpc_options.use_rpc_for_inprocess_master = where == "grpc"
    metrics = free_ports(1)[0]
    server = tf.train.Server({"local": ["127.0.0.1:0"]}, metrics_port=metrics)
    with tf.Session("" if where == "local" else server.target, config=config) as sess:
        coord = tf.train.Coordinator()
        threads = runner.create_threads(sess, coord, daemon=True, start=True)
        sess.run(apply)
        assert sess.run(got) == 2.0
        time.sleep(0.2)
        start = time.time()
        coord.request_stop()
        coord.join(threads)
        assert time.time() - start < 6
        # A client does not wait until its server has ended a cancelled step.
        until = time.time() + 60
        while _steps_under_way(metrics):
            assert time.time() < until
            time.sleep(0.01)
        # The cancelled step has taken no element.
        sess.run(apply)
        assert sess.run(taken, options=tf.RunOptions(timeout_in_ms=60000)) == 2.0
    server.stop(0)


def test_protos():
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()], name="q")
    enqueue = queue.enqueue(1.0)
    runner = tf.train.QueueRunner(
        queue, [enqueue, enqueue], queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError))
    proto = runner.to_proto()
    assert proto.queue_name == "q" and list(proto.enqueue_op_name) == [enqueue.name] * 2
    assert list(proto.queue_closed_exception_types) == [tf.errors.OUT_OF_RANGE, tf.errors.CANCELLED]
    copy = tf.train.QueueRunner.from_proto(proto)
    assert copy.to_proto() == proto and copy.name == "q" and copy.enqueue_ops == [enqueue, enqueue]
    assert copy.close_op is runner.close_op and copy.cancel_op is runner.cancel_op
    assert runner.to_proto(export_scope="elsewhere") is None
    del proto.queue_closed_exception_types[:]
    assert tf.train.QueueRunner.from_proto(proto).queue_closed_exception_types == (tf.errors.OutOfRangeError,)
    with pytest.raises(ValueError, match="queue_runner_def and queue are mutually exclusive"):
        tf.train.QueueRunner(queue, queue_runner_def=proto)


def test_arguments():
    queue = tf.FIFOQueue(10, tf.float32, name="q")
    with pytest.raises(ValueError, match="Must provide queue and enqueue_ops."):
        tf.train.QueueRunner(queue)
    for types in ([], (), (ValueError,), [tf.errors.OutOfRangeError]):
        with pytest.raises(TypeError, match="must be a tuple of tf.error types"):
            tf.train.QueueRunner(queue, [queue.enqueue(1.0)], queue_closed_exception_types=types)


def test_start_queue_runners_rules(caplog):
    with pytest.raises(ValueError, match="No default session is registered"):
        tf.train.start_queue_runners()

    class MonitoredSession(object):
        pass

    assert tf.train.start_queue_runners(MonitoredSession()) == []
    with pytest.raises(TypeError, match="sess must be a `tf.Session` object. Given class"):
        tf.train.start_queue_runners(object())
    tf.no_op()
    with tf.Session(), caplog.at_level("WARNING", logger="tensorflow"):
        assert tf.train.start_queue_runners() == []
    assert "was called when no queue runners were defined" in caplog.text


_LEFT_RUNNING = """
import threading, time
import numpy as np
import muster as tf

def value():
    time.sleep(0.001)
    return np.float32(1.0)

made = tf.py_func(value, [], tf.float32)
made.set_shape(())
queue = tf.FIFOQueue(10, tf.float32, shapes=[()])
tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(made)] * 2))
got = queue.dequeue()
sess = tf.Session()
coord = tf.train.Coordinator()
tf.train.start_queue_runners(sess, coord)
tf.train.LooperThread.loop(coord, 0.001, lambda: None)

def drain():
    while True:
        sess.run(got)

threading.Thread(target=drain, daemon=True).start()
time.sleep(0.1)
"""


def test_a_program_may_end_while_its_threads_run():
    for _ in range(2):
        result = subprocess.run([sys.executable, "-c", _LEFT_RUNNING], capture_output=True, timeout=60)
        assert result.returncode == 0 and result.stderr == b""
