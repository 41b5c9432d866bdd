"""tf.layers: functions that make variables and apply them, and the classes behind them."""
from muster import _absent, array_ops, control_flow_ops, conv_ops, dtypes, framework, init_ops, math_ops, nn_ops, state_ops
from muster import variable_scopes
from muster.convert import convert_to_tensor
from muster.framework import GraphKeys, colocate_with, name_scope
from muster.rnn_cell import _snake_case

__getattr__ = _absent.explain(__name__)


class Layer(object):
    """Variables are made by the first call, in a scope of the layer's name; later calls use them again."""

    def __init__(self, trainable=True, name=None, dtype=None, activity_regularizer=None, _scope=None, _reuse=None,
                 **kwargs):
        if kwargs:
            raise TypeError("Keyword argument not understood: %s" % ", ".join(sorted(kwargs)))
        self.trainable, self._reuse = trainable, _reuse
        self._base_name = name or _snake_case(type(self).__name__)
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype)
        self._activity_regularizer = activity_regularizer
        self._weights, self._losses, self._updates = [], [], []
        self._scope = None
        self.built = False
        if _scope:
            with variable_scopes.variable_scope(_scope) as captured:
                self._scope = captured

    name = property(lambda self: self._base_name)
    dtype = property(lambda self: self._dtype)
    losses = property(lambda self: list(self._losses))
    updates = property(lambda self: list(self._updates))
    variables = property(lambda self: list(self._weights))
    weights = variables

    @property
    def scope_name(self):
        if self._scope is None:
            raise ValueError("No name available for layer scope because the layer \"" + self.name + "\" has not been "
                             "used yet. The scope name is determined the first time the layer instance is called.")
        return self._scope.name

    @property
    def trainable_variables(self):
        return [v for v in self._weights if v.trainable] if self.trainable else []

    @property
    def non_trainable_variables(self):
        trainable = set(self.trainable_variables)
        return [v for v in self._weights if v not in trainable]

    trainable_weights, non_trainable_weights = trainable_variables, non_trainable_variables

    def build(self, input_shape):
        self.built = True

    def call(self, inputs, **kwargs):
        return inputs

    def add_weight(self, name, shape, dtype=None, initializer=None, regularizer=None, trainable=True, constraint=None,
                   use_resource=None, partitioner=None):
        before = set(framework.get_collection(GraphKeys.GLOBAL_VARIABLES)) if regularizer is not None else ()
        variable = variable_scopes.get_variable(
            name, shape=shape, dtype=dtypes.as_dtype(dtype or self._dtype or dtypes.float32), initializer=initializer,
            trainable=trainable and self.trainable, constraint=constraint, use_resource=use_resource,
            partitioner=partitioner)
        if regularizer is not None and variable not in before:
            with name_scope(name + "/Regularizer"):
                self.add_loss(regularizer(variable))
        self._weights.extend(list(variable) if hasattr(variable, "_get_variable_list") else [variable])
        return variable

    add_variable = add_weight

    def add_loss(self, losses, inputs=None):
        losses = losses if isinstance(losses, (list, tuple)) else [losses]
        losses = [loss for loss in losses if loss is not None]
        self._losses.extend(losses)
        for loss in losses:
            framework.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    def add_update(self, updates, inputs=None):
        for update in updates if isinstance(updates, (list, tuple)) else [updates]:
            update = update.op if hasattr(update, "op") else update
            self._updates.append(update)
            framework.add_to_collection(GraphKeys.UPDATE_OPS, update)

    def _set_scope(self, scope):
        if self._scope is not None:
            return
        if self._reuse:
            context = variable_scopes.variable_scope(self._base_name if scope is None else scope)
        else:
            context = variable_scopes.variable_scope(scope, default_name=self._base_name)
        with context as captured:
            self._scope = captured

    def __call__(self, inputs, *args, **kwargs):
        self._set_scope(kwargs.pop("scope", None))
        reuse = self._reuse if self._reuse is not None and not self.built else (True if self.built else None)
        with variable_scopes.variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as current:
            with name_scope(current.original_name_scope):
                if not self.built:
                    inputs = convert_to_tensor(inputs)
                    if self._dtype is None:
                        self._dtype = inputs.dtype.base_dtype
                    self.build(inputs.get_shape())
                    self.built = True
                outputs = self.call(inputs, *args, **kwargs)
                if self._activity_regularizer is not None:
                    with name_scope("ActivityRegularizer"):
                        self.add_loss(self._activity_regularizer(outputs))
                return outputs

    def apply(self, inputs, *args, **kwargs):
        return self(inputs, *args, **kwargs)


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


def _tuple(value, n, name):
    if isinstance(value, int):
        return (value,) * n
    complaint = "The `%s` argument must be a tuple of %d integers. Received: %s" % (name, n, value)
    try:
        values = tuple(value)
    except TypeError:
        raise ValueError(complaint) from None
    if len(values) != n:
        raise ValueError(complaint)
    numbers = []
    for single in values:
        try:
            numbers.append(int(single))
        except (TypeError, ValueError):
            raise ValueError("%s including element %s of type %s" % (complaint, single, type(single))) from None
    return tuple(numbers)


def _padding(padding):
    if padding.lower() not in ("valid", "same"):
        raise ValueError("The `padding` argument must be one of \"valid\", \"same\". Received: %s" % padding)
    return padding.upper()


def _channels_first(data_format):
    if data_format.lower() not in ("channels_last", "channels_first"):
        raise ValueError("The `data_format` argument must be one of \"channels_first\", \"channels_last\". Received: "
                         "%s" % data_format)
    return data_format.lower() == "channels_first"


