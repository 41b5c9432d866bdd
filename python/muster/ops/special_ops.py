"""Functions made of other ones, and those of single ops that few programs use: einsum, sort, roll, searchsorted, ..."""
import collections

import numpy as np

from muster import dtypes
from muster.generated.special_ops import *  # noqa: F403
from muster.graph import convert, framework, tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, control_flow_ops, math_ops, slice_ops


# --- einsum ---
def _subscripts(equation, shapes):
    """The labels of every input and of the output, with "..." expanded to digits."""
    equation = equation.replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    inputs = inputs.split(",")
    if len(inputs) != len(shapes):
        raise ValueError("Got %d arguments for equation \"%s\", expecting %d" % (len(shapes), equation, len(inputs)))
    widest, expanded = 0, []
    for labels, shape in zip(inputs, shapes):
        if "..." in labels:
            if shape.ndims is None:
                raise ValueError("Ellipsis expansion in einsum needs inputs of known rank")
            count = shape.ndims - len(labels.replace("...", ""))
            if count < 0:
                raise ValueError("Invalid input: \"%s\" has more labels than the input dimensions" % labels)
            widest = max(widest, count)
        expanded.append(labels)
    digits = "".join(str(i) for i in range(widest))
    for i, (labels, shape) in enumerate(zip(expanded, shapes)):
        if "..." in labels:
            count = shape.ndims - len(labels.replace("...", ""))
            expanded[i] = labels.replace("...", digits[widest - count:])
        if shape.ndims is not None and len(expanded[i]) != shape.ndims:
            raise ValueError("Shape of argument %d, %s, does not fit the labels \"%s\"" % (i, shape, labels))
        if len(set(expanded[i])) != len(expanded[i]):
            raise ValueError("Subscript not supported: an axis appears more than once: %s" % expanded[i])
    if arrow:
        output = output.replace("...", digits)
    else:
        counts = collections.Counter("".join(expanded))
        output = digits + "".join(sorted(label for label, n in counts.items() if n == 1 and not label.isdigit()))
    unknown = set(output) - set("".join(expanded))
    if unknown or len(set(output)) != len(output):
        raise ValueError("Unknown or repeated output axis in einsum: %s" % output)
    return expanded, output


def _arranged(tensor, labels, wanted):
    return tensor if labels == wanted else array_ops.transpose(tensor, [labels.index(label) for label in wanted])


def _sizes(tensor, labels):
    """label -> size, a number where it is known."""
    static = tensor.get_shape().as_list()
    dynamic = None if all(size is not None for size in static) else array_ops.shape(tensor)
    return {label: size if size is not None else dynamic[i] for i, (label, size) in enumerate(zip(labels, static))}


def _product(sizes):
    result = 1
    for size in sizes:
        result = result * size
    return result


def _contract(a, a_labels, b, b_labels, kept):
    """One matrix product: labels in both and in `kept` are batches, those in both alone are summed."""
    a, a_labels = _summed(a, a_labels, set(b_labels) | kept)
    b, b_labels = _summed(b, b_labels, set(a_labels) | kept)
    batch = "".join(label for label in a_labels if label in b_labels and label in kept)
    inner = "".join(label for label in a_labels if label in b_labels and label not in kept)
    left = "".join(label for label in a_labels if label not in b_labels)
    right = "".join(label for label in b_labels if label not in a_labels)
    a_sizes, b_sizes = _sizes(a, a_labels), _sizes(b, b_labels)
    sizes = dict(b_sizes, **a_sizes)
    for label in batch:
        # An axis of one is broadcast.
        if isinstance(a_sizes[label], int) and a_sizes[label] == 1:
            sizes[label] = b_sizes[label]

    def shape(own, parts):
        return [own[label] for label in batch] + [_product(own[label] for label in part) for part in parts]

    a = array_ops.reshape(_arranged(a, a_labels, batch + left + inner), shape(a_sizes, (left, inner)))
    b = array_ops.reshape(_arranged(b, b_labels, batch + inner + right), shape(b_sizes, (inner, right)))
    result = math_ops.matmul(a, b)
    labels = batch + left + right
    return array_ops.reshape(result, [sizes[label] for label in labels]), labels


def _summed(tensor, labels, kept):
    axes = [i for i, label in enumerate(labels) if label not in kept]
    if not axes:
        return tensor, labels
    return math_ops.reduce_sum(tensor, axes), "".join(label for label in labels if label in kept)


