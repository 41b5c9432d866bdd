"""Further metrics of tf.metrics: means of tensors and classes, counts and ratios at thresholds."""
from muster import array_ops, confusion, dtypes, math_ops, nn_ops, state_ops, variable_scopes
from muster import weights_broadcast
from muster.convert import convert_to_tensor
from muster.framework import control_dependencies
from muster.metrics import _at_thresholds, _collect, _squeezed, mean, metric_variable


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


def _confusion_counts(labels, predictions, num_classes, weights):
    """The confusion matrix so far, and the op that adds to it."""
    total = metric_variable([num_classes, num_classes], dtypes.float64, name="total_confusion_matrix")
    predictions, labels = math_ops.cast(predictions, dtypes.int64), math_ops.cast(labels, dtypes.int64)

    def flat(value):
        return array_ops.reshape(value, [-1]) if value.get_shape().ndims > 1 else value

    predictions, labels = flat(predictions), flat(labels)
    if weights is not None:
        weights = flat(convert_to_tensor(weights))
    current = confusion.confusion_matrix(labels, predictions, num_classes, weights=weights, dtype=dtypes.float64)
    return total, state_ops.assign_add(total, current)


def mean_iou(labels, predictions, num_classes, weights=None, metrics_collections=None, updates_collections=None,
             name=None):
    """The mean over the classes of intersection over union."""
    with variable_scopes.variable_scope(name, "mean_iou", (predictions, labels, weights)):
        predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
        predictions.get_shape().assert_is_compatible_with(labels.get_shape())
        total, update = _confusion_counts(labels, predictions, num_classes, weights)

        def compute(matrix, name):
            matrix = math_ops.cast(matrix, dtypes.float32)
            rows, columns = math_ops.reduce_sum(matrix, 0), math_ops.reduce_sum(matrix, 1)
            diagonal = array_ops.diag_part(matrix)
            union = rows + columns - diagonal
            valid = math_ops.reduce_sum(math_ops.cast(math_ops.not_equal(union, 0), dtypes.float32))
            union = array_ops.where(math_ops.greater(union, 0), union, array_ops.ones_like(union))
            result = math_ops.reduce_sum(math_ops.div(diagonal, union))
            return array_ops.where(math_ops.greater(valid, 0), math_ops.div(result, valid), 0, name=name)

        value = compute(total, "mean_iou")
        with control_dependencies([update]):
            update = array_ops.identity(update)
        return _collect(value, update, metrics_collections, updates_collections)


def mean_per_class_accuracy(labels, predictions, num_classes, weights=None, metrics_collections=None,
                            updates_collections=None, name=None):
    with variable_scopes.variable_scope(name, "mean_accuracy", (predictions, labels, weights)):
        labels = math_ops.cast(labels, dtypes.int64)
        if labels.get_shape().ndims > 1:
            labels = array_ops.reshape(labels, [-1])
        predictions = convert_to_tensor(predictions)
        if predictions.get_shape().ndims > 1:
            predictions = array_ops.reshape(predictions, [-1])
        predictions.get_shape().assert_is_compatible_with(labels.get_shape())
        total = metric_variable([num_classes], dtypes.float32, name="total")
        count = metric_variable([num_classes], dtypes.float32, name="count")
        ones = array_ops.ones([array_ops.size(labels)], dtypes.float32)
        if labels.dtype != predictions.dtype:
            predictions = math_ops.cast(predictions, labels.dtype)
        correct = math_ops.cast(math_ops.equal(predictions, labels), dtypes.float32)
        if weights is not None:
            weights = convert_to_tensor(weights)
            if weights.get_shape().ndims > 1:
                weights = array_ops.reshape(weights, [-1])
            weights = math_ops.cast(weights, dtypes.float32)
            correct *= weights
            ones *= weights
        update_total = state_ops.scatter_add(total, labels, ones)
        update_count = state_ops.scatter_add(count, labels, correct)
        value = math_ops.reduce_mean(math_ops.div_no_nan(count, math_ops.maximum(total, 0)), name="mean_accuracy")
        update = math_ops.div_no_nan(update_count, math_ops.maximum(update_total, 0), name="update_op")
        return _collect(value, update, metrics_collections, updates_collections)


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


