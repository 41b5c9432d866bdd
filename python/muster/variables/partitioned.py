"""Partitioners and the slices they ask for."""
import math

from muster import dtypes
from muster.graph import tensor_shape


class PartitionInfo(object):
    """Where a part lies in the whole; initializers may look at it."""

    def __init__(self, full_shape, var_offset):
        self.full_shape, self.var_offset = full_shape, var_offset

    def single_offset(self, shape):
        index = self.single_slice_dim(shape)
        return 0 if index is None else self.var_offset[index]

    def single_slice_dim(self, shape):
        sliced = [i for i, (part, whole) in enumerate(zip(shape, self.full_shape)) if part != whole]
        if len(sliced) > 1:
            raise ValueError("Cannot use single_slice_dim() with shape %s and full_shape %s since slice dim could be "
                             "either dim %s" % (shape, self.full_shape, sliced))
        return sliced[0] if sliced else None


def call_partitioner(partitioner, shape, dtype):
    if not shape.is_fully_defined():
        raise ValueError("Shape of a new partitioned variable must be fully defined, but instead was %s." % shape)
    partitions = partitioner(shape=shape, dtype=dtype)
    if not isinstance(partitions, (list, tuple)):
        raise ValueError("Partitioner must return a sequence, but saw: %s" % partitions)
    if len(partitions) != shape.ndims:
        raise ValueError("Partitioner returned a partition list that does not match the Variable's rank: %s vs. %s"
                         % (partitions, shape))
    if any(p < 1 for p in partitions):
        raise ValueError("Partitioner returned zero partitions for some axes: %s" % partitions)
    if sum(p > 1 for p in partitions) > 1:
        raise ValueError("Can only slice a variable along one dimension: shape: %s, partitioning: %s"
                         % (shape, partitions))
    return list(partitions)


def slices_of(partitions, shape):
    """(axis, [(offset, shape) per part]); earlier parts get the rows left over."""
    axis = next((i for i, p in enumerate(partitions) if p > 1), 0)
    count = partitions[axis]
    size, extra = divmod(shape[axis], count)
    slices, offset = [], 0
    for i in range(count):
        rows = size + (1 if i < extra else 0)
        start = [0] * len(shape)
        start[axis] = offset
        part = list(shape)
        part[axis] = rows
        slices.append((start, part))
        offset += rows
    return axis, slices


def fixed_size_partitioner(num_shards, axis=0):
    def partitioner(shape, **unused_args):
        partitions = [1] * len(shape)
        partitions[axis] = min(num_shards, tensor_shape.dimension_value(shape.dims[axis]))
        return partitions

    return partitioner


def variable_axis_size_partitioner(max_shard_bytes, axis=0, bytes_per_string_element=16, max_shards=None):
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError("Both max_shard_bytes and bytes_per_string_element must be positive.")
    if max_shards and max_shards < 1:
        raise ValueError("max_shards must be positive.")

    def partitioner(shape, dtype):
        if not isinstance(shape, tensor_shape.TensorShape):
            raise ValueError("shape is not a TensorShape: %s" % shape)
        if not shape.is_fully_defined():
            raise ValueError("shape is not fully defined: %s" % shape)
        element = bytes_per_string_element if dtype.base_dtype == dtypes.string else dtype.size
        partitions = [1] * shape.ndims
        rows = max(1, shape.num_elements() / shape.dims[axis].value)
        shards = max(1, math.ceil(1.0 * shape.dims[axis].value / max(1, math.floor(max_shard_bytes / (rows * element)))))
        if max_shards:
            shards = min(max_shards, shards)
        partitions[axis] = int(shards)
        return partitions

    return partitioner


def min_max_variable_partitioner(max_partitions=1, axis=0, min_slice_size=256 << 10, bytes_per_string_element=16):
    def partitioner(shape, dtype):
        if axis >= len(shape):
            raise ValueError("Cannot partition variable along axis %d when shape is only %s" % (axis, shape))
        element = bytes_per_string_element if dtypes.as_dtype(dtype).base_dtype == dtypes.string else dtypes.as_dtype(
            dtype).size
        partitions = [1] * len(shape)
        total = shape.num_elements() * element
        wanted = max(1, int(math.ceil(total / min_slice_size)))
        partitions[axis] = max(1, min(wanted, tensor_shape.dimension_value(shape.dims[axis]), max_partitions))
        return partitions

    return partitioner


__all__ = ["fixed_size_partitioner", "variable_axis_size_partitioner", "min_max_variable_partitioner"]
