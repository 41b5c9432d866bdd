"""Whether weights fit values: scalars, or the same rank with every dimension equal or one."""
from muster.graph.convert import constant_value, convert_to_tensor
from muster.graph.framework import control_dependencies, name_scope
from muster.ops import array_ops, control_flow_ops, math_ops

_PREFIX = "weights can not be broadcast to values."


def _valid_nonscalar(weights_rank, weights_shape, values_rank, values_shape):
    with name_scope(None, "has_valid_nonscalar_shape") as scope:
        same_rank = math_ops.equal(values_rank, weights_rank, name="is_same_rank")

        def valid_dims():
            with name_scope(None, "has_invalid_dims") as inner:
                fits = math_ops.logical_or(math_ops.equal(weights_shape, values_shape), math_ops.equal(weights_shape, 1))
                return math_ops.reduce_all(fits, name=inner)

        return control_flow_ops.cond(same_rank, valid_dims, lambda: same_rank, name=scope)


def assert_broadcastable(weights, values):
    """An op that fails unless weights can be broadcast; known shapes are judged at once."""
    with name_scope(None, "assert_broadcastable", (weights, values)) as scope:
        with name_scope(None, "weights", (weights,)) as weights_scope:
            weights = convert_to_tensor(weights, name=weights_scope)
            weights_shape = array_ops.shape(weights, name="shape")
            weights_rank = array_ops.rank(weights, name="rank")
        with name_scope(None, "values", (values,)) as values_scope:
            values = convert_to_tensor(values, name=values_scope)
            values_shape = array_ops.shape(values, name="shape")
            values_rank = array_ops.rank(values, name="rank")
        static_weights_rank, static_values_rank = constant_value(weights_rank), constant_value(values_rank)
        if static_weights_rank is not None and static_values_rank is not None:
            if static_weights_rank == 0:
                return control_flow_ops.no_op(name="static_scalar_check_success")
            if static_weights_rank != static_values_rank:
                raise ValueError("%s values.rank=%s. weights.rank=%s. values.shape=%s. weights.shape=%s." % (
                    _PREFIX, static_values_rank, static_weights_rank, values.get_shape(), weights.get_shape()))
            static_weights, static_values = constant_value(weights_shape), constant_value(values_shape)
            if static_weights is not None and static_values is not None:
                for i, (w, v) in enumerate(zip(static_weights, static_values)):
                    if w not in (1, v):
                        raise ValueError("%s Mismatch at dim %s. values.shape=%s weights.shape=%s."
                                         % (_PREFIX, i, static_values, static_weights))
                return control_flow_ops.no_op(name="static_dims_check_success")
        is_scalar = math_ops.equal(0, weights_rank, name="is_scalar")
        data = (_PREFIX, "weights.shape=", weights.name, weights_shape, "values.shape=", values.name, values_shape,
                "is_scalar=", is_scalar)
        valid = control_flow_ops.cond(
            is_scalar, lambda: is_scalar,
            lambda: _valid_nonscalar(weights_rank, weights_shape, values_rank, values_shape), name="is_valid_shape")
        return control_flow_ops.Assert(valid, data, name=scope)


def broadcast_weights(weights, values):
    with name_scope(None, "broadcast_weights", (weights, values)) as scope:
        values = convert_to_tensor(values, name="values")
        weights = convert_to_tensor(weights, dtype=values.dtype.base_dtype, name="weights")
        weights_shape, values_shape = weights.get_shape(), values.get_shape()
        if weights_shape.is_fully_defined() and values_shape.is_fully_defined() \
                and weights_shape.is_compatible_with(values_shape):
            return weights
        with control_dependencies((assert_broadcastable(weights, values),)):
            return math_ops.multiply(weights, array_ops.ones_like(values), name=scope)
