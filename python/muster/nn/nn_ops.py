"""Activations, softmax, dropout, normalization and cross entropies."""
import math
import numbers

from muster import dtypes, errors
from muster.generated.nn_ops import *  # noqa: F403
from muster.graph import convert, framework, tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import control_dependencies, name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, check_ops, control_flow_ops, math_ops, random_ops
from muster.ops.array_ops import _merge_deprecated

sigmoid = math_ops.sigmoid
tanh = math_ops.tanh
log_sigmoid = math_ops.log_sigmoid


def relu6(features, name=None):
    with name_scope(name, "Relu6", [features]) as name:
        return call("Relu6", name=name, features=convert_to_tensor(features, name="features"))


def crelu(features, name=None, axis=-1):
    with name_scope(name, "CRelu", [features]) as name:
        features = convert_to_tensor(features, name="features")
        return relu(array_ops.concat([features, -features], axis, name=name))


def leaky_relu(features, alpha=0.2, name=None):
    with name_scope(name, "LeakyRelu", [features, alpha]) as name:
        features = convert_to_tensor(features, name="features")
        if features.dtype.is_integer:
            features = math_ops.cast(features, dtypes.float32)
        return call("LeakyRelu", name=name, features=features, alpha=float(alpha))


def swish(features):
    features = convert_to_tensor(features, name="features")
    return features * sigmoid(features)


def bias_add(value, bias, data_format=None, name=None):
    with name_scope(name, "BiasAdd", [value, bias]) as name:
        if data_format is not None:
            if data_format.startswith("NC"):
                data_format = "NCHW"
            elif data_format.startswith("N") and data_format.endswith("C"):
                data_format = "NHWC"
            else:
                raise ValueError("data_format must be of the form `N...C` or `NC...`")
        value = convert_to_tensor(value, name="input")
        bias = convert_to_tensor(bias, dtype=value.dtype, name="bias")
        return call("BiasAdd", name=name, value=value, bias=bias, data_format=data_format)


def xw_plus_b(x, weights, biases, name=None):
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as name:
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(weights, name="weights")
        biases = convert_to_tensor(biases, name="biases")
        return bias_add(math_ops.matmul(x, weights), biases, name=name)


def relu_layer(x, weights, biases, name=None):
    with name_scope(name, "relu_layer", [x, weights, biases]) as name:
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(weights, name="weights")
        biases = convert_to_tensor(biases, name="biases")
        return relu(bias_add(math_ops.matmul(x, weights), biases), name=name)


# --- Softmax. ---
def _softmax(op, logits, dim, name):
    """Softmax over one axis: the kernel takes the last, other axes are swapped with it."""
    logits = convert_to_tensor(logits)
    shape = logits.get_shape()
    if dim == -1 or (shape.ndims is not None and dim == shape.ndims - 1):
        return call(op, name=name, logits=logits)
    known = convert.constant_value(dim) if isinstance(dim, framework.Tensor) else dim
    if known is not None and not -shape.ndims <= known < shape.ndims:
        raise errors.InvalidArgumentError(
            None, None, "Dimension (%d) must be in the range [%d, %d) where %d is the number of dimensions in the input."
            % (known, -shape.ndims, shape.ndims, shape.ndims))
    ndims = array_ops.rank(logits)
    if isinstance(dim, framework.Tensor):
        dim = array_ops.where(math_ops.less(dim, 0), dim + ndims, dim)
    elif dim < 0:
        dim += ndims
    rank = array_ops.rank(logits)
    axis = dim % shape.ndims

    def swap(tensor, last, name=None):
        order = array_ops.concat([math_ops.range(axis), [last], math_ops.range(axis + 1, last), [axis]], 0)
        return array_ops.transpose(tensor, order, **({} if name is None else {"name": name}))

    inner = call(op, logits=swap(logits, math_ops.subtract(rank, 1)))
    result = swap(inner, math_ops.subtract(rank, 1), name=name)
    result.set_shape(shape)
    return result


def softmax(logits, axis=None, name=None, dim=None):
    axis = _merge_deprecated("axis", axis, "dim", dim)
    return _softmax("Softmax", logits, -1 if axis is None else axis, name)


