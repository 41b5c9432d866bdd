"""Counts of (label, prediction) pairs, and the squeezing of shapes that losses and metrics share."""
from muster import dtypes
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.ops import array_ops, check_ops, control_flow_ops, math_ops


def remove_squeezable_dimensions(labels, predictions, expected_rank_diff=0, name=None):
    """Drops a last dimension of one where labels and predictions differ by it."""
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        predictions = convert_to_tensor(predictions)
        labels = convert_to_tensor(labels)
        predictions_shape, labels_shape = predictions.get_shape(), labels.get_shape()
        if labels_shape.ndims is not None and predictions_shape.ndims is not None:
            difference = predictions_shape.ndims - labels_shape.ndims
            if difference == expected_rank_diff + 1:
                predictions = array_ops.squeeze(predictions, [-1])
            elif difference == expected_rank_diff - 1:
                labels = array_ops.squeeze(labels, [-1])
            return labels, predictions
        difference = array_ops.rank(predictions) - array_ops.rank(labels)
        if predictions_shape.ndims is None or predictions_shape[-1].is_compatible_with(1):
            full = predictions
            predictions = control_flow_ops.cond(math_ops.equal(expected_rank_diff + 1, difference),
                                                lambda: array_ops.squeeze(full, [-1]), lambda: full)
        if labels_shape.ndims is None or labels_shape[-1].is_compatible_with(1):
            full_labels = labels
            labels = control_flow_ops.cond(math_ops.equal(expected_rank_diff - 1, difference),
                                           lambda: array_ops.squeeze(full_labels, [-1]), lambda: full_labels)
        return labels, predictions


def _checked(assertion, tensor):
    return control_flow_ops.with_dependencies([assertion], tensor)


def confusion_matrix(labels, predictions, num_classes=None, dtype=dtypes.int32, name=None, weights=None):
    with name_scope(name, "confusion_matrix", (predictions, labels, num_classes, weights)) as name:
        labels, predictions = remove_squeezable_dimensions(convert_to_tensor(labels, name="labels"),
                                                           convert_to_tensor(predictions, name="predictions"))
        predictions = math_ops.cast(predictions, dtypes.int64)
        labels = math_ops.cast(labels, dtypes.int64)
        labels = _checked(check_ops.assert_non_negative(labels, message="`labels` contains negative values"), labels)
        predictions = _checked(check_ops.assert_non_negative(
            predictions, message="`predictions` contains negative values"), predictions)
        if num_classes is None:
            num_classes = math_ops.maximum(math_ops.reduce_max(predictions), math_ops.reduce_max(labels)) + 1
        else:
            bound = math_ops.cast(num_classes, dtypes.int64)
            labels = _checked(check_ops.assert_less(labels, bound, message="`labels` out of bound"), labels)
            predictions = _checked(check_ops.assert_less(predictions, bound, message="`predictions` out of bound"),
                                   predictions)
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            predictions.get_shape().assert_is_compatible_with(weights.get_shape())
            weights = math_ops.cast(weights, dtype)
        shape = array_ops.stack([num_classes, num_classes])
        indices = array_ops.stack([labels, predictions], axis=1)
        values = array_ops.ones_like(predictions, dtype) if weights is None else weights
        return array_ops.scatter_nd(indices, values, math_ops.cast(shape, dtypes.int64))


__all__ = ["confusion_matrix"]
