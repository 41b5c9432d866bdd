"""tf.contrib.layers: layers under slim's names (weights, biases), in scopes of their own."""
from muster import dtypes
from muster import layers as core
from muster.contrib.arg_scopes import add_arg_scope
from muster.contrib.initializers import variance_scaling_initializer, xavier_initializer
from muster.contrib.model_variables import collect_named_outputs as _collect
from muster.contrib.model_variables import model_variable
from muster.contrib.regularizers import (  # noqa: F401
    apply_regularization, l1_l2_regularizer, l1_regularizer, l2_regularizer, sum_regularizer)
from muster.generated import optimizers
from muster.graph import framework
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import GraphKeys
from muster.nn import conv_ops, embedding_ops, nn_ops
from muster.ops import array_ops, math_ops
from muster.train import training_util
from muster.variables import init_ops
from muster.variables import variable_scopes

xavier_initializer_conv2d = xavier_initializer
_NAMES = {"kernel": "weights", "bias": "biases", "depthwise_kernel": "depthwise_weights",
          "pointwise_kernel": "pointwise_weights"}


def _getter(getter, name, *args, **kwargs):
    """Variables of tf.layers under slim's names, and among the model's."""
    parts = name.split("/")
    parts[-1] = _NAMES.get(parts[-1], parts[-1])
    kwargs["collections"] = list(kwargs.get("collections") or [GraphKeys.GLOBAL_VARIABLES]) + [GraphKeys.MODEL_VARIABLES]
    return getter("/".join(parts), *args, **kwargs)


def _apply(layer, inputs, scope, variables_collections=None, **options):
    layer._scope = scope
    outputs = layer.apply(inputs, **options)
    for variable in layer.variables:
        collections = variables_collections or []
        if isinstance(collections, dict):
            collections = collections.get(variable.op.name.split("/")[-1], [])
        for name in [collections] if isinstance(collections, str) else collections:
            framework.add_to_collection(name, variable)
    return outputs


def _finish(outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections, scope):
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    return _collect(outputs_collections, scope.original_name_scope, outputs)


def _scope(scope, default, values, reuse):
    return variable_scopes.variable_scope(scope, default, values, reuse=reuse, custom_getter=_getter)


@add_arg_scope
def fully_connected(inputs, num_outputs, activation_fn=nn_ops.relu, normalizer_fn=None, normalizer_params=None,
                    weights_initializer=xavier_initializer(), weights_regularizer=None,
                    biases_initializer=init_ops.zeros_initializer(), biases_regularizer=None, reuse=None,
                    variables_collections=None, outputs_collections=None, trainable=True, scope=None):
    if not isinstance(num_outputs, int):
        raise ValueError("num_outputs type should be one of %s, got %s." % ([int], type(num_outputs)))
    with _scope(scope, "fully_connected", [inputs], reuse) as sc:
        layer = core.Dense(
            num_outputs, use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer, trainable=trainable,
            name=sc.name, _reuse=reuse)
        outputs = _apply(layer, convert_to_tensor(inputs), sc, variables_collections)
        return _finish(outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections, sc)


@add_arg_scope
def convolution2d(inputs, num_outputs, kernel_size, stride=1, padding="SAME", data_format=None, rate=1,
                  activation_fn=nn_ops.relu, normalizer_fn=None, normalizer_params=None,
                  weights_initializer=xavier_initializer(), weights_regularizer=None,
                  biases_initializer=init_ops.zeros_initializer(), biases_regularizer=None, reuse=None,
                  variables_collections=None, outputs_collections=None, trainable=True, scope=None):
    with _scope(scope, "Conv", [inputs], reuse) as sc:
        layer = core.Conv2D(
            num_outputs, kernel_size, strides=stride, padding=padding, data_format=_channels(data_format),
            dilation_rate=rate, use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer, trainable=trainable,
            name=sc.name, _reuse=reuse)
        outputs = _apply(layer, convert_to_tensor(inputs), sc, variables_collections)
        return _finish(outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections, sc)


