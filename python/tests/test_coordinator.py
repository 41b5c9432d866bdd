"""tf.train.Coordinator and LooperThread (recovery-semantics §3.2)."""
import gc
import os
import signal
import sys
import threading
import time
import weakref

import pytest

import muster as tf


def started(target, *args, name=None):
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def coord():
    return tf.train.Coordinator()


class Failure(Exception):
    pass


# --- Stopping. ---
def test_the_first_exception_is_raised_by_join_as_the_same_object(coord):
    raised = []

    def fail(text):
        try:
            raise Failure(text)
        except Failure as e:
            raised.append(e)
            coord.request_stop(e)

    fail("first")
    fail("second")
    assert coord.should_stop() and not coord.joined
    for call in (coord.join, coord.raise_requested_exception):
        with pytest.raises(Failure) as info:
            call()
        assert info.value is raised[0]
    assert coord.joined
    frames = []
    trace = info.value.__traceback__
    while trace:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "fail" in frames


def test_after_a_stop_without_exception_none_is_remembered(coord):
    coord.request_stop()
    with coord.stop_on_exception():
        raise Failure("late")
    coord.join()
    coord.raise_requested_exception()


def test_clean_types():
    coord = tf.train.Coordinator()
    with coord.stop_on_exception():
        raise tf.errors.OutOfRangeError(None, None, "end")
    assert coord.should_stop()
    with coord.stop_on_exception():
        raise Failure("late")
    coord.join()

    coord = tf.train.Coordinator(clean_stop_exception_types=(StopIteration, Failure))
    with coord.stop_on_exception():
        raise Failure("clean")
    coord.join()
    coord.clear_stop()
    with coord.stop_on_exception():
        raise tf.errors.OutOfRangeError(None, None, "end")
    with pytest.raises(tf.errors.OutOfRangeError):
        coord.join()

    coord = tf.train.Coordinator(clean_stop_exception_types=())
    with coord.stop_on_exception():
        raise tf.errors.OutOfRangeError(None, None, "end")
    with pytest.raises(tf.errors.OutOfRangeError):
        coord.join()


def test_what_request_stop_takes(coord):
    with pytest.raises(TypeError, match="not all arguments converted during string formatting"):
        coord.request_stop(Failure("made here, not handled"))
    assert not coord.should_stop()
    try:
        raise Failure("tuple")
    except Failure:
        exc_info = sys.exc_info()
    coord.request_stop(exc_info)
    with pytest.raises(Failure) as info:
        coord.join()
    assert info.value is exc_info[1]


def test_after_join_exceptions_are_raised_at_once(coord):
    coord.request_stop()
    coord.join()
    with pytest.raises(Failure):
        with coord.stop_on_exception():
            raise Failure("late")
    with coord.stop_on_exception():
        raise tf.errors.OutOfRangeError(None, None, "clean")
    coord.clear_stop()
    assert not coord.should_stop() and not coord.joined
    with coord.stop_on_exception():
        raise Failure("kept")
    with pytest.raises(Failure, match="kept"):
        coord.join()


def test_the_log_names_what_was_reported(coord, caplog):
    tf.logging.set_verbosity(tf.logging.INFO)
    with caplog.at_level("INFO", logger="tensorflow"):
        try:
            raise Failure("broken")
        except Failure as e:
            coord.request_stop(e)
        coord.clear_stop()
        with coord.stop_on_exception():
            raise Failure("again")
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0] == "Error reported to Coordinator: %s, broken" % Failure
    assert texts[1].startswith("Error reported to Coordinator: again\nTraceback (most recent call last):")


def test_exceptions_are_let_go_with_the_coordinator():
    class Big(object):
        pass

    def report(coord):
        big = Big()  # lives in the frame that the traceback holds
        try:
            raise Failure("with frame")
        except Failure as e:
            coord.request_stop(e)
        return weakref.ref(big)

    coord = tf.train.Coordinator()
    big = report(coord)
    assert big() is not None
    coord.clear_stop()
    for _ in range(100):  # references are dropped between two instructions of the main thread
        gc.collect()
        if big() is None:
            break
        time.sleep(0.01)
    assert big() is None


