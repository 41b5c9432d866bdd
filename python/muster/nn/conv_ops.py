"""Convolutions and pooling."""
import numpy as np

from muster.generated.conv_ops import *  # noqa: F403
from muster.graph import convert, framework
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops
from muster.ops.array_ops import _merge_deprecated


def _sequence(value, n, channel_index, name):
    """A window size or stride for all dimensions; one or n numbers mean the spatial ones."""
    if value is None:
        value = [1]
    value = list(value) if hasattr(value, "__len__") else [value]
    if len(value) == n + 2:
        return value
    if len(value) == 1:
        value = value * n
    elif len(value) != n:
        raise ValueError("%s should be of length 1, %d or %d but was %d" % (name, n, n + 2, len(value)))
    return [1, 1] + value if channel_index == 1 else [1] + value + [1]


def _paddings(padding):
    """(padding, explicit_paddings) of a padding argument."""
    if not isinstance(padding, (list, tuple)):
        return padding, []
    for i, pair in enumerate(padding):
        if not isinstance(pair, (list, tuple)):
            raise ValueError("When padding is a list, each element of padding must be a list/tuple of size 2. Element "
                             "with index %d of padding is not a list/tuple" % i)
        if len(pair) != 2:
            raise ValueError("When padding is a list, each element of padding must be a list/tuple of size 2. Element "
                             "with index %d of padding has size %d" % (i, len(pair)))
    if len(padding) != 4:
        raise ValueError("When padding is a list, it must be of size 4. Got padding of size: %d" % len(padding))
    return "EXPLICIT", [int(p) for pair in padding for p in pair]


def _channel_index(data_format):
    return 1 if data_format.startswith("NC") else len(data_format) - 1


def conv2d(input, filter=None, strides=None, padding=None, use_cudnn_on_gpu=True, data_format="NHWC",
           dilations=[1, 1, 1, 1], name=None, filters=None):
    filter = _merge_deprecated("filters", filters, "filter", filter)
    padding, explicit = _paddings(padding)
    data_format = data_format or "NHWC"
    channel = _channel_index(data_format)
    return call("Conv2D", name=name, input=input, filter=filter, strides=_sequence(strides, 2, channel, "strides"),
                padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu, explicit_paddings=explicit,
                data_format=data_format, dilations=_sequence(dilations, 2, channel, "dilations"))


def conv2d_backprop_filter(input, filter_sizes, out_backprop, strides, padding, use_cudnn_on_gpu=True,
                           data_format="NHWC", dilations=[1, 1, 1, 1], name=None):
    padding, explicit = _paddings(padding)
    return call("Conv2DBackpropFilter", name=name, input=input, filter_sizes=filter_sizes, out_backprop=out_backprop,
                strides=strides, padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu, explicit_paddings=explicit,
                data_format=data_format, dilations=dilations)


def conv2d_backprop_input(input_sizes, filter=None, out_backprop=None, strides=None, padding=None,
                          use_cudnn_on_gpu=True, data_format="NHWC", dilations=[1, 1, 1, 1], name=None, filters=None):
    filter = _merge_deprecated("filters", filters, "filter", filter)
    padding, explicit = _paddings(padding)
    return call("Conv2DBackpropInput", name=name, input_sizes=input_sizes, filter=filter, out_backprop=out_backprop,
                strides=strides, padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu, explicit_paddings=explicit,
                data_format=data_format, dilations=dilations)


def conv2d_transpose(value=None, filter=None, output_shape=None, strides=None, padding="SAME", data_format="NHWC",
                     name=None, input=None, filters=None, dilations=None):
    value = _merge_deprecated("input", input, "value", value)
    filter = _merge_deprecated("filters", filters, "filter", filter)
    with name_scope(name, "conv2d_transpose", [value, filter, output_shape]) as name:
        data_format = data_format or "NHWC"
        channel = _channel_index(data_format)
        return conv2d_backprop_input(
            input_sizes=output_shape, filter=filter, out_backprop=value,
            strides=_sequence(strides, 2, channel, "strides"), padding=padding, data_format=data_format,
            dilations=_sequence(dilations, 2, channel, "dilations"), name=name)


