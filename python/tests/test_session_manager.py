"""tf.train.SessionManager (recovery-semantics §4)."""
import os
import signal
import threading
import time

import pytest

import muster as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


@pytest.fixture
def server():
    return tf.train.Server.create_local_server()


class Model(object):
    def __init__(self):
        self.v = tf.Variable(1.0, name="v")
        self.local = tf.Variable(5.0, name="local", collections=[tf.GraphKeys.LOCAL_VARIABLES])
        self.init = tf.global_variables_initializer()
        self.local_init = tf.local_variables_initializer()
        self.ready = tf.report_uninitialized_variables()
        self.ready_for_local = tf.report_uninitialized_variables([self.v])
        self.assign = self.v.assign(7.0)


# --- The chief. ---
def test_initializes_and_is_ready():
    model = Model()
    manager = tf.train.SessionManager(local_init_op=model.local_init, ready_op=model.ready,
                                      ready_for_local_init_op=model.ready_for_local)
    sess = manager.prepare_session("", init_op=model.init, init_fn=lambda s: s.run(model.assign))
    assert sess.run([model.v, model.local]) == [7.0, 5.0]


def test_feeds_of_the_init_op():
    x = tf.placeholder(tf.float32, [])
    v = tf.Variable(x, name="v", validate_shape=False)
    sess = tf.train.SessionManager().prepare_session("", init_op=v.initializer, init_feed_dict={x: 3.0})
    assert sess.run(v) == 3.0


def test_a_checkpoint_is_restored_instead_of_init(tmp_path):
    model = Model()
    saver = tf.train.Saver([model.v])
    with tf.Session() as sess:
        sess.run([model.init, model.assign])
        sess.run(model.assign)
        first = saver.save(sess, str(tmp_path / "model"), global_step=1)
        second = saver.save(sess, str(tmp_path / "model"), global_step=2)
    manager = tf.train.SessionManager(ready_op=model.ready_for_local)
    fresh = tf.train.Saver([model.v])

    def fail(sess):
        raise AssertionError("init_fn must not be called")

    sess = manager.prepare_session("", saver=fresh, checkpoint_dir=str(tmp_path), init_op=model.init, init_fn=fail)
    assert sess.run(model.v) == 7.0
    assert fresh.last_checkpoints == [first, second]
    sess, restored = manager.recover_session("", saver=fresh, checkpoint_filename_with_path=first)
    assert restored and sess.run(model.v) == 7.0
    with pytest.raises(ValueError, match="Can not provide both checkpoint_dir and checkpoint_filename_with_path"):
        manager.prepare_session("", saver=fresh, checkpoint_dir=str(tmp_path), checkpoint_filename_with_path=first)


def test_variables_that_a_checkpoint_does_not_hold_stay_uninitialized(tmp_path):
    model = Model()
    other = tf.Variable(1.0, name="other")
    saver = tf.train.Saver([model.v])
    init = tf.global_variables_initializer()
    with tf.Session() as sess:
        sess.run(init)
        saver.save(sess, str(tmp_path / "model"))
    ready = tf.report_uninitialized_variables([model.v, other])
    manager = tf.train.SessionManager(ready_op=ready)
    with pytest.raises(RuntimeError, match="Variables not initialized: other"):
        manager.prepare_session("", saver=saver, checkpoint_dir=str(tmp_path), init_op=init)


def test_texts_of_errors():
    model = Model()
    noop = tf.no_op(name="nothing")
    manager = tf.train.SessionManager(ready_op=model.ready)
    with pytest.raises(RuntimeError, match="^Model is not initialized and no init_op or init_fn or local_init_op was "
                                           "given$"):
        manager.prepare_session("")
    with pytest.raises(RuntimeError, match="^Init operations did not make model ready.  Init op: nothing, init fn: "
                                           "None, local_init_op: None, error: Variables not initialized: v, local$"):
        manager.prepare_session("", init_op=noop)
    manager = tf.train.SessionManager(ready_op=model.ready, local_init_op=model.local_init,
                                      ready_for_local_init_op=model.ready_for_local)
    with pytest.raises(RuntimeError, match="^Init operations did not make model ready for local_init.  Init op: "
                                           "nothing, init fn: None, error: Variables not initialized: v$"):
        manager.prepare_session("", init_op=noop)
    with pytest.raises(ValueError, match="If you pass a ready_for_local_init_op you must also pass a local_init_op"):
        tf.train.SessionManager(ready_for_local_init_op=model.ready)


