"""tf.train.Supervisor (recovery-semantics §5; case 14 of §11)."""
import glob
import os
import threading
import time

import pytest

import muster as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def model():
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.Variable([[1.0], [2.0]], name="w")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    step = tf.Variable(0, name="global_step", trainable=False)
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    return x, step, train


def events(folder):
    found = []
    for path in sorted(glob.glob(os.path.join(str(folder), "events*"))):
        found.extend(tf.train.summary_iterator(path))
    return found


def session_logs(folder):
    return [(e.session_log.status, e.session_log.checkpoint_path, e.step) for e in events(folder)
            if e.WhichOneof("what") == "session_log"]


def wait_for(condition):
    until = time.time() + 20
    while not condition():
        assert time.time() < until
        time.sleep(0.01)


def test_a_run_leaves_what_tensorflow_leaves(tmp_path):
    x, step, train = model()
    folder = str(tmp_path / "log")
    sv = tf.train.Supervisor(logdir=folder, global_step=step, save_model_secs=3600, save_summaries_secs=0,
                             summary_op=None)
    assert tf.get_default_graph().finalized and sv.save_path == os.path.join(folder, "model.ckpt")
    with sv.managed_session() as sess:
        # The first checkpoint is written at once.
        wait_for(lambda: os.path.exists(sv.save_path + "-0.meta") and len(sv.saver.last_checkpoints) == 1)
        for _ in range(3):
            sess.run(train, {x: [[1.0, 1.0]]})
        sv.saver.save(sess, sv.save_path, global_step=step)
    # None is written at the stop.
    assert tf.train.latest_checkpoint(folder) == sv.save_path + "-3"
    names = {n.split(".", 3)[0] if n.startswith("events") else n for n in os.listdir(folder)}
    assert names == {"checkpoint", "events", "graph.pbtxt"} | {
        "model.ckpt-%d.%s" % (i, s) for i in (0, 3) for s in ("data-00000-of-00001", "index", "meta")}
    assert [e.WhichOneof("what") for e in events(folder)] == [
        "file_version", "graph_def", "meta_graph_def", "session_log", "session_log", "session_log"]
    assert session_logs(folder) == [(1, "", 0), (3, sv.save_path, 0), (2, "", 0)]


def test_a_new_session_restores(tmp_path):
    x, step, train = model()
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0)
    with sv.managed_session() as sess:
        sess.run(train, {x: [[1.0, 1.0]]})
        sv.saver.save(sess, sv.save_path, global_step=sv.global_step)
    with sv.managed_session() as sess:
        assert sess.run(step) == 1
    assert [log[0] for log in session_logs(tmp_path)] == [1, 2, 1, 2]


def test_summaries_and_speed(tmp_path, caplog):
    step = tf.train.get_or_create_global_step()
    increment = tf.assign_add(step, 1)
    tf.summary.scalar("twice", 2.0 * tf.cast(step, tf.float32))
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_summaries_secs=0.2, save_model_secs=0)
    begun = time.monotonic()
    with caplog.at_level("INFO", logger="tensorflow"):
        with sv.managed_session() as sess:
            until = time.monotonic() + 60
            while min(caplog.text.count(line) for line in ("global_step/sec: ", "Recording summary at step ")) < 4:
                assert time.monotonic() < until
                sess.run(increment)
                time.sleep(0.02)
    took = time.monotonic() - begun
    values = [(v.tag, v.simple_value, e.step) for e in events(tmp_path) for v in e.summary.value]
    twice = [(value, at) for tag, value, at in values if tag == "twice"]
    # A step of the loop may come between the two that are read.
    assert len(twice) >= 3 and all(2 * at - 2 <= value <= 2 * at + 2 for value, at in twice)
    assert twice[-1][1] > twice[0][1]
    speeds = [(value, at) for tag, value, at in values if tag == "global_step/sec"]
    assert len(speeds) >= 3 and speeds[-1][1] > speeds[0][1] and all(value >= 0 for value, _ in speeds)
    # Steps by speeds are times, and these add up; how long each was is the machine's affair (supervisor_test.cc).
    assert 0 < sum((at - before) / value for (_, before), (value, at) in zip(speeds, speeds[1:]) if value) < 1.01 * took
    for line in ("Starting standard services.", "Starting queue runners.", "Running local_init_op."):
        assert line in caplog.text


def test_own_summaries(tmp_path):
    step = tf.train.get_or_create_global_step()
    tf.summary.scalar("s", 1.0)
    merged = tf.summary.merge_all()
    sv = tf.train.Supervisor(logdir=str(tmp_path), summary_op=None, save_model_secs=0, save_summaries_secs=0)
    with sv.managed_session() as sess:
        sv.summary_computed(sess, sess.run(merged))
        sv.summary_computed(sess, sess.run(merged), global_step=7)
    assert [e.step for e in events(tmp_path) if e.WhichOneof("what") == "summary"] == [0, 7]
    sv = tf.train.Supervisor(summary_op=None)
    with pytest.raises(RuntimeError, match="Writing a summary requires a summary writer."):
        sv.summary_computed(None, b"")
    del step


