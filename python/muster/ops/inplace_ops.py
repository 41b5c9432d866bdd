"""Rows of a tensor replaced or changed (tensorflow.python.ops.inplace_ops)."""
from muster import dtypes
from muster.graph.convert import convert_to_tensor
from muster.graph.op_library import call
from muster.ops import array_ops, math_ops


def _rows(op, x, i, v):
    x = convert_to_tensor(x)
    v = convert_to_tensor(v, x.dtype)
    if i is None:  # all of them
        changed = call(op, x=array_ops.reshape(x, [1, -1]), i=[0], v=array_ops.reshape(v, [1, -1]))
        return array_ops.reshape(changed, array_ops.shape(x))
    i = math_ops.cast(i, dtypes.int32)
    if i.get_shape().ndims == 0:
        return call(op, x=x, i=array_ops.reshape(i, [1]), v=array_ops.expand_dims(v, 0))
    return call(op, x=x, i=i, v=v)


def alias_inplace_update(x, i, v):
    """x[i, :] = v, in place: later reads of x see it."""
    return _rows("InplaceUpdate", x, i, v)


def alias_inplace_add(x, i, v):
    return _rows("InplaceAdd", x, i, v)


def alias_inplace_sub(x, i, v):
    return _rows("InplaceSub", x, i, v)


def _copied(x):
    return call("DeepCopy", x=convert_to_tensor(x))


def inplace_update(x, i, v):
    """A copy of x with the rows i replaced by v."""
    return alias_inplace_update(_copied(x), i, v)


def inplace_add(x, i, v):
    return alias_inplace_add(_copied(x), i, v)


def inplace_sub(x, i, v):
    return alias_inplace_sub(_copied(x), i, v)


def empty(shape, dtype, init=False):
    """A tensor whose elements are not set, or zeros with `init`."""
    return call("Empty", shape=convert_to_tensor(shape, dtypes.int32), dtype=dtype, init=init)


def empty_like(x, init=None):
    x = convert_to_tensor(x)
    return call("Empty", shape=array_ops.shape(x), dtype=x.dtype, init=init)


__all__ = ["alias_inplace_update", "alias_inplace_add", "alias_inplace_sub", "inplace_update", "inplace_add",
           "inplace_sub", "empty", "empty_like"]
