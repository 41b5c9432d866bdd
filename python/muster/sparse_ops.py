"""Functions of SparseTensors."""
import numpy as np

from muster import array_ops, dtypes, framework, math_ops, sparse_tensor
from muster.array_ops import _merge_deprecated
from muster.convert import constant, convert_to_tensor
from muster.framework import name_scope
from muster.op_library import call
from muster.sparse_tensor import SparseTensor


def _convert(sp_input):
    if isinstance(sp_input, sparse_tensor.SparseTensorValue):
        return SparseTensor.from_value(sp_input)
    if not isinstance(sp_input, SparseTensor):
        raise TypeError("Input must be a SparseTensor.")
    return sp_input


def sparse_reorder(sp_input, name=None):
    sp_input = _convert(sp_input)
    indices, values = call("SparseReorder", name=name, input_indices=sp_input.indices, input_values=sp_input.values,
                           input_shape=sp_input.dense_shape)
    if sp_input.get_shape().is_fully_defined():
        return SparseTensor(indices, values, sp_input.get_shape().as_list())
    return SparseTensor(indices, values, array_ops.identity(sp_input.dense_shape))


def sparse_reshape(sp_input, shape, name=None):
    sp_input = _convert(sp_input)
    shape = math_ops.cast(shape, dtype=dtypes.int64)
    with name_scope(name, "SparseReshape", [sp_input.indices]) as name:
        indices, new_shape = call("SparseReshape", name=name, input_indices=sp_input.indices,
                                  input_shape=sp_input.dense_shape, new_shape=shape)
        return SparseTensor(indices, array_ops.identity(sp_input.values), new_shape)


def sparse_fill_empty_rows(sp_input, default_value, name=None):
    sp_input = _convert(sp_input)
    with name_scope(name, "SparseFillEmptyRows", [sp_input.indices]):
        default_value = convert_to_tensor(default_value, dtype=sp_input.values.dtype)
        indices, values, is_empty, _ = call(
            "SparseFillEmptyRows", indices=sp_input.indices, values=sp_input.values, dense_shape=sp_input.dense_shape,
            default_value=default_value)
        return SparseTensor(indices, values, sp_input.dense_shape), is_empty


def sparse_tensor_dense_matmul(sp_a, b, adjoint_a=False, adjoint_b=False, name=None):
    sp_a = _convert(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [sp_a.indices, sp_a.values, b]) as name:
        b = convert_to_tensor(b, name="b")
        return call("SparseTensorDenseMatMul", name=name, a_indices=sp_a.indices, a_values=sp_a.values,
                    a_shape=sp_a.dense_shape, b=b, adjoint_a=adjoint_a, adjoint_b=adjoint_b)


def _axes(sp_input, axis):
    """As a tensor; all axes where none are given."""
    if axis is not None:
        return axis
    rank = sp_input.dense_shape.get_shape()[0].value
    if rank is not None:
        return constant(np.arange(rank), dtype=dtypes.int32)
    return math_ops.range(0, array_ops.size(sp_input.dense_shape))


def sparse_reduce_sum(sp_input, axis=None, keepdims=None, reduction_axes=None, keep_dims=None):
    sp_input = _convert(sp_input)
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    axis = _merge_deprecated("axis", axis, "reduction_axes", reduction_axes)
    return call("SparseReduceSum", input_indices=sp_input.indices, input_values=sp_input.values,
                input_shape=sp_input.dense_shape, reduction_axes=_axes(sp_input, axis), keep_dims=bool(keepdims))


def sparse_reduce_sum_sparse(sp_input, axis=None, keepdims=None, reduction_axes=None, keep_dims=None):
    sp_input = _convert(sp_input)
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    axis = _merge_deprecated("axis", axis, "reduction_axes", reduction_axes)
    return SparseTensor(*call(
        "SparseReduceSumSparse", input_indices=sp_input.indices, input_values=sp_input.values,
        input_shape=sp_input.dense_shape, reduction_axes=_axes(sp_input, axis), keep_dims=bool(keepdims)))


