"""six and absl, which TensorFlow 1.x brought along and its programs import: stand-ins where they are not installed.

absl's app, flags and logging are tf.app, tf.flags and tf.logging, as in TensorFlow.
"""
import builtins
import functools
import importlib
import importlib.abc
import importlib.machinery
import io
import itertools
import operator
import os
import shlex
import sys
import types

# Modules that Python 3 has renamed: six.moves' name -> module.
_MOVED_MODULES = {
    "builtins": "builtins", "configparser": "configparser", "copyreg": "copyreg", "cPickle": "pickle",
    "collections_abc": "collections.abc", "http_client": "http.client", "http_cookies": "http.cookies",
    "html_entities": "html.entities", "html_parser": "html.parser", "queue": "queue", "reprlib": "reprlib",
    "socketserver": "socketserver", "_thread": "_thread", "tkinter": "tkinter", "urllib": "urllib",
    "urllib.error": "urllib.error", "urllib.parse": "urllib.parse", "urllib.request": "urllib.request",
    "urllib.response": "urllib.response", "urllib_parse": "urllib.parse", "urllib_error": "urllib.error"}
_MOVED_NAMES = {
    "cStringIO": io.StringIO, "StringIO": io.StringIO, "filter": filter, "filterfalse": itertools.filterfalse,
    "getcwd": os.getcwd, "getcwdb": os.getcwdb, "input": input, "intern": sys.intern, "map": map, "range": range,
    "reduce": functools.reduce, "reload_module": importlib.reload, "shlex_quote": shlex.quote, "xrange": range,
    "zip": zip, "zip_longest": itertools.zip_longest}


def _moved(name):
    if name == "urllib":  # programs go on to its parts by themselves
        for part in ("error", "parse", "request", "response"):
            importlib.import_module("urllib." + part)
    return importlib.import_module(_MOVED_MODULES[name])


class _Moves(types.ModuleType):
    """six.moves: modules are loaded when they are named."""

    def __init__(self, name):
        super(_Moves, self).__init__(name)
        self.__path__ = []
        self.__dict__.update(_MOVED_NAMES)

    def __getattr__(self, name):
        if name in _MOVED_MODULES:
            return _moved(name)
        raise AttributeError("module %r has no attribute %r" % (self.__name__, name))


def _reraise(kind, value, traceback=None):
    if value is None:
        value = kind()
    raise value.with_traceback(traceback)


def _raise_from(value, cause):
    raise value from cause


def _add_metaclass(metaclass):
    def made(cls):
        body = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
        for slot in body.get("__slots__") or ():
            body.pop(slot, None)
        return metaclass(cls.__name__, cls.__bases__, body)

    return made


def _with_metaclass(metaclass, *bases):
    return types.new_class("temporary_class", bases, {"metaclass": metaclass})


def _ensure_binary(value, encoding="utf-8", errors="strict"):
    return value.encode(encoding, errors) if isinstance(value, str) else value


def _ensure_text(value, encoding="utf-8", errors="strict"):
    return value.decode(encoding, errors) if isinstance(value, bytes) else value


def _six():
    module = types.ModuleType("six", "Names of Python 2 and 3.")
    module.__path__ = []
    module.__dict__.update(
        __version__="1.16.0", PY2=False, PY3=True, PY34=True, MAXSIZE=sys.maxsize,
        string_types=(str,), integer_types=(int,), class_types=(type,), text_type=str, binary_type=bytes,
        StringIO=io.StringIO, BytesIO=io.BytesIO, Iterator=object, callable=callable, unichr=chr, next=next,
        advance_iterator=next, wraps=functools.wraps, print_=print, exec_=builtins.exec,
        iterkeys=lambda d, **kw: iter(d.keys(**kw)), itervalues=lambda d, **kw: iter(d.values(**kw)),
        iteritems=lambda d, **kw: iter(d.items(**kw)), viewkeys=operator.methodcaller("keys"),
        viewvalues=operator.methodcaller("values"), viewitems=operator.methodcaller("items"),
        b=lambda text: text.encode("latin-1"), u=lambda text: text, int2byte=lambda n: bytes((n,)),
        byte2int=operator.itemgetter(0), indexbytes=operator.getitem, iterbytes=iter,
        get_function_code=operator.attrgetter("__code__"), get_function_defaults=operator.attrgetter("__defaults__"),
        get_function_globals=operator.attrgetter("__globals__"), get_method_function=operator.attrgetter("__func__"),
        get_method_self=operator.attrgetter("__self__"), get_unbound_function=lambda function: function,
        add_metaclass=_add_metaclass, with_metaclass=_with_metaclass, reraise=_reraise, raise_from=_raise_from,
        ensure_binary=_ensure_binary, ensure_text=_ensure_text, ensure_str=_ensure_text,
        python_2_unicode_compatible=lambda cls: cls)
    return module


def _absl():
    module = types.ModuleType("absl", "tf.app, tf.flags and tf.logging under absl's names.")
    module.__path__ = []
    return module


_ABSL = {"absl.app": "app", "absl.flags": "flags", "absl.logging": "tf_logging"}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: provides modules that are not installed."""

    def __init__(self):
        self._own_specs = {}

    def find_spec(self, name, path=None, target=None):
        moved = name[len("six.moves."):] if name.startswith("six.moves.") else None
        if name in ("six", "six.moves", "absl") or name in _ABSL or moved in _MOVED_MODULES:
            # An installed package has found its own modules already.
            if "." in name and getattr(sys.modules.get(name.partition(".")[0]), "__spec__", None) is not None:
                if sys.modules[name.partition(".")[0]].__spec__.loader is not self:
                    return None
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        name = spec.name
        if name == "six":
            return _six()
        if name == "six.moves":
            return _Moves(name)
        if name == "absl":
            return _absl()
        module = (importlib.import_module("muster." + _ABSL[name]) if name in _ABSL
                  else _moved(name[len("six.moves."):]))
        self._own_specs[name] = module.__spec__
        return module

    def exec_module(self, module):
        # The import system has put its own spec on the module; one that existed before gets its own back.
        name = module.__spec__.name
        if name in self._own_specs:
            module.__spec__ = self._own_specs.pop(name)


def install():
    """From now on six and absl can be imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
