"""Counts of true and false answers, their ratios, and both at thresholds."""
from muster import dtypes
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import control_dependencies
from muster.metrics.means import _collect, _squeezed, metric_variable
from muster.ops import array_ops, check_ops, math_ops, state_ops, weights_broadcast
from muster.variables import variable_scopes


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


# --- At thresholds ---
def _counts_at_thresholds(key, name_):
    def function(labels, predictions, thresholds, weights=None, metrics_collections=None, updates_collections=None,
                 name=None):
        with variable_scopes.variable_scope(name, name_, (predictions, labels, weights)):
            values, updates = _at_thresholds(labels, convert_to_tensor(predictions), thresholds, weights)
            return _collect(array_ops.identity(values[key]), updates[key], metrics_collections, updates_collections)

    function.__name__ = name_ + "_at_thresholds"
    return function


true_positives_at_thresholds = _counts_at_thresholds("tp", "true_positives")
false_positives_at_thresholds = _counts_at_thresholds("fp", "false_positives")
true_negatives_at_thresholds = _counts_at_thresholds("tn", "true_negatives")
false_negatives_at_thresholds = _counts_at_thresholds("fn", "false_negatives")


def _ratio_at_thresholds(other, name_):
    def function(labels, predictions, thresholds, weights=None, metrics_collections=None, updates_collections=None,
                 name=None):
        with variable_scopes.variable_scope(name, name_, (predictions, labels, weights)):
            values, updates = _at_thresholds(labels, convert_to_tensor(predictions), thresholds, weights)

            def compute(counts, label):
                return math_ops.div(counts["tp"], 1e-7 + counts["tp"] + counts[other], name=label)

            return _collect(compute(values, "value"), compute(updates, "update_op"), metrics_collections,
                            updates_collections)

    function.__name__ = name_
    return function


precision_at_thresholds = _ratio_at_thresholds("fp", "precision_at_thresholds")
recall_at_thresholds = _ratio_at_thresholds("fn", "recall_at_thresholds")


def _spread(num_thresholds):
    inner = [(i + 1) * 1.0 / (num_thresholds - 1) for i in range(num_thresholds - 2)]
    return [0.0 - 1e-7] + inner + [1.0 + 1e-7]


def _one_at_other(default_name, given, wanted):
    """The ratio `wanted` at the threshold where the ratio `given` is nearest to a value."""
    def function(labels, predictions, value, weights, num_thresholds, metrics_collections, updates_collections, name):
        if value < 0 or value > 1:
            raise ValueError("`%s` must be in the range [0, 1]." % default_name.rsplit("_", 1)[-1])
        with variable_scopes.variable_scope(name, default_name, (predictions, labels, weights)):
            values, updates = _at_thresholds(labels, convert_to_tensor(predictions), _spread(num_thresholds), weights)

            def compute(counts, label):
                hit, missed = given
                ratios = math_ops.div(counts[hit], counts[hit] + counts[missed] + 1e-7)
                at = math_ops.cast(math_ops.argmin(math_ops.abs(ratios - value), 0), dtypes.int32)
                hit, missed = wanted
                return math_ops.div(counts[hit][at], counts[hit][at] + counts[missed][at] + 1e-7, name=label)

            return _collect(compute(values, "value"), compute(updates, "update_op"), metrics_collections,
                            updates_collections)

    return function


_sensitivity = _one_at_other("sensitivity_at_specificity", ("tn", "fp"), ("tp", "fn"))
_specificity = _one_at_other("specificity_at_sensitivity", ("tp", "fn"), ("tn", "fp"))


def sensitivity_at_specificity(labels, predictions, specificity, weights=None, num_thresholds=200,
                               metrics_collections=None, updates_collections=None, name=None):
    return _sensitivity(labels, predictions, specificity, weights, num_thresholds, metrics_collections,
                        updates_collections, name)


def specificity_at_sensitivity(labels, predictions, sensitivity, weights=None, num_thresholds=200,
                               metrics_collections=None, updates_collections=None, name=None):
    return _specificity(labels, predictions, sensitivity, weights, num_thresholds, metrics_collections,
                        updates_collections, name)
