"""Metrics per class."""
from muster import dtypes
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import control_dependencies
from muster.metrics.means import _collect, metric_variable
from muster.ops import array_ops, confusion, math_ops, state_ops
from muster.variables import variable_scopes


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