def log_softmax(logits, axis=None, name=None, dim=None):
    axis = _merge_deprecated("axis", axis, "dim", dim)
    return _softmax("LogSoftmax", logits, -1 if axis is None else axis, name)


def _flatten_outer_dims(tensor):
    rank = array_ops.rank(tensor)
    last = array_ops.slice(array_ops.shape(tensor), [math_ops.subtract(rank, 1)], [1])
    result = array_ops.reshape(tensor, array_ops.concat([[-1], last], 0))
    dims = tensor._output.shape
    if dims is not None and None not in dims[:-1]:
        result.set_shape([int(math.prod(dims[:-1])), dims[-1]])
    return result


def _require_named(function_name, sentinel, labels, logits):
    if sentinel is not None:
        raise ValueError("Only call `%s` with named arguments (labels=..., logits=..., ...)" % function_name)
    if labels is None or logits is None:
        raise ValueError("Both labels and logits must be provided.")


def softmax_cross_entropy_with_logits_v2(labels, logits, axis=None, name=None, dim=None):
    axis = _merge_deprecated("axis", axis, "dim", dim)
    axis = -1 if axis is None else axis
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as name:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        narrow = logits.dtype in (dtypes.float16, dtypes.bfloat16)
        precise = math_ops.cast(logits, dtypes.float32) if narrow else logits
        labels = math_ops.cast(labels, precise.dtype)
        rank = array_ops.rank(precise)
        shape = logits.get_shape()
        if axis != -1:
            def to_end(tensor):
                return array_ops.transpose(tensor, array_ops.concat(
                    [math_ops.range(axis), math_ops.range(axis + 1, rank), [axis]], 0))

            precise, labels = to_end(precise), to_end(labels)
        input_shape = array_ops.shape(precise)
        precise = _flatten_outer_dims(precise)
        labels = _flatten_outer_dims(labels)
        cost = call("SoftmaxCrossEntropyWithLogits", name=name, features=precise, labels=labels)[0]
        output_shape = array_ops.slice(input_shape, [0], [math_ops.subtract(rank, 1)])
        cost = array_ops.reshape(cost, output_shape)
        if shape.dims is not None:
            dims = shape.as_list()
            del dims[axis]
            cost.set_shape(dims)
        return math_ops.cast(cost, logits.dtype) if narrow else cost


def softmax_cross_entropy_with_logits(_sentinel=None, labels=None, logits=None, dim=-1, name=None, axis=None):
    dim = axis if axis is not None else dim
    _require_named("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as name:
        labels = array_ops.stop_gradient(labels, name="labels_stop_gradient")
        return softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits, axis=dim, name=name)


