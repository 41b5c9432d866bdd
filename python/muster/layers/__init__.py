"""tf.layers: functions that make variables and apply them, and the classes behind them."""
from muster.layers.base import Layer  # noqa: F401
from muster.layers.convolutional import (  # noqa: F401
    Conv1D, Conv2D, Conv2DTranspose, Conv3D, Convolution2D, Convolution2DTranspose, SeparableConv2D,
    SeparableConvolution2D, conv1d, conv2d, conv2d_transpose, separable_conv2d)
from muster.layers.core import Dense, Dropout, Flatten, dense, dropout, flatten  # noqa: F401
from muster.layers.normalization import BatchNormalization, batch_normalization  # noqa: F401
from muster.layers.pooling import (  # noqa: F401
    AveragePooling1D, AveragePooling2D, MaxPooling1D, MaxPooling2D, average_pooling1d, average_pooling2d, max_pooling1d,
    max_pooling2d)
from muster.names import absent as _absent

__getattr__ = _absent.explain(__name__)