def einsum(equation, *inputs, **kwargs):
    """The sum of products over the labels that the output does not have."""
    name = kwargs.pop("name", None)
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError("invalid keyword arguments for this function: " + ", ".join(sorted(kwargs)))
    if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)):
        inputs = inputs[0]
    with name_scope(name, "einsum", [equation, inputs]):
        inputs = [convert_to_tensor(value) for value in inputs]
        labels, output = _subscripts(equation, [value.get_shape() for value in inputs])
        result, result_labels = inputs[0], labels[0]
        for i in range(1, len(inputs)):
            kept = set(output) | set("".join(labels[i + 1:]))
            result, result_labels = _contract(result, result_labels, inputs[i], labels[i], kept)
        result, result_labels = _summed(result, result_labels, set(output))
        return _arranged(result, result_labels, output)


# --- Order ---
def _to_last_axis(values, axis):
    """(values with `axis` last, how to put it back)."""
    rank = values.get_shape().ndims
    if rank is None:
        raise ValueError("sort and argsort need values of known rank")
    if not isinstance(axis, (int, np.integer)):
        raise ValueError("axis must be a constant scalar")
    if not -rank <= axis < rank:
        raise ValueError("axis %d is not in [-%d, %d)" % (axis, rank, rank))
    axis %= rank
    if axis == rank - 1:
        return values, lambda result: result
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    return array_ops.transpose(values, order), lambda result: array_ops.transpose(result, back)


def _sorted(values, axis, direction, part):
    from muster.nn import nn_ops

    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError("%s should be one of ASCENDING, DESCENDING" % direction)
    values = convert_to_tensor(values, name="values")
    moved, back = _to_last_axis(values, axis)
    k = array_ops.shape(moved)[-1]
    if direction == "DESCENDING":
        return back(nn_ops.top_k(moved, k)[part])
    if values.dtype.is_unsigned:
        flipped = values.dtype.max - moved
    elif values.dtype.is_integer:
        flipped = -1 - moved  # the negative of the smallest integer does not exist
    else:
        flipped = -moved
    result = nn_ops.top_k(flipped, k)[part]
    if part == 0:
        if values.dtype.is_unsigned:
            result = values.dtype.max - result
        elif values.dtype.is_integer:
            result = -1 - result
        else:
            result = -result
    return back(result)


def sort(values, axis=-1, direction="ASCENDING", name=None):
    with name_scope(name, "sort"):
        return _sorted(values, axis, direction, 0)


def argsort(values, axis=-1, direction="ASCENDING", stable=False, name=None):
    del stable  # it is
    with name_scope(name, "argsort"):
        return _sorted(values, axis, direction, 1)


def searchsorted(sorted_sequence, values, side="left", out_type=dtypes.int32, name=None):
    with name_scope(name, "searchsorted", [sorted_sequence, values]):
        sorted_sequence, values = convert_to_tensor(sorted_sequence), convert_to_tensor(values)
        if side not in ("left", "right"):
            raise ValueError("side must be either 'right' or 'left'.  Saw: %s." % side)
        rows = array_ops.reshape(sorted_sequence, [-1, array_ops.shape(sorted_sequence)[-1]])
        wanted = array_ops.reshape(values, [-1, array_ops.shape(values)[-1]])
        found = call("UpperBound" if side == "right" else "LowerBound", sorted_inputs=rows, values=wanted,
                     out_type=out_type)
        return array_ops.reshape(found, array_ops.shape(values))


# --- Arrays ---


def repeat(input, repeats, axis=None, name=None):
    """np.repeat."""
    with name_scope(name, "Repeat", [input, repeats]):
        data = convert_to_tensor(input, name="input")
        if axis is None:
            data, axis = array_ops.reshape(data, [-1]), 0
        rank = data.get_shape().ndims
        if rank is None:
            raise ValueError("repeat needs an input of known rank")
        axis %= rank
        size = array_ops.shape(data)[axis]
        repeats = math_ops.cast(convert_to_tensor(repeats, name="repeats"), dtypes.int32)
        if repeats.get_shape().ndims == 0:
            places = array_ops.reshape(
                array_ops.tile(array_ops.expand_dims(math_ops.range(size), 1), array_ops.stack([1, repeats])), [-1])
        else:
            repeats = array_ops.broadcast_to(repeats, array_ops.expand_dims(size, 0))
            longest = math_ops.maximum(math_ops.reduce_max(repeats), 0)
            mask = array_ops.sequence_mask(repeats, longest)
            grid = array_ops.tile(array_ops.expand_dims(math_ops.range(size), 1), array_ops.stack([1, longest]))
            places = slice_ops.boolean_mask(grid, mask)
        return array_ops.gather(data, places, axis=axis)


