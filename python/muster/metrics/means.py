"""Metrics that are means over all batches."""
from muster import dtypes
from muster.graph import framework
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import GraphKeys, control_dependencies
from muster.ops import array_ops, confusion, control_flow_ops, math_ops, state_ops, weights_broadcast
from muster.variables import variable_scopes, variables


def metric_variable(shape, dtype, validate_shape=True, name=None):
    return variables.Variable(
        lambda: array_ops.zeros(shape, dtype), trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES], validate_shape=validate_shape, name=name,
        synchronization=variables.VariableSynchronization.ON_READ, aggregation=variables.VariableAggregation.SUM)


def _squeezed(predictions, labels, weights):
    """Shapes that differ by a last dimension of one are made equal."""
    predictions = convert_to_tensor(predictions)
    if labels is not None:
        labels, predictions = confusion.remove_squeezable_dimensions(labels, predictions)
        predictions.get_shape().assert_is_compatible_with(labels.get_shape())
    if weights is None:
        return predictions, labels, None
    weights = convert_to_tensor(weights)
    weights_rank, rank = weights.get_shape().ndims, predictions.get_shape().ndims
    if weights_rank == 0:
        return predictions, labels, weights
    if rank is not None and weights_rank is not None:
        if weights_rank - rank == 1:
            weights = array_ops.squeeze(weights, [-1])
        elif rank - weights_rank == 1:
            weights = array_ops.expand_dims(weights, [-1])
        return predictions, labels, weights
    weights_rank_tensor = array_ops.rank(weights)
    difference = weights_rank_tensor - array_ops.rank(predictions)
    full = weights

    def expanded():
        return control_flow_ops.cond(math_ops.equal(difference, -1), lambda: array_ops.expand_dims(full, [-1]),
                                     lambda: full)

    def squeezed():
        if weights_rank is not None and not full.get_shape()[-1].is_compatible_with(1):
            return full
        return array_ops.squeeze(full, [-1])

    weights = control_flow_ops.cond(
        math_ops.equal(weights_rank_tensor, 0), lambda: full,
        lambda: control_flow_ops.cond(math_ops.equal(difference, 1), squeezed, expanded))
    return predictions, labels, weights


def _collect(value, update, metrics_collections, updates_collections):
    if metrics_collections:
        framework.add_to_collections(metrics_collections, value)
    if updates_collections:
        framework.add_to_collections(updates_collections, update)
    return value, update


def mean(values, weights=None, metrics_collections=None, updates_collections=None, name=None):
    with variable_scopes.variable_scope(name, "mean", (values, weights)):
        values = math_ops.cast(values, dtypes.float32)
        total = metric_variable([], dtypes.float32, name="total")
        count = metric_variable([], dtypes.float32, name="count")
        if weights is None:
            num_values = math_ops.cast(array_ops.size(values), dtypes.float32)
        else:
            values, _, weights = _squeezed(values, None, weights)
            weights = weights_broadcast.broadcast_weights(math_ops.cast(weights, dtypes.float32), values)
            values = math_ops.multiply(values, weights)
            num_values = math_ops.reduce_sum(weights)
        update_total = state_ops.assign_add(total, math_ops.reduce_sum(values))
        with control_dependencies([values]):
            update_count = state_ops.assign_add(count, num_values)
        value = math_ops.div_no_nan(total, math_ops.maximum(count, 0), name="value")
        update = math_ops.div_no_nan(update_total, math_ops.maximum(update_count, 0), name="update_op")
        return _collect(value, update, metrics_collections, updates_collections)


def accuracy(labels, predictions, weights=None, metrics_collections=None, updates_collections=None, name=None):
    predictions, labels, weights = _squeezed(predictions, labels, weights)
    predictions.get_shape().assert_is_compatible_with(labels.get_shape())
    if labels.dtype != predictions.dtype:
        predictions = math_ops.cast(predictions, labels.dtype)
    correct = math_ops.cast(math_ops.equal(predictions, labels), dtypes.float32)
    return mean(correct, weights, metrics_collections, updates_collections, name or "accuracy")


