"""tf.metrics: values accumulated in local variables; each function gives (value, update op)."""
from muster.metrics.classes import mean_iou, mean_per_class_accuracy  # noqa: F401
from muster.metrics.counts import (  # noqa: F401
    auc, false_negatives, false_negatives_at_thresholds, false_positives, false_positives_at_thresholds, precision,
    precision_at_thresholds, recall, recall_at_thresholds, sensitivity_at_specificity, specificity_at_sensitivity,
    true_negatives, true_negatives_at_thresholds, true_positives, true_positives_at_thresholds)
from muster.metrics.means import (  # noqa: F401
    accuracy, mean, mean_absolute_error, mean_cosine_distance, mean_relative_error, mean_squared_error, mean_tensor,
    metric_variable, percentage_below, root_mean_squared_error)
from muster.metrics.ranks import precision_at_k, precision_at_top_k, recall_at_k, recall_at_top_k, sparse_precision_at_k  # noqa: F401
from muster.names import absent as _absent

__getattr__ = _absent.explain(__name__)
