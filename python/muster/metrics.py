"""tf.metrics: values accumulated in local variables; each function gives (value, update op)."""
from muster import _absent, array_ops, check_ops, confusion, control_flow_ops, dtypes, framework, math_ops, state_ops
from muster import variable_scopes, variables, weights_broadcast
from muster.convert import convert_to_tensor
from muster.framework import GraphKeys, control_dependencies

__getattr__ = _absent.explain(__name__)


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


# --- Counts of right and wrong predictions. ---
def _count(condition, weights, metrics_collections, updates_collections):
    check_ops.assert_type(condition, dtypes.bool)
    count = metric_variable([], dtypes.float32, name="count")
    values = math_ops.cast(condition, dtypes.float32)
    if weights is not None:
        with control_dependencies((check_ops.assert_rank_in(weights, (0, array_ops.rank(values))),)):
            weights = math_ops.cast(weights, dtypes.float32)
            values = math_ops.multiply(values, weights)
    value = array_ops.identity(count)
    update = state_ops.assign_add(count, math_ops.reduce_sum(values))
    return _collect(value, update, metrics_collections, updates_collections)


def _counter(name_, label, prediction):
    def function(labels, predictions, weights=None, metrics_collections=None, updates_collections=None, name=None):
        with variable_scopes.variable_scope(name, name_, (predictions, labels, weights)):
            predictions, labels, weights = _squeezed(
                math_ops.cast(predictions, dtype=dtypes.bool), math_ops.cast(labels, dtype=dtypes.bool), weights)
            condition = math_ops.logical_and(math_ops.equal(labels, label), math_ops.equal(predictions, prediction))
            return _count(condition, weights, metrics_collections, updates_collections)

    function.__name__ = name_
    return function


true_positives = _counter("true_positives", True, True)
false_positives = _counter("false_positives", False, True)
true_negatives = _counter("true_negatives", False, False)
false_negatives = _counter("false_negatives", True, False)


def _ratio(name_, other):
    """true positives / (true positives + other)."""

    def function(labels, predictions, weights=None, metrics_collections=None, updates_collections=None, name=None):
        with variable_scopes.variable_scope(name, name_, (predictions, labels, weights)):
            predictions, labels, weights = _squeezed(
                math_ops.cast(predictions, dtype=dtypes.bool), math_ops.cast(labels, dtype=dtypes.bool), weights)
            true_p, true_update = true_positives(labels, predictions, weights)
            wrong, wrong_update = other(labels, predictions, weights)

            def compute(tp, fp, label):
                return array_ops.where(math_ops.greater(tp + fp, 0), math_ops.div(tp, tp + fp), 0, label)

            return _collect(compute(true_p, wrong, "value"), compute(true_update, wrong_update, "update_op"),
                            metrics_collections, updates_collections)

    function.__name__ = name_
    return function


precision = _ratio("precision", false_positives)
recall = _ratio("recall", false_negatives)


def _at_thresholds(labels, predictions, thresholds, weights):
    """Counts of the four outcomes at every threshold, and the ops that add to them."""
    with control_dependencies([
            check_ops.assert_greater_equal(predictions, math_ops.cast(0.0, dtype=predictions.dtype),
                                           message="predictions must be in [0, 1]"),
            check_ops.assert_less_equal(predictions, math_ops.cast(1.0, dtype=predictions.dtype),
                                        message="predictions must be in [0, 1]")]):
        predictions, labels, weights = _squeezed(math_ops.cast(predictions, dtypes.float32),
                                                 math_ops.cast(labels, dtype=dtypes.bool), weights)
    count = len(thresholds)
    predictions_2d = array_ops.reshape(predictions, [-1, 1])
    labels_2d = array_ops.reshape(math_ops.cast(labels, dtype=dtypes.bool), [1, -1])
    size = predictions_2d.get_shape().as_list()[0]
    if size is None:
        size = array_ops.shape(predictions_2d)[0]
    tiled = array_ops.tile(array_ops.expand_dims(array_ops.constant(thresholds), [1]), array_ops.stack([1, size]))
    positive = math_ops.greater(array_ops.tile(array_ops.transpose(predictions_2d), [count, 1]), tiled)
    negative = math_ops.logical_not(positive)
    label_positive = array_ops.tile(labels_2d, [count, 1])
    label_negative = math_ops.logical_not(label_positive)
    weights_tiled = None
    if weights is not None:
        weights = weights_broadcast.broadcast_weights(math_ops.cast(weights, dtypes.float32), predictions)
        weights_tiled = array_ops.tile(array_ops.reshape(weights, [1, -1]), [count, 1])
        tiled.get_shape().assert_is_compatible_with(weights_tiled.get_shape())
    values, updates = {}, {}
    for key, name, label, prediction in (("tp", "true_positives", label_positive, positive),
                                         ("fn", "false_negatives", label_positive, negative),
                                         ("tn", "true_negatives", label_negative, negative),
                                         ("fp", "false_positives", label_negative, positive)):
        values[key] = metric_variable([count], dtypes.float32, name=name)
        hits = math_ops.cast(math_ops.logical_and(label, prediction), dtypes.float32)
        if weights_tiled is not None:
            hits *= weights_tiled
        updates[key] = state_ops.assign_add(values[key], math_ops.reduce_sum(hits, 1))
    return values, updates


