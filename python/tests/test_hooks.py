"""The built-in hooks: their rules, what they log, and classes derived from them."""
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


@pytest.fixture
def lines(monkeypatch):
    """What is logged."""
    from muster import tf_logging

    logged = []
    for name in ("info", "warning", "error"):
        monkeypatch.setattr(tf_logging, name, lambda msg, *args: logged.append(msg % args if args else msg))
    monkeypatch.setattr(tf_logging, "log", lambda level, msg, *args: logged.append(msg % args if args else msg))
    return logged


@pytest.fixture
def step(graph):
    return tf.train.get_or_create_global_step()


@pytest.fixture
def train(step):
    return tf.assign_add(step, 1, name="train").op


@pytest.mark.parametrize("make, text", [
    (lambda: tf.train.StopAtStepHook(), "One of num_steps or last_step must be specified."),
    (lambda: tf.train.StopAtStepHook(1, 2), "Only one of num_steps or last_step can be specified."),
    (lambda: tf.train.SecondOrStepTimer(), "Either every_secs or every_steps should be provided."),
    (lambda: tf.train.SecondOrStepTimer(1, 2), "Can not provide both every_secs and every_steps."),
    (lambda: tf.train.LoggingTensorHook(["a"]),
     "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided."),
    (lambda: tf.train.LoggingTensorHook(["a"], every_n_iter=0), "invalid every_n_iter=0."),
    (lambda: tf.train.StepCounterHook(every_n_secs=1),
     "exactly one of every_n_steps and every_n_secs should be provided."),
    (lambda: tf.train.SummarySaverHook(save_steps=1), "Exactly one of scaffold or summary_op must be provided."),
    (lambda: tf.train.CheckpointSaverHook("d", save_steps=1, saver=1, scaffold=2),
     "You cannot provide both saver and scaffold."),
])
def test_wrong_arguments(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("name, make", [
    ("StopAtStepHook", lambda d: tf.train.StopAtStepHook(last_step=1)),
    ("StepCounterHook", lambda d: tf.train.StepCounterHook()),
    ("SummarySaverHook", lambda d: tf.train.SummarySaverHook(save_steps=1, summary_op=tf.constant(""))),
    ("CheckpointSaverHook", lambda d: tf.train.CheckpointSaverHook(d, save_steps=1)),
    ("ProfilerHook", lambda d: tf.train.ProfilerHook(save_steps=1, output_dir=d)),
    ("_GlobalStepWaiterHook", lambda d: tf.train.GlobalStepWaiterHook(1)),
])
def test_a_step_is_needed(name, make, tmp_path):
    with pytest.raises(RuntimeError, match="Global step should be created to use %s." % name):
        make(str(tmp_path)).begin()


def test_timer():
    timer = tf.train.SecondOrStepTimer(every_steps=3)
    assert timer.last_triggered_step() is None and timer.should_trigger_for_step(5)
    assert timer.update_last_triggered_step(5) == (None, None)
    assert [timer.should_trigger_for_step(n) for n in (5, 6, 7, 8)] == [False, False, False, True]
    elapsed, steps = timer.update_last_triggered_step(9)
    assert elapsed >= 0 and steps == 4 and timer.last_triggered_step() == 9
    timer.reset()
    assert timer.should_trigger_for_step(9)
    timer = tf.train.SecondOrStepTimer(every_secs=1.0)
    timer.update_last_triggered_step(1)
    assert not timer.should_trigger_for_step(2)
    time.sleep(1.05)
    assert timer.should_trigger_for_step(2) and not timer.should_trigger_for_step(1)


def test_read_of_the_global_step(step):
    from muster.train import training_util

    read = training_util._get_or_create_global_step_read()
    assert read.name == "global_step/add:0" and tf.get_collection("global_step_read_op_cache") == [read]
    assert training_util._get_or_create_global_step_read() is read
    with tf.Session() as session:
        assert session.run(read) == 0  # not initialized: the initial value
        session.run(tf.global_variables_initializer())
        session.run(step.assign(5))
        assert session.run(read) == 5


def test_read_of_other_steps():
    from muster.train import training_util

    with tf.Graph().as_default():
        step = tf.get_variable("global_step", shape=[], dtype=tf.int64, initializer=tf.zeros_initializer(),
                               trainable=False, use_resource=True)
        tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, step)
        read = training_util._get_or_create_global_step_read()
        with tf.Session() as session:
            assert session.run(read) == 0
            session.run(step.initializer)
            session.run(step.assign(3).op)
            assert session.run(read) == 3
    with tf.Graph().as_default():
        tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, tf.constant(4, name="count"))
        read = training_util._get_or_create_global_step_read()
        assert read.name == "count/add:0"
        with tf.Session() as session:
            assert session.run(read) == 4
    with tf.Graph().as_default():
        assert training_util._get_or_create_global_step_read() is None


