"""Sampled losses over many classes, and the samplers they draw from."""
from muster import dtypes
from muster.graph import framework
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.nn import embedding_ops, nn_ops
from muster.ops import array_ops, math_ops


def _sampler(op):
    def function(true_classes, num_true, num_sampled, unique, range_max, seed=None, name=None):
        seed1, seed2 = framework.get_seed(seed)
        return call(op, name=name, true_classes=true_classes, num_true=num_true, num_sampled=num_sampled,
                    unique=unique, range_max=range_max, seed=seed1, seed2=seed2)

    return function


uniform_candidate_sampler = _sampler("UniformCandidateSampler")
log_uniform_candidate_sampler = _sampler("LogUniformCandidateSampler")
learned_unigram_candidate_sampler = _sampler("LearnedUnigramCandidateSampler")


def fixed_unigram_candidate_sampler(true_classes, num_true, num_sampled, unique, range_max, vocab_file="",
                                    distortion=1.0, num_reserved_ids=0, num_shards=1, shard=0, unigrams=(), seed=None,
                                    name=None):
    seed1, seed2 = framework.get_seed(seed)
    return call("FixedUnigramCandidateSampler", name=name, true_classes=true_classes, num_true=num_true,
                num_sampled=num_sampled, unique=unique, range_max=range_max, vocab_file=vocab_file,
                distortion=distortion, num_reserved_ids=num_reserved_ids, num_shards=num_shards, shard=shard,
                unigrams=list(unigrams), seed=seed1, seed2=seed2)


def all_candidate_sampler(true_classes, num_true, num_sampled, unique, seed=None, name=None):
    seed1, seed2 = framework.get_seed(seed)
    return call("AllCandidateSampler", name=name, true_classes=true_classes, num_true=num_true,
                num_sampled=num_sampled, unique=unique, seed=seed1, seed2=seed2)


def compute_accidental_hits(true_classes, sampled_candidates, num_true, seed=None, name=None):
    seed1, seed2 = framework.get_seed(seed)
    return call("ComputeAccidentalHits", name=name, true_classes=true_classes, sampled_candidates=sampled_candidates,
                num_true=num_true, seed=seed1, seed2=seed2)


def _sum_rows(x):
    """Row sums as a product with ones, which is faster than a reduction."""
    columns = array_ops.shape(x)[1]
    ones = array_ops.ones(array_ops.stack([columns, 1]), x.dtype)
    return array_ops.reshape(math_ops.matmul(x, ones), [-1])


def _add_hits(sampled_logits, labels, sampled, num_true, num_sampled):
    """Logits of sampled classes that are true ones become very small."""
    indices, ids, weights = compute_accidental_hits(labels, sampled, num_true=num_true)
    indices = array_ops.reshape(indices, [-1, 1])
    ids = array_ops.reshape(math_ops.cast(ids, dtypes.int32), [-1, 1])
    places = array_ops.concat([indices, ids], 1, "sparse_indices")
    shape = array_ops.concat([array_ops.shape(labels)[:1], array_ops.expand_dims(num_sampled, 0)], 0)
    if sampled_logits.dtype != weights.dtype:
        weights = math_ops.cast(weights, sampled_logits.dtype)
    return sampled_logits + array_ops.sparse_to_dense(places, shape, weights, default_value=0.0,
                                                      validate_indices=False)


def _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
                    remove_accidental_hits, partition_strategy, name, seed=None):
    weights = embedding_ops._as_param_list(weights)
    with name_scope(name, "compute_sampled_logits", weights + [biases, inputs, labels]):
        if labels.dtype != dtypes.int64:
            labels = math_ops.cast(labels, dtypes.int64)
        labels_flat = array_ops.reshape(labels, [-1])
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(labels, num_true, num_sampled, True, num_classes, seed=seed)
        sampled, true_count, sampled_count = [array_ops.stop_gradient(s) for s in sampled_values]
        sampled = math_ops.cast(sampled, dtypes.int64)
        all_ids = array_ops.concat([labels_flat, sampled], 0)
        all_w = embedding_ops.embedding_lookup(weights, all_ids, partition_strategy=partition_strategy)
        if all_w.dtype != inputs.dtype:
            all_w = math_ops.cast(all_w, inputs.dtype)
        true_w = array_ops.slice(all_w, [0, 0], array_ops.stack([array_ops.shape(labels_flat)[0], -1]))
        sampled_w = array_ops.slice(all_w, array_ops.stack([array_ops.shape(labels_flat)[0], 0]), [-1, -1])
        sampled_logits = math_ops.matmul(inputs, sampled_w, transpose_b=True)
        all_b = embedding_ops.embedding_lookup(biases, all_ids, partition_strategy=partition_strategy)
        if all_b.dtype != inputs.dtype:
            all_b = math_ops.cast(all_b, inputs.dtype)
        true_b = array_ops.slice(all_b, [0], array_ops.shape(labels_flat))
        sampled_b = array_ops.slice(all_b, array_ops.shape(labels_flat), [-1])
        dim = array_ops.shape(true_w)[1:2]
        true_shape = array_ops.concat([[-1, num_true], dim], 0)
        dots = math_ops.multiply(array_ops.expand_dims(inputs, 1), array_ops.reshape(true_w, true_shape))
        matrix = array_ops.reshape(dots, array_ops.concat([[-1], dim], 0))
        true_logits = array_ops.reshape(_sum_rows(matrix), [-1, num_true])
        true_b = array_ops.reshape(true_b, [-1, num_true])
        true_logits += true_b
        sampled_logits += sampled_b
        if remove_accidental_hits:
            sampled_logits = _add_hits(sampled_logits, labels, sampled, num_true, num_sampled)
        # Each logit is corrected by how often its class is drawn.
        true_logits -= math_ops.log(true_count)
        sampled_logits -= math_ops.log(sampled_count)
        out_logits = array_ops.concat([true_logits, sampled_logits], 1)
        out_labels = array_ops.concat(
            [array_ops.ones_like(true_logits) / num_true, array_ops.zeros_like(sampled_logits)], 1)
        return out_logits, out_labels


def nce_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, sampled_values=None,
             remove_accidental_hits=False, partition_strategy="mod", name="nce_loss"):
    logits, labels = _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true,
                                     sampled_values, remove_accidental_hits, partition_strategy, name)
    losses = nn_ops.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits, name="sampled_losses")
    return _sum_rows(losses)


def sampled_softmax_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, sampled_values=None,
                         remove_accidental_hits=True, partition_strategy="mod", name="sampled_softmax_loss",
                         seed=None):
    logits, labels = _sampled_logits(weights, biases, labels, inputs, num_sampled, num_classes, num_true,
                                     sampled_values, remove_accidental_hits, partition_strategy, name, seed)
    labels = array_ops.stop_gradient(labels, name="labels_stop_gradient")
    return nn_ops.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)
