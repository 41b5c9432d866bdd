"""tf.SparseTensor: values at indices of a dense shape, as three tensors."""
import collections

import numpy as np

from muster import dtypes
from muster.graph import convert, framework, graph_elements, tensor_shape
from muster.graph.framework import name_scope
from muster.session import fetches_feeds

SparseTensorValue = collections.namedtuple("SparseTensorValue", ["indices", "values", "dense_shape"])


class SparseTensor(object):
    def __init__(self, indices, values, dense_shape):
        with name_scope(None, "SparseTensor", [indices, values, dense_shape]):
            indices = convert.convert_to_tensor(indices, name="indices", dtype=dtypes.int64)
            values = convert.convert_to_tensor(values, name="values", as_ref=True)
            dense_shape = convert.convert_to_tensor(dense_shape, name="dense_shape", dtype=dtypes.int64)
        self._indices, self._values, self._dense_shape = indices, values, dense_shape
        indices_shape = indices.get_shape().with_rank(2)
        values_shape = values.get_shape().with_rank(1)
        dense_shape_shape = dense_shape.get_shape().with_rank(1)
        indices_shape[0].merge_with(values_shape[0])
        indices_shape[1].merge_with(dense_shape_shape[0])

    @classmethod
    def from_value(cls, sparse_tensor_value):
        if not isinstance(sparse_tensor_value, (SparseTensor, SparseTensorValue)):
            raise TypeError("Neither a SparseTensor nor SparseTensorValue: %s." % (sparse_tensor_value,))
        return SparseTensor(*[getattr(sparse_tensor_value, part) for part in ("indices", "values", "dense_shape")])

    indices = property(lambda self: self._indices)
    values = property(lambda self: self._values)
    dense_shape = property(lambda self: self._dense_shape)
    op = property(lambda self: self._values.op)
    dtype = property(lambda self: self._values.dtype)
    graph = property(lambda self: self._indices.graph)

    @property
    def shape(self):
        return convert.constant_value_as_shape(self._dense_shape)

    def get_shape(self):
        return self.shape

    def eval(self, feed_dict=None, session=None):
        session = graph_elements.session_for(self.graph, session, "evaluate tensor", "`eval(session=sess)`")
        return SparseTensorValue(*session.run([self.indices, self.values, self.dense_shape], feed_dict))

    def _with_dense(self, op, dense):
        """The entries combined with what lies there in a dense tensor, which is broadcast."""
        from muster.graph.op_library import call

        dense = convert.convert_to_tensor(dense, dtype=self.dtype.base_dtype, name="y")
        return SparseTensor(self._indices, call(op, sp_indices=self._indices, sp_values=self._values,
                                                sp_shape=self._dense_shape, dense=dense), self._dense_shape)

    def __mul__(self, dense):
        return self._with_dense("SparseDenseCwiseMul", dense)

    def __truediv__(self, dense):
        return self._with_dense("SparseDenseCwiseDiv", dense)

    __div__ = __truediv__

    def __str__(self):
        return "SparseTensor(indices=%s, values=%s, dense_shape=%s)" % (self._indices, self._values, self._dense_shape)


def convert_to_tensor_or_sparse_tensor(value, dtype=None, name=None):
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if isinstance(value, SparseTensor):
        if dtype and not dtype.is_compatible_with(value.dtype):
            raise RuntimeError("Sparse dtype: requested = %s, actual = %s" % (dtype.name, value.dtype.name))
        return value
    return convert.convert_to_tensor(value, dtype=dtype, name=name)


def is_sparse(x):
    return isinstance(x, (SparseTensor, SparseTensorValue))


def _parts(sparse):
    return [sparse.indices, sparse.values, sparse.dense_shape]


def _feed(sparse, value):
    return list(zip(_parts(sparse), value if isinstance(value, tuple) else tuple(value)))


fetches_feeds.register_session_run_conversion_functions(
    SparseTensor, lambda sparse: (_parts(sparse), lambda values: SparseTensorValue(*values)), _feed)


def sparse_placeholder(dtype, shape=None, name=None):
    from muster.ops import array_ops

    label = name + "/" if name is not None else ""
    rank = None
    if isinstance(shape, framework.Tensor):
        dense_shape, rank = shape, shape.get_shape()[0].value
    elif shape is not None and tensor_shape.as_shape(shape).is_fully_defined():
        dims = tuple(tensor_shape.as_shape(shape).as_list())
        rank = len(dims)
        dense_shape = convert.convert_to_tensor(np.array(dims, np.int64), name=(label + "shape") or None)
    else:
        if shape is not None:
            rank = tensor_shape.as_shape(shape).ndims
        dense_shape = array_ops.placeholder(dtypes.int64, shape=[rank], name=label + "shape" if label else None)
    return SparseTensor(
        values=array_ops.placeholder(dtype, shape=[None], name=label + "values" if label else None),
        indices=array_ops.placeholder(dtypes.int64, shape=[None, rank], name=label + "indices" if label else None),
        dense_shape=dense_shape)


__all__ = ["SparseTensor", "SparseTensorValue", "convert_to_tensor_or_sparse_tensor", "sparse_placeholder"]
