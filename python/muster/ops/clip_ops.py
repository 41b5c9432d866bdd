"""Clipping of tensors, and of lists of gradients by their common norm."""
from muster import dtypes
from muster.graph import framework
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import colocate_with, name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, math_ops


def _values(t):
    return t.values if isinstance(t, framework.IndexedSlices) else t


def _like(t, values):
    if isinstance(t, framework.IndexedSlices):
        return framework.IndexedSlices(values, t.indices, t.dense_shape)
    return values


def clip_by_value(t, clip_value_min, clip_value_max, name=None):
    with name_scope(name, "clip_by_value", [_values(t), clip_value_min, clip_value_max]) as name:
        values = convert_to_tensor(_values(t), name="t")
        below = math_ops.minimum(values, clip_value_max)
        # A bound may not make the tensor larger.
        values.get_shape().assert_is_compatible_with(below.get_shape())
        result = math_ops.maximum(below, clip_value_min, name=name)
        values.get_shape().assert_is_compatible_with(result.get_shape())
        return _like(t, result)


def clip_by_norm(t, clip_norm, axes=None, name=None):
    with name_scope(name, "clip_by_norm", [_values(t), clip_norm]) as name:
        values = convert_to_tensor(_values(t), name="t")
        square_sum = math_ops.reduce_sum(values * values, axes, keepdims=True)
        positive = square_sum > 0
        # The gradient of sqrt at zero would be NaN: the zero is replaced, not only masked.
        safe = array_ops.where(positive, square_sum, array_ops.ones_like(square_sum))
        norm = array_ops.where(positive, math_ops.sqrt(safe), square_sum)
        scaled = values * clip_norm
        values.get_shape().assert_is_compatible_with(scaled.get_shape())
        return _like(t, array_ops.identity(scaled / math_ops.maximum(norm, clip_norm), name=name))


def clip_by_average_norm(t, clip_norm, name=None):
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as name:
        t = convert_to_tensor(t, name="t")
        count = math_ops.cast(array_ops.size(t), dtypes.float32)
        inverse = math_ops.rsqrt(math_ops.reduce_sum(t * t, math_ops.range(array_ops.rank(t))))
        return array_ops.identity(t * clip_norm * math_ops.minimum(inverse * count, constant(1.0) / clip_norm),
                                  name=name)


def _check_list(t_list):
    if not isinstance(t_list, (list, tuple)):
        raise TypeError("t_list should be a sequence")
    return list(t_list)


def _value_list(t_list):
    return [None if t is None else convert_to_tensor(_values(t), name="t_%d" % i) for i, t in enumerate(t_list)]


def global_norm(t_list, name=None):
    t_list = _check_list(t_list)
    with name_scope(name, "global_norm", [_values(t) for t in t_list if t is not None]) as name:
        halves = []
        for value in _value_list(t_list):
            if value is not None:
                with colocate_with(value):
                    halves.append(call("L2Loss", t=value))
        total = math_ops.reduce_sum(array_ops.stack(halves))
        return math_ops.sqrt(total * constant(2.0, dtype=total.dtype), name="global_norm")


def clip_by_global_norm(t_list, clip_norm, use_norm=None, name=None):
    t_list = _check_list(t_list)
    if use_norm is None:
        use_norm = global_norm(t_list, name)
    with name_scope(name, "clip_by_global_norm", [_values(t) for t in t_list if t is not None] + [clip_norm]) as name:
        finite_scale = clip_norm * math_ops.minimum(
            1.0 / use_norm, constant(1.0, dtype=use_norm.dtype) / clip_norm)
        # An infinite or NaN norm makes everything NaN instead of zero.
        scale = array_ops.where(math_ops.is_finite(use_norm), finite_scale,
                                constant(float("nan"), dtype=use_norm.dtype))
        clipped = []
        for i, value in enumerate(_value_list(t_list)):
            if value is None:
                clipped.append(None)
                continue
            with colocate_with(value):
                clipped.append(array_ops.identity(value * scale, name="%s_%d" % (name, i)))
        return [c if c is None else _like(t, c) for c, t in zip(clipped, t_list)], use_norm


__all__ = ["clip_by_value", "clip_by_norm", "clip_by_average_norm", "global_norm", "clip_by_global_norm"]
