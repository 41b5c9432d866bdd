"""tf.contrib.rnn: the cells of tf.nn.rnn_cell, and a few of its own."""
from muster.nn import nn_ops
from muster.nn.rnn import bidirectional_dynamic_rnn as _bidirectional_dynamic_rnn
from muster.nn.rnn import static_bidirectional_rnn, static_rnn  # noqa: F401
from muster.nn.rnn_cell import (  # noqa: F401
    BasicLSTMCell, BasicRNNCell, DeviceWrapper, DropoutWrapper, GRUCell, LSTMCell, LSTMStateTuple, MultiRNNCell,
    ResidualWrapper, RNNCell)
from muster.ops import array_ops, math_ops
from muster.variables import init_ops, variable_scopes


class LayerNormBasicLSTMCell(RNNCell):
    """An LSTM whose gates and memory are normalized, with recurrent dropout."""

    def __init__(self, num_units, forget_bias=1.0, input_size=None, activation=math_ops.tanh, layer_norm=True,
                 norm_gain=1.0, norm_shift=0.0, dropout_keep_prob=1.0, dropout_prob_seed=None, reuse=None):
        super(LayerNormBasicLSTMCell, self).__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    state_size = property(lambda self: LSTMStateTuple(self._num_units, self._num_units))
    output_size = property(lambda self: self._num_units)

    def _norm(self, value, scope):
        with variable_scopes.variable_scope(scope):
            shape = value.get_shape()[-1:]
            gamma = variable_scopes.get_variable("gamma", shape=shape,
                                                 initializer=init_ops.constant_initializer(self._gain))
            beta = variable_scopes.get_variable("beta", shape=shape,
                                                initializer=init_ops.constant_initializer(self._shift))
        mean, variance = nn_ops.moments(value, [1], keep_dims=True)
        return nn_ops.batch_normalization(value, mean, variance, beta, gamma, 1e-12)

    def call(self, inputs, state):
        c, h = state
        joined = array_ops.concat([inputs, h], 1)
        weights = variable_scopes.get_variable("kernel", [joined.get_shape()[1], 4 * self._num_units])
        gates = math_ops.matmul(joined, weights)
        if not self._layer_norm:
            gates = nn_ops.bias_add(gates, variable_scopes.get_variable(
                "bias", [4 * self._num_units], initializer=init_ops.zeros_initializer()))
        i, j, f, o = array_ops.split(value=gates, num_or_size_splits=4, axis=1)
        if self._layer_norm:
            i, j, f, o = (self._norm(part, name) for part, name in (
                (i, "input"), (j, "transform"), (f, "forget"), (o, "output")))
        new = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            new = nn_ops.dropout(new, self._keep_prob, seed=self._seed)
        new_c = c * math_ops.sigmoid(f + self._forget_bias) + math_ops.sigmoid(i) * new
        if self._layer_norm:
            new_c = self._norm(new_c, "state")
        new_h = self._activation(new_c) * math_ops.sigmoid(o)
        return new_h, LSTMStateTuple(new_c, new_h)


class _ProjectionWrapper(RNNCell):
    def __init__(self, cell, size, activation=None, reuse=None):
        super(_ProjectionWrapper, self).__init__(_reuse=reuse)
        self._cell, self._size, self._activation = cell, size, activation

    state_size = property(lambda self: self._cell.state_size)

    def zero_state(self, batch_size, dtype):
        return self._cell.zero_state(batch_size, dtype)

    def _projected(self, value):
        weights = variable_scopes.get_variable("kernel", [value.get_shape()[1], self._size])
        bias = variable_scopes.get_variable("bias", [self._size], initializer=init_ops.zeros_initializer())
        result = nn_ops.bias_add(math_ops.matmul(value, weights), bias)
        return result if self._activation is None else self._activation(result)


class InputProjectionWrapper(_ProjectionWrapper):
    """Projects the inputs before a cell gets them."""

    def __init__(self, cell, num_proj, activation=None, input_size=None, reuse=None):
        super(InputProjectionWrapper, self).__init__(cell, num_proj, activation, reuse)

    output_size = property(lambda self: self._cell.output_size)

    def call(self, inputs, state):
        return self._cell(self._projected(inputs), state)


class OutputProjectionWrapper(_ProjectionWrapper):
    """Projects the outputs of a cell."""

    def __init__(self, cell, output_size, activation=None, reuse=None):
        super(OutputProjectionWrapper, self).__init__(cell, output_size, activation, reuse)

    output_size = property(lambda self: self._size)

    def call(self, inputs, state):
        output, new_state = self._cell(inputs, state)
        return self._projected(output), new_state


class EmbeddingWrapper(RNNCell):
    """Looks the inputs, which are ids of symbols, up in an embedding table."""

    def __init__(self, cell, embedding_classes, embedding_size, initializer=None, reuse=None):
        super(EmbeddingWrapper, self).__init__(_reuse=reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError("Both embedding_classes and embedding_size must be > 0: %d, %d."
                             % (embedding_classes, embedding_size))
        self._cell, self._classes, self._size = cell, embedding_classes, embedding_size
        self._initializer = initializer or init_ops.random_uniform_initializer(-3 ** 0.5, 3 ** 0.5)

    state_size = property(lambda self: self._cell.state_size)
    output_size = property(lambda self: self._cell.output_size)

    def zero_state(self, batch_size, dtype):
        return self._cell.zero_state(batch_size, dtype)

    def call(self, inputs, state):
        from muster.nn import embedding_ops

        table = variable_scopes.get_variable("embedding", [self._classes, self._size], initializer=self._initializer)
        return self._cell(embedding_ops.embedding_lookup(table, array_ops.reshape(inputs, [-1])), state)


def stack_bidirectional_dynamic_rnn(cells_fw, cells_bw, inputs, initial_states_fw=None, initial_states_bw=None,
                                    dtype=None, sequence_length=None, parallel_iterations=None, time_major=False,
                                    scope=None, swap_memory=False):
    """Layers of networks in both directions; each gets both outputs of the one below."""
    if not isinstance(cells_fw, list) or not isinstance(cells_bw, list) or len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must be lists of the same depth.")
    states_fw, states_bw = [], []
    with variable_scopes.variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (fw, bw) in enumerate(zip(cells_fw, cells_bw)):
            with variable_scopes.variable_scope("cell_%d" % i):
                outputs, (state_fw, state_bw) = _bidirectional_dynamic_rnn(
                    fw, bw, inputs, initial_state_fw=initial_states_fw[i] if initial_states_fw else None,
                    initial_state_bw=initial_states_bw[i] if initial_states_bw else None,
                    sequence_length=sequence_length, parallel_iterations=parallel_iterations, dtype=dtype,
                    swap_memory=swap_memory, time_major=time_major)
                inputs = array_ops.concat(outputs, 2)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


def transpose_batch_time(x):
    from muster.nn import rnn

    return rnn._transpose_batch_time(x)


__all__ = ["BasicLSTMCell", "BasicRNNCell", "DeviceWrapper", "DropoutWrapper", "EmbeddingWrapper", "GRUCell",
           "InputProjectionWrapper", "LSTMCell", "LSTMStateTuple", "LayerNormBasicLSTMCell", "MultiRNNCell",
           "OutputProjectionWrapper", "RNNCell", "ResidualWrapper", "stack_bidirectional_dynamic_rnn",
           "static_bidirectional_rnn", "static_rnn", "transpose_batch_time"]
