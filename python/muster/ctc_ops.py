"""Labels without alignment (tf.nn.ctc_*), tf.edit_distance, tf.sets, and functions of few programs."""
from muster import array_ops
from muster.op_library import call
from muster.sparse_tensor import SparseTensor, SparseTensorValue

__all__ = ["betainc", "edit_distance"]  # names of tf itself


def _sparse(value, what):
    if not isinstance(value, (SparseTensor, SparseTensorValue)):
        raise TypeError("%s must be a SparseTensor" % what)
    return value


def ctc_loss(labels, inputs=None, sequence_length=None, preprocess_collapse_repeated=False, ctc_merge_repeated=True,
             ignore_longer_outputs_than_inputs=False, time_major=True, logits=None):
    """Of every sequence the negative logarithm of the probability of its labels; blank is the last class."""
    labels = _sparse(labels, "Expected labels (first argument) to")
    inputs = logits if inputs is None else inputs
    if not time_major:
        inputs = array_ops.transpose(inputs, [1, 0, 2])
    return call("CTCLoss", inputs=inputs, labels_indices=labels.indices, labels_values=labels.values,
                sequence_length=sequence_length, preprocess_collapse_repeated=preprocess_collapse_repeated,
                ctc_merge_repeated=ctc_merge_repeated,
                ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs)[0]


def ctc_greedy_decoder(inputs, sequence_length, merge_repeated=True):
    """([the decoded labels as a sparse tensor], their negative sums of logits)."""
    indices, values, shape, scores = call("CTCGreedyDecoder", inputs=inputs, sequence_length=sequence_length,
                                          merge_repeated=merge_repeated)
    return [SparseTensor(indices, values, shape)], scores


def edit_distance(hypothesis, truth, normalize=True, name="edit_distance"):
    """How many insertions, deletions and substitutions turn each sequence of one into that of the other."""
    hypothesis, truth = _sparse(hypothesis, "Hypothesis"), _sparse(truth, "Truth")
    return call("EditDistance", name=name, hypothesis_indices=hypothesis.indices, hypothesis_values=hypothesis.values,
                hypothesis_shape=hypothesis.dense_shape, truth_indices=truth.indices, truth_values=truth.values,
                truth_shape=truth.dense_shape, normalize=normalize)


# --- tf.sets ---
def set_size(a, validate_indices=True):
    """The numbers of different values in the last dimension."""
    a = _sparse(a, "Expected `SparseTensor`, got %s; it" % a)
    return call("SetSize", set_indices=a.indices, set_values=a.values, set_shape=a.dense_shape,
                validate_indices=validate_indices)


def _set_operation(a, b, operation, validate_indices):
    a_is_sparse, b_is_sparse = (isinstance(x, (SparseTensor, SparseTensorValue)) for x in (a, b))
    options = {"set_operation": operation, "validate_indices": validate_indices}
    if a_is_sparse and not b_is_sparse:
        raise ValueError("Argument `b` must be a SparseTensor when `a` is one, got %s" % b)
    if a_is_sparse:
        result = call("SparseToSparseSetOperation", set1_indices=a.indices, set1_values=a.values, set1_shape=a.dense_shape,
                      set2_indices=b.indices, set2_values=b.values, set2_shape=b.dense_shape, **options)
    elif b_is_sparse:
        result = call("DenseToSparseSetOperation", set1=a, set2_indices=b.indices, set2_values=b.values,
                      set2_shape=b.dense_shape, **options)
    else:
        result = call("DenseToDenseSetOperation", set1=a, set2=b, **options)
    return SparseTensor(*result)


def _ordered(a, b):
    """Operations without an order take the sparse one last."""
    return (b, a) if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor) else (a, b)


def set_intersection(a, b, validate_indices=True):
    a, b = _ordered(a, b)
    return _set_operation(a, b, "intersection", validate_indices)


def set_union(a, b, validate_indices=True):
    a, b = _ordered(a, b)
    return _set_operation(a, b, "union", validate_indices)


def set_difference(a, b, aminusb=True, validate_indices=True):
    if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        a, b, aminusb = b, a, not aminusb
    return _set_operation(a, b, "a-b" if aminusb else "b-a", validate_indices)


def betainc(a, b, x, name=None):
    return call("Betainc", name=name, a=a, b=b, x=x)


def bessel_i0e(x, name=None):
    return call("BesselI0e", name=name or "bessel_i0e", x=x)


def bessel_i1e(x, name=None):
    return call("BesselI1e", name=name or "bessel_i1e", x=x)