# --- Joining. ---
def test_join_notices_the_end_of_threads_at_once(coord):
    start = time.time()
    coord.join([started(time.sleep, 0.3), started(time.sleep, 0.1)])
    assert 0.3 <= time.time() - start < 0.3 + 10  # with slack for a busy machine
    assert coord.joined and not coord.should_stop()


def test_threads_not_started_are_not_waited_for(coord):
    coord.register_thread(threading.Thread(target=time.sleep))
    coord.join([threading.Thread(target=time.sleep)])


def test_registered_threads_are_joined_once(coord):
    ended = threading.Event()
    coord.register_thread(started(ended.wait, name="waiter"))
    coord.request_stop()
    with pytest.raises(RuntimeError, match="^Coordinator stopped with threads still running: waiter$"):
        coord.join(stop_grace_period_secs=0.05)
    coord.join(stop_grace_period_secs=0.05)  # forgotten
    ended.set()


def test_live_threads_can_be_ignored(coord, caplog):
    ended = threading.Event()
    coord.request_stop()
    with caplog.at_level("INFO", logger="tensorflow"):
        coord.join([started(ended.wait, name="waiter")], stop_grace_period_secs=0.05, ignore_live_threads=True)
    assert "Coordinator stopped with threads still running: waiter" in caplog.text
    ended.set()


def test_the_grace_begins_with_the_stop(coord):
    def stop_late():
        time.sleep(0.2)
        coord.request_stop()
        time.sleep(0.2)

    start = time.time()
    coord.join([started(stop_late)], stop_grace_period_secs=30)
    assert 0.35 < time.time() - start < 5


def test_ctrl_c_ends_join_and_wait(coord):
    ended = threading.Event()
    thread = started(ended.wait)
    for wait in (lambda: coord.join([thread]), coord.wait_for_stop):
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            wait()
        assert not coord.joined
    ended.set()
    coord.join([thread])


def test_wait_for_stop(coord):
    start = time.time()
    assert coord.wait_for_stop(0.1) is False
    assert time.time() - start >= 0.1
    threading.Timer(0.1, coord.request_stop).start()
    assert coord.wait_for_stop(30) is True
    assert coord.wait_for_stop() is True and coord.wait_for_stop(0) is True


# --- Loopers. ---
def test_loop_on_a_grid(coord):
    calls, enough = [], threading.Event()

    def call(*args, **kwargs):
        calls.append((time.monotonic(), args, kwargs))
        if len(calls) == 6:
            time.sleep(1.05)
        if len(calls) == 16:
            enough.set()

    start = time.monotonic()
    thread = tf.train.LooperThread.loop(coord, 0.1, call, args=(1,), kwargs={"b": 2})
    assert thread.daemon and thread.is_alive() and isinstance(thread, threading.Thread)
    assert enough.wait(60)
    coord.request_stop()
    coord.join()
    assert not thread.is_alive()
    assert calls[0][1:] == ((1,), {"b": 2})
    # None comes before its time, however busy the machine.
    for i, (when, _, _) in enumerate(calls):
        assert when - start > 0.1 * i - 0.02
    # After a long call it makes up for the missed ones at once, without waiting between them.
    assert calls[15][0] - calls[6][0] < 0.1 * 9


def test_subclass(coord):
    calls = []

    class Looper(tf.train.LooperThread):
        def start_loop(self):
            calls.append("start")

        def run_loop(self):
            calls.append("run")
            if len(calls) == 4:
                self._coord.request_stop()

        def stop_loop(self):
            calls.append("stop")

    looper = Looper(coord, None)
    looper.start()
    coord.join([looper])
    assert calls == ["start", "run", "run", "run", "stop"]


def test_an_exception_in_a_loop_stops_the_coordinator(coord):
    failure = Failure("in loop")

    def fail():
        raise failure

    tf.train.LooperThread.loop(coord, 60, fail)
    with pytest.raises(Failure) as info:
        coord.join()
    assert info.value is failure


def test_arguments_of_loopers(coord):
    with pytest.raises(ValueError, match="'coord' argument must be a Coordinator"):
        tf.train.LooperThread("coord", 1)
    with pytest.raises(ValueError, match="'args' and 'kwargs' argument require that you also pass 'target'"):
        tf.train.LooperThread(coord, 1, args=(1,))