def test_global_steps():
    assert tf.train.get_global_step() is None
    step = tf.train.create_global_step()
    with pytest.raises(ValueError, match='"global_step" already exists.'):
        tf.train.create_global_step()
    assert tf.train.get_or_create_global_step() is step is tf.train.get_global_step()
    with pytest.raises(TypeError, match='Existing "global_step" does not have integer type'):
        tf.train.assert_global_step(tf.constant(1.0))
    with pytest.raises(TypeError, match='Existing "global_step" is not scalar'):
        tf.train.assert_global_step(tf.constant([1]))
    with pytest.raises(TypeError, match='Existing "global_step" must be a Variable or Tensor'):
        tf.train.assert_global_step(1)
    with tf.Session() as session:
        session.run(step.initializer)
        assert tf.train.global_step(session, step) == 0


def test_logging(step, train, lines):
    value = tf.identity(step, name="value")
    half = tf.constant([0.5, 1e-7], name="half")
    hook = tf.train.LoggingTensorHook({"b": value, "a": "half"}, every_n_iter=2)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        del lines[:]
        for _ in range(3):
            session.run(half)
    assert lines[0] == "a = [0.5       0.0000001], b = 0"
    assert lines[1].startswith("a = [0.5       0.0000001], b = 0 (") and lines[1].endswith(" sec)") and len(lines) == 2


def test_logging_by_a_formatter_at_the_end(step, train, lines):
    hook = tf.train.LoggingTensorHook([step], at_end=True, formatter=lambda values: "at %d" % values[step])
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train)
        session.run(train)
    assert "at 2" in lines and "at 0" not in lines


def test_ambiguous_and_foreign_tensors(step):
    tf.unstack(tf.constant([1, 2]), name="two")
    with pytest.raises(ValueError, match="Name two is ambiguous"):
        tf.train.LoggingTensorHook(["two"], every_n_iter=1).begin()
    with tf.Graph().as_default():
        other = tf.constant(1)
    with pytest.raises(ValueError, match="should have graph attribute that is equal to current graph"):
        tf.train.LoggingTensorHook([other], every_n_iter=1).begin()


def test_nan(lines):
    x = tf.placeholder(tf.float32, [])
    with tf.train.MonitoredSession(hooks=[tf.train.NanTensorHook(x)]) as session:
        session.run(x, {x: 1})
        with pytest.raises(tf.train.NanLossDuringTrainingError, match="NaN loss during training."):
            session.run(x, {x: np.nan})
    with tf.train.MonitoredSession(hooks=[tf.train.NanTensorHook(x, fail_on_nan_loss=False)]) as session:
        session.run(x, {x: np.nan})
        assert session.should_stop()
    assert lines.count("Model diverged with loss = NaN.") == 2


def test_final_ops(step, train):
    x = tf.placeholder(tf.int64, [])
    hook = tf.train.FinalOpsHook({"sum": step + x, "done": train}, {x: 10})
    assert hook.final_ops_values is None
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train)
    assert hook.final_ops_values["sum"] in (11, 12) and hook.final_ops_values["done"] is None


def test_step_counter(step, train, lines, tmp_path):
    hook = tf.train.StepCounterHook(every_n_steps=2, output_dir=str(tmp_path))
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(5):
            session.run(train)
        for _ in range(9):
            session.run(step)
    assert len([line for line in lines if line.startswith("global_step/sec: ")]) == 2
    assert not [line for line in lines if line.startswith("It seems that global step")]
    tf.summary.FileWriterCache.clear()
    path, = tmp_path.glob("events*")
    written = [(e.step, v.tag) for e in tf.train.summary_iterator(str(path)) for v in e.summary.value]
    assert written == [(3, "global_step/sec"), (5, "global_step/sec")]


def test_a_global_step_that_is_never_increased_is_reported(step, lines):
    """TensorFlow says so at once, in the middle of healthy synchronous training too: here after a hundred runs."""
    with tf.train.MonitoredSession(hooks=[tf.train.StepCounterHook(every_n_steps=1000)]) as session:
        for _ in range(100):
            session.run(step)
        assert not [line for line in lines if line.startswith("It seems that global step")]
        for _ in range(150):
            session.run(step)
    assert len([line for line in lines if line.startswith("It seems that global step")]) == 2


