"""Labels without alignment: tf.nn.ctc_*."""
from muster.graph.op_library import call
from muster.ops import array_ops
from muster.ops.set_ops import _sparse
from muster.ops.sparse_tensor import SparseTensor


def ctc_loss(labels, inputs=None, sequence_length=None, preprocess_collapse_repeated=False, ctc_merge_repeated=True,
             ignore_longer_outputs_than_inputs=False, time_major=True, logits=None):
    """The negative log-probability of the labels of each sequence; blank is the last class."""
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
