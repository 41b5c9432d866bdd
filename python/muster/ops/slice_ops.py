"""x[...]: parts of tensors by slices, indices and masks."""
import numpy as np

from muster import dtypes
from muster.graph import framework, tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import math_ops
from muster.ops.array_ops import concat, gather, newaxis, ones_like, reshape, shape, squeeze, stack, where


def strided_slice(input_, begin, end, strides=None, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0,
                  shrink_axis_mask=0, var=None, name=None):
    if strides is None:
        strides = ones_like(begin)
    result = call("StridedSlice", name=name, input=input_, begin=begin, end=end, strides=strides,
                  begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
                  shrink_axis_mask=shrink_axis_mask)
    parent = name

    def assign(val, name=None):
        if var is None:
            raise ValueError("Sliced assignment is only supported for variables")
        return var._strided_slice_assign(begin=begin, end=end, strides=strides, value=val,
                                         name=name or (parent + "_assign"), begin_mask=begin_mask, end_mask=end_mask,
                                         ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
                                         shrink_axis_mask=shrink_axis_mask)

    if var is not None:
        result.assign = assign
    return result


def _check_index(index):
    if isinstance(index, (int, np.integer, tensor_shape.Dimension, framework.Tensor)) and not isinstance(index, bool):
        return
    if isinstance(index, np.ndarray) and index.ndim == 0 and index.dtype.kind in "iu":
        return
    if hasattr(index, "_as_graph_element"):
        return
    raise TypeError("Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 "
                    "tensors are valid indices, got %r" % (index,))


def _slice_helper(tensor, slice_spec, var=None):
    """x[...]: begin, end, strides and masks as TensorFlow packs them."""
    if isinstance(slice_spec, bool) or isinstance(slice_spec, (framework.Tensor, np.ndarray)) and (
            slice_spec.dtype == dtypes.bool):
        return boolean_mask(tensor, slice_spec)
    if isinstance(slice_spec, (list, tuple)) and not isinstance(slice_spec, str):
        specs = list(slice_spec)
    else:
        specs = [slice_spec]
    begin, end, strides = [], [], []
    begin_mask = end_mask = ellipsis_mask = new_axis_mask = shrink_axis_mask = 0
    for index, spec in enumerate(specs):
        if isinstance(spec, slice):
            if spec.start is not None:
                _check_index(spec.start)
                begin.append(spec.start)
            else:
                begin.append(0)
                begin_mask |= 1 << index
            if spec.stop is not None:
                _check_index(spec.stop)
                end.append(spec.stop)
            else:
                end.append(0)
                end_mask |= 1 << index
            if spec.step is not None:
                _check_index(spec.step)
                strides.append(spec.step)
            else:
                strides.append(1)
        elif spec is Ellipsis:
            begin.append(0)
            end.append(0)
            strides.append(1)
            ellipsis_mask |= 1 << index
        elif spec is newaxis:
            begin.append(0)
            end.append(0)
            strides.append(1)
            new_axis_mask |= 1 << index
        else:
            _check_index(spec)
            begin.append(spec)
            end.append(spec + 1)
            strides.append(1)
            shrink_axis_mask |= 1 << index
    with name_scope(None, "strided_slice", [tensor] + begin + end + strides) as name:
        if begin:
            packed_begin, packed_end, packed_strides = (stack(begin), stack(end), stack(strides))
            if dtypes.int64 in (packed_begin.dtype, packed_end.dtype, packed_strides.dtype):
                packed_begin, packed_end, packed_strides = (
                    t if t.dtype == dtypes.int64 else math_ops.cast(t, dtypes.int64)
                    for t in (packed_begin, packed_end, packed_strides))
        else:
            packed_begin = packed_end = packed_strides = constant([], dtype=dtypes.int32)
        return strided_slice(tensor, packed_begin, packed_end, packed_strides, begin_mask=begin_mask,
                             end_mask=end_mask, ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
                             shrink_axis_mask=shrink_axis_mask, var=var, name=name)


framework.Tensor._override_operator("__getitem__", _slice_helper)


def boolean_mask(tensor, mask, name="boolean_mask", axis=None):
    def apply_mask_1d(reshaped, mask_, axis_=None):
        indices = squeeze(where(mask_), axis=[1])
        return gather(reshaped, indices, axis=axis_)

    with name_scope(name, values=[tensor, mask]):
        tensor = convert_to_tensor(tensor, name="tensor")
        mask = convert_to_tensor(mask, name="mask")
        shape_mask = mask.get_shape()
        ndims_mask = shape_mask.ndims
        shape_tensor = tensor.get_shape()
        if ndims_mask == 0:
            raise ValueError("mask cannot be scalar.")
        if ndims_mask is None:
            raise ValueError("Number of mask dimensions must be specified, even if some dimensions are None.  E.g. "
                             "shape=[None] is ok, but shape=None is not.")
        axis = 0 if axis is None else axis
        shape_tensor[axis:axis + ndims_mask].assert_is_compatible_with(shape_mask)
        leading = math_ops.reduce_prod(shape(tensor)[axis:axis + ndims_mask], [0])
        tensor = reshape(tensor, concat([shape(tensor)[:axis], [leading], shape(tensor)[axis + ndims_mask:]], 0))
        first = shape_tensor[axis:axis + ndims_mask].num_elements()
        tensor.set_shape(tensor_shape.as_shape(shape_tensor[:axis]).concatenate([first]).concatenate(
            shape_tensor[axis + ndims_mask:]))
        mask = reshape(mask, [-1])
        return apply_mask_1d(tensor, mask, axis)
