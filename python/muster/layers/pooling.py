"""Pooling."""
from muster.graph.convert import convert_to_tensor
from muster.layers.base import Layer, _channels_first, _padding, _tuple
from muster.nn import conv_ops
from muster.ops import array_ops


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


def max_pooling2d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return MaxPooling2D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                        name=name).apply(inputs)


def average_pooling2d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return AveragePooling2D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                            name=name).apply(inputs)


class _Pooling1D(Layer):
    def __init__(self, pool_size, strides, padding="valid", data_format="channels_last", name=None, **kwargs):
        if strides is None:
            raise ValueError("Argument `strides` must not be None.")
        super(_Pooling1D, self).__init__(name=name, **kwargs)
        self.pool_size, self.strides = _tuple(pool_size, 1, "pool_size"), _tuple(strides, 1, "strides")
        self.padding, self._first = _padding(padding), _channels_first(data_format)

    def call(self, inputs):
        # As an image of width one.
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


def max_pooling1d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return MaxPooling1D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                        name=name).apply(convert_to_tensor(inputs))


def average_pooling1d(inputs, pool_size, strides, padding="valid", data_format="channels_last", name=None):
    return AveragePooling1D(pool_size=pool_size, strides=strides, padding=padding, data_format=data_format,
                            name=name).apply(convert_to_tensor(inputs))
