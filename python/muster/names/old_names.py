"""Names of TensorFlow 0.x, for programs that still use them. 1.0 has dropped those that warn."""
from muster import dtypes, errors, tf_logging
from muster.ops import array_ops, math_ops


_told = set()


def _renamed(old, new, function):
    def call(*args, **kwargs):
        if old not in _told:
            _told.add(old)
            tf_logging.warning("tf.%s is tf.%s since TensorFlow 1.0.", old, new)
        return function(*args, **kwargs)

    call.__name__ = old
    call.__doc__ = "tf.%s under its name of TensorFlow 0.x." % new
    return call


mul = _renamed("mul", "multiply", math_ops.multiply)
sub = _renamed("sub", "subtract", math_ops.subtract)
neg = _renamed("neg", "negative", math_ops.negative)
pack = _renamed("pack", "stack", array_ops.stack)
unpack = _renamed("unpack", "unstack", array_ops.unstack)
select = _renamed("select", "where", array_ops.where)
batch_matmul = _renamed("batch_matmul", "matmul", lambda x, y, adj_x=False, adj_y=False, name=None: math_ops.matmul(
    x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name))
complex_abs = _renamed("complex_abs", "abs", math_ops.abs)
batch_matrix_transpose = _renamed("batch_matrix_transpose", "matrix_transpose", array_ops.matrix_transpose)

concat_v2 = _renamed("concat_v2", "concat", array_ops.concat)

OpError = errors.OpError


def arg_max(input, dimension, output_type=dtypes.int64, name=None):
    return math_ops.argmax(input, dimension, name=name, output_type=output_type)


def arg_min(input, dimension, output_type=dtypes.int64, name=None):
    return math_ops.argmin(input, dimension, name=name, output_type=output_type)


__all__ = ["OpError", "arg_max", "arg_min", "mul", "sub", "neg", "pack", "unpack", "select", "batch_matmul", "complex_abs",
           "concat_v2", "batch_matrix_transpose"]