@add_arg_scope
def convolution2d_transpose(inputs, num_outputs, kernel_size, stride=1, padding="SAME", data_format="NHWC",
                            activation_fn=nn_ops.relu, normalizer_fn=None, normalizer_params=None,
                            weights_initializer=xavier_initializer(), weights_regularizer=None,
                            biases_initializer=init_ops.zeros_initializer(), biases_regularizer=None, reuse=None,
                            variables_collections=None, outputs_collections=None, trainable=True, scope=None):
    with _scope(scope, "Conv2d_transpose", [inputs], reuse) as sc:
        layer = core.Conv2DTranspose(
            num_outputs, kernel_size, strides=stride, padding=padding, data_format=_channels(data_format),
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer, trainable=trainable,
            name=sc.name, _reuse=reuse)
        outputs = _apply(layer, convert_to_tensor(inputs), sc, variables_collections)
        return _finish(outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections, sc)


@add_arg_scope
def separable_convolution2d(inputs, num_outputs, kernel_size, depth_multiplier=1, stride=1, padding="SAME",
                            data_format="NHWC", rate=1, activation_fn=nn_ops.relu, normalizer_fn=None,
                            normalizer_params=None, weights_initializer=xavier_initializer(), pointwise_initializer=None,
                            weights_regularizer=None, biases_initializer=init_ops.zeros_initializer(),
                            biases_regularizer=None, reuse=None, variables_collections=None, outputs_collections=None,
                            trainable=True, scope=None):
    """A convolution of each channel, then one of 1x1; without num_outputs only the first."""
    use_bias = normalizer_fn is None and biases_initializer is not None
    with _scope(scope, "SeparableConv2d", [inputs], reuse) as sc:
        inputs = convert_to_tensor(inputs)
        if num_outputs is None:
            outputs = _depthwise(inputs, kernel_size, depth_multiplier, stride, padding, data_format, rate,
                                 dict(initializer=weights_initializer, regularizer=weights_regularizer),
                                 dict(initializer=biases_initializer, regularizer=biases_regularizer)
                                 if use_bias else None, trainable)
        else:
            layer = core.SeparableConv2D(
                num_outputs, kernel_size, depth_multiplier, strides=stride, padding=padding,
                data_format=_channels(data_format), dilation_rate=rate, use_bias=use_bias,
                depthwise_initializer=weights_initializer,
                pointwise_initializer=pointwise_initializer or weights_initializer,
                bias_initializer=biases_initializer, depthwise_regularizer=weights_regularizer,
                pointwise_regularizer=weights_regularizer, bias_regularizer=biases_regularizer, trainable=trainable,
                name=sc.name, _reuse=reuse)
            outputs = _apply(layer, inputs, sc, variables_collections)
        return _finish(outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections, sc)


def _pair(value):
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)] * 2


def _depthwise(inputs, kernel_size, multiplier, stride, padding, data_format, rate, weights, biases, trainable):
    first = data_format.startswith("NC")
    depth = inputs.get_shape().with_rank(4)[1 if first else 3].value
    kernel = variable_scopes.get_variable("depthwise_weights", _pair(kernel_size) + [depth, multiplier],
                                          inputs.dtype.base_dtype, trainable=trainable, **weights)
    strides = [1, 1] + _pair(stride) if first else [1] + _pair(stride) + [1]
    outputs = conv_ops.depthwise_conv2d(inputs, kernel, strides, padding, rate=_pair(rate), data_format=data_format)
    if biases is not None:
        bias = variable_scopes.get_variable("biases", [depth * multiplier], inputs.dtype.base_dtype,
                                            trainable=trainable, **biases)
        outputs = nn_ops.bias_add(outputs, bias, data_format=data_format)
    return outputs


def _channels(data_format):
    if data_format not in (None, "NHWC", "NCHW"):
        raise ValueError("data_format has to be either NCHW or NHWC.")
    return "channels_first" if data_format == "NCHW" else "channels_last"


