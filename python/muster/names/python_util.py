"""What tensorflow.python.util has and user code of its time imports: decorators that change nothing here, inspection."""
import contextlib
import functools
from inspect import *  # noqa: F401, F403


def _unchanged(*unused_args, **unused_kwargs):
    return lambda function: function


deprecated = deprecated_args = deprecated_arg_values = deprecated_alias = tf_export = _unchanged
contextmanager = contextlib.contextmanager


def make_decorator(target, decorator_func, decorator_name=None, decorator_doc="", decorator_argspec=None):
    return functools.wraps(target)(decorator_func)


def unwrap(maybe_tf_decorator):
    return [], maybe_tf_decorator