# --- Among the best k ---
def _hits(labels, predictions_idx):
    """How many of the labels (none below zero) are among the predictions, per example; and how many labels."""
    labels = math_ops.cast(labels, dtypes.int64)
    if labels.get_shape().ndims == predictions_idx.get_shape().ndims - 1:
        labels = array_ops.expand_dims(labels, -1)
    matches = math_ops.equal(array_ops.expand_dims(labels, -1),
                             array_ops.expand_dims(math_ops.cast(predictions_idx, dtypes.int64), -2))
    found = math_ops.reduce_any(matches, -1)
    return math_ops.reduce_sum(math_ops.cast(found, dtypes.float64), -1), math_ops.cast(
        array_ops.shape(labels)[-1], dtypes.float64)


def _at_k(name_, misses):
    def function(labels, predictions_idx, weights, metrics_collections, updates_collections, name):
        from muster import sparse_tensor

        if sparse_tensor.is_sparse(labels):
            raise NotImplementedError("%s takes dense labels only" % name_)
        with variable_scopes.variable_scope(name, name_, (predictions_idx, labels, weights)):
            predictions_idx = convert_to_tensor(predictions_idx)
            hits, label_count = _hits(convert_to_tensor(labels), predictions_idx)
            missed = misses(hits, label_count, math_ops.cast(array_ops.shape(predictions_idx)[-1], dtypes.float64))
            if weights is not None:
                weights = math_ops.cast(weights, dtypes.float64)
                hits, missed = hits * weights, missed * weights
            right = metric_variable([], dtypes.float64, name="true_positive_at_k")
            wrong = metric_variable([], dtypes.float64, name="missed_at_k")
            right_update = state_ops.assign_add(right, math_ops.reduce_sum(hits))
            wrong_update = state_ops.assign_add(wrong, math_ops.reduce_sum(missed))
            value = math_ops.div(right, right + wrong, name="value")
            update = math_ops.div(right_update, right_update + wrong_update, name="update")
            return _collect(value, update, metrics_collections, updates_collections)

    return function


_precision = _at_k("precision_at_top_k", lambda hits, labels, k: k - hits)
_recall = _at_k("recall_at_top_k", lambda hits, labels, k: labels - hits)


def _of_class(class_id):
    if class_id is not None:
        raise NotImplementedError("class_id of precision_at_k and recall_at_k is not supported")


def precision_at_top_k(labels, predictions_idx, k=None, class_id=None, weights=None, metrics_collections=None,
                       updates_collections=None, name=None):
    _of_class(class_id)
    return _precision(labels, predictions_idx, weights, metrics_collections, updates_collections, name)


def recall_at_top_k(labels, predictions_idx, k=None, class_id=None, weights=None, metrics_collections=None,
                    updates_collections=None, name=None):
    _of_class(class_id)
    return _recall(labels, predictions_idx, weights, metrics_collections, updates_collections, name)


def precision_at_k(labels, predictions, k, class_id=None, weights=None, metrics_collections=None,
                   updates_collections=None, name=None):
    _of_class(class_id)
    _, indices = nn_ops.top_k(predictions, k)
    return _precision(labels, indices, weights, metrics_collections, updates_collections, name or "precision_at_%d" % k)


def recall_at_k(labels, predictions, k, class_id=None, weights=None, metrics_collections=None, updates_collections=None,
                name=None):
    _of_class(class_id)
    _, indices = nn_ops.top_k(predictions, k)
    return _recall(labels, indices, weights, metrics_collections, updates_collections, name or "recall_at_%d" % k)


sparse_precision_at_k = precision_at_k
