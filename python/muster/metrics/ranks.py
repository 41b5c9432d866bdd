"""Precision and recall among the best k answers."""
from muster import dtypes
from muster.graph.convert import convert_to_tensor
from muster.metrics.means import _collect, metric_variable
from muster.nn import nn_ops
from muster.ops import array_ops, math_ops, state_ops
from muster.variables import variable_scopes


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
        from muster.ops import sparse_tensor

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
