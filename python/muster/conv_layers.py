"""Further layers of tf.layers: transposed and separable convolutions, pooling along one axis."""
from muster import array_ops, conv_ops, init_ops, nn_ops
from muster.convert import convert_to_tensor
from muster.layers import Conv2D, Layer, _channels_first, _made, _padding, _tuple


def _deconvolved(size, kernel, stride, padding):
    if size is None:
        return None
    return size * stride + (max(kernel - stride, 0) if padding == "VALID" else 0)


class Conv2DTranspose(Conv2D):
    def build(self, input_shape):
        depth = input_shape.with_rank(4)[1 if self._first else -1].value
        if depth is None:
            raise ValueError("The channel dimension of the inputs should be defined. Found `None`.")
        self.kernel = self.add_weight("kernel", shape=list(self.kernel_size) + [self.filters, depth], **self._kernel)
        self.bias = self.add_weight("bias", shape=[self.filters], **self._bias) if self.use_bias else None

    def call(self, inputs):
        shape, static = array_ops.shape(inputs), inputs.get_shape().as_list()
        axes = (2, 3) if self._first else (1, 2)
        sizes = [_deconvolved(shape[axis], k, s, self.padding)
                 for axis, k, s in zip(axes, self.kernel_size, self.strides)]
        known = [_deconvolved(static[axis], k, s, self.padding)
                 for axis, k, s in zip(axes, self.kernel_size, self.strides)]

        def full(values, first, last):
            return [first, last] + list(values) if self._first else [first] + list(values) + [last]

        data_format = "NCHW" if self._first else "NHWC"
        outputs = conv_ops.conv2d_transpose(
            inputs, self.kernel, array_ops.stack(full(sizes, shape[0], self.filters)), full(self.strides, 1, 1),
            padding=self.padding, data_format=data_format)
        outputs.set_shape(full(known, static[0], self.filters))
        if self.use_bias:
            outputs = nn_ops.bias_add(outputs, self.bias, data_format=data_format)
        return outputs if self.activation is None else self.activation(outputs)


class SeparableConv2D(Conv2D):
    def __init__(self, filters, kernel_size, depth_multiplier=1, depthwise_initializer=None, pointwise_initializer=None,
                 depthwise_regularizer=None, pointwise_regularizer=None, depthwise_constraint=None,
                 pointwise_constraint=None, **kwargs):
        super(SeparableConv2D, self).__init__(filters, kernel_size, **kwargs)
        self.depth_multiplier = depth_multiplier
        self._depthwise = dict(initializer=depthwise_initializer, regularizer=depthwise_regularizer,
                               constraint=depthwise_constraint)
        self._pointwise = dict(initializer=pointwise_initializer, regularizer=pointwise_regularizer,
                               constraint=pointwise_constraint)

    def build(self, input_shape):
        depth = input_shape.with_rank(4)[1 if self._first else -1].value
        if depth is None:
            raise ValueError("The channel dimension of the inputs to `SeparableConv2D` should be defined. Found `None`.")
        self.depthwise_kernel = self.add_weight(
            "depthwise_kernel", shape=list(self.kernel_size) + [depth, self.depth_multiplier], **self._depthwise)
        self.pointwise_kernel = self.add_weight(
            "pointwise_kernel", shape=[1, 1, depth * self.depth_multiplier, self.filters], **self._pointwise)
        self.bias = self.add_weight("bias", shape=[self.filters], **self._bias) if self.use_bias else None

    def call(self, inputs):
        strides = [1, 1] + list(self.strides) if self._first else [1] + list(self.strides) + [1]
        data_format = "NCHW" if self._first else "NHWC"
        outputs = conv_ops.separable_conv2d(
            inputs, self.depthwise_kernel, self.pointwise_kernel, strides=strides, padding=self.padding,
            rate=list(self.dilation_rate), data_format=data_format)
        if self.use_bias:
            outputs = nn_ops.bias_add(outputs, self.bias, data_format=data_format)
        return outputs if self.activation is None else self.activation(outputs)