def test_summaries_by_a_writer_of_ones_own(step, train, tmp_path):
    tf.summary.scalar("value", step)
    writer = tf.summary.FileWriter(str(tmp_path))
    hook = tf.train.SummarySaverHook(save_steps=2, summary_writer=writer, summary_op=tf.summary.merge_all())
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(4):
            session.run(train)
    path, = tmp_path.glob("events*")
    written = [(e.step, e.WhichOneof("what")) for e in tf.train.summary_iterator(str(path))]
    assert written == [(0, "file_version"), (1, "session_log"), (1, "summary"), (3, "summary")]


def test_profiler(step, train, tmp_path, lines):
    hook = tf.train.ProfilerHook(save_steps=2, output_dir=str(tmp_path))
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(4):
            session.run(train)
    found = sorted(p.name for p in tmp_path.glob("timeline-*.json"))
    assert found == ["timeline-2.json", "timeline-4.json"]
    assert any(e.get("args", {}).get("name") == "train" or e.get("name") == "AssignAdd"
               for e in json.loads((tmp_path / found[0]).read_text())["traceEvents"])
    assert "Saving timeline for 2 into '%s'." % (tmp_path / "timeline-2.json") in lines


def test_waiter(step, train, lines):
    with tf.train.MonitoredSession(hooks=[tf.train.GlobalStepWaiterHook(2)]) as session:
        raw = session._tf_sess()

        def train_later():
            while "Waiting for global step 2 before starting training." not in lines:
                time.sleep(0.01)
            raw.run(train)
            raw.run(train)

        trains = threading.Thread(target=train_later, daemon=True)
        trains.start()
        assert session.run(step) >= 2
        trains.join(60)
    assert "Waiting for global step 2 before starting training." in lines


def test_listeners_stop_training(step, train, tmp_path):
    calls = []

    class Listener(tf.train.CheckpointSaverListener):
        def begin(self):
            calls.append("begin")

        def before_save(self, session, global_step_value):
            assert isinstance(session, tf.Session)
            calls.append(("before", int(global_step_value)))

        def after_save(self, session, global_step_value):
            calls.append(("after", int(global_step_value)))
            return global_step_value == 2

        def end(self, session, global_step_value):
            calls.append(("end", int(global_step_value)))

    scaffold = tf.train.Scaffold()
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=2, scaffold=scaffold, listeners=[Listener()])
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold), hooks=[hook]) as session:
        while not session.should_stop():
            session.run(train)
    assert calls == ["begin", ("before", 0), ("after", 0), ("before", 2), ("after", 2), ("end", 2)]


def test_saved_lines(step, train, tmp_path, lines):
    with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_steps=1) as session:
        session.run(train)
    for line in ("Create CheckpointSaverHook.", "Graph was finalized.", "Running local_init_op.",
                 "Done running local_init_op.", "Saving checkpoints for 0 into %s/model.ckpt." % tmp_path,
                 "Saving checkpoints for 1 into %s/model.ckpt." % tmp_path):
        assert lines.count(line) == 1, (line, lines)


# --- Classes derived from them. ---
def test_derived_hooks_see_tensorflows_structures(step, train):
    seen = []

    class Stop(tf.train.StopAtStepHook):
        def before_run(self, run_context):
            args = super(Stop, self).before_run(run_context)
            seen.append(args.fetches.name)
            return args

        def after_run(self, run_context, run_values):
            seen.append(int(run_values.results))
            super(Stop, self).after_run(run_context, run_values)

    class Log(tf.train.LoggingTensorHook):
        def after_run(self, run_context, run_values):
            if run_values.results is not None:
                seen.append(sorted(run_values.results))
            super(Log, self).after_run(run_context, run_values)

    with tf.train.MonitoredSession(hooks=[Stop(last_step=2), Log({"s": step}, every_n_iter=5)]) as session:
        while not session.should_stop():
            session.run(train)
    assert seen == ["global_step/add:0", 0, ["s"], "global_step/add:0", 1]


def test_derived_savers(step, train, tmp_path):
    saved = []

    class Saves(tf.train.CheckpointSaverHook):
        def after_create_session(self, session, coord):
            saved.append("created")
            super(Saves, self).after_create_session(session, coord)

        def end(self, session):
            saved.append("end")
            super(Saves, self).end(session)

    scaffold = tf.train.Scaffold()
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold),
                                   hooks=[Saves(str(tmp_path), save_steps=1, scaffold=scaffold)]) as session:
        session.run(train)
    assert saved == ["created", "end"] and tf.train.latest_checkpoint(str(tmp_path)).endswith("-1")