def sparse_tensor_to_dense(sp_input, default_value=None, validate_indices=True, name=None):
    sp_input = _convert(sp_input)
    if default_value is None:
        default_value = array_ops.zeros([], dtype=sp_input.dtype)
    return call("SparseToDense", name=name, sparse_indices=sp_input.indices, output_shape=sp_input.dense_shape,
                sparse_values=sp_input.values, default_value=default_value, validate_indices=validate_indices)


def sparse_to_indicator(sp_input, vocab_size, name=None):
    sp_input = _convert(sp_input)
    with name_scope(name, "SparseToIndicator", [sp_input]) as name:
        ones = array_ops.fill(array_ops.shape(sp_input.values), True)
        with_ones = SparseTensor(sp_input.indices, ones, sp_input.dense_shape)
        merged = sparse_merge(_with_values(with_ones, sp_input.values), with_ones, vocab_size)
        return sparse_tensor_to_dense(merged, default_value=False, validate_indices=False, name=name)


def _with_values(sparse, values):
    return SparseTensor(sparse.indices, values, sparse.dense_shape)


def sparse_merge(sp_ids, sp_values, vocab_size, name=None, already_sorted=False):
    """A SparseTensor in which the ids are the last indices of the values."""
    if isinstance(sp_ids, (SparseTensor, sparse_tensor.SparseTensorValue)):
        sp_ids, vocab_size = [sp_ids], [vocab_size]
    if not isinstance(sp_ids, (list, tuple)):
        raise TypeError("sp_ids has to be a SparseTensor or list thereof. Found %s" % type(sp_ids))
    if not isinstance(vocab_size, (list, tuple, framework.Tensor)):
        raise TypeError("vocab_size has to be a list of Tensors or Python ints. Found %s" % type(vocab_size))
    for dim in vocab_size:
        if not (isinstance(dim, framework.Tensor) or isinstance(dim, (int, np.integer))):
            raise TypeError("vocab_size has to be a list of Tensors or Python ints. Found %s" % type(dim))
    if len(sp_ids) != len(vocab_size):
        raise ValueError("sp_ids and vocab_size have to have equal lengths.")
    with name_scope(name, "SparseMerge", list(sp_ids) + [sp_values]):
        sp_ids = [_convert(ids) for ids in sp_ids]
        sp_values = _convert(sp_values)
        ids = []
        for part in sp_ids:
            values = part.values
            if values.dtype != dtypes.int64:
                values = math_ops.cast(values, dtypes.int64)
            ids.append(array_ops.expand_dims(values, axis=1))
        vocab_size = [math_ops.cast(dim, dtypes.int64) for dim in vocab_size]
        columns = array_ops.concat([sp_ids[0].indices[:, :-1]] + ids, axis=1)
        shape = array_ops.concat([sp_ids[0].dense_shape[:-1], vocab_size], axis=0)
        result = SparseTensor(columns, sp_values.values, shape)
        if already_sorted:
            return result
        return sparse_reorder(result)


def sparse_retain(sp_input, to_retain):
    """The entries for which `to_retain` is true."""
    sp_input = _convert(sp_input)
    to_retain = convert_to_tensor(to_retain)
    to_retain.get_shape()[0].merge_with(sp_input.values.get_shape()[0])
    places = array_ops.reshape(array_ops.where(to_retain), [-1])
    return SparseTensor(array_ops.gather(sp_input.indices, places), array_ops.gather(sp_input.values, places),
                        array_ops.identity(sp_input.dense_shape))


__all__ = ["sparse_reorder", "sparse_reshape", "sparse_fill_empty_rows", "sparse_tensor_dense_matmul",
           "sparse_reduce_sum", "sparse_reduce_sum_sparse", "sparse_tensor_to_dense", "sparse_to_indicator",
           "sparse_merge", "sparse_retain"]