def conv1d(value=None, filters=None, stride=None, padding=None, use_cudnn_on_gpu=None, data_format=None, name=None,
           input=None, dilations=None):
    value = _merge_deprecated("input", input, "value", value)
    with name_scope(name, "conv1d", [value, filters]) as name:
        if data_format in (None, "NHWC", "NWC"):
            data_format, spatial, channel = "NHWC", 1, 2
        elif data_format in ("NCHW", "NCW"):
            data_format, spatial, channel = "NCHW", 2, 1
        else:
            raise ValueError("data_format must be \"NWC\" or \"NCW\".")
        strides = [1] + _sequence(stride, 1, channel, "stride")
        dilations = [1] + _sequence(dilations, 1, channel, "dilations")
        value = array_ops.expand_dims(value, spatial)
        filters = array_ops.expand_dims(filters, 0)
        result = call("Conv2D", name=name, input=value, filter=filters, strides=strides, padding=padding,
                      use_cudnn_on_gpu=use_cudnn_on_gpu, data_format=data_format, dilations=dilations)
        return array_ops.squeeze(result, [spatial])


def conv3d(input, filter=None, strides=None, padding=None, data_format="NDHWC", dilations=[1, 1, 1, 1, 1], name=None,
           filters=None):
    filter = _merge_deprecated("filters", filters, "filter", filter)
    return call("Conv3D", name=name, input=input, filter=filter, strides=strides, padding=padding,
                data_format=data_format, dilations=dilations)


def conv3d_transpose(value, filter=None, output_shape=None, strides=None, padding="SAME", data_format="NDHWC", name=None,
                     input=None, filters=None, dilations=None):
    value = _merge_deprecated("input", input, "value", value)
    filter = _merge_deprecated("filters", filters, "filter", filter)
    with name_scope(name, "conv3d_transpose", [value, filter, output_shape]) as name:
        data_format = data_format or "NDHWC"
        channel = _channel_index(data_format)
        return call("Conv3DBackpropInputV2", name=name, input_sizes=output_shape, filter=filter, out_backprop=value,
                    strides=_sequence(strides, 3, channel, "strides"), padding=padding, data_format=data_format,
                    dilations=_sequence(dilations, 3, channel, "dilations"))


# --- Dilation by moving blocks to the batch. ---
def _adjusted(values, fill, spatial_dims):
    """A constant per spatial dimension, widened by `fill` for dimensions between the batch and the space."""
    known = convert.constant_value(values)
    lead = np.full([spatial_dims[0] - 1] + values.get_shape().as_list()[1:], fill, np.int32)
    if known is not None:
        return np.concatenate([lead, known]) if len(lead) else known
    return array_ops.concat([lead, values], 0) if len(lead) else values


def with_space_to_batch(input, dilation_rate, padding, op, filter_shape=None, spatial_dims=None, data_format=None):
    """op(input, padding) on the input whose blocks of dilation_rate have become batch entries."""
    rate_tensor = convert_to_tensor(np.array(dilation_rate, np.int32), name="dilation_rate")
    rate = convert.constant_value(rate_tensor)
    n = len(rate)
    if np.any(rate < 1):
        raise ValueError("dilation_rate must be positive")
    if np.all(rate == 1):
        return op(input, padding)
    if spatial_dims is None:
        first = 2 if data_format is not None and data_format.startswith("NC") else 1
        spatial_dims = range(first, first + n)
    spatial_dims = list(spatial_dims)
    if padding == "SAME":
        if filter_shape is None:
            raise ValueError("filter_shape must be specified for SAME padding")
        window = convert.constant_value(convert_to_tensor(filter_shape, name="filter_shape"))
        extra = (window[:n] - 1) * rate
        before = extra // 2
        base = array_ops.stack([[before[i], extra[i] - before[i]] for i in range(n)])
    elif padding == "VALID":
        base = np.zeros([n, 2], np.int32)
    else:
        raise ValueError("Invalid padding method %r" % padding)
    dims = input._output.shape
    spatial = None if dims is None else [dims[i] for i in spatial_dims]
    if spatial is None or None in spatial:
        whole = array_ops.shape(input)
        spatial = array_ops.stack([whole[i] for i in spatial_dims])
    paddings, crops = array_ops.required_space_to_batch_paddings(spatial, rate_tensor, base)
    block = _adjusted(rate_tensor, 1, spatial_dims)
    paddings = _adjusted(paddings, 0, spatial_dims)
    crops = _adjusted(crops, 0, spatial_dims)
    spread = array_ops.space_to_batch_nd(input, block, paddings)
    return array_ops.batch_to_space_nd(op(spread, "VALID"), block, crops)


