"""Functions of SparseTensors."""
import numpy as np

from muster import dtypes
from muster.graph import framework
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, math_ops, sparse_tensor
from muster.ops.array_ops import _merge_deprecated
from muster.ops.sparse_tensor import SparseTensor


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


def sparse_add(a, b, threshold=None, thresh=None):
    """The sum of two tensors, of which at least one is sparse."""
    threshold = _merge_deprecated("threshold", threshold, "thresh", thresh) or 0
    a_sparse, b_sparse = sparse_tensor.is_sparse(a), sparse_tensor.is_sparse(b)
    if not (a_sparse or b_sparse):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if a_sparse and b_sparse:
        a, b = _convert(a), _convert(b)
        threshold = convert_to_tensor(threshold, dtype=a.values.dtype.real_dtype.base_dtype, name="threshold")
        return SparseTensor(*call(
            "SparseAdd", a_indices=a.indices, a_values=a.values, a_shape=a.dense_shape, b_indices=b.indices,
            b_values=b.values, b_shape=b.dense_shape, thresh=threshold))
    sparse, dense = (_convert(a), b) if a_sparse else (_convert(b), a)
    return call("SparseTensorDenseAdd", a_indices=sparse.indices, a_values=sparse.values, a_shape=sparse.dense_shape,
                b=dense)


def sparse_concat(axis, sp_inputs, name=None, expand_nonconcat_dim=False, concat_dim=None, expand_nonconcat_dims=None):
    """Sparse tensors one behind the other; with expand_nonconcat_dims their other sizes may differ."""
    axis = _merge_deprecated("axis", axis, "concat_dim", concat_dim)
    expand = expand_nonconcat_dim if expand_nonconcat_dims is None else expand_nonconcat_dims
    inputs = [_convert(value) for value in sp_inputs]
    if len(inputs) == 1:
        return inputs[0]
    shapes = [value.dense_shape for value in inputs]
    if expand:
        largest = math_ops.reduce_max(array_ops.stack(shapes), 0)
        rank = inputs[0].dense_shape.get_shape()[0].value
        if rank is None:
            raise ValueError("sparse_concat with expand_nonconcat_dims needs inputs of known rank")
        at = axis % rank
        shapes = [array_ops.concat([largest[:at], shape[at:at + 1], largest[at + 1:]], 0) for shape in shapes]
    return SparseTensor(*call("SparseConcat", name=name, indices=[value.indices for value in inputs],
                              values=[value.values for value in inputs], shapes=shapes, concat_dim=axis))


def sparse_split(keyword_required=None, sp_input=None, num_split=None, axis=None, name=None, split_dim=None):
    axis = _merge_deprecated("axis", axis, "split_dim", split_dim)
    if keyword_required is not None:
        raise ValueError("Keyword arguments are required for this function.")
    if sp_input is None:
        raise ValueError("sp_input is required")
    if num_split is None:
        raise ValueError("num_split is required")
    if axis is None:
        raise ValueError("axis is required")
    sp_input = _convert(sp_input)
    indices, values, shapes = call("SparseSplit", name=name, split_dim=axis, indices=sp_input.indices,
                                   values=sp_input.values, shape=sp_input.dense_shape, num_split=num_split)
    return [SparseTensor(*parts) for parts in zip(indices, values, shapes)]


def sparse_slice(sp_input, start, size, name=None):
    sp_input = _convert(sp_input)
    with name_scope(name, "SparseSlice", [sp_input]) as name:
        return SparseTensor(*call(
            "SparseSlice", name=name, indices=sp_input.indices, values=sp_input.values, shape=sp_input.dense_shape,
            start=convert_to_tensor(start, dtypes.int64), size=convert_to_tensor(size, dtypes.int64)))


def sparse_softmax(sp_input, name=None):
    with name_scope(name, "SparseSoftmax", [sp_input.indices, sp_input.values]) as name:
        values = call("SparseSoftmax", name=name, sp_indices=sp_input.indices, sp_values=sp_input.values,
                      sp_shape=sp_input.dense_shape)
        return _with_values(sp_input, values)


def sparse_transpose(sp_input, perm=None, name=None):
    with name_scope(name, "SparseTranspose", [sp_input]):
        sp_input = _convert(sp_input)
        rank = sp_input.dense_shape.get_shape()[0].value
        if perm is None:
            perm = (np.arange(rank)[::-1] if rank is not None
                    else array_ops.rank(sp_input.dense_shape) - 1 - math_ops.range(array_ops.size(sp_input.dense_shape)))
        columns = array_ops.transpose(array_ops.gather(array_ops.transpose(sp_input.indices), perm))
        transposed = SparseTensor(columns, sp_input.values, array_ops.gather(sp_input.dense_shape, perm))
        return sparse_reorder(transposed)


def sparse_mask(a, mask_indices, name=None):
    """IndexedSlices without the given indices."""
    with name_scope(name, "sparse_mask", [a, mask_indices]) as name:
        indices, kept = array_ops.setdiff1d(a.indices, mask_indices)
        return framework.IndexedSlices(array_ops.gather(a.values, kept, name=name), indices, a.dense_shape)