class Failure(Exception):
    pass


def test_exceptions_leave_the_with_as_themselves():
    model()
    sv = tf.train.Supervisor()
    error = Failure("body")
    with pytest.raises(Failure) as info:
        with sv.managed_session() as sess:
            raise error
    assert info.value is error
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        sess.run(sv.global_step)
    with sv.managed_session():
        raise tf.errors.OutOfRangeError(None, None, "the input is at its end")

    def fail():
        raise error

    with pytest.raises(Failure) as info:
        with sv.managed_session():
            sv.loop(60, fail)
            while not sv.should_stop():
                time.sleep(0.01)
    assert info.value is error


def test_a_failing_init_fn_comes_out():
    model()
    error = Failure("init")

    def fail(sess):
        raise error

    sv = tf.train.Supervisor(init_fn=fail)
    with pytest.raises(Failure) as info:
        with sv.managed_session():
            raise AssertionError("not reached")
    assert info.value is error


def test_threads_of_loops_are_joined():
    model()
    sv = tf.train.Supervisor()
    calls = []
    with sv.managed_session():
        thread = sv.Loop(0.01, calls.append, args=(1,))
        wait_for(lambda: len(calls) > 3)
    assert not thread.is_alive()


@pytest.mark.parametrize("remote", [False, True])
def test_a_synchronous_chief_stops_within_two_seconds(remote):
    """Its queue runner waits for gradients; TensorFlow ends after 120 s with a RuntimeError."""
    server = tf.train.Server.create_local_server()
    model()
    accumulator = tf.ConditionalAccumulator(tf.float32, shape=[], shared_name="acc")
    queue = tf.FIFOQueue(1, tf.float32, shapes=[()], name="dummy_queue")
    runner = tf.train.QueueRunner(queue, [queue.enqueue(accumulator.take_grad(1))])
    sv = tf.train.Supervisor()
    sess = sv.prepare_or_wait_for_session(server.target if remote else "")
    threads = sv.start_queue_runners(sess, [runner])
    time.sleep(0.2)
    start = time.time()
    sv.stop()
    assert time.time() - start < 2 * 3  # with slack for a busy machine
    assert not any(t.is_alive() for t in threads)
    sess.close()


def test_live_threads():
    model()
    sv = tf.train.Supervisor(stop_grace_secs=0.05)
    ended = threading.Event()
    sv.prepare_or_wait_for_session()
    thread = threading.Thread(target=ended.wait, name="waiter", daemon=True)
    thread.start()
    with pytest.raises(RuntimeError, match="Coordinator stopped with threads still running: waiter"):
        sv.stop([thread])
    sv.prepare_or_wait_for_session()
    sv.stop([thread], ignore_live_threads=True)
    ended.set()


def test_services_are_the_chiefs(tmp_path, caplog):
    with tf.device("/cpu:0"):
        model()
    sv = tf.train.Supervisor(is_chief=False, logdir=str(tmp_path))
    assert sv.save_path is None and sv.summary_writer is None and sv.save_model_secs is None
    with pytest.raises(RuntimeError, match="Only chief supervisor can start standard services."):
        sv.start_standard_services(tf.Session())
    with tf.Graph().as_default():
        model()
        sv = tf.train.Supervisor()
        with caplog.at_level("WARNING", logger="tensorflow"), sv.managed_session() as sess:
            assert sv.start_standard_services(sess) is None
        assert "Standard services need a 'logdir' passed to the SessionManager" in caplog.text


def test_another_worker_waits(tmp_path):
    server = tf.train.Server.create_local_server()
    with tf.device("/job:local/task:0"):
        x, step, train = model()
    sv = tf.train.Supervisor(is_chief=False)
    init = sv.init_op

    def initialize():
        with tf.Session(server.target, graph=sv.global_step.graph) as sess:
            sess.run(init)

    threading.Timer(0.5, initialize).start()
    with sv.managed_session(server.target) as sess:
        assert sess.run(step) == 0


def test_replicas_need_devices():
    tf.Variable(1.0)
    with pytest.raises(ValueError, match="When using replicas, all Variables must have their device set"):
        tf.train.Supervisor(is_chief=False)


