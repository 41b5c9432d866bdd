"""Monitored sessions: the order of hooks, recovery, how loops end, and what is written."""
import json
import threading
import time

import numpy as np
import pytest

import muster as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made
    tf.summary.FileWriterCache.clear()


class Model(object):
    """A step that counts, and a value to feed."""

    def __init__(self):
        self.step = tf.train.get_or_create_global_step()
        self.x = tf.placeholder(tf.float32, [], name="x")
        self.y = tf.identity(self.x, name="y")
        self.train = tf.assign_add(self.step, 1, name="train").op


@pytest.fixture
def model(graph):
    return Model()


class LogHook(tf.train.SessionRunHook):
    """Writes down what is called."""

    def __init__(self, name, log):
        self._name, self._log = name, log

    def _note(self, what):
        self._log.append("%s.%s" % (self._name, what))

    def begin(self):
        self._note("begin")

    def after_create_session(self, session, coord):
        assert isinstance(session, tf.Session) and isinstance(coord, tf.train.Coordinator)
        self._note("after_create_session")

    def before_run(self, run_context):
        self._note("before_run")

    def after_run(self, run_context, run_values):
        assert run_values.results is None
        self._note("after_run")

    def end(self, session):
        self._note("end")


class Loses(tf.train.SessionRunHook):
    """Fails a number of runs after they have been asked for."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.feeds = []

    def before_run(self, run_context):
        self.feeds.append(run_context.original_args.feed_dict)
        if self.failures:
            raise self.failures.pop(0)


def lost():
    return tf.errors.AbortedError(None, None, "lost")


_CALLS = ["begin", "after_create_session", "before_run", "after_run", "end"]


def _all(call):
    return ["a." + call, "b." + call]


def test_hooks_are_called_in_order(model):
    log = []
    with tf.train.MonitoredSession(hooks=[LogHook("a", log), LogHook("b", log)]) as session:
        session.run(model.y, {model.x: 1})
    assert log == [entry for call in _CALLS for entry in _all(call)]


def test_recovery_repeats_only_the_creation(model):
    log = []
    with tf.train.MonitoredSession(hooks=[LogHook("a", log), Loses(lost())]) as session:
        session.run(model.y, {model.x: 1})
    assert log == ["a.begin", "a.after_create_session", "a.before_run", "a.after_create_session", "a.before_run",
                   "a.after_run", "a.end"]


def test_the_same_feed_is_run_again(model):
    loses = Loses(lost(), tf.errors.UnavailableError(None, None, "gone"))
    session = tf.train.MonitoredSession(hooks=[loses])
    first = session._tf_sess()
    assert session.run({"y": model.y}, {model.x: 7}) == {"y": 7}
    assert loses.feeds == [{model.x: 7}] * 3
    assert session._tf_sess() is not first
    session.close()


def test_other_errors_and_the_users_own_pass(model):
    mine = KeyError("mine")
    session = tf.train.MonitoredSession(hooks=[Loses(mine)])
    with pytest.raises(KeyError) as caught:
        session.run(model.y, {model.x: 1})
    assert caught.value is mine
    with pytest.raises(tf.errors.AbortedError):
        with session:
            raise lost()  # by the loop's own code: not a failed run
    assert session.should_stop()


def test_without_recovery(model):
    with pytest.raises(tf.errors.AbortedError, match="lost"):
        with tf.train.SingularMonitoredSession(hooks=[Loses(lost())]) as session:
            assert isinstance(session.raw_session(), tf.Session)
            session.run(model.y, {model.x: 1})


def test_creation_is_tried_again(model):
    class Creator(tf.train.ChiefSessionCreator):
        failures = [lost(), lost()]

        def create_session(self):
            if self.failures:
                raise self.failures.pop()
            return super(Creator, self).create_session()

    with tf.train.MonitoredSession(Creator()) as session:
        assert session.run(model.y, {model.x: 2}) == 2


def test_out_of_range_saves_and_an_error_does_not(model, tmp_path):
    def loop(folder, error):
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(folder), save_checkpoint_steps=100) as session:
            session.run(model.train)
            session.run(model.train)
            raise error

    loop(tmp_path / "clean", tf.errors.OutOfRangeError(None, None, "no more input"))
    assert tf.train.latest_checkpoint(str(tmp_path / "clean")).endswith("model.ckpt-2")
    with pytest.raises(ValueError, match="mine"):
        loop(tmp_path / "failed", ValueError("mine"))
    assert tf.train.latest_checkpoint(str(tmp_path / "failed")).endswith("model.ckpt-0")


def test_stop_iteration_is_clean(model):
    log = []
    with tf.train.MonitoredSession(hooks=[LogHook("a", log)]):
        raise StopIteration
    assert log[-1] == "a.end"


def test_training_goes_on_from_the_checkpoint(model, tmp_path):
    hooks = [tf.train.StopAtStepHook(num_steps=3)]
    for last in (3, 6):
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=list(hooks)) as session:
            while not session.should_stop():
                session.run(model.train)
        hooks = [tf.train.StopAtStepHook(num_steps=3)]
        assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-%d" % last)


def test_run_after_the_stop_and_after_the_close(model):
    with tf.train.MonitoredSession(hooks=[tf.train.StopAtStepHook(last_step=1)]) as session:
        session.run(model.train)
        assert session.should_stop()
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested."):
            session.run(model.train)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'run'"):
        session.run(model.train)
    assert session.should_stop() and session.graph is None
    with pytest.raises(RuntimeError, match="Session is already closed."):
        session.close()


def test_the_graph_is_final_while_the_session_lives(model, graph):
    with tf.train.MonitoredSession():
        assert graph.finalized
        with pytest.raises(RuntimeError, match="Graph is finalized and cannot be modified."):
            tf.constant(1)
    assert not graph.finalized
    graph.finalize()


def test_feeds_must_not_overlap(model):
    hook = tf.train.FeedFnHook(lambda: {model.x: 3})
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run(model.y) == 3
        with pytest.raises(RuntimeError, match="Same tensor is fed by a SessionRunHook and user."):
            session.run(model.y, {model.x: 1})
    with tf.train.MonitoredSession(hooks=[hook, tf.train.FeedFnHook(lambda: {model.x: 4})]) as session:
        with pytest.raises(RuntimeError, match="Same tensor is fed by two hooks."):
            session.run(model.y)


def test_step_functions(model):
    def step_fn(step_context):
        assert isinstance(step_context.session, tf.Session)
        return step_context.run_with_hooks(model.y, {model.x: 5})

    def stop(step_context):
        step_context.request_stop()

    log = []
    with tf.train.MonitoredSession(hooks=[LogHook("a", log), Loses(lost())]) as session:
        assert session.run_step_fn(step_fn) == 5
        assert log.count("a.after_create_session") == 2
        with pytest.raises(ValueError, match="step_context"):
            session.run_step_fn(lambda x: x)
        with pytest.raises(StopIteration, match="step_fn has requested the iterations to stop."):
            session.run_step_fn(stop)
        assert not session.should_stop()
        session.run_step_fn(stop)
    assert log[-1] == "a.end"


def test_a_failed_thread_ends_the_loop(model):
    failure = ZeroDivisionError("thread")

    class Fails(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            def body():
                with coord.stop_on_exception():
                    raise failure

            self.thread = threading.Thread(target=body)
            coord.register_thread(self.thread)
            self.thread.start()
            self.thread.join()

    with pytest.raises(ZeroDivisionError) as caught:
        with tf.train.MonitoredSession(hooks=[Fails()]) as session:
            assert session.should_stop()
    assert caught.value is failure


def test_a_lost_thread_makes_a_new_session(model):
    sessions = []

    class Fails(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            sessions.append(session)
            if len(sessions) == 1:
                try:
                    raise lost()
                except tf.errors.AbortedError as e:
                    coord.request_stop(e)

    with tf.train.MonitoredSession(hooks=[Fails()]) as session:
        assert not session.should_stop()
        assert len(sessions) == 2 and session._tf_sess() is sessions[1]


def test_the_last_checkpoint_comes_before_the_wait_for_threads(model, tmp_path):
    order = []

    class Listener(tf.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            order.append(int(global_step_value))

        def end(self, session, global_step_value):
            order.append("end")

    class Thread(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            def body():
                coord.wait_for_stop()
                order.append("stop")
                time.sleep(0.2)
                order.append("thread ends")

            thread = threading.Thread(target=body)
            coord.register_thread(thread)
            thread.start()

    saver = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=100, listeners=[Listener()])
    tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    with tf.train.MonitoredSession(hooks=[saver, Thread()]) as session:
        session.run(model.train)
    assert order == [0, 1, "end", "stop", "thread ends"]


def test_raw_session_by_every_way(model):
    with tf.train.MonitoredTrainingSession() as session:
        raw = session._tf_sess()
        assert isinstance(raw, tf.Session) and session._sess._sess._sess._sess is raw
        found = session
        while type(found).__name__ != "Session":
            found = found._sess
        assert found is raw


def test_run_options_and_metadata(model):
    metadata = tf.RunMetadata()
    with tf.train.MonitoredSession() as session:
        session.run(model.train, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    assert any(node.node_name == "train" for device in metadata.step_stats.dev_stats for node in device.node_stats)


# --- What is written. ---
def _events(folder):
    tf.summary.FileWriterCache.clear()
    path, = folder.glob("events.out.tfevents.*")
    return list(tf.train.summary_iterator(str(path)))


def _described(event):
    kind = event.WhichOneof("what")
    entry = {"step": event.step, "kind": kind}
    if kind == "session_log":
        entry["session_log"] = [event.session_log.status, bool(event.session_log.checkpoint_path)]
    if kind == "summary":
        entry["tags"] = [value.tag for value in event.summary.value]
        if entry["tags"] == ["loss"]:
            entry["loss"] = round(event.summary.value[0].simple_value, 5)
    return entry


def test_files_and_events_as_tensorflow_writes_them(golden, tmp_path):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.Variable([[1.0], [2.0]], name="w")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w, name="y")))
    tf.summary.scalar("loss", loss)
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    folder = tmp_path / "monitored"
    with tf.train.MonitoredTrainingSession(checkpoint_dir=str(folder), save_checkpoint_steps=2, save_summaries_steps=2,
                                           log_step_count_steps=2) as session:
        for _ in range(5):
            session.run(train, {x: [[1.0, 1.0]]})
    wanted = []
    for event in json.loads((golden / "files" / "monitored" / "events.json").read_text()):
        kind, = event["fields"]
        entry = {"step": event["step"], "kind": kind}
        if kind == "session_log":
            entry["session_log"] = [event["session_log"]["status"], bool(event["session_log"]["checkpoint_path"])]
        if kind == "summary":
            entry["tags"] = [value["tag"] for value in event["values"]]
            if entry["tags"] == ["loss"]:
                entry["loss"] = round(event["values"][0]["simple_value"], 5)
        wanted.append(entry)
    assert [_described(e) for e in _events(folder)] == wanted

    expected = golden / "files" / "monitored"
    state = tf.train.get_checkpoint_state(str(folder))
    assert [p.rsplit("/", 1)[1] for p in state.all_model_checkpoint_paths] == [
        "model.ckpt-%d" % n for n in (0, 2, 4, 5)]
    for name in ("model.ckpt-5.index", "model.ckpt-5.data-00000-of-00001"):
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name
    assert (folder / "graph.pbtxt").exists() and (folder / "model.ckpt-4.meta").exists()

    graph_def = tf.GraphDef()
    graph_def.ParseFromString((expected / "written.pb").read_bytes())
    assert [(n.name, n.op) for n in tf.get_default_graph().as_graph_def().node] == [
        (n.name, n.op) for n in graph_def.node]


def test_a_sync_like_thread_does_not_delay_the_close(model):
    """A queue runner whose step waits for ever is cancelled."""
    queue = tf.FIFOQueue(1, tf.int32, name="dummy_queue")
    blocked = tf.FIFOQueue(1, tf.int32, name="blocked")
    runner = tf.train.QueueRunner(queue, [tf.group(blocked.dequeue(), name="waits")])
    tf.train.add_queue_runner(runner)
    with tf.train.MonitoredTrainingSession() as session:
        session.run(model.train)
        time.sleep(0.1)
        start = time.time()
    assert time.time() - start < 2 * 3  # two seconds, with slack for a busy machine


def test_scaffold(model, graph):
    called = []
    scaffold = tf.train.Scaffold(init_fn=lambda s, session: called.append((s, session)))
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold)) as session:
        assert called == [(scaffold, session._tf_sess())]
    assert tf.get_collection(tf.GraphKeys.INIT_OP) == [scaffold.init_op]
    assert tf.get_collection(tf.GraphKeys.READY_OP) == [scaffold.ready_op]
    assert tf.get_collection(tf.GraphKeys.SAVERS) == [scaffold.saver]
    assert tf.train.Scaffold(copy_from_scaffold=scaffold).init_op is scaffold.init_op
    tf.add_to_collection(tf.GraphKeys.INIT_OP, tf.no_op())
    with pytest.raises(RuntimeError, match='More than one item in the collection "init_op"'):
        tf.train.Scaffold().finalize()


def test_names_below_tensorflow_python(model):
    from muster.names import alias

    alias.install()
    from tensorflow.python.training import basic_session_run_hooks, monitored_session, session_run_hook

    assert basic_session_run_hooks.StopAtStepHook is tf.train.StopAtStepHook
    assert basic_session_run_hooks.NeverTriggerTimer().should_trigger_for_step(1) is False
    assert session_run_hook.SessionRunArgs is tf.train.SessionRunArgs
    assert monitored_session.MonitoredSession is tf.train.MonitoredSession


def test_values_are_not_shared_between_hooks_and_caller(model):
    """What a hook writes into its array does not change the caller's."""
    big = tf.zeros([1000]) + model.x

    class Writes(tf.train.SessionRunHook):
        def before_run(self, run_context):
            return tf.train.SessionRunArgs(big)

        def after_run(self, run_context, run_values):
            try:
                run_values.results[:] = 9
            except ValueError:  # arrays that are read-only cannot be spoilt either
                pass

    with tf.train.MonitoredSession(hooks=[Writes()]) as session:
        assert np.all(session.run(big, {model.x: 1}) == 1)
