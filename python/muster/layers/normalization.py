"""Batch normalization."""
from muster import dtypes
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import colocate_with, name_scope
from muster.layers.base import Layer
from muster.nn import nn_ops
from muster.ops import array_ops, control_flow_ops, math_ops, state_ops
from muster.variables import init_ops


class BatchNormalization(Layer):
    def __init__(self, axis=-1, momentum=0.99, epsilon=1e-3, center=True, scale=True,
                 beta_initializer=init_ops.zeros_initializer(), gamma_initializer=init_ops.ones_initializer(),
                 moving_mean_initializer=init_ops.zeros_initializer(),
                 moving_variance_initializer=init_ops.ones_initializer(), beta_regularizer=None, gamma_regularizer=None,
                 beta_constraint=None, gamma_constraint=None, renorm=False, renorm_clipping=None, renorm_momentum=0.99,
                 fused=None, trainable=True, virtual_batch_size=None, adjustment=None, name=None, **kwargs):
        super(BatchNormalization, self).__init__(trainable=trainable, name=name, **kwargs)
        if renorm or virtual_batch_size is not None or adjustment is not None:
            raise NotImplementedError("batch_normalization with renorm, virtual_batch_size or adjustment is not "
                                      "supported")
        self._axis_argument, self.momentum, self.epsilon = axis, momentum, epsilon
        self.center, self.scale, self.fused = center, scale, fused
        self._options = {
            "gamma": dict(initializer=gamma_initializer, regularizer=gamma_regularizer, constraint=gamma_constraint),
            "beta": dict(initializer=beta_initializer, regularizer=beta_regularizer, constraint=beta_constraint),
            "moving_mean": dict(initializer=moving_mean_initializer, trainable=False),
            "moving_variance": dict(initializer=moving_variance_initializer, trainable=False)}

    def build(self, input_shape):
        if input_shape.ndims is None:
            raise ValueError("Input has undefined rank:", input_shape)
        axis = self._axis_argument
        if isinstance(axis, (list, tuple)):
            if len(axis) != 1:
                raise NotImplementedError("batch_normalization over several axes is not supported")
            axis = axis[0]
        self.axis = axis + input_shape.ndims if axis < 0 else axis
        if not 0 <= self.axis < input_shape.ndims:
            raise ValueError("Invalid axis: %d" % axis)
        if self.fused is None:
            self.fused = input_shape.ndims == 4 and self.axis in (1, 3)
        elif self.fused and (input_shape.ndims != 4 or self.axis not in (1, 3)):
            raise ValueError("Unsupported axis, fused batch norm only supports axis == [1] or axis == [3] of 4D inputs")
        depth = input_shape[self.axis].value
        if depth is None:
            raise ValueError("Input has undefined `axis` dimension. Input shape: ", input_shape)
        param_dtype = dtypes.float32 if self.dtype in (dtypes.float16, dtypes.bfloat16) else self.dtype

        def parameter(name):
            return self.add_weight(name, shape=[depth], dtype=param_dtype, **self._options[name])

        self.gamma = parameter("gamma") if self.scale else None
        self.beta = parameter("beta") if self.center else None
        if self.fused:
            # The fused op wants both.
            if self.gamma is None:
                self._gamma_constant = array_ops.constant(1.0, dtype=param_dtype, shape=[depth])
            if self.beta is None:
                self._beta_constant = array_ops.constant(0.0, dtype=param_dtype, shape=[depth])
        self.moving_mean = parameter("moving_mean")
        self.moving_variance = parameter("moving_variance")

    def _moving_average(self, variable, value, momentum):
        with name_scope("AssignMovingAvg") as scope, colocate_with(variable.op):
            decay = convert_to_tensor(1.0 - momentum, name="decay")
            if decay.dtype != variable.dtype.base_dtype:
                decay = math_ops.cast(decay, variable.dtype.base_dtype)
            change = (variable - math_ops.cast(value, variable.dtype.base_dtype)) * decay
            return state_ops.assign_sub(variable, change, name=scope)

    def call(self, inputs, training=False):
        if self.fused:
            return self._fused(inputs, training)
        shape = inputs.get_shape()
        axes = [i for i in range(shape.ndims) if i != self.axis]
        broadcast = [1] * shape.ndims
        broadcast[self.axis] = shape[self.axis].value

        def wide(value):
            if value is not None and len(value.get_shape()) != shape.ndims and axes != list(range(shape.ndims - 1)):
                return array_ops.reshape(value, broadcast)
            return value

        scale, offset = wide(self.gamma), wide(self.beta)
        is_training = control_flow_ops.smart_constant_value(training)
        if is_training is False:
            mean, variance = self.moving_mean, self.moving_variance
        else:
            mean, variance = nn_ops.moments(math_ops.cast(inputs, self.moving_mean.dtype.base_dtype), axes)
            batch_mean, batch_variance = mean, variance
            mean = control_flow_ops.smart_cond(training, lambda: batch_mean,
                                               lambda: convert_to_tensor(self.moving_mean))
            variance = control_flow_ops.smart_cond(training, lambda: batch_variance,
                                                   lambda: convert_to_tensor(self.moving_variance))
            for variable, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
                self.add_update(control_flow_ops.smart_cond(
                    training, lambda: self._moving_average(variable, value, self.momentum),
                    lambda: convert_to_tensor(variable)))
        mean, variance = (math_ops.cast(convert_to_tensor(v), inputs.dtype) for v in (mean, variance))
        offset = None if offset is None else math_ops.cast(offset, inputs.dtype)
        scale = None if scale is None else math_ops.cast(scale, inputs.dtype)
        outputs = nn_ops.batch_normalization(inputs, wide(mean), wide(variance), offset, scale, self.epsilon)
        outputs.set_shape(shape)
        return outputs

    def _fused(self, inputs, training):
        gamma = self.gamma if self.scale else self._gamma_constant
        beta = self.beta if self.center else self._beta_constant
        options = dict(epsilon=self.epsilon, data_format="NCHW" if self.axis == 1 else "NHWC")
        output, mean, variance = control_flow_ops.smart_cond(
            training, lambda: nn_ops.fused_batch_norm(inputs, gamma, beta, **options),
            lambda: nn_ops.fused_batch_norm(inputs, gamma, beta, mean=self.moving_mean, variance=self.moving_variance,
                                            is_training=False, **options))
        is_training = control_flow_ops.smart_constant_value(training)
        if is_training is None:
            momentum = control_flow_ops.smart_cond(training, lambda: convert_to_tensor(self.momentum),
                                                   lambda: convert_to_tensor(1.0))
        else:
            momentum = convert_to_tensor(self.momentum)
        if is_training is not False:
            self.add_update(self._moving_average(self.moving_mean, mean, momentum))
            self.add_update(self._moving_average(self.moving_variance, variance, momentum))
        return output