def _extreme(op, name_):
    def function(sp_a, sp_b, name=None):
        sp_a, sp_b = _convert(sp_a), _convert(sp_b)
        indices, values = call(op, name=name or name_, a_indices=sp_a.indices, a_values=sp_a.values,
                               a_shape=sp_a.dense_shape, b_indices=sp_b.indices, b_values=sp_b.values,
                               b_shape=sp_b.dense_shape)
        return SparseTensor(indices, values, sp_a.dense_shape)

    return function


sparse_maximum = _extreme("SparseSparseMaximum", "SparseSparseMaximum")
sparse_minimum = _extreme("SparseSparseMinimum", "SparseSparseMinimum")


def sparse_reduce_max(sp_input, axis=None, keepdims=None, reduction_axes=None, keep_dims=None):
    sp_input = _convert(sp_input)
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    axis = _merge_deprecated("axis", axis, "reduction_axes", reduction_axes)
    return call("SparseReduceMax", input_indices=sp_input.indices, input_values=sp_input.values,
                input_shape=sp_input.dense_shape, reduction_axes=_axes(sp_input, axis), keep_dims=bool(keepdims))


def sparse_reduce_max_sparse(sp_input, axis=None, keepdims=None, reduction_axes=None, keep_dims=None):
    sp_input = _convert(sp_input)
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    axis = _merge_deprecated("axis", axis, "reduction_axes", reduction_axes)
    return SparseTensor(*call(
        "SparseReduceMaxSparse", input_indices=sp_input.indices, input_values=sp_input.values,
        input_shape=sp_input.dense_shape, reduction_axes=_axes(sp_input, axis), keep_dims=bool(keepdims)))


def sparse_reset_shape(sp_input, new_shape=None):
    """The same entries in the smallest shape that holds them, or in `new_shape`."""
    sp_input = _convert(sp_input)
    if new_shape is None:
        # An empty tensor has the shape of zeros.
        shape = math_ops.maximum(
            array_ops.constant(0, dtype=dtypes.int64),
            math_ops.reduce_max(sp_input.indices, axis=0) + array_ops.ones_like(sp_input.dense_shape))
    else:
        shape = convert_to_tensor(new_shape, dtype=dtypes.int64)
    return SparseTensor(array_ops.identity(sp_input.indices), array_ops.identity(sp_input.values), shape)


def sparse_expand_dims(sp_input, axis=None, name=None):
    rank = sp_input.dense_shape.get_shape()[0].value
    if rank is None:
        raise ValueError("sparse.expand_dims needs an input of known rank")
    axis = -1 if axis is None else axis
    at = axis + rank + 1 if axis < 0 else axis
    with name_scope(name, "expand_dims", [sp_input]):
        zeros = array_ops.zeros([array_ops.shape(sp_input.indices)[0], 1], dtype=dtypes.int64)
        indices = array_ops.concat([sp_input.indices[:, :at], zeros, sp_input.indices[:, at:]], axis=1)
        shape = array_ops.concat([sp_input.dense_shape[:at], [1], sp_input.dense_shape[at:]], axis=0)
        return SparseTensor(indices, sp_input.values, shape)


def from_dense(tensor, name=None):
    with name_scope(name, "dense_to_sparse"):
        tensor = convert_to_tensor(tensor)
        indices = array_ops.where(math_ops.not_equal(tensor, array_ops.zeros_like(tensor)))
        return SparseTensor(indices, array_ops.gather_nd(tensor, indices),
                            array_ops.shape(tensor, out_type=dtypes.int64))


def serialize_sparse(sp_input, name=None, out_type=dtypes.string):
    """A sparse tensor as three elements."""
    sp_input = _convert(sp_input)
    return call("SerializeSparse", name=name, sparse_indices=sp_input.indices, sparse_values=sp_input.values,
                sparse_shape=sp_input.dense_shape, out_type=out_type)


def serialize_many_sparse(sp_input, name=None, out_type=dtypes.string):
    """The rows of a sparse tensor as three elements each."""
    sp_input = _convert(sp_input)
    return call("SerializeManySparse", name=name, sparse_indices=sp_input.indices, sparse_values=sp_input.values,
                sparse_shape=sp_input.dense_shape, out_type=out_type)


def _with_rank(parts, rank):
    indices, values, shape = parts
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)


def deserialize_sparse(serialized_sparse, dtype, rank=None, name=None):
    return _with_rank(call("DeserializeSparse", name=name, serialized_sparse=serialized_sparse, dtype=dtype), rank)


def deserialize_many_sparse(serialized_sparse, dtype, rank=None, name=None):
    return _with_rank(call("DeserializeManySparse", name=name, serialized_sparse=serialized_sparse, dtype=dtype),
                      None if rank is None else rank + 1)


__all__ = ["deserialize_many_sparse", "serialize_many_sparse", "serialize_sparse", "sparse_reorder",
           "sparse_reshape", "sparse_fill_empty_rows", "sparse_tensor_dense_matmul",
           "sparse_reduce_sum", "sparse_reduce_sum_sparse", "sparse_tensor_to_dense", "sparse_to_indicator",
           "sparse_merge", "sparse_retain", "sparse_add", "sparse_concat", "sparse_split", "sparse_slice", "sparse_softmax",
           "sparse_transpose", "sparse_mask", "sparse_maximum", "sparse_minimum", "sparse_reduce_max",
           "sparse_reduce_max_sparse", "sparse_reset_shape"]