def auc(labels, predictions, weights=None, num_thresholds=200, metrics_collections=None, updates_collections=None,
        curve="ROC", name=None, summation_method="trapezoidal", thresholds=None):
    with variable_scopes.variable_scope(name, "auc", (labels, predictions, weights)):
        if curve not in ("ROC", "PR"):
            raise ValueError("curve must be either ROC or PR, %s unknown" % curve)
        if thresholds is not None:
            thresholds = sorted(thresholds)
            num_thresholds = len(thresholds) + 2
        else:
            thresholds = [(i + 1) * 1.0 / (num_thresholds - 1) for i in range(num_thresholds - 2)]
        thresholds = [0.0 - 1e-7] + thresholds + [1.0 + 1e-7]
        values, updates = _at_thresholds(labels, predictions, thresholds, weights)
        value = _area(values, curve, summation_method, num_thresholds, "value")
        update = _area(updates, curve, summation_method, num_thresholds, "update_op")
        return _collect(value, update, metrics_collections, updates_collections)


def _interpolated(tp, fp, fn, last):
    dtp = tp[:last] - tp[1:]
    p = tp + fp
    slope = math_ops.div_no_nan(dtp, math_ops.maximum(p[:last] - p[1:], 0), name="prec_slope")
    intercept = tp[1:] - math_ops.multiply(slope, p[1:])
    ratio = array_ops.where(
        math_ops.logical_and(p[:last] > 0, p[1:] > 0),
        math_ops.div_no_nan(p[:last], math_ops.maximum(p[1:], 0), name="recall_relative_ratio"),
        array_ops.ones_like(p[1:]))
    return math_ops.reduce_sum(
        math_ops.div_no_nan(slope * (dtp + intercept * math_ops.log(ratio)), math_ops.maximum(tp[1:] + fn[1:], 0),
                            name="pr_auc_increment"), name="interpolate_pr_auc")


def _area(counts, curve, method, num_thresholds, name):
    epsilon, last = 1.0e-6, num_thresholds - 1
    tp, fn, tn, fp = (counts[key] for key in ("tp", "fn", "tn", "fp"))
    if curve == "PR" and method == "careful_interpolation":
        return _interpolated(tp, fp, fn, last)
    rec = math_ops.div(tp + epsilon, tp + fn + epsilon)
    if curve == "ROC":
        x, y = math_ops.div(fp, fp + tn + epsilon), rec
    else:
        x, y = rec, math_ops.div(tp + epsilon, tp + fp + epsilon)
    if method in ("trapezoidal", "careful_interpolation"):
        heights = (y[:last] + y[1:]) / 2.
    elif method == "minoring":
        heights = math_ops.minimum(y[:last], y[1:])
    elif method == "majoring":
        heights = math_ops.maximum(y[:last], y[1:])
    else:
        raise ValueError("Invalid summation_method: %s" % method)
    return math_ops.reduce_sum(math_ops.multiply(x[:last] - x[1:], heights), name=name)


from muster.more_metrics import (  # noqa: E402, F401  (they are made of what is above)
    false_negatives_at_thresholds, false_positives_at_thresholds, mean_cosine_distance, mean_iou,
    mean_per_class_accuracy, mean_relative_error, mean_tensor, percentage_below, precision_at_k, precision_at_thresholds,
    precision_at_top_k, recall_at_k, recall_at_thresholds, recall_at_top_k, sensitivity_at_specificity,
    sparse_precision_at_k, specificity_at_sensitivity, true_negatives_at_thresholds, true_positives_at_thresholds)
