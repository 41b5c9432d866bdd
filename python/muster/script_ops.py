"""Names of tf that Muster knows and does not offer: each says so when it is called."""
from muster import errors


def _unimplemented(text):
    raise errors.UnimplementedError(None, None, text)


def py_func(func, inp, Tout, stateful=True, name=None):
    _unimplemented("tf.py_func: Muster does not run Python functions inside a graph")


def numpy_function(func, inp, Tout, name=None):
    _unimplemented("tf.numpy_function: Muster does not run Python functions inside a graph")


def load_op_library(library_filename):
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


__all__ = ["py_func", "numpy_function", "load_op_library", "load_file_system_library", "enable_eager_execution",
           "enable_v2_behavior", "disable_eager_execution", "disable_v2_behavior", "executing_eagerly"]