def _pool(kind, default):
    def function(inputs, kernel_size, stride=2, padding="VALID", data_format="NHWC", outputs_collections=None,
                 scope=None):
        with framework.name_scope(scope, default, [inputs]) as sc:
            outputs = kind(pool_size=kernel_size, strides=stride, padding=padding, data_format=_channels(data_format),
                           ).apply(convert_to_tensor(inputs))
            return _collect(outputs_collections, sc, outputs)

    function.__name__ = default
    return add_arg_scope(function)


max_pool2d = _pool(core.MaxPooling2D, "MaxPool2D")
avg_pool2d = _pool(core.AveragePooling2D, "AvgPool2D")


@add_arg_scope
def batch_norm(inputs, decay=0.999, center=True, scale=False, epsilon=0.001, activation_fn=None,
               param_initializers=None, param_regularizers=None, updates_collections=GraphKeys.UPDATE_OPS,
               is_training=True, reuse=None, variables_collections=None, outputs_collections=None, trainable=True,
               batch_weights=None, fused=None, data_format="NHWC", zero_debias_moving_mean=False, scope=None,
               renorm=False, renorm_clipping=None, renorm_decay=0.99, adjustment=None):
    if batch_weights is not None or zero_debias_moving_mean:
        raise NotImplementedError("batch_norm with batch_weights or zero_debias_moving_mean is not supported")
    initializers, regularizers = param_initializers or {}, param_regularizers or {}
    with _scope(scope, "BatchNorm", [inputs], reuse) as sc:
        inputs = convert_to_tensor(inputs)
        layer = core.BatchNormalization(
            axis=1 if data_format == "NCHW" else -1, momentum=decay, epsilon=epsilon, center=center, scale=scale,
            beta_initializer=initializers.get("beta", init_ops.zeros_initializer()),
            gamma_initializer=initializers.get("gamma", init_ops.ones_initializer()),
            moving_mean_initializer=initializers.get("moving_mean", init_ops.zeros_initializer()),
            moving_variance_initializer=initializers.get("moving_variance", init_ops.ones_initializer()),
            beta_regularizer=regularizers.get("beta"), gamma_regularizer=regularizers.get("gamma"), renorm=renorm,
            renorm_clipping=renorm_clipping, renorm_momentum=renorm_decay, adjustment=adjustment, trainable=trainable,
            fused=fused, name=sc.name, _reuse=reuse)
        kept = framework.get_collection_ref(GraphKeys.UPDATE_OPS)
        before = len(kept)
        outputs = _apply(layer, inputs, sc, variables_collections, training=is_training)
        del kept[before:]
        if updates_collections is None:
            with framework.control_dependencies(layer.updates):
                outputs = array_ops.identity(outputs)
        else:
            for update in layer.updates:
                framework.add_to_collection(updates_collections, update)
        return _finish(outputs, None, None, activation_fn, outputs_collections, sc)


@add_arg_scope
def layer_norm(inputs, center=True, scale=True, activation_fn=None, reuse=None, variables_collections=None,
               outputs_collections=None, trainable=True, begin_norm_axis=1, begin_params_axis=-1, scope=None):
    with variable_scopes.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as sc:
        inputs = convert_to_tensor(inputs)
        shape = inputs.get_shape()
        if shape.ndims is None:
            raise ValueError("Inputs %s has undefined rank." % inputs.name)
        begin = begin_norm_axis + shape.ndims if begin_norm_axis < 0 else begin_norm_axis
        if begin_params_axis >= shape.ndims or begin >= shape.ndims:
            raise ValueError("begin_params_axis (%d) and begin_norm_axis (%d) must be < rank(inputs) (%d)"
                             % (begin_params_axis, begin_norm_axis, shape.ndims))
        params = shape[begin_params_axis:]
        if not params.is_fully_defined():
            raise ValueError("Inputs %s: shape(inputs)[%s:] is not fully defined: %s"
                             % (inputs.name, begin_params_axis, shape))
        options = dict(shape=params, dtype=inputs.dtype.base_dtype, trainable=trainable,
                       collections=variables_collections)
        beta = model_variable("beta", initializer=init_ops.zeros_initializer(), **options) if center else None
        gamma = model_variable("gamma", initializer=init_ops.ones_initializer(), **options) if scale else None
        mean, variance = nn_ops.moments(inputs, list(range(begin, shape.ndims)), keep_dims=True)
        outputs = nn_ops.batch_normalization(inputs, mean, variance, offset=beta, scale=gamma, variance_epsilon=1e-12)
        outputs.set_shape(shape)
        return _finish(outputs, None, None, activation_fn, outputs_collections, sc)


