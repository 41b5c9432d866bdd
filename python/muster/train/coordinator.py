"""tf.train.Coordinator and LooperThread: threads that end together, over the C++ coordinator."""
import contextlib
import sys
import threading
import traceback
import weakref

from muster import _muster, errors, tf_logging  # noqa: F401 - C++ logs through tf_logging

_reporting = threading.local()  # .exc_info: the tuple that request_stop was given on this thread


def _describe(exception):
    """How the log names an exception that was reported."""
    exc_info = getattr(_reporting, "exc_info", None)
    if exc_info is None:
        return "%s, %s" % (type(exception), exception)
    lines = "".join(traceback.format_exception(*exc_info))
    return "%s\n%s" % (exception, lines.rstrip("\n"))


class Thread(threading.Thread):
    """A Python thread that is registered in C++, so that a coordinator can wait for its end."""

    def __init__(self, handle=None, **kwargs):
        super(Thread, self).__init__(**kwargs)
        self._handle = _muster.new_thread(self.name) if handle is None else handle

    def start(self):
        if not self._started.is_set():
            self._handle.mark_started()
        super(Thread, self).start()


class Coordinator(object):
    """Lets the first thread that ends or fails stop the others; join() raises what it failed with."""

    def __init__(self, clean_stop_exception_types=None):
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (errors.OutOfRangeError,)
        types = tuple(clean_stop_exception_types)
        self._clean_stop_exception_types = types
        self._coordinator = _muster.new_coordinator(lambda e: isinstance(e, types), _describe)
        self._joinables = weakref.WeakKeyDictionary()  # thread -> what C++ waits for

    def request_stop(self, ex=None):
        """Asks the threads to stop. `ex`: the exception being handled, or sys.exc_info()."""
        is_tuple = isinstance(ex, tuple)
        exception = ex[1] if is_tuple and len(ex) == 3 else ex
        if ex is None or isinstance(exception, self._clean_stop_exception_types):
            self._coordinator.request_stop(None)
            return
        exc_info = ex if is_tuple else sys.exc_info()
        if self._coordinator.joined:
            raise exception if exc_info[1] is None else exc_info[1]
        if self._coordinator.should_stop():
            return
        if len(exc_info) != 3 or not exc_info[0] or not exc_info[1]:
            raise TypeError("not all arguments converted during string formatting: request_stop takes the exception "
                            "that is being handled or the tuple of sys.exc_info(), not %r" % (ex,))
        _reporting.exc_info = ex if is_tuple else None
        try:
            self._coordinator.request_stop(exc_info[1])
        finally:
            _reporting.exc_info = None

    def clear_stop(self):
        self._coordinator.clear_stop()

    def should_stop(self):
        return self._coordinator.should_stop()

    @contextlib.contextmanager
    def stop_on_exception(self):
        try:
            yield
        except:  # noqa: E722 - whatever ends the body is reported
            self.request_stop(ex=sys.exc_info())

    def wait_for_stop(self, timeout=None):
        return self._coordinator.wait_for_stop(timeout)

    def _joinable(self, thread):
        found = self._joinables.get(thread)
        if found is None:
            if isinstance(thread, Thread) and getattr(type(thread).run, "_tells_its_end", False):
                found = thread._handle
            else:
                found = _muster.PythonThread(weakref.ref(thread))
            self._joinables[thread] = found
        return found

    def register_thread(self, thread):
        self._coordinator.register_thread(self._joinable(thread))

    def join(self, threads=None, stop_grace_period_secs=120, ignore_live_threads=False):
        """Waits for the threads; raises what was given to request_stop, or RuntimeError if some live on."""
        given = [self._joinable(t) for t in threads or ()]
        try:
            self._coordinator.join(given, stop_grace_period_secs, ignore_live_threads)
        finally:
            self._settle()

    def _settle(self):
        """Threads that C++ calls ended are on their way out of Python: waits for that."""
        for thread in list(self._joinables):
            if isinstance(thread, Thread) and thread is not threading.current_thread() and (
                    thread.is_alive() and not self._joinables[thread].is_alive()):
                thread.join(10.0)

    @property
    def joined(self):
        return self._coordinator.joined

    def raise_requested_exception(self):
        exception = self._coordinator.requested
        if exception is not None:
            raise exception


class LooperThread(Thread):
    """A thread that calls run_loop (or `target`) every `timer_interval_secs` until its coordinator stops."""

    def __init__(self, coord, timer_interval_secs, target=None, args=None, kwargs=None):
        if not isinstance(coord, Coordinator):
            raise ValueError("'coord' argument must be a Coordinator: %s" % coord)
        super(LooperThread, self).__init__()
        self.daemon = True
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._target = target
        if self._target:
            self._args = args or ()
            self._kwargs = kwargs or {}
        elif args or kwargs:
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        self._coord.register_thread(self)

    @staticmethod
    def loop(coord, timer_interval_secs, target, args=None, kwargs=None):
        looper = LooperThread(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        looper.start()
        return looper

    def run(self):
        self._handle.run_loop(self._coord._coordinator, self._timer_interval_secs, self.start_loop, self.run_loop,
                              self.stop_loop)

    run._tells_its_end = True

    def start_loop(self):
        """Called when the thread starts."""

    def stop_loop(self):
        """Called when the thread stops."""

    def run_loop(self):
        """Called at the boundaries of the interval."""
        if self._target:
            self._target(*self._args, **self._kwargs)


__all__ = ["Coordinator", "LooperThread"]
