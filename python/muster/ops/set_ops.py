"""tf.sets and tf.edit_distance: rows of sparse tensors as sets and as sequences."""
from muster.graph.op_library import call
from muster.ops.sparse_tensor import SparseTensor, SparseTensorValue

__all__ = ["edit_distance"]  # of tf itself


def _sparse(value, what):
    if not isinstance(value, (SparseTensor, SparseTensorValue)):
        raise TypeError("%s must be a SparseTensor" % what)
    return value


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
    """Commutative operations take the sparse operand last."""
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