@add_arg_scope
def dropout(inputs, keep_prob=0.5, noise_shape=None, is_training=True, outputs_collections=None, scope=None,
            seed=None):
    with variable_scopes.variable_scope(scope, "Dropout", [inputs]) as sc:
        outputs = core.Dropout(rate=1 - keep_prob, noise_shape=noise_shape, seed=seed).apply(
            convert_to_tensor(inputs), training=is_training)
        return _collect(outputs_collections, sc.original_name_scope, outputs)


@add_arg_scope
def flatten(inputs, outputs_collections=None, scope=None):
    with framework.name_scope(scope, "Flatten", [inputs]) as sc:
        return _collect(outputs_collections, sc, core.flatten(convert_to_tensor(inputs)))


@add_arg_scope
def one_hot_encoding(labels, num_classes, on_value=1.0, off_value=0.0, outputs_collections=None, scope=None):
    with framework.name_scope(scope, "OneHotEncoding", [labels, num_classes]) as sc:
        labels = convert_to_tensor(labels)
        if labels.dtype == dtypes.int32:
            labels = math_ops.cast(labels, dtypes.int64)
        return _collect(outputs_collections, sc, array_ops.one_hot(labels, num_classes, on_value=on_value,
                                                                   off_value=off_value))


@add_arg_scope
def softmax(logits, scope=None):
    with variable_scopes.variable_scope(scope, "softmax", [logits]):
        return nn_ops.softmax(logits)


def repeat(inputs, repetitions, layer, *args, **kwargs):
    """layer applied again and again, each time in a scope of its own: conv/conv_1, conv/conv_2, ..."""
    scope = kwargs.pop("scope", None)
    with variable_scopes.variable_scope(scope, "Repeat", [inputs]):
        outputs = convert_to_tensor(inputs)
        if scope is None:
            scope = layer.__name__ if hasattr(layer, "__name__") else "repeat"
        for i in range(repetitions):
            outputs = layer(outputs, *args, scope="%s_%d" % (scope, i + 1), **kwargs)
        return outputs


def stack(inputs, layer, stack_args, **kwargs):
    """layer applied with each of the arguments in turn."""
    scope = kwargs.pop("scope", None)
    with variable_scopes.variable_scope(scope, "Stack", [inputs]):
        outputs = convert_to_tensor(inputs)
        scope = scope or getattr(layer, "__name__", "stack")
        for i, args in enumerate(stack_args):
            args = args if isinstance(args, (list, tuple)) else [args]
            outputs = layer(outputs, *args, scope="%s_%d" % (scope, i + 1), **kwargs)
        return outputs


def embed_sequence(ids, vocab_size=None, embed_dim=None, unique=False, initializer=None, regularizer=None,
                   trainable=True, scope=None, reuse=None):
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError("Must specify vocab size and embedding dimension when not reusing. Got vocab_size=%s and "
                         "embed_dim=%s" % (vocab_size, embed_dim))
    with variable_scopes.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = [vocab_size, embed_dim]
        if reuse and (vocab_size is None or embed_dim is None):
            shape = None
        table = model_variable("embeddings", shape=shape, initializer=initializer, regularizer=regularizer,
                               trainable=trainable)
        return embedding_ops.embedding_lookup(table, ids)