def convolution(input, filter, padding, strides=None, dilation_rate=None, name=None, data_format=None, filters=None,
                dilations=None):
    """A convolution over 1 to 3 spatial dimensions with strides or dilation."""
    filter = _merge_deprecated("filters", filters, "filter", filter)
    dilation_rate = _merge_deprecated("dilations", dilations, "dilation_rate", dilation_rate)
    with name_scope(name, "convolution", [input, filter]) as name:
        input = convert_to_tensor(input, name="input")
        filter = convert_to_tensor(filter, name="filter")
        n = (filter.get_shape().ndims or input.get_shape().ndims) - 2
        channels_first = data_format is not None and data_format.startswith("NC")
        return convolution_with(input, filter, padding, strides, dilation_rate, name, data_format, n, channels_first)


def convolution_with(input, filter, padding, strides, dilation_rate, name, data_format, n, channels_first):
    strides = [1] * n if strides is None else list(np.broadcast_to(strides, [n]).tolist())
    rate = [1] * n if dilation_rate is None else list(np.broadcast_to(dilation_rate, [n]).tolist())
    if any(s < 1 for s in strides):
        raise ValueError("all values of strides must be positive")
    if any(r < 1 for r in rate):
        raise ValueError("all values of dilation_rate must be positive")
    if any(s > 1 for s in strides) and any(r > 1 for r in rate):
        raise ValueError("strides > 1 not supported in conjunction with dilation_rate > 1")
    spatial_dims = range(2, n + 2) if channels_first else range(1, n + 1)
    full = [1, 1] + strides if channels_first else [1] + strides + [1]

    def op(value, padding_):
        if n == 1:
            return conv1d(value, filter, strides[0], padding_, data_format=data_format, name=name)
        if n == 2:
            return call("Conv2D", name=name, input=value, filter=filter, strides=full, padding=padding_,
                        data_format="NCHW" if channels_first else "NHWC")
        if n == 3:
            return call("Conv3D", name=name, input=value, filter=filter, strides=full, padding=padding_,
                        data_format="NCDHW" if channels_first else "NDHWC")
        raise ValueError("num_spatial_dims must be 1, 2, or 3.  num_spatial_dims=%d." % n)

    return with_space_to_batch(input, rate, padding, op, filter._output.shape, spatial_dims)


def atrous_conv2d(value, filters, rate, padding, name=None):
    return convolution(value, filters, padding, dilation_rate=[rate, rate], name=name)


def _depthwise(input, filter, strides, padding, rate, data_format, name):
    return with_space_to_batch(
        input, [1, 1] if rate is None else np.broadcast_to(rate, [2]).tolist(), padding,
        lambda value, padding_: depthwise_conv2d_native(value, filter, strides, padding_,
                                                        data_format=data_format or "NHWC", name=name),
        filter_shape=array_ops.shape(filter), data_format=data_format)


def depthwise_conv2d(input, filter, strides, padding, rate=None, name=None, data_format=None, dilations=None):
    rate = _merge_deprecated("dilations", dilations, "rate", rate)
    with name_scope(name, "depthwise", [input, filter]) as name:
        input = convert_to_tensor(input, name="tensor_in")
        filter = convert_to_tensor(filter, name="filter_in")
        return _depthwise(input, filter, strides, padding, rate, data_format, name)


def separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding, rate=None, name=None,
                     data_format=None, dilations=None):
    rate = _merge_deprecated("dilations", dilations, "rate", rate)
    with name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as name:
        input = convert_to_tensor(input, name="tensor_in")
        depthwise_filter = convert_to_tensor(depthwise_filter, name="depthwise_filter")
        pointwise_filter = convert_to_tensor(pointwise_filter, name="pointwise_filter")
        point = pointwise_filter.get_shape().with_rank(4)
        point[0].assert_is_compatible_with(1)
        point[1].assert_is_compatible_with(1)
        depthwise = _depthwise(input, depthwise_filter, strides, padding, rate, data_format, "depthwise")
        return conv2d(depthwise, pointwise_filter, [1, 1, 1, 1], padding="VALID", data_format=data_format, name=name)


# --- Pooling. ---
def _pool(op, scope, value, ksize, strides, padding, data_format, name):
    with name_scope(name, scope, [value]) as name:
        data_format = data_format or "NHWC"
        channel = _channel_index(data_format)
        argument = "value" if op == "AvgPool" else "input"
        return call(op, name=name, ksize=_sequence(ksize, 2, channel, "ksize"),
                    strides=_sequence(strides, 2, channel, "strides"), padding=padding, data_format=data_format,
                    **{argument: value})


