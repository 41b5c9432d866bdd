"""Muster: distributed TensorFlow 1.x, written anew. `import muster as tf` gives TF1's names."""
import importlib as _importlib
import sys as _sys

from muster import errors  # noqa: F401  (first: it tells the extension how to raise)
from muster import _absent
from muster import proto_names as _proto_names
from muster.dtypes import (  # noqa: F401
    DType, as_dtype, bfloat16, bool, complex64, complex128, double, float16, float32, float64, half, int8, int16, int32,
    int64, qint8, qint16, qint32, quint8, quint16, resource, string, uint8, uint16, uint32, uint64, variant)
from muster.tensor_shape import Dimension, TensorShape  # noqa: F401
from muster.framework import (  # noqa: F401
    DeviceSpec, Graph, GraphKeys, IndexedSlices, Operation, Tensor, add_to_collection, add_to_collections, colocate_with,
    container, control_dependencies, device, get_collection, get_collection_ref, get_default_graph,
    get_default_session, get_seed, name_scope, op_scope, reset_default_graph, set_random_seed)
from muster.convert import constant, convert_to_tensor, register_tensor_conversion_function  # noqa: F401
from muster.op_library import raw_ops  # noqa: F401
from muster.session import IndexedSlicesValue, InteractiveSession, Session  # noqa: F401

__version__ = "1.15.5"
VERSION = __version__
GIT_VERSION = "muster"
COMPILER_VERSION = ""
newaxis = None

# Modules whose public functions are names of tf itself, in the order in which they are looked through.
_MODULES = ("array_ops", "math_ops", "variables", "state_ops", "control_flow_ops", "gradients_impl")
# The same, loaded when one of their names is first asked for; the heavier parts of the package are here.
_LAZY_MODULES = ("variable_scopes", "partitioned", "random_ops", "init_ops", "clip_ops", "check_ops", "logging_ops",
                 "string_ops", "sparse_tensor", "sparse_ops", "tensor_array_ops", "functional_ops", "linalg_ops", "confusion",
                 "script_ops", "importer", "data_flow_ops", "io_ops", "parsing_ops", "template",
                 "tensor_util", "session_ops", "special_ops", "custom_gradients", "ctc_ops", "old_names")
# Sub-modules, loaded when they are first named: tf's name -> module here.
_SUBMODULES = {name: name for name in (
    "nn", "train", "layers", "losses", "metrics", "data", "image", "summary", "saved_model", "gfile", "app", "flags",
    "test", "python_io", "graph_util", "contrib", "compat", "nest", "lookup", "resource_loader", "sysconfig",
    "estimator", "distributions")}
_SUBMODULES["logging"] = "tf_logging"
_SUBMODULES["linalg"] = "linalg_ops"
_NAMESPACES = ("math", "random", "strings", "io", "debugging", "initializers", "sparse", "queue",
               "bitwise", "manip", "sets")


def _public(module):
    names = getattr(module, "__all__", None)
    if names is not None:
        return {name: getattr(module, name) for name in names}
    return {name: value for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__}


for _module in _MODULES:
    for _name, _value in _public(_importlib.import_module("muster." + _module)).items():
        globals().setdefault(_name, _value)


def _load(module):
    return _importlib.import_module("muster." + module)


_sys.meta_path.append(_absent.Finder())


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    value = None
    if name in _proto_names.TF_NAMES:
        value = _proto_names.get(name)
    elif name in _NAMESPACES:
        value = _importlib.import_module("muster.namespaces").module(name)
    elif name in _SUBMODULES:
        value = _load(_SUBMODULES[name])
    else:
        for module in _LAZY_MODULES:
            public = _public(_load(module))
            if name in public:
                for key, member in public.items():
                    globals().setdefault(key, member)
                return globals()[name]
    if value is None:
        raise _absent.error("", name)
    globals()[name] = value
    return value


def __dir__():
    names = set(globals()) | set(_NAMESPACES) | set(_SUBMODULES) | set(_proto_names.TF_NAMES)
    for module in _LAZY_MODULES:
        names.update(_public(_load(module)))
    return sorted(names)
