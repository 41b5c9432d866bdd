"""Muster: distributed TensorFlow 1.x, written anew. `import muster as tf` gives TF1's names."""
import importlib as _importlib

from muster import errors  # noqa: F401  (first: it tells the extension how to raise)
from muster.dtypes import (  # noqa: F401
    DType, as_dtype, bfloat16, bool, complex64, complex128, double, float16, float32, float64, half, int8, int16, int32,
    int64, qint8, qint16, qint32, quint8, quint16, resource, string, uint8, uint16, uint32, uint64, variant)
from muster.tensor_shape import Dimension, TensorShape  # noqa: F401
from muster.framework import (  # noqa: F401
    DeviceSpec, Graph, GraphKeys, IndexedSlices, Operation, Tensor, add_to_collection, add_to_collections, colocate_with,
    container, control_dependencies, device, get_collection, get_collection_ref, get_default_graph,
    get_default_session, get_seed, name_scope, reset_default_graph, set_random_seed)
from muster.convert import constant, convert_to_tensor, register_tensor_conversion_function  # noqa: F401
from muster.op_library import raw_ops  # noqa: F401
from muster.session import InteractiveSession, Session  # noqa: F401

__version__ = "1.15.5"
VERSION = __version__
GIT_VERSION = "muster"
COMPILER_VERSION = ""
newaxis = None

# Modules whose public functions are names of tf itself, in the order in which they are looked through.
_MODULES = ("array_ops", "math_ops", "state_ops", "control_flow_ops", "gradients_impl", "variables", "random_ops",
            "init_ops", "partitioned", "variable_scope", "clip_ops", "check_ops", "logging_ops")
for _module in _MODULES:
    _loaded = _importlib.import_module("muster." + _module)
    for _name in getattr(_loaded, "__all__", [n for n in vars(_loaded) if not n.startswith("_")]):
        _value = getattr(_loaded, _name)
        if getattr(_value, "__module__", None) == _loaded.__name__ and callable(_value):
            globals().setdefault(_name, _value)
AUTO_REUSE = _importlib.import_module("muster.variable_scope").AUTO_REUSE

# Parts that are loaded when they are first asked for.
_LAZY = {"train": "train", "nn": "nn_ops"}


def __getattr__(name):
    if name in _LAZY:
        module = globals()[name] = _importlib.import_module("muster." + _LAZY[name])
        return module
    raise AttributeError("module 'tensorflow' has no attribute %r" % name)