class _Pooling1D(Layer):
    def __init__(self, pool_size, strides, padding="valid", data_format="channels_last", name=None, **kwargs):
        if strides is None:
            raise ValueError("Argument `strides` must not be None.")
        super(_Pooling1D, self).__init__(name=name, **kwargs)
        self.pool_size, self.strides = _tuple(pool_size, 1, "pool_size"), _tuple(strides, 1, "strides")
        self.padding, self._first = _padding(padding), _channels_first(data_format)

    def call(self, inputs):
        # As a picture that is one cell wide.
        axis = 3 if self._first else 2
        full = (lambda n: [1, 1, n[0], 1]) if self._first else (lambda n: [1, n[0], 1, 1])
        wide = array_ops.expand_dims(inputs, axis)
        outputs = self._function(wide, ksize=full(self.pool_size), strides=full(self.strides), padding=self.padding,
                                 data_format="NCHW" if self._first else "NHWC")
        return array_ops.squeeze(outputs, [axis])


class MaxPooling1D(_Pooling1D):
    _function = staticmethod(conv_ops.max_pool)


class AveragePooling1D(_Pooling1D):
    _function = staticmethod(conv_ops.avg_pool)


def conv2d_transpose(inputs, filters, kernel_size, strides=(1, 1), padding="valid", data_format="channels_last",
                     activation=None, use_bias=True, kernel_initializer=None,
                     bias_initializer=init_ops.zeros_initializer(), kernel_regularizer=None, bias_regularizer=None,
                     activity_regularizer=None, kernel_constraint=None, bias_constraint=None, trainable=True, name=None,
                     reuse=None):
    return _made(Conv2DTranspose, convert_to_tensor(inputs), name, reuse, dict(
        filters=filters, kernel_size=kernel_size, strides=strides, padding=padding, data_format=data_format,
        activation=activation, use_bias=use_bias, kernel_initializer=kernel_initializer,
        bias_initializer=bias_initializer, kernel_regularizer=kernel_regularizer, bias_regularizer=bias_regularizer,
        activity_regularizer=activity_regularizer, kernel_constraint=kernel_constraint, bias_constraint=bias_constraint,
        trainable=trainable))


def separable_conv2d(inputs, filters, kernel_size, strides=(1, 1), padding="valid", data_format="channels_last",
                     dilation_rate=(1, 1), depth_multiplier=1, activation=None, use_bias=True,
                     depthwise_initializer=None, pointwise_initializer=None,
                     bias_initializer=init_ops.zeros_initializer(), depthwise_regularizer=None,
                     pointwise_regularizer=None, bias_regularizer=None, activity_regularizer=None,
                     depthwise_constraint=None, pointwise_constraint=None, bias_constraint=None, trainable=True,
                     name=None, reuse=None):
    return _made(SeparableConv2D, convert_to_tensor(inputs), name, reuse, dict(
        filters=filters, kernel_size=kernel_size, strides=strides, padding=padding, data_format=data_format,
        dilation_rate=dilation_rate, depth_multiplier=depth_multiplier, activation=activation, use_bias=use_bias,
        depthwise_initializer=depthwise_initializer, pointwise_initializer=pointwise_initializer,
        bias_initializer=bias_initializer, depthwise_regularizer=depthwise_regularizer,
        pointwise_regularizer=pointwise_regularizer, bias_regularizer=bias_regularizer,
        activity_regularizer=activity_regularizer, depthwise_constraint=depthwise_constraint,
        pointwise_constraint=pointwise_constraint, bias_constraint=bias_constraint, trainable=trainable))


def max_pooling1d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return MaxPooling1D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                        name=name).apply(convert_to_tensor(inputs))


def average_pooling1d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return AveragePooling1D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                            name=name).apply(convert_to_tensor(inputs))
