"""Convolutions, transposed and separable ones too."""
from muster.graph.convert import convert_to_tensor
from muster.layers.base import Layer, _channels_first, _made, _padding, _tuple
from muster.nn import conv_ops, nn_ops
from muster.ops import array_ops
from muster.variables import init_ops


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


SeparableConvolution2D, Convolution2D, Convolution2DTranspose = SeparableConv2D, Conv2D, Conv2DTranspose