def mean_squared_error(labels, predictions, weights=None, metrics_collections=None, updates_collections=None,
                       name=None):
    predictions, labels, weights = _squeezed(predictions, labels, weights)
    return mean(math_ops.squared_difference(labels, predictions), weights, metrics_collections, updates_collections,
                name or "mean_squared_error")


def mean_absolute_error(labels, predictions, weights=None, metrics_collections=None, updates_collections=None,
                        name=None):
    predictions, labels, weights = _squeezed(predictions, labels, weights)
    return mean(math_ops.abs(predictions - labels), weights, metrics_collections, updates_collections,
                name or "mean_absolute_error")


def root_mean_squared_error(labels, predictions, weights=None, metrics_collections=None, updates_collections=None,
                            name=None):
    predictions, labels, weights = _squeezed(predictions, labels, weights)
    value, update = mean_squared_error(labels, predictions, weights, None, None, name or "root_mean_squared_error")
    return _collect(math_ops.sqrt(value), math_ops.sqrt(update), metrics_collections, updates_collections)


def mean_tensor(values, weights=None, metrics_collections=None, updates_collections=None, name=None):
    """The mean of tensors, element by element."""
    with variable_scopes.variable_scope(name, "mean", (values, weights)):
        values = math_ops.cast(values, dtypes.float32)
        total = metric_variable(values.get_shape(), dtypes.float32, name="total_tensor")
        count = metric_variable(values.get_shape(), dtypes.float32, name="count_tensor")
        num_values = array_ops.ones_like(values)
        if weights is not None:
            values, _, weights = _squeezed(values, None, weights)
            weights = weights_broadcast.broadcast_weights(math_ops.cast(weights, dtypes.float32), values)
            values = math_ops.multiply(values, weights)
            num_values = math_ops.multiply(num_values, weights)
        update_total = state_ops.assign_add(total, values)
        with control_dependencies([values]):
            update_count = state_ops.assign_add(count, num_values)
        value = math_ops.div_no_nan(total, math_ops.maximum(count, 0), name="value")
        update = math_ops.div_no_nan(update_total, math_ops.maximum(update_count, 0), name="update_op")
        return _collect(value, update, metrics_collections, updates_collections)


def percentage_below(values, threshold, weights=None, metrics_collections=None, updates_collections=None, name=None):
    below = math_ops.cast(math_ops.less(values, threshold), dtypes.float32)
    return mean(below, weights, metrics_collections, updates_collections, name or "percentage_below_threshold")


def mean_cosine_distance(labels, predictions, dim, weights=None, metrics_collections=None, updates_collections=None,
                         name=None):
    predictions, labels, weights = _squeezed(math_ops.cast(predictions, dtypes.float32),
                                             math_ops.cast(labels, dtypes.float32), weights)
    products = math_ops.reduce_sum(math_ops.multiply(predictions, labels), axis=[dim], keepdims=True)
    distance, update = mean(products, weights, None, None, name or "mean_cosine_distance")
    return _collect(math_ops.subtract(1.0, distance), math_ops.subtract(1.0, update), metrics_collections,
                    updates_collections)


def mean_relative_error(labels, predictions, normalizer, weights=None, metrics_collections=None,
                        updates_collections=None, name=None):
    predictions, labels, weights = _squeezed(predictions, labels, weights)
    predictions, normalizer = confusion.remove_squeezable_dimensions(predictions, normalizer)
    predictions.get_shape().assert_is_compatible_with(normalizer.get_shape())
    errors = array_ops.where(math_ops.equal(normalizer, 0.0), array_ops.zeros_like(labels),
                             math_ops.div(math_ops.abs(labels - predictions), normalizer))
    return mean(errors, weights, metrics_collections, updates_collections, name or "mean_relative_error")
