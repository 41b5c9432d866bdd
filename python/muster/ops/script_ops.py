"""Python functions inside graphs, and names of tf that Muster knows and does not offer: each says so when called."""
import itertools
import os
import weakref

import numpy as np

from muster import _muster, dtypes, errors
from muster.graph import convert, framework, functions


def _unimplemented(text):
    raise errors.UnimplementedError(None, None, text)


# Functions that graphs of this process call, by token. A graph keeps its own alive.
_functions = {}
_next_token = itertools.count()


def _as_value(value):
    """What a function returned, as an array that C++ can take over."""
    array = np.asarray(value, order="C")
    if array.dtype.kind == "U":
        array = np.vectorize(lambda text: text.encode("utf-8"), otypes=[object])(array)
    elif array.dtype.kind == "S":
        array = np.asarray(value, order="C", dtype=object)
    return array


def _call(token, inputs):
    function = _functions.get(token)
    if function is None:
        raise ValueError("callback %s is not found" % token)
    values = function(*inputs)
    if values is None:
        return []
    arrays = [_as_value(v) for v in (values if isinstance(values, (list, tuple)) else [values])]
    return [(a, dtypes.as_dtype(a.dtype).as_datatype_enum if a.dtype.kind != "O" else dtypes.string.as_datatype_enum)
            for a in arrays]


_muster.set_front_end_functions(_call)


def py_func(func, inp, Tout, stateful=True, name=None):
    """A node that calls `func` with arrays when it runs, in this process only."""
    graph = framework.get_default_graph()
    token = "pyfunc_%d" % next(_next_token)
    _functions[token] = func
    weakref.finalize(functions.outermost(graph), _functions.pop, token, None)
    is_list = isinstance(Tout, (list, tuple))
    types = [dtypes.as_dtype(t) for t in (Tout if is_list else [Tout])]
    inputs = [convert.convert_to_tensor(x) for x in inp]
    with framework.name_scope(name, "PyFunc" if stateful else "PyFuncStateless", inputs) as scope:
        op = graph.create_op("PyFunc" if stateful else "PyFuncStateless", inputs, types, name=scope,
                             attrs={"token": token, "Tin": [t.dtype.base_dtype for t in inputs], "Tout": types})
    outputs = list(op.outputs)
    if not outputs:
        return op
    return outputs if is_list else outputs[0]


def numpy_function(func, inp, Tout, name=None):
    return py_func(func, inp, Tout, stateful=True, name=name)


def py_function(func, inp, Tout, name=None):
    _unimplemented("tf.py_function: Muster runs graphs only; tf.py_func gives the function arrays instead of eager "
                   "tensors")


def load_op_library(library_filename):
    if not os.path.exists(library_filename):
        raise errors.NotFoundError(
            None, None, "%s: cannot open shared object file: No such file or directory" % library_filename)
    _unimplemented("tf.load_op_library(%r): libraries built for TensorFlow hold code for its own runtime and cannot be "
                   "loaded" % (library_filename,))


def load_file_system_library(library_filename):
    _unimplemented("tf.load_file_system_library(%r): libraries built for TensorFlow cannot be loaded"
                   % (library_filename,))


def enable_eager_execution(config=None, device_policy=None, execution_mode=None):
    _unimplemented("tf.enable_eager_execution: Muster runs graphs only; build the graph and run it in a tf.Session")


def enable_v2_behavior():
    _unimplemented("tf.enable_v2_behavior: Muster has the behaviour of TensorFlow 1.x only")


def disable_eager_execution():
    """Graphs are built anyway."""


def disable_v2_behavior():
    """Muster has no other behaviour than that of 1.x."""


def executing_eagerly():
    return False


__all__ = ["py_func", "numpy_function", "py_function", "load_op_library", "load_file_system_library",
           "enable_eager_execution", "enable_v2_behavior", "disable_eager_execution", "disable_v2_behavior", "executing_eagerly"]