def max_pool(value, ksize, strides, padding, data_format="NHWC", name=None, input=None):
    value = _merge_deprecated("input", input, "value", value)
    return _pool("MaxPool", "MaxPool", value, ksize, strides, padding, data_format, name)


def avg_pool(value, ksize, strides, padding, data_format="NHWC", name=None, input=None):
    value = _merge_deprecated("input", input, "value", value)
    return _pool("AvgPool", "AvgPool", value, ksize, strides, padding, data_format, name)


avg_pool2d = avg_pool


def max_pool2d(input, ksize, strides, padding, data_format="NHWC", name=None):
    return _pool("MaxPool", "MaxPool2d", input, ksize, strides, padding, data_format, name)


def _pool3d(op, scope, value, ksize, strides, padding, data_format, name):
    with name_scope(name, scope, [value]) as name:
        data_format = data_format or "NDHWC"
        channel = _channel_index(data_format)
        return call(op, name=name, input=value, ksize=_sequence(ksize, 3, channel, "ksize"),
                    strides=_sequence(strides, 3, channel, "strides"), padding=padding, data_format=data_format)


def max_pool3d(input, ksize, strides, padding, data_format="NDHWC", name=None):
    return _pool3d("MaxPool3D", "MaxPool3D", input, ksize, strides, padding, data_format, name)


def avg_pool3d(input, ksize, strides, padding, data_format="NDHWC", name=None):
    return _pool3d("AvgPool3D", "AvgPool3D", input, ksize, strides, padding, data_format, name)


def _pool1d(pool, scope, input, ksize, strides, padding, data_format, name):
    with name_scope(name, scope, [input]) as name:
        channel = 1 if (data_format or "NWC").startswith("NC") else 2
        ksize = [1] + _sequence(ksize, 1, channel, "ksize")
        strides = [1] + _sequence(strides, 1, channel, "strides")
        expanding = 1 if channel == 2 else 2
        value = array_ops.expand_dims(input, expanding)
        result = pool(value, ksize, strides, padding, data_format="NHWC" if channel == 2 else "NCHW", name=name)
        return array_ops.squeeze(result, expanding)


def max_pool1d(input, ksize, strides, padding, data_format="NWC", name=None):
    return _pool1d(max_pool, "MaxPool1d", input, ksize, strides, padding, data_format, name)


def avg_pool1d(input, ksize, strides, padding, data_format="NWC", name=None):
    return _pool1d(avg_pool, "AvgPool1D", input, ksize, strides, padding, data_format, name)


def max_pool_with_argmax(input, ksize, strides, padding, data_format="NHWC", Targmax=None, name=None,
                         output_dtype=None, include_batch_in_index=False):
    if data_format != "NHWC":
        raise ValueError("Data formats other than 'NHWC' are not yet supported")
    kind = _merge_deprecated("output_dtype", output_dtype, "Targmax", Targmax)
    return call("MaxPoolWithArgmax", name=name, input=input, ksize=ksize, strides=strides, padding=padding,
                Targmax=framework.dtypes.int64 if kind is None else kind,
                include_batch_in_index=include_batch_in_index)


def pool(input, window_shape, pooling_type, padding, dilation_rate=None, strides=None, name=None, data_format=None,
         dilations=None):
    dilation_rate = _merge_deprecated("dilations", dilations, "dilation_rate", dilation_rate)
    with name_scope(name, "%s_pool" % pooling_type.lower(), [input]) as scope:
        input = convert_to_tensor(input, name="input")
        n = len(window_shape)
        if n not in (1, 2):
            raise ValueError("%d-D %s pooling is not supported." % (n, pooling_type))
        strides = [1] * n if strides is None else list(strides)
        rate = [1] * n if dilation_rate is None else list(dilation_rate)
        function = {("MAX", 1): max_pool1d, ("MAX", 2): max_pool, ("AVG", 1): avg_pool1d, ("AVG", 2): avg_pool}.get(
            (pooling_type, n))
        if function is None:
            raise ValueError("%d-D %s pooling is not supported." % (n, pooling_type))
        if padding == "SAME" and any(r > 1 for r in rate):
            raise ValueError("pooling with SAME padding is not implemented for dilation_rate > 1")
        first = 2 if data_format is not None and data_format.startswith("NC") else 1
        default = "NWC" if n == 1 else "NHWC"
        return with_space_to_batch(
            input, rate, padding,
            lambda value, padding_: function(value, list(window_shape), strides, padding_,
                                             data_format=data_format or default, name=scope),
            window_shape, range(first, first + n))