def batch_normalization(inputs, axis=-1, momentum=0.99, epsilon=1e-3, center=True, scale=True,
                        beta_initializer=init_ops.zeros_initializer(), gamma_initializer=init_ops.ones_initializer(),
                        moving_mean_initializer=init_ops.zeros_initializer(),
                        moving_variance_initializer=init_ops.ones_initializer(), beta_regularizer=None,
                        gamma_regularizer=None, beta_constraint=None, gamma_constraint=None, training=False,
                        trainable=True, name=None, reuse=None, renorm=False, renorm_clipping=None,
                        renorm_momentum=0.99, fused=None, virtual_batch_size=None, adjustment=None):
    inputs = convert_to_tensor(inputs)
    layer = BatchNormalization(
        axis=axis, momentum=momentum, epsilon=epsilon, center=center, scale=scale, beta_initializer=beta_initializer,
        gamma_initializer=gamma_initializer, moving_mean_initializer=moving_mean_initializer,
        moving_variance_initializer=moving_variance_initializer, beta_regularizer=beta_regularizer,
        gamma_regularizer=gamma_regularizer, beta_constraint=beta_constraint, gamma_constraint=gamma_constraint,
        renorm=renorm, renorm_clipping=renorm_clipping, renorm_momentum=renorm_momentum, fused=fused,
        trainable=trainable, virtual_batch_size=virtual_batch_size, adjustment=adjustment, name=name,
        dtype=inputs.dtype.base_dtype, _scope=name, _reuse=reuse)
    return layer.apply(inputs, training=training)