class _Conv(Layer):
    _rank = 2

    def __init__(self, filters, kernel_size, strides=1, padding="valid", data_format="channels_last", dilation_rate=1,
                 activation=None, use_bias=True, kernel_initializer=None,
                 bias_initializer=init_ops.zeros_initializer(), kernel_regularizer=None, bias_regularizer=None,
                 activity_regularizer=None, kernel_constraint=None, bias_constraint=None, trainable=True, name=None,
                 **kwargs):
        super(_Conv, self).__init__(trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs)
        n = self._rank
        self.filters, self.kernel_size = filters, _tuple(kernel_size, n, "kernel_size")
        self.strides, self.dilation_rate = _tuple(strides, n, "strides"), _tuple(dilation_rate, n, "dilation_rate")
        self.padding, self._first = _padding(padding), _channels_first(data_format)
        self.activation, self.use_bias = activation, use_bias
        self._kernel = dict(initializer=kernel_initializer, regularizer=kernel_regularizer,
                            constraint=kernel_constraint)
        self._bias = dict(initializer=bias_initializer, regularizer=bias_regularizer, constraint=bias_constraint)

    def build(self, input_shape):
        depth = input_shape.with_rank(self._rank + 2)[1 if self._first else -1].value
        if depth is None:
            raise ValueError("The channel dimension of the inputs should be defined. Found `None`.")
        self.kernel = self.add_weight("kernel", shape=list(self.kernel_size) + [depth, self.filters], **self._kernel)
        self.bias = self.add_weight("bias", shape=[self.filters], **self._bias) if self.use_bias else None

    def call(self, inputs):
        n = self._rank
        data_format = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}[n][self._first]
        outputs = conv_ops.convolution_with(inputs, convert_to_tensor(self.kernel), self.padding, self.strides,
                                            self.dilation_rate, None, data_format, n, self._first)
        if self.use_bias:
            outputs = nn_ops.bias_add(outputs, self.bias, data_format=data_format)
        return outputs if self.activation is None else self.activation(outputs)


class Conv1D(_Conv):
    _rank = 1


class Conv2D(_Conv):
    _rank = 2


class Conv3D(_Conv):
    _rank = 3


class _Pooling2D(Layer):
    def __init__(self, pool_size, strides, padding="valid", data_format="channels_last", name=None, **kwargs):
        if strides is None:
            raise ValueError("Argument `strides` must not be None.")
        super(_Pooling2D, self).__init__(name=name, **kwargs)
        self.pool_size, self.strides = _tuple(pool_size, 2, "pool_size"), _tuple(strides, 2, "strides")
        self.padding, self._first = _padding(padding), _channels_first(data_format)

    def call(self, inputs):
        def full(values):
            return [1, 1] + list(values) if self._first else [1] + list(values) + [1]

        return self._function(inputs, ksize=full(self.pool_size), strides=full(self.strides), padding=self.padding,
                              data_format="NCHW" if self._first else "NHWC")


class MaxPooling2D(_Pooling2D):
    _function = staticmethod(conv_ops.max_pool)


class AveragePooling2D(_Pooling2D):
    _function = staticmethod(conv_ops.avg_pool)


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


# --- Functions. ---
def _made(layer_class, inputs, name, reuse, arguments):
    layer = layer_class(name=name, dtype=inputs.dtype.base_dtype, _scope=name, _reuse=reuse, **arguments)
    return layer.apply(inputs)


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


def conv2d(inputs, filters, kernel_size, strides=(1, 1), padding="valid", data_format="channels_last",
           dilation_rate=(1, 1), activation=None, use_bias=True, kernel_initializer=None,
           bias_initializer=init_ops.zeros_initializer(), kernel_regularizer=None, bias_regularizer=None,
           activity_regularizer=None, kernel_constraint=None, bias_constraint=None, trainable=True, name=None,
           reuse=None):
    inputs = convert_to_tensor(inputs)
    return _made(Conv2D, inputs, name, reuse, dict(
        filters=filters, kernel_size=kernel_size, strides=strides, padding=padding, data_format=data_format,
        dilation_rate=dilation_rate, activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer,
        bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
        activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint,
        bias_constraint=bias_constraint, trainable=trainable))


def conv1d(inputs, filters, kernel_size, strides=1, padding="valid", data_format="channels_last", dilation_rate=1,
           activation=None, use_bias=True, kernel_initializer=None, bias_initializer=init_ops.zeros_initializer(),
           kernel_regularizer=None, bias_regularizer=None, activity_regularizer=None, kernel_constraint=None,
           bias_constraint=None, trainable=True, name=None, reuse=None):
    inputs = convert_to_tensor(inputs)
    return _made(Conv1D, inputs, name, reuse, dict(
        filters=filters, kernel_size=kernel_size, strides=strides, padding=padding, data_format=data_format,
        dilation_rate=dilation_rate, activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer,
        bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
        activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint,
        bias_constraint=bias_constraint, trainable=trainable))


def max_pooling2d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return MaxPooling2D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                        name=name).apply(inputs)


def average_pooling2d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return AveragePooling2D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                            name=name).apply(inputs)


def flatten(inputs, name=None, data_format="channels_last"):
    return Flatten(name=name, data_format=data_format).apply(inputs)


def dropout(inputs, rate=0.5, noise_shape=None, seed=None, training=False, name=None):
    return Dropout(rate, noise_shape=noise_shape, seed=seed, name=name).apply(inputs, training=training)


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


from muster.conv_layers import (  # noqa: E402, F401  (they are made of what is above)
    AveragePooling1D, Conv2DTranspose, MaxPooling1D, SeparableConv2D, average_pooling1d, conv2d_transpose, max_pooling1d,
    separable_conv2d)

SeparableConvolution2D, Convolution2D, Convolution2DTranspose = SeparableConv2D, Conv2D, Conv2DTranspose
