"""tf.nn."""
from muster.names import absent as _absent
from muster.nn.candidate_sampling import (  # noqa: F401
    all_candidate_sampler, compute_accidental_hits, fixed_unigram_candidate_sampler, learned_unigram_candidate_sampler,
    log_uniform_candidate_sampler, nce_loss, sampled_softmax_loss, uniform_candidate_sampler)
from muster.nn.conv_ops import (  # noqa: F401
    atrous_conv2d, avg_pool, avg_pool1d, avg_pool2d, avg_pool3d, conv1d, conv2d, conv2d_backprop_filter, conv2d_backprop_input,
    conv2d_transpose, conv3d, conv3d_transpose, convolution, depthwise_conv2d, depthwise_conv2d_native, max_pool, max_pool1d,
    max_pool2d, max_pool3d, max_pool_with_argmax, pool, separable_conv2d)
from muster.nn.ctc_ops import ctc_greedy_decoder, ctc_loss  # noqa: F401
from muster.nn.embedding_ops import (  # noqa: F401
    embedding_lookup, embedding_lookup_sparse, safe_embedding_lookup_sparse)
from muster.nn.nn_ops import (  # noqa: F401
    batch_norm_with_global_normalization, batch_normalization, bias_add, crelu, dropout, elu, fused_batch_norm, in_top_k,
    l2_loss, l2_normalize, leaky_relu, local_response_normalization, log_poisson_loss, log_sigmoid, log_softmax, lrn,
    moments, normalize_moments, relu, relu6, relu_layer, selu, sigmoid, sigmoid_cross_entropy_with_logits, softmax,
    softmax_cross_entropy_with_logits, softmax_cross_entropy_with_logits_v2, softplus, softsign,
    sparse_softmax_cross_entropy_with_logits, sufficient_statistics, swish, tanh, top_k,
    weighted_cross_entropy_with_logits, weighted_moments, xw_plus_b, zero_fraction)
from muster.ops.array_ops import depth_to_space, space_to_batch, space_to_depth  # noqa: F401

_RNN = ("dynamic_rnn", "static_rnn", "bidirectional_dynamic_rnn", "static_bidirectional_rnn", "raw_rnn")


_explain = _absent.explain(__name__)


def __getattr__(name):
    # Recurrent networks are loaded when they are used.
    import importlib

    if name == "rnn_cell":
        return importlib.import_module("muster.nn.rnn_cell")
    if name in _RNN:
        return getattr(importlib.import_module("muster.nn.rnn"), name)
    return _explain(name)


def __dir__():
    return sorted(set(globals()) | set(_RNN) | {"rnn_cell"})