def sparse_softmax_cross_entropy_with_logits(_sentinel=None, labels=None, logits=None, name=None):
    _require_named("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        labels = convert_to_tensor(labels)
        logits = convert_to_tensor(logits)
        half = logits.dtype == dtypes.float16
        precise = math_ops.cast(logits, dtypes.float32) if half else logits
        static_labels, static_logits = labels.get_shape(), logits.get_shape()
        labels_shape = array_ops.shape(labels)
        if static_logits.ndims == 0:
            raise ValueError("Logits cannot be scalars - received shape %s." % static_logits)
        if static_logits.ndims is not None and static_labels.ndims is not None \
                and static_labels.ndims != static_logits.ndims - 1:
            raise ValueError("Rank mismatch: Rank of labels (received %s) should equal rank of logits minus 1 "
                             "(received %s)." % (static_labels.ndims, static_logits.ndims))
        known = static_labels.is_fully_defined() and static_logits[:-1].is_fully_defined()
        if known and static_labels != static_logits[:-1]:
            raise ValueError("Shape mismatch: The shape of labels (received %s) should equal the shape of logits "
                             "except for the last dimension (received %s)." % (static_labels, static_logits))
        if static_logits.ndims == 2:
            cost = call("SparseSoftmaxCrossEntropyWithLogits", name=name, features=precise, labels=labels)[0]
            return math_ops.cast(cost, dtypes.float16) if half else cost
        checks = []
        if not known:
            checks.append(check_ops.assert_equal(array_ops.shape(labels), array_ops.shape(logits)[:-1]))
        with control_dependencies(checks):
            num_classes = array_ops.shape(logits)[array_ops.rank(logits) - 1]
            precise = array_ops.reshape(precise, [-1, num_classes])
            labels = array_ops.reshape(labels, [-1])
            cost = call("SparseSoftmaxCrossEntropyWithLogits", name=name, features=precise, labels=labels)[0]
            cost = array_ops.reshape(cost, labels_shape)
            cost.set_shape(static_labels)
            return math_ops.cast(cost, dtypes.float16) if half else cost


def _same_shape(logits, labels, labels_name):
    try:
        labels.get_shape().merge_with(logits.get_shape())
    except ValueError:
        raise ValueError("logits and %s must have the same shape (%s vs %s)"
                         % (labels_name, logits.get_shape(), labels.get_shape()))


def sigmoid_cross_entropy_with_logits(_sentinel=None, labels=None, logits=None, name=None):
    _require_named("sigmoid_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as name:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        _same_shape(logits, labels, "labels")
        zeros = array_ops.zeros_like(logits, dtype=logits.dtype)
        positive = logits >= zeros
        clipped = array_ops.where(positive, logits, zeros)
        negative_abs = array_ops.where(positive, -logits, logits)
        return math_ops.add(clipped - logits * labels, math_ops.log1p(math_ops.exp(negative_abs)), name=name)


def weighted_cross_entropy_with_logits(labels=None, logits=None, pos_weight=None, name=None, targets=None):
    labels = _merge_deprecated("labels", labels, "targets", targets)
    with name_scope(name, "logistic_loss", [logits, labels]) as name:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        _same_shape(logits, labels, "labels")
        log_weight = 1 + (pos_weight - 1) * labels
        return math_ops.add(
            (1 - labels) * logits,
            log_weight * (math_ops.log1p(math_ops.exp(-math_ops.abs(logits))) + relu(-logits)), name=name)


def log_poisson_loss(targets, log_input, compute_full_loss=False, name=None):
    with name_scope(name, "log_poisson_loss", [log_input, targets]) as name:
        log_input = convert_to_tensor(log_input, name="log_input")
        targets = convert_to_tensor(targets, name="targets")
        _same_shape(log_input, targets, "targets")
        result = math_ops.exp(log_input) - log_input * targets
        if compute_full_loss:
            half = constant(0.5, dtype=targets.dtype)
            two_pi = constant(2 * math.pi, dtype=targets.dtype)
            stirling = targets * math_ops.log(targets) - targets + half * math_ops.log(two_pi * targets)
            zeros = array_ops.zeros_like(targets, dtype=targets.dtype)
            ones = array_ops.ones_like(targets, dtype=targets.dtype)
            result += array_ops.where(math_ops.logical_and(targets >= zeros, targets <= ones), zeros, stirling)
        return result


# --- Dropout. ---
def _noise_shape(x, noise_shape):
    """Unknown dimensions of a given noise shape are those of x."""
    if noise_shape is None:
        return array_ops.shape(x)
    try:
        given = tensor_shape.as_shape(noise_shape)
    except (TypeError, ValueError):
        return noise_shape
    dims = x._output.shape
    if dims is not None and given.dims is not None and len(dims) == given.ndims:
        return tensor_shape.TensorShape([d if g is None and d is not None else g
                                         for d, g in zip(dims, given.as_list())])
    return noise_shape


def dropout(x, keep_prob=None, noise_shape=None, seed=None, name=None, rate=None):
    try:
        from_keep = 1. - keep_prob if keep_prob is not None else None
    except TypeError:
        raise ValueError("keep_prob must be a floating point number or Tensor (got %r)" % keep_prob)
    rate = _merge_deprecated("rate", rate, "keep_prob", from_keep)
    if rate is None:
        raise ValueError("You must provide a rate to dropout.")
    with name_scope(name, "dropout", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_floating:
            raise ValueError("x has to be a floating point tensor since it's going to be scaled. Got a %s tensor "
                             "instead." % x.dtype)
        if isinstance(rate, numbers.Real):
            if not 0 <= rate < 1:
                raise ValueError("rate must be a scalar tensor or a float in the range [0, 1), got %g" % rate)
            if rate == 0:
                return x
        rate = convert_to_tensor(rate, dtype=x.dtype, name="rate")
        rate.get_shape().assert_has_rank(0)
        if convert.constant_value(rate) == 0:
            return x
        noise = random_ops.random_uniform(_noise_shape(x, noise_shape), seed=seed, dtype=x.dtype)
        scale = 1 / (1 - rate)
        kept = noise >= rate
        result = x * scale * math_ops.cast(kept, x.dtype)
        result.set_shape(x.get_shape())
        return result


# --- Normalization. ---
def l2_normalize(x, axis=None, epsilon=1e-12, name=None, dim=None):
    axis = _merge_deprecated("axis", axis, "dim", dim)
    with name_scope(name, "l2_normalize", [x]) as name:
        x = convert_to_tensor(x, name="x")
        square_sum = math_ops.reduce_sum(math_ops.square(x), axis, keepdims=True)
        inverse = math_ops.rsqrt(math_ops.maximum(square_sum, epsilon))
        return math_ops.multiply(x, inverse, name=name)


local_response_normalization = lrn


def _keep(keepdims, keep_dims):
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    return False if keepdims is None else keepdims


def moments(x, axes, shift=None, name=None, keep_dims=None, keepdims=None):
    keepdims = _keep(keepdims, keep_dims)
    with name_scope(name, "moments", [x, axes]):
        half = x.dtype == dtypes.float16
        y = math_ops.cast(x, dtypes.float32) if half else x
        mean = math_ops.reduce_mean(y, axes, keepdims=True, name="mean")
        variance = math_ops.reduce_mean(math_ops.squared_difference(y, array_ops.stop_gradient(mean)), axes,
                                        keepdims=True, name="variance")
        if not keepdims:
            mean = array_ops.squeeze(mean, axes)
            variance = array_ops.squeeze(variance, axes)
        if half:
            return math_ops.cast(mean, dtypes.float16), math_ops.cast(variance, dtypes.float16)
        return mean, variance


def weighted_moments(x, axes, frequency_weights, name=None, keep_dims=None, keepdims=None):
    keepdims = _keep(keepdims, keep_dims)
    with name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(frequency_weights, name="frequency_weights")
        half = x.dtype == dtypes.float16
        if half:
            x = math_ops.cast(x, dtypes.float32)
        if weights.dtype != x.dtype:
            weights = math_ops.cast(weights, x.dtype)
        input_sum = math_ops.reduce_sum(weights * x, axes, name="weighted_input_sum", keepdims=True)
        broadcast = weights + array_ops.zeros_like(x)
        weight_sum = math_ops.reduce_sum(broadcast, axes, name="sum_of_weights", keepdims=True)
        divisor = math_ops.reciprocal(weight_sum, name="inv_weight_sum")
        mean = math_ops.multiply(input_sum, divisor)
        distance = math_ops.reduce_sum(weights * math_ops.squared_difference(x, mean), axes, name="weighted_distsq",
                                       keepdims=True)
        variance = math_ops.multiply(distance, divisor)
        if not keepdims:
            mean = array_ops.squeeze(mean, axis=axes)
            variance = array_ops.squeeze(variance, axis=axes)
        if half:
            mean, variance = math_ops.cast(mean, dtypes.float16), math_ops.cast(variance, dtypes.float16)
        return mean, variance


def sufficient_statistics(x, axes, shift=None, keep_dims=None, name=None, keepdims=None):
    axes = list(set(axes))
    keepdims = _keep(keepdims, keep_dims)
    with name_scope(name, "sufficient_statistics", [x, shift]):
        x = convert_to_tensor(x, name="x")
        dims = x._output.shape
        if dims is not None and all(dims[d] is not None for d in axes):
            counts = constant(math.prod(dims[d] for d in axes), dtype=x.dtype)
        else:
            sizes = array_ops.gather(math_ops.cast(array_ops.shape(x), x.dtype), axes)
            counts = math_ops.reduce_prod(sizes, name="count")
        if shift is not None:
            shift = convert_to_tensor(shift, name="shift")
            mean_sum = math_ops.subtract(x, shift)
            variance_sum = math_ops.squared_difference(x, shift)
        else:
            mean_sum, variance_sum = x, math_ops.square(x)
        mean_sum = math_ops.reduce_sum(mean_sum, axes, keepdims=keepdims, name="mean_ss")
        variance_sum = math_ops.reduce_sum(variance_sum, axes, keepdims=keepdims, name="var_ss")
        return counts, mean_sum, variance_sum, shift


def normalize_moments(counts, mean_ss, variance_ss, shift, name=None):
    with name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        divisor = math_ops.reciprocal(counts, name="divisor")
        if shift is not None:
            shifted = math_ops.multiply(mean_ss, divisor, name="shifted_mean")
            mean = math_ops.add(shifted, shift, name="mean")
        else:
            mean = shifted = math_ops.multiply(mean_ss, divisor, name="mean")
        variance = math_ops.subtract(math_ops.multiply(variance_ss, divisor), math_ops.square(shifted),
                                     name="variance")
        return mean, variance


def batch_normalization(x, mean, variance, offset, scale, variance_epsilon, name=None):
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        inverse = math_ops.rsqrt(variance + variance_epsilon)
        if scale is not None:
            inverse *= scale
        return x * math_ops.cast(inverse, x.dtype) + math_ops.cast(
            offset - mean * inverse if offset is not None else -mean * inverse, x.dtype)


def batch_norm_with_global_normalization(t=None, m=None, v=None, beta=None, gamma=None, variance_epsilon=None,
                                         scale_after_normalization=None, name=None, input=None, mean=None,
                                         variance=None):
    t = _merge_deprecated("input", input, "t", t)
    m = _merge_deprecated("mean", mean, "m", m)
    v = _merge_deprecated("variance", variance, "v", v)
    return batch_normalization(t, m, v, beta, gamma if scale_after_normalization else None, variance_epsilon, name)


def fused_batch_norm(x, scale, offset, mean=None, variance=None, epsilon=0.001, data_format="NHWC", is_training=True,
                     name=None):
    x = convert_to_tensor(x, name="input")
    scale = convert_to_tensor(scale, name="scale")
    offset = convert_to_tensor(offset, name="offset")
    if is_training and (mean is not None or variance is not None):
        raise ValueError("Both 'mean' and 'variance' must be None if is_training is True.")
    mean = constant([]) if mean is None else mean
    variance = constant([]) if variance is None else variance
    # TensorFlow never goes below what its GPU library takes.
    epsilon = max(epsilon, 1.001e-5)
    results = call("FusedBatchNormV3", name=name, x=x, scale=scale, offset=offset, mean=mean, variance=variance,
                   epsilon=epsilon, data_format=data_format, is_training=is_training)
    return results[0], results[1], results[2]


# --- Selection. ---
def in_top_k(predictions, targets, k, name=None):
    with name_scope(name, "in_top_k"):
        return call("InTopKV2", predictions=predictions, targets=targets, k=k)


def _count_nonzero(tensor, dtype):
    with name_scope("count_nonzero"):
        zero = array_ops.zeros([], dtype=tensor.dtype)
        return math_ops.reduce_sum(math_ops.cast(math_ops.not_equal(tensor, zero), dtype), name="nonzero_count")


def zero_fraction(value, name=None):
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        size = array_ops.size(value, out_type=dtypes.int64)
        # Counting in int32 is faster where the count fits.
        nonzero = control_flow_ops.cond(
            size <= dtypes.int32.max,
            true_fn=lambda: math_ops.cast(_count_nonzero(value, dtypes.int32), dtypes.int64),
            false_fn=lambda: _count_nonzero(value, dtypes.int64))
        with name_scope("counts_to_fraction"):
            zeros = size - nonzero
            fraction = math_ops.cast(zeros, dtypes.float32) / math_ops.cast(size, dtypes.float32)
        return array_ops.identity(fraction, "fraction")
