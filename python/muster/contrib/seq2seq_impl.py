"""The losses of tf.contrib.legacy_seq2seq and tf.contrib.seq2seq."""
from muster import dtypes
from muster.graph.framework import name_scope
from muster.nn import nn_ops
from muster.ops import array_ops, math_ops


def sequence_loss_by_example(logits, targets, weights, average_across_timesteps=True, softmax_loss_function=None,
                             name=None):
    """Weighted cross entropy of every sequence; logits, targets and weights are lists of steps."""
    if len(targets) != len(logits) or len(weights) != len(logits):
        raise ValueError("Lengths of logits, weights, and targets must be the same %d, %d, %d."
                         % (len(logits), len(weights), len(targets)))
    with name_scope(name, "sequence_loss_by_example", logits + targets + weights):
        losses = []
        for logit, target, weight in zip(logits, targets, weights):
            if softmax_loss_function is None:
                loss = nn_ops.sparse_softmax_cross_entropy_with_logits(
                    labels=array_ops.reshape(target, [-1]), logits=logit)
            else:
                loss = softmax_loss_function(labels=target, logits=logit)
            losses.append(loss * weight)
        total = math_ops.add_n(losses)
        if average_across_timesteps:
            total /= math_ops.add_n(weights) + 1e-12
        return total


def legacy_sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True,
                         softmax_loss_function=None, name=None):
    with name_scope(name, "sequence_loss", logits + targets + weights):
        cost = math_ops.reduce_sum(sequence_loss_by_example(
            logits, targets, weights, average_across_timesteps=average_across_timesteps,
            softmax_loss_function=softmax_loss_function))
        if not average_across_batch:
            return cost
        return cost / math_ops.cast(array_ops.shape(targets[0])[0], cost.dtype)


def sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True,
                  sum_over_timesteps=False, sum_over_batch=False, softmax_loss_function=None, name=None):
    """Weighted cross entropy of a batch of sequences [batch, steps, classes]."""
    if logits.get_shape().ndims != 3:
        raise ValueError("Logits must be a [batch_size x sequence_length x logits] tensor")
    if targets.get_shape().ndims != 2:
        raise ValueError("Targets must be a [batch_size x sequence_length] tensor")
    if weights.get_shape().ndims != 2:
        raise ValueError("Weights must be a [batch_size x sequence_length] tensor")
    if (average_across_timesteps and sum_over_timesteps) or (average_across_batch and sum_over_batch):
        raise ValueError("A loss is averaged or summed, not both")
    with name_scope(name, "sequence_loss", [logits, targets, weights]):
        classes = array_ops.shape(logits)[2]
        flat_logits = array_ops.reshape(logits, [-1, classes])
        flat_targets = array_ops.reshape(targets, [-1])
        if softmax_loss_function is None:
            loss = nn_ops.sparse_softmax_cross_entropy_with_logits(labels=flat_targets, logits=flat_logits)
        else:
            loss = softmax_loss_function(labels=flat_targets, logits=flat_logits)
        loss *= array_ops.reshape(weights, [-1])
        if average_across_timesteps and average_across_batch:
            return math_ops.div_no_nan(math_ops.reduce_sum(loss), math_ops.reduce_sum(weights))
        if sum_over_timesteps and sum_over_batch:
            count = math_ops.reduce_sum(math_ops.cast(math_ops.count_nonzero(weights), loss.dtype))
            return math_ops.div_no_nan(math_ops.reduce_sum(loss), count)
        loss = array_ops.reshape(loss, array_ops.shape(logits)[0:2])
        for averaged, summed, axis in ((average_across_timesteps, sum_over_timesteps, 1),
                                       (average_across_batch, sum_over_batch, 0)):
            if averaged:
                loss = math_ops.div_no_nan(math_ops.reduce_sum(loss, axis=[axis]),
                                           math_ops.reduce_sum(weights, axis=[axis]))
            elif summed:
                count = math_ops.cast(math_ops.count_nonzero(weights, axis=[axis]), loss.dtype)
                loss = math_ops.div_no_nan(math_ops.reduce_sum(loss, axis=[axis]), count)
        return loss


def rnn_decoder(decoder_inputs, initial_state, cell, loop_function=None, scope=None):
    """The outputs of a cell over a list of inputs; `loop_function` makes the next input from an output."""
    from muster.variables import variable_scopes

    with variable_scopes.variable_scope(scope or "rnn_decoder"):
        state, outputs, previous = initial_state, [], None
        for i, value in enumerate(decoder_inputs):
            if loop_function is not None and previous is not None:
                with variable_scopes.variable_scope("loop_function", reuse=True):
                    value = loop_function(previous, i)
            if i > 0:
                variable_scopes.get_variable_scope().reuse_variables()
            output, state = cell(value, state)
            outputs.append(output)
            if loop_function is not None:
                previous = output
        return outputs, state


def basic_rnn_seq2seq(encoder_inputs, decoder_inputs, cell, dtype=dtypes.float32, scope=None):
    import copy

    from muster.nn import rnn
    from muster.variables import variable_scopes

    with variable_scopes.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = rnn.static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)
