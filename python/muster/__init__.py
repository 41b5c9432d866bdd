"""Muster: distributed TensorFlow 1.x, written anew. `import muster as tf` gives TF1's names."""
import importlib as _importlib
import sys as _sys

from muster import errors  # noqa: F401  (first: it tells the extension how to raise)
from muster.names import absent as _absent
from muster.names import proto_names as _proto_names
from muster.dtypes import (  # noqa: F401
    DType, as_dtype, bfloat16, bool, complex64, complex128, double, float16, float32, float64, half, int8, int16, int32,
    int64, qint8, qint16, qint32, quint8, quint16, resource, string, uint8, uint16, uint32, uint64, variant)
from muster.graph.tensor_shape import Dimension, TensorShape  # noqa: F401
from muster.graph.framework import (  # noqa: F401
    DeviceSpec, Graph, GraphKeys, IndexedSlices, Operation, Tensor, add_to_collection, add_to_collections, colocate_with,
    container, control_dependencies, device, get_collection, get_collection_ref, get_default_graph,
    get_default_session, get_seed, name_scope, op_scope, reset_default_graph, set_random_seed)
from muster.graph.convert import constant, convert_to_tensor, register_tensor_conversion_function  # noqa: F401
from muster.graph.op_library import raw_ops  # noqa: F401
from muster.session.fetches_feeds import IndexedSlicesValue  # noqa: F401
from muster.session.session import InteractiveSession, Session  # noqa: F401

__version__ = "1.15.5"
VERSION = __version__
GIT_VERSION = "muster"
COMPILER_VERSION = ""
newaxis = None

# Modules whose public functions are names of tf itself, in the order in which they are looked through.
_MODULES = ("ops.array_ops", "ops.math_ops", "ops.slice_ops", "variables.variables", "variables.ref_variable",
            "variables.resource_variable", "variables.partitioned_variable", "variables.variable_collections", "ops.state_ops", "ops.control_flow_ops",
            "graph.gradients_impl")
# The same, loaded when one of their names is first asked for; the heavier parts of the package are here.
_LAZY_MODULES = ("variables.variable_scopes", "variables.partitioned", "ops.random_ops", "variables.init_ops",
                 "ops.clip_ops", "ops.check_ops", "ops.logging_ops", "ops.string_ops", "ops.sparse_tensor",
                 "ops.sparse_ops", "ops.tensor_array_ops", "ops.functional_ops", "ops.linalg_ops", "ops.confusion",
                 "ops.script_ops", "graph.importer", "ops.data_flow_ops", "ops.io_ops", "ops.parsing_ops",
                 "variables.template", "graph.tensor_util", "session.session_ops", "ops.special_ops",
                 "graph.custom_gradients", "ops.set_ops", "names.old_names")
# Sub-modules, loaded when they are first named: tf's name -> module here.
_SUBMODULES = {name: name for name in (
    "nn", "train", "layers", "losses", "metrics", "data", "image", "summary", "saved_model", "gfile", "app", "flags",
    "test", "python_io", "graph_util", "contrib", "compat", "nest", "lookup", "resource_loader", "sysconfig",
    "estimator", "distributions")}
_SUBMODULES["logging"] = "tf_logging"
_SUBMODULES["linalg"] = "ops.linalg_ops"
_NAMESPACES = ("math", "random", "strings", "io", "debugging", "initializers", "sparse", "queue",
               "bitwise", "manip", "sets")


def _public(module):
    names = getattr(module, "__all__", None)
    if names is not None:
        return {name: getattr(module, name) for name in names}
    # What it defines, and what the table of ops has for it.
    sources = (module.__name__, "muster.generated." + module.__name__.rpartition(".")[2])
    return {name: value for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) in sources}


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
        value = _importlib.import_module("muster.names.namespaces").module(name)
    elif name in _SUBMODULES:
        value = _load(_SUBMODULES[name])
    elif _absent.is_module(__name__, name):  # `from muster import file_io` asks for the name before it looks for the file
        raise AttributeError(name)
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