def optimize_loss(loss, global_step, learning_rate, optimizer, gradient_noise_scale=None, gradient_multipliers=None,
                  clip_gradients=None, learning_rate_decay_fn=None, update_ops=None, variables=None, name=None,
                  summaries=None, colocate_gradients_with_ops=False, increment_global_step=True):
    """The op that trains on a loss, with clipping, a learning rate that decays and the update ops."""
    from muster import summary
    from muster.ops import clip_ops, control_flow_ops

    if gradient_noise_scale is not None:
        raise NotImplementedError("optimize_loss with gradient_noise_scale is not supported")
    with variable_scopes.variable_scope(name, "OptimizeLoss", [loss, global_step]):
        global_step = global_step if global_step is not None else training_util.get_global_step()
        update_ops = set(framework.get_collection(GraphKeys.UPDATE_OPS)) if update_ops is None else update_ops
        if update_ops:
            loss = control_flow_ops.with_dependencies(list(update_ops), loss)
        rate = learning_rate
        if rate is not None:
            rate = convert_to_tensor(rate)
            if learning_rate_decay_fn is not None:
                rate = learning_rate_decay_fn(rate, global_step)
        if summaries is None or "learning_rate" in summaries:
            summary.scalar("learning_rate", rate)
        if isinstance(optimizer, str):
            known = {"Adagrad": optimizers.AdagradOptimizer, "Adam": optimizers.AdamOptimizer,
                     "Ftrl": optimizers.FtrlOptimizer, "RMSProp": optimizers.RMSPropOptimizer,
                     "SGD": optimizers.GradientDescentOptimizer,
                     "Momentum": lambda learning_rate: optimizers.MomentumOptimizer(learning_rate, momentum=0.9)}
            if optimizer not in known:
                raise ValueError("Optimizer name should be one of [%s], you provided %s." % (", ".join(known), optimizer))
            opt = known[optimizer](learning_rate=rate)
        elif isinstance(optimizer, type):
            opt = optimizer(learning_rate=rate)
        elif callable(optimizer):
            opt = optimizer(rate) if rate is not None else optimizer()
        else:
            opt = optimizer
        gradients = opt.compute_gradients(loss, variables, colocate_gradients_with_ops=colocate_gradients_with_ops)
        if gradient_multipliers is not None:
            gradients = [(g if g is None or (v not in gradient_multipliers and v.op.name not in gradient_multipliers)
                          else g * gradient_multipliers.get(v, gradient_multipliers.get(v.op.name)), v)
                         for g, v in gradients]
        if isinstance(clip_gradients, float):
            parts, owners = zip(*gradients)
            gradients = list(zip(clip_ops.clip_by_global_norm(parts, clip_gradients)[0], owners))
        elif callable(clip_gradients):
            gradients = clip_gradients(gradients)
        if summaries is None or "loss" in summaries:
            summary.scalar("loss", loss)
        update = opt.apply_gradients(gradients, global_step=global_step if increment_global_step else None, name="train")
        return control_flow_ops.with_dependencies([update], loss)


conv2d = convolution2d
conv2d_transpose = convolution2d_transpose
separable_conv2d = separable_convolution2d


def linear(inputs, num_outputs, **kwargs):
    return fully_connected(inputs, num_outputs, activation_fn=None, **kwargs)


def summarize_tensor(tensor, tag=None):
    from muster import summary

    tag = tag or tensor.op.name
    return summary.scalar(tag, tensor) if tensor.get_shape().ndims == 0 else summary.histogram(tag, tensor)


def summarize_tensors(tensors):
    return [summarize_tensor(tensor) for tensor in tensors]


def summarize_collection(collection, name_filter=None):
    return summarize_tensors(framework.get_collection(collection, name_filter))


__all__ = [
    "apply_regularization", "avg_pool2d", "batch_norm", "conv2d", "conv2d_transpose", "convolution2d",
    "convolution2d_transpose", "dropout", "embed_sequence", "flatten", "fully_connected", "l1_l2_regularizer",
    "l1_regularizer", "l2_regularizer", "layer_norm", "linear", "max_pool2d", "one_hot_encoding", "optimize_loss", "repeat",
    "softmax", "stack", "sum_regularizer", "summarize_collection", "summarize_tensor", "summarize_tensors",
    "variance_scaling_initializer", "xavier_initializer", "xavier_initializer_conv2d"]
