"""tf.logging: the Python logger `tensorflow`, whose lines read LEVEL:tensorflow:message."""
import logging as _logging
import os as _os
import sys as _sys
import threading as _threading
import time as _time
from logging import DEBUG, ERROR, FATAL, INFO, WARN  # noqa: F401

from muster import _muster

_logger = None
_logger_lock = _threading.Lock()
_counters = {}
_started = {}


def _get_logger():
    global _logger
    if _logger is not None:
        return _logger
    with _logger_lock:
        if _logger is not None:
            return _logger
        logger = _logging.getLogger("tensorflow")
        logger.setLevel(_logging.WARN)
        # A program that has set up logging itself gets our lines through its own handlers.
        if not _logging.getLogger().handlers:
            interactive = hasattr(_sys, "ps1") or bool(_sys.flags.interactive)
            if interactive:
                logger.setLevel(_logging.INFO)
            handler = _logging.StreamHandler(_sys.stdout if interactive else _sys.stderr)
            handler.setFormatter(_logging.Formatter(_logging.BASIC_FORMAT, None))
            logger.addHandler(handler)
        _logger = logger
    return _logger


def log(level, msg, *args, **kwargs):
    _get_logger().log(level, msg, *args, **kwargs)


def debug(msg, *args, **kwargs):
    _get_logger().debug(msg, *args, **kwargs)


def info(msg, *args, **kwargs):
    _get_logger().info(msg, *args, **kwargs)


def warning(msg, *args, **kwargs):
    _get_logger().warning(msg, *args, **kwargs)


warn = warning


def error(msg, *args, **kwargs):
    _get_logger().error(msg, *args, **kwargs)


def fatal(msg, *args, **kwargs):
    _get_logger().fatal(msg, *args, **kwargs)


def vlog(level, msg, *args, **kwargs):
    _get_logger().log(level, msg, *args, **kwargs)


def flush():
    for handler in _get_logger().handlers:
        handler.flush()


def get_verbosity():
    return _get_logger().getEffectiveLevel()


def set_verbosity(v):
    _get_logger().setLevel(v)


def TaskLevelStatusMessage(msg):
    error(msg)


def _place():
    """The line of the program that logs; counters are kept per line."""
    frame = _sys._getframe(2)
    return _os.path.basename(frame.f_code.co_filename), frame.f_lineno


def _count(place):
    count = _counters.get(place, -1) + 1
    _counters[place] = count
    return count


def log_every_n(level, msg, n, *args):
    log_if(level, msg, not _count(_place()) % n, *args)


def log_first_n(level, msg, n, *args):
    log_if(level, msg, _count(_place()) < n, *args)


def log_every_n_seconds(level, msg, n_seconds, *args):
    place, now = _place(), _time.time()
    if place not in _started or now - _started[place] >= n_seconds:
        _started[place] = now
        log(level, msg, *args)


def log_if(level, msg, condition, *args):
    if condition:
        log(level, msg, *args)


__all__ = ["DEBUG", "ERROR", "FATAL", "INFO", "WARN", "TaskLevelStatusMessage", "debug", "error", "fatal", "flush",
           "get_verbosity", "info", "log", "log_every_n", "log_every_n_seconds", "log_first_n", "log_if",
           "set_verbosity", "vlog", "warn", "warning"]


def _notice(level, line):
    log((INFO, WARN, ERROR)[level], "%s", line)


_muster.set_notices(_notice)
