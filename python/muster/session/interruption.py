"""Ctrl-C and SIGTERM in a training loop: the model is saved, one line says so, and the program ends."""
import atexit
import os
import signal
import sys
import threading
import traceback
import weakref

_open = weakref.WeakSet()  # open training sessions: objects with close_interrupted()
_installed = False
_terminated = None  # after SIGTERM: the exception that was raised, and the sessions that were open then


class Terminated(SystemExit):
    """SIGTERM, as code sees it while a training session is open. The exit status is 143."""

    def __init__(self):
        super().__init__(128 + signal.SIGTERM)


def is_interruption(error):
    return isinstance(error, (KeyboardInterrupt, Terminated))


def watch(session):
    """From here on SIGTERM raises Terminated in the main thread, and an interruption of the program saves `session`."""
    _open.add(session)
    _install()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def forget(session):
    _open.discard(session)
    if not _open:
        _set_default(signal.SIGTERM, _terminate)


def _set_default(number, handler):
    """Restores the default action of a signal, which ends the process at once, if `handler` is installed for it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(number) == handler:
        signal.signal(number, signal.SIG_DFL)


def _terminate(unused_signal, unused_frame):
    global _terminated
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _terminated = Terminated(), list(_open)
    raise _terminated[0]


def close(session, error):
    """Closes `session` after the interruption `error`, and prints one line that says what was saved."""
    _open.discard(session)
    # A second signal ends the process without waiting for the save.
    _set_default(signal.SIGTERM, _terminate)
    _set_default(signal.SIGINT, signal.default_int_handler)
    saved, problem = [], None
    try:
        saved = session.close_interrupted()
    except Exception as e:
        problem = _first_sentence(str(e)) or type(e).__name__
    finally:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    tell(error, "; not saved: " + problem if problem else "; saved " + ", ".join(saved) if saved else "")


def _first_sentence(text):
    """The first line of an error text, without separators; after a line "From TASK:" the next line too."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" =")]
    return " ".join(lines[:2 if lines[:1] and lines[0].endswith(":") else 1])


def tell(error, what=""):
    """Prints one line about an interruption instead of the traceback, once for each `error`."""
    if getattr(error, "_muster_told", False):
        return
    error._muster_told = True
    print(("Terminated" if isinstance(error, Terminated) else "Interrupted") + what, file=sys.stderr, flush=True)


def end_open_sessions(error):
    """Closes the sessions that no `with` block closes, when the interruption `error` ends the program."""
    for session in list(_open):
        close(session, error)


def print_error(kind, error, at):
    """Like sys.excepthook, but with one line for Ctrl-C."""
    if not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(kind, error, at)
        return
    place = traceback.extract_tb(at)[-1:]
    tell(error, " at %s:%d" % (os.path.basename(place[0].filename), place[0].lineno) if place else "")


def _install():
    global _installed
    if _installed:
        return
    _installed = True
    before = sys.excepthook

    def excepthook(kind, error, at):
        if isinstance(error, KeyboardInterrupt):
            end_open_sessions(error)
        if not getattr(error, "_muster_told", False):
            before(kind, error, at)

    sys.excepthook = excepthook
    atexit.register(_at_exit)


def _at_exit():
    if _terminated is not None:
        end_open_sessions(_terminated[0])


__all__ = []
