"""Layers without a neighbourhood: dense, flatten, dropout."""
from muster.graph.convert import convert_to_tensor
from muster.layers.base import Layer, _channels_first, _made
from muster.nn import nn_ops
from muster.ops import array_ops, control_flow_ops, math_ops
from muster.variables import init_ops


class Dense(Layer):
    def __init__(self, units, activation=None, use_bias=True, kernel_initializer=None,
                 bias_initializer=init_ops.zeros_initializer(), kernel_regularizer=None, bias_regularizer=None,
                 activity_regularizer=None, kernel_constraint=None, bias_constraint=None, trainable=True, name=None,
                 **kwargs):
        super(Dense, self).__init__(trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs)
        self.units, self.activation, self.use_bias = int(units), activation, use_bias
        self._kernel = dict(initializer=kernel_initializer, regularizer=kernel_regularizer,
                            constraint=kernel_constraint)
        self._bias = dict(initializer=bias_initializer, regularizer=bias_regularizer, constraint=bias_constraint)

    def build(self, input_shape):
        depth = input_shape[-1].value
        if depth is None:
            raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
        self.kernel = self.add_weight("kernel", shape=[depth, self.units], **self._kernel)
        self.bias = self.add_weight("bias", shape=[self.units], **self._bias) if self.use_bias else None

    def call(self, inputs):
        inputs = convert_to_tensor(inputs)
        rank = inputs.get_shape().ndims
        if rank is not None and rank > 2:
            outputs = math_ops.tensordot(inputs, self.kernel, [[rank - 1], [0]])
            outputs.set_shape(inputs.get_shape().as_list()[:-1] + [self.units])
        else:
            outputs = math_ops.matmul(inputs, self.kernel)
        if self.use_bias:
            outputs = nn_ops.bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)


class Flatten(Layer):
    def __init__(self, data_format="channels_last", name=None, **kwargs):
        super(Flatten, self).__init__(name=name, **kwargs)
        self._first = _channels_first(data_format)

    def call(self, inputs):
        inputs = convert_to_tensor(inputs)
        shape = inputs.get_shape()
        if self._first and shape.ndims is not None and shape.ndims > 1:
            inputs = array_ops.transpose(inputs, perm=[0] + list(range(2, shape.ndims)) + [1])
        outputs = array_ops.reshape(inputs, (shape[0].value or array_ops.shape(inputs)[0], -1))
        rest = shape[1:]
        outputs.set_shape([shape[0].value, rest.num_elements() if rest.is_fully_defined() else None])
        return outputs


class Dropout(Layer):
    def __init__(self, rate=0.5, noise_shape=None, seed=None, name=None, **kwargs):
        super(Dropout, self).__init__(name=name, **kwargs)
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs, training=False):
        return control_flow_ops.smart_cond(
            training, lambda: nn_ops.dropout(inputs, noise_shape=self._noise_shape(inputs), seed=self.seed,
                                             rate=self.rate),
            lambda: array_ops.identity(inputs))

    def _noise_shape(self, inputs):
        if self.noise_shape is None:
            return None
        shape = array_ops.shape(inputs)
        return [shape[i] if size is None else size for i, size in enumerate(self.noise_shape)]


def dense(inputs, units, activation=None, use_bias=True, kernel_initializer=None,
          bias_initializer=init_ops.zeros_initializer(), kernel_regularizer=None, bias_regularizer=None,
          activity_regularizer=None, kernel_constraint=None, bias_constraint=None, trainable=True, name=None,
          reuse=None):
    inputs = convert_to_tensor(inputs)
    return _made(Dense, inputs, name, reuse, dict(
        units=units, activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer,
        bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
        activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint,
        bias_constraint=bias_constraint, trainable=trainable))


def flatten(inputs, name=None, data_format="channels_last"):
    return Flatten(name=name, data_format=data_format).apply(inputs)


def dropout(inputs, rate=0.5, noise_shape=None, seed=None, training=False, name=None):
    return Dropout(rate, noise_shape=noise_shape, seed=seed, name=name).apply(inputs, training=training)