def batch_gather(params, indices, name=None):
    with name_scope(name, "BatchGather", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        if indices.get_shape().ndims is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        dims = indices.get_shape().ndims - 1
        return array_ops.gather(params, indices, axis=dims, batch_dims=dims)


tensor_scatter_nd_add = tensor_scatter_add
tensor_scatter_nd_sub = tensor_scatter_sub
tensor_scatter_nd_update = array_ops.tensor_scatter_update


def histogram_fixed_width(values, value_range, nbins=100, dtype=dtypes.int32, name=None):
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as name:
        return call("HistogramFixedWidth", name=name, values=values, value_range=value_range, nbins=nbins, dtype=dtype)


def histogram_fixed_width_bins(values, value_range, nbins=100, dtype=dtypes.int32, name=None):
    with name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        values = convert_to_tensor(values, name="values")
        shape = array_ops.shape(values)
        values = array_ops.reshape(values, [-1])
        value_range = convert_to_tensor(value_range, name="value_range")
        nbins = math_ops.cast(nbins, dtypes.float64)
        scaled = math_ops.truediv(values - value_range[0], value_range[1] - value_range[0])
        indices = math_ops.floor(nbins * math_ops.cast(scaled, dtypes.float64))
        clipped = math_ops.cast(math_ops.minimum(math_ops.maximum(indices, 0.), nbins - 1), dtypes.int32)
        return array_ops.reshape(math_ops.cast(clipped, dtype), shape)


# --- Numbers ---
def scalar_mul(scalar, x, name=None):
    scalar = convert_to_tensor(scalar, dtype=x.dtype.base_dtype, name="scalar")
    if scalar.get_shape().ndims not in (0, None):
        raise ValueError("Only scalar multiply works, got shape %s" % scalar.get_shape())
    if isinstance(x, framework.IndexedSlices):
        return framework.IndexedSlices(math_ops.multiply(scalar, x.values, name=name), x.indices, x.dense_shape)
    return math_ops.multiply(scalar, x, name=name)


def lbeta(x, name=None):
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        return math_ops.subtract(math_ops.reduce_sum(math_ops.lgamma(x), axis=[-1]),
                                 math_ops.lgamma(math_ops.reduce_sum(x, axis=[-1])))


def to_complex64(x, name="ToComplex64"):
    return math_ops.cast(x, dtypes.complex64, name=name)


def to_complex128(x, name="ToComplex128"):
    return math_ops.cast(x, dtypes.complex128, name=name)


def _segment_counts(data, segment_ids, num_segments):
    """How many rows every segment has, at least one, shaped so that results can be divided by it."""
    segment_ids = convert_to_tensor(segment_ids)
    num_segments = convert_to_tensor(num_segments)
    counts = math_ops.unsorted_segment_sum(
        array_ops.ones(array_ops.shape(segment_ids), dtype=data.dtype), segment_ids, num_segments)
    extra = array_ops.ones([array_ops.rank(data) - array_ops.rank(segment_ids)], dtype=num_segments.dtype)
    shape = array_ops.concat([array_ops.reshape(num_segments, [1]), extra], axis=0)
    return math_ops.maximum(array_ops.reshape(counts, shape), 1)


def unsorted_segment_mean(data, segment_ids, num_segments, name=None):
    with name_scope(name, "UnsortedSegmentMean"):
        data = convert_to_tensor(data)
        return math_ops.unsorted_segment_sum(data, segment_ids, num_segments) / _segment_counts(
            data, segment_ids, num_segments)


def unsorted_segment_sqrt_n(data, segment_ids, num_segments, name=None):
    with name_scope(name, "UnsortedSegmentSqrtN"):
        data = convert_to_tensor(data)
        return math_ops.unsorted_segment_sum(data, segment_ids, num_segments) / math_ops.sqrt(
            _segment_counts(data, segment_ids, num_segments))


def polyval(coeffs, x, name=None):
    with name_scope(name, "polyval", list(coeffs) + [x]):
        x = convert_to_tensor(x, name="x")
        if not coeffs:
            return array_ops.zeros_like(x, name=name)
        coeffs = [convert_to_tensor(c, name="coeff_%d" % i) for i, c in enumerate(coeffs)]
        result = coeffs[0]
        for coefficient in coeffs[1:]:
            result = coefficient + result * x
        return result


# --- Control ---
def switch_case(branch_index, branch_fns, default=None, name="switch_case"):
    """The function with that number, or the last one (`default` where given)."""
    if isinstance(branch_fns, dict):
        pairs = sorted(branch_fns.items())
    else:
        pairs = sorted(enumerate(branch_fns)) if all(callable(f) for f in branch_fns) else sorted(branch_fns)
    branch_index = convert_to_tensor(branch_index)
    if default is None:
        default = pairs[-1][1]

    def chosen(at):
        if at == len(pairs):
            return default()
        return control_flow_ops.cond(math_ops.equal(branch_index, pairs[at][0]), pairs[at][1], lambda: chosen(at + 1))

    with name_scope(name):
        return chosen(0)


# --- Old tools ---
def create_partitioned_variables(shape, slicing, initializer, dtype=dtypes.float32, trainable=True, collections=None,
                                 name=None, reuse=None):
    """The parts of a variable that is cut along the one axis whose entry of `slicing` is above one."""
    from muster.variables import variable_scopes

    if len(shape) != len(slicing):
        raise ValueError("The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: %s, slicing: "
                         "%s" % (shape, slicing))
    if len(shape) < 1:
        raise ValueError("A partitioned Variable must have rank at least 1: shape: %s" % shape)
    if callable(initializer):
        initial = initializer
    else:
        value = convert_to_tensor(initializer, dtype=dtype)
        if value.get_shape().as_list() != list(shape):
            raise ValueError("The initializer has shape %s, not %s" % (value.get_shape(), shape))

        def initial(part, dtype=None, partition_info=None):
            return array_ops.slice(value, partition_info.var_offset, part)

    with variable_scopes.variable_scope(name, "PartitionedVariable", reuse=reuse):
        return list(variable_scopes.get_variable(
            name="part", shape=shape, dtype=dtype, initializer=initial, trainable=trainable, collections=collections,
            partitioner=lambda **unused: slicing))


def dimension_value(dimension):
    return dimension.value if isinstance(dimension, tensor_shape.Dimension) else dimension


def dimension_at_index(shape, index):
    return tensor_shape.Dimension(None) if shape.ndims is None else shape.dims[index]


def get_logger():
    from muster import tf_logging

    return tf_logging._get_logger()


def convert_to_tensor_or_indexed_slices(value, dtype=None, name=None):
    return value if isinstance(value, framework.IndexedSlices) else convert.convert_to_tensor(value, dtype, name)


def _ignored(*args, **kwargs):
    """Graphs are always built as TensorFlow 1.15 builds them."""


disable_control_flow_v2 = disable_tensor_equality = disable_v2_tensorshape = enable_control_flow_v2 = _ignored


def control_flow_v2_enabled():
    return False


GRAPH_DEF_VERSION = 134
GRAPH_DEF_VERSION_MIN_CONSUMER = 0
GRAPH_DEF_VERSION_MIN_PRODUCER = 0


def bessel_i0e(x, name=None):
    return call("BesselI0e", name=name or "bessel_i0e", x=x)


def bessel_i1e(x, name=None):
    return call("BesselI1e", name=name or "bessel_i1e", x=x)


__all__ = [
    "betainc", "einsum", "sort", "argsort", "searchsorted", "roll", "repeat", "unravel_index", "batch_gather", "tensor_scatter_add",
    "tensor_scatter_nd_add", "tensor_scatter_sub", "tensor_scatter_nd_sub", "tensor_scatter_nd_update",
    "histogram_fixed_width", "histogram_fixed_width_bins", "scalar_mul", "igamma", "igammac", "zeta", "polygamma", "lbeta",
    "to_complex64", "to_complex128", "unsorted_segment_mean", "unsorted_segment_sqrt_n", "switch_case", "create_partitioned_variables",
    "dimension_value", "dimension_at_index", "get_logger", "convert_to_tensor_or_indexed_slices", "guarantee_const",
    "disable_control_flow_v2", "enable_control_flow_v2", "control_flow_v2_enabled", "disable_tensor_equality", "disable_v2_tensorshape", "GRAPH_DEF_VERSION",
    "GRAPH_DEF_VERSION_MIN_CONSUMER", "GRAPH_DEF_VERSION_MIN_PRODUCER"]
