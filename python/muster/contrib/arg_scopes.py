"""tf.contrib.framework.arg_scope: default arguments for functions that are marked with add_arg_scope."""
import contextlib
import functools

_stack = [{}]
_marked = {}


def _key(function):
    return getattr(function, "_key_op", str(function))


def add_arg_scope(func):
    @functools.wraps(func)
    def with_scope(*args, **kwargs):
        defaults = _stack[-1].get(_key(func))
        if defaults:
            kwargs = dict(defaults, **kwargs)
        return func(*args, **kwargs)

    names = func.__code__.co_varnames[:func.__code__.co_argcount + func.__code__.co_kwonlyargcount]
    _marked[_key(func)] = (names, bool(func.__code__.co_flags & 0x08))
    with_scope._key_op = _key(func)
    return with_scope


def has_arg_scope(func):
    return _key(func) in _marked


def arg_scoped_arguments(func):
    return _marked[_key(func)][0]


def current_arg_scope():
    return _stack[-1]


@contextlib.contextmanager
def arg_scope(list_ops_or_scope, **kwargs):
    """Gives the functions listed these defaults, or enters again a scope that an earlier arg_scope gave."""
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError("When attempting to re-use a scope by suppling a dictionary, kwargs must be empty.")
        entered = dict(list_ops_or_scope)
    else:
        if not isinstance(list_ops_or_scope, (list, tuple)):
            raise TypeError("list_ops_or_scope must either be a list/tuple or reused scope (i.e. dict)")
        entered = dict(_stack[-1])
        for function in list_ops_or_scope:
            key = _key(function)
            if key not in _marked:
                raise ValueError("%s is not decorated with @add_arg_scope" % (key,))
            names, takes_any = _marked[key]
            unknown = [] if takes_any else [name for name in kwargs if name not in names]
            if unknown:
                raise TypeError("%s has no argument %s" % (key, ", ".join(unknown)))
            entered[key] = dict(entered.get(key, {}), **kwargs)
    _stack.append(entered)
    try:
        yield entered
    finally:
        _stack.pop()