def test_the_exception_of_init_fn_comes_out_as_itself():
    model = Model()
    error = KeyError("mine")

    def fail(sess):
        assert isinstance(sess, tf.Session)
        raise error

    with pytest.raises(KeyError) as info:
        tf.train.SessionManager().prepare_session("", init_op=model.init, init_fn=fail)
    assert info.value is error


def test_what_counts_as_ready():
    model = Model()
    for ready in (None, tf.no_op(), tf.constant(3), tf.constant([], tf.string)):
        tf.train.SessionManager(ready_op=ready).prepare_session("", init_op=model.init)
    # A read of an uninitialized variable says it too; other failed preconditions are errors.
    manager = tf.train.SessionManager(ready_op=model.local + 1.0)
    with pytest.raises(RuntimeError, match="Attempting to use uninitialized value local"):
        manager.prepare_session("", init_op=model.init)


def test_waits_for_a_checkpoint(tmp_path):
    model = Model()
    saver = tf.train.Saver([model.v])
    with tf.Session() as sess:
        sess.run([model.init, model.assign])
        sess.run(model.assign)
        threading.Timer(0.3, lambda: saver.save(sess, str(tmp_path / "model"))).start()
        manager = tf.train.SessionManager(ready_op=model.ready_for_local)
        start = time.time()
        made = manager.prepare_session("", saver=saver, checkpoint_dir=str(tmp_path), wait_for_checkpoint=True)
        assert made.run(model.v) == 7.0 and time.time() - start < 10
    start = time.time()
    made = manager.prepare_session("", saver=saver, checkpoint_dir=str(tmp_path / "none"), wait_for_checkpoint=True,
                                   max_wait_secs=0.3, init_op=model.init)
    assert made.run(model.v) == 1.0 and time.time() - start >= 0.3


# --- The others. ---
def test_waits_until_the_chief_has_initialized(server, caplog):
    model = Model()
    manager = tf.train.SessionManager(ready_op=model.ready, local_init_op=model.local_init,
                                      ready_for_local_init_op=model.ready_for_local)
    ready_at = []

    def initialize():
        with tf.Session(server.target, graph=model.v.graph) as sess:
            while "Waiting for model" not in caplog.text:
                time.sleep(0.01)
            sess.run(model.init)
            ready_at.append(time.time())

    with caplog.at_level("INFO", logger="tensorflow"):
        chief = threading.Thread(target=initialize, daemon=True)
        chief.start()
        sess = manager.wait_for_session(server.target, max_wait_secs=120)
    chief.join(60)
    assert time.time() - ready_at[0] < 9.0  # TensorFlow: up to 30
    assert sess.run([model.v, model.local]) == [1.0, 5.0]
    waiting = [r.getMessage() for r in caplog.records if "Waiting for model" in r.getMessage()]
    assert waiting == ["Waiting for model to be ready.  Ready_for_local_init_op:  Variables not initialized: v, ready: "
                       "None"]


def test_gives_up_at_max_wait_secs():
    """Case 12 of section 11; the whole of the time is used, whatever the recovery wait."""
    model = Model()
    start = time.time()
    with pytest.raises(tf.errors.DeadlineExceededError, match="^Session was not ready after waiting 1 secs.$"):
        tf.train.SessionManager(ready_op=model.ready).wait_for_session("", max_wait_secs=1)
    assert 1.0 <= time.time() - start < 9


def test_ctrl_c_ends_the_wait():
    model = Model()
    start = time.time()
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        tf.train.SessionManager(ready_op=model.ready).wait_for_session("")
    assert time.time() - start < 9


def test_recover_never_initializes():
    model = Model()
    manager = tf.train.SessionManager(ready_op=model.ready_for_local, local_init_op=model.local_init)
    sess, restored = manager.recover_session("")
    assert not restored and sess.run(model.local) == 5.0
    with pytest.raises(tf.errors.FailedPreconditionError):
        sess.run(model.v)