def test_defaults_are_looked_up_and_kept_in_collections():
    model()
    ready = tf.constant([], tf.string)
    tf.add_to_collection(tf.GraphKeys.READY_OP, ready)
    sv = tf.train.Supervisor()
    assert sv.ready_op is ready and sv.ready_for_local_init_op is None and sv.is_chief
    assert tf.get_collection(tf.GraphKeys.INIT_OP) == [sv.init_op]
    assert tf.get_collection(tf.GraphKeys.SAVERS) == [sv.saver]
    assert tf.get_collection(tf.GraphKeys.GLOBAL_STEP) == [sv.global_step] and sv.global_step.name == "global_step:0"
    assert len(tf.get_collection(tf.GraphKeys.LOCAL_INIT_OP)) == 1
    assert sv.summary_op is None and sv.save_path is None and sv.summary_writer is None
    with tf.Graph().as_default():
        tf.Variable(0.5, name="global_step")
        assert tf.train.Supervisor().global_step is None


def test_a_writer_of_the_programs_own(tmp_path):
    model()
    calls = []

    class Writer(object):
        def __getattr__(self, name):
            return lambda *args, **kwargs: calls.append(name)

    sv = tf.train.Supervisor(logdir=str(tmp_path), summary_writer=Writer(), save_model_secs=0, save_summaries_secs=0)
    with sv.managed_session():
        pass
    assert calls == ["reopen", "add_graph", "add_meta_graph", "add_session_log", "add_session_log", "close"]


def test_basic_train_loop():
    x, step, train = model()
    sv = tf.train.Supervisor()
    runs = []

    def step_fn(sess, feed, limit):
        runs.append(1)
        sess.run(train, {x: feed})
        if len(runs) == 2:
            raise tf.errors.AbortedError(None, None, "a task was lost")
        if len(runs) == limit:
            sv.request_stop()

    tf.train.basic_train_loop(sv, step_fn, args=([[1.0, 1.0]],), kwargs={"limit": 5})
    assert len(runs) == 5


def test_a_synchronous_chief_without_its_queue_runner_is_told(tmp_path):
    """The program has forgotten sv.start_queue_runners(sess, [opt.get_chief_queue_runner()]): no silent wait."""
    w = tf.Variable(1.0)
    step = tf.Variable(0, name="global_step", trainable=False)
    opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
    train = opt.minimize(w * w, global_step=step)
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, summary_op=None, local_init_op=opt.chief_init_op,
                             ready_for_local_init_op=opt.ready_for_local_init_op)
    sess = sv.prepare_or_wait_for_session()
    assert sess.run(w) == 1.0
    started = time.time()
    with pytest.raises(RuntimeError, match="get_chief_queue_runner"):
        sess.run(train)
    assert 4 < time.time() - started < 60


def test_a_synchronous_chief_with_its_queue_runner_runs(tmp_path):
    w = tf.Variable(1.0)
    step = tf.Variable(0, name="global_step", trainable=False)
    opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
    train = opt.minimize(w * w, global_step=step)
    runner, tokens = opt.get_chief_queue_runner(), opt.get_init_tokens_op()
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, summary_op=None, local_init_op=opt.chief_init_op,
                             ready_for_local_init_op=opt.ready_for_local_init_op)
    sess = sv.prepare_or_wait_for_session()
    sess.run(tokens)
    sv.start_queue_runners(sess, [runner])
    for _ in range(5):
        sess.run(train)
    assert "run" not in vars(sess)  # nothing is watched any more
    assert sess.run(step) >= 3
    sv.stop()


def test_workers_can_end_when_a_synchronous_chief_has_left(tmp_path):
    """Each one ends the step in which it has read an older global step, and the one in which it sees the last."""
    w = tf.Variable(1.0)
    step = tf.Variable(0, name="global_step", trainable=False)
    opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 3)
    train = opt.minimize(w * w, global_step=step)
    runner = opt.get_chief_queue_runner()
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0, summary_op=None, local_init_op=opt.chief_init_op,
                             ready_for_local_init_op=opt.ready_for_local_init_op)
    sess = sv.prepare_or_wait_for_session()
    sv.start_queue_runners(sess, [runner])
    sv.stop()
    for _ in range(3 * 2):
        sess.run(train, options=tf.RunOptions(timeout_in_ms=20000))
    with pytest.raises(tf.errors.DeadlineExceededError):
        sess.run(train, options=tf.RunOptions(timeout_in_ms=200))


def test_a_step_that_is_counted_in_floats(tmp_path):
    """tf.get_variable without a dtype, as many programs have it."""
    step = tf.get_variable("steps", [], initializer=tf.constant_initializer(0), trainable=False)
    w = tf.Variable(1.0)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(w * w, global_step=step)
    sv = tf.train.Supervisor(logdir=str(tmp_path), global_step=step, save_model_secs=1000, summary_op=None)
    with sv.managed_session() as sess:
        wait_for(lambda: len(sv.saver.last_checkpoints) == 1)  # the one at the start, or it may be written last
        for _ in range(3):
            sess.run(train)
        sv.saver.save(sess, sv.save_path, global_step=step)
    assert os.path.basename(tf.train.latest_checkpoint(str(tmp_path))) == "model.ckpt-3"
