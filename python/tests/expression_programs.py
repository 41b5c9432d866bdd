"""Expressions of TensorFlow 1.x whose values TensorFlow 2.21 and Muster must agree about.

Run by TensorFlow's Python: expression_programs.py FILE writes them, pickled; test_expressions.py compares.
"""
import pickle
import sys

import numpy as np

# name -> expression; `tf`, `np` and the helpers below are there. A value is a tensor, or a nest of tensors.
EXPRESSIONS = {
    # --- distributions: agents draw actions from them ---
    "normal": "[d.log_prob(x(3, 2)), d.prob(x(3, 2)), d.cdf(x(3, 2)), d.entropy(), d.mean(), d.mode(), d.stddev(), "
              "d.variance()] if [d := tf.distributions.Normal(x(3, 2), [1.5, 0.5])] else 0",
    "normal_samples": "[d.sample(seed=1), d.sample(4, seed=2), d.sample([2, 3], seed=5)] if "
                      "[d := tf.distributions.Normal(loc=x(3, 2), scale=2.0)] else 0",
    "normal_of_any_shape": "d.sample(2, seed=7) if [d := tf.distributions.Normal("
                           "tf.placeholder_with_default(x(3, 2), [None, 2]), 2.0)] else 0",
    "normal_divergence": "tf.distributions.kl_divergence(tf.distributions.Normal(x(3), 1.0), "
                         "tf.distributions.Normal(0.5, [1.0, 2.0, 3.0]))",
    "normal_gradient": "tf.gradients(tf.distributions.Normal(v(3), tf.nn.softplus(V)).log_prob([0., 1., 2.]), V)",
    "categorical": "[d.log_prob([0, 3, 1]), d.prob(2), d.entropy(), d.mode(), d.probs] if "
                   "[d := tf.distributions.Categorical(logits=x(3, 4))] else 0",
    "categorical_samples": "[d.sample(seed=1), d.sample(5, seed=2)] if "
                           "[d := tf.distributions.Categorical(probs=[[.1, .7, .2], [.5, .25, .25]])] else 0",
    "categorical_cube": "d.sample(seed=3) if [d := tf.distributions.Categorical(logits=x(2, 3, 4))] else 0",
    "categorical_divergence": "tf.distributions.Categorical(logits=x(3, 4)).kl_divergence("
                              "tf.distributions.Categorical(probs=tf.nn.softmax(-x(3, 4))))",
    "bernoulli": "[d.log_prob([1., 0., 1.]), d.prob([0, 0, 1]), d.entropy(), d.mean(), d.mode(), d.variance(), "
                 "d.sample(3, seed=2)] if [d := tf.distributions.Bernoulli(logits=x(3))] else 0",
    "bernoulli_divergence": "tf.distributions.kl_divergence(tf.distributions.Bernoulli(probs=[.2, .6]), "
                            "tf.distributions.Bernoulli(logits=[.3, -.1]))",
    # --- einsum ---
    "einsum_matmul": "tf.einsum('ij,jk->ik', x(2, 3), x(3, 4))",
    "einsum_batch": "tf.einsum('bij,bkj->bik', x(2, 3, 4), x(2, 5, 4))",
    "einsum_transpose": "tf.einsum('ijk->kij', x(2, 3, 4))",
    "einsum_sum": "tf.einsum('ijk->j', x(2, 3, 4))",
    "einsum_implicit": "tf.einsum('ij,jk', x(2, 3), x(3, 2))",
    "einsum_three": "tf.einsum('ij,jk,kl->il', x(2, 3), x(3, 4), x(4, 2))",
    "einsum_ellipsis": "tf.einsum('...ij,jk->...ik', x(2, 5, 3, 4), x(4, 2))",
    "einsum_outer": "tf.einsum('i,j->ij', x(3), x(4))",
    "einsum_gradient": "tf.gradients(tf.einsum('bij,bj->bi', v(2, 3, 4), x(2, 4)), V)",
    "einsum_attention": "tf.einsum('bhqd,bhkd->bhqk', x(2, 2, 3, 4), x(2, 2, 5, 4))",
    # --- order ---
    "sort": "tf.sort(x(3, 5))",
    "sort_down": "tf.sort(x(3, 5), axis=0, direction='DESCENDING')",
    "sort_ints": "tf.sort(tf.constant([3, -2**31, 2**31 - 1, 0], tf.int32))",
    "argsort": "tf.argsort(x(3, 5), axis=-1)",
    "argsort_axis": "tf.argsort(x(3, 5), axis=0, direction='DESCENDING')",
    "searchsorted": "tf.searchsorted([[1., 2., 3., 5.]], [[2., 2.5, 9.]], side='right')",
    # --- arrays ---
    "roll": "tf.roll(x(3, 4), shift=[1, -1], axis=[0, 1])",
    "manip_roll": "tf.manip.roll(x(5), 2, 0)",
    "repeat": "tf.repeat([[1, 2], [3, 4]], [2, 3], axis=0)",
    "repeat_flat": "tf.repeat([[1, 2], [3, 4]], 2)",
    "unravel_index": "tf.unravel_index([5, 7], [3, 4])",
    "batch_gather": "tf.batch_gather(x(2, 4), [[1, 3], [0, 0]])",
    "tensor_scatter_add": "tf.tensor_scatter_add(x(5), [[1], [1], [3]], [1., 2., 3.])",
    "tensor_scatter_sub": "tf.tensor_scatter_sub(x(5), [[1], [1], [3]], [1., 2., 3.])",
    "histogram": "tf.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15], [0.0, 5.0], nbins=5)",
    "histogram_bins": "tf.histogram_fixed_width_bins([-1.0, 0.0, 1.5, 2.0, 5.0, 15], [0.0, 5.0], nbins=5)",
    # --- numbers ---
    "bitwise": "[tf.bitwise.bitwise_and(12, 10), tf.bitwise.bitwise_or(12, 10), tf.bitwise.bitwise_xor(12, 10), "
               "tf.bitwise.invert(5), tf.bitwise.left_shift(3, 2), tf.bitwise.right_shift(-8, 1)]",
    "segments": "[tf.unsorted_segment_mean(x(4, 2), [0, 2, 0, 2], 3), tf.unsorted_segment_sqrt_n(x(4, 2), [0, 2, 0, 2], 3)]",
    "scalar_mul": "tf.scalar_mul(3.0, x(3))",
    "gammas": "[tf.igamma(2., [1., 3.]), tf.igammac(2., [1., 3.]), tf.zeta(2., [1., 3.]), tf.polygamma(1., [1., 3.]), "
              "tf.lbeta([[1., 2.], [3., 4.]])]",
    "polyval": "tf.math.polyval([1., 2., 3.], x(3))",
    "cross": "tf.cross(x(2, 3), x(2, 3) + 1.)",
    "cross_gradient": "tf.gradients(tf.cross(v(2, 3), x(2, 3) + 1.), V)",
    "custom_gradient": "tf.gradients(clipped(v(3)) * 5., V)",
    "switch_case": "tf.switch_case(tf.constant(1), {0: lambda: tf.constant(1), 1: lambda: tf.constant(17)})",
    # --- random ---
    "stateless": "[tf.random.stateless_uniform([3], [1, 2], -1., 1.), tf.random.stateless_normal([3], [1, 2]), "
                 "tf.random.stateless_truncated_normal([3], [1, 2]), "
                 "tf.random.stateless_uniform([3], [1, 2], 0, 10, tf.int32)]",
    # --- matrices ---
    "cholesky": "tf.cholesky(spd(3))",
    "cholesky_gradient": "tf.gradients(tf.reduce_sum(tf.cholesky(tf.matmul(v(3, 3), V, transpose_b=True) + 3. * tf.eye(3)) "
                         "* x(3, 3)), V)",
    "determinant": "[tf.matrix_determinant(spd(3)), tf.gradients(tf.matrix_determinant(v(3, 3)), V)]",
    "solve": "tf.matrix_solve(spd(3), x(3, 2))",
    "solve_gradient": "tf.gradients(tf.matrix_solve(v(3, 3) + 4. * tf.eye(3), x(3, 2)), V)",
    "triangular_solve": "[tf.matrix_triangular_solve(spd(3), x(3, 2), lower=l, adjoint=a) for l in (True, False) "
                        "for a in (True, False)]",
    "triangular_solve_gradient": "tf.gradients(tf.matrix_triangular_solve(v(3, 3) + 4. * tf.eye(3), x(3, 2)), V)",
    "qr": "list(tf.qr(x(4, 3))) + list(tf.qr(x(3, 4))) + list(tf.qr(x(4, 3), full_matrices=True))",
    "orthogonal": "tf.orthogonal_initializer(gain=1.5, seed=3)([4, 6])",
    # --- sparse ---
    "sparse_add": "sp(tf.sparse_add(S, T))",
    "sparse_add_threshold": "sp(tf.sparse_add(S, T, 1.5))",
    "sparse_add_dense": "tf.sparse_add(S, tf.ones([3, 4]))",
    "sparse_concat": "sp(tf.sparse_concat(1, [S, T])) + sp(tf.sparse_concat(0, [S, T]))",
    "sparse_concat_expand": "sp(tf.sparse_concat(0, [S, tf.SparseTensor([[0, 5]], [9.], [1, 6])], expand_nonconcat_dim=True))",
    "sparse_split": "[sp(part) for part in tf.sparse_split(sp_input=S, num_split=3, axis=1)]",
    "sparse_slice": "sp(tf.sparse_slice(S, [0, 1], [2, 2]))",
    "sparse_softmax": "sp(tf.sparse_softmax(S))",
    "sparse_transpose": "sp(tf.sparse_transpose(S)) + sp(tf.sparse_transpose(S, [1, 0]))",
    "sparse_extremes": "sp(tf.sparse_maximum(S, T)) + sp(tf.sparse_minimum(S, T))",
    "sparse_reduce_max": "[tf.sparse_reduce_max(S), tf.sparse_reduce_max(S, 1), tf.sparse_reduce_max(S, [0], True)]",
    "sparse_reset_shape": "sp(tf.sparse_reset_shape(S))",
    "sparse_expand_dims": "sp(tf.sparse.expand_dims(S, 1))",
    "from_dense": "sp(tf.sparse.from_dense([[0., 1.], [2., 0.]]))",
    "sparse_times_dense": "sp(S * tf.constant([[1., 2., 3., 4.]]))",
    "safe_embeddings": "tf.nn.safe_embedding_lookup_sparse(x(7, 2), tf.SparseTensor([[0, 0], [0, 1], [2, 0]], "
                       "tf.constant([1, 3, -1], tf.int64), [4, 2]))",
    # --- images ---
    "resize_bicubic": "tf.image.resize_images(x(1, 4, 5, 2), [7, 3], method=2)",
    "resize_bicubic_corners": "tf.image.resize_images(x(1, 4, 5, 2), [7, 8], method=2, align_corners=True)",
    "resize_bicubic_gradient": "tf.gradients(tf.image.resize_bicubic(v(1, 4, 5, 2), [7, 3]) * x(1, 7, 3, 2), V)",
    "resize_area": "tf.image.resize_images(x(1, 4, 5, 2), [3, 2], method=3)",
    "resize_area_up": "tf.image.resize_area(x(1, 3, 3, 1), [7, 5])",
    # --- metrics: value, update, value after the update ---
    "mean_iou": "metric(tf.metrics.mean_iou(tf.constant([0, 1, 2, 2]), tf.constant([0, 2, 2, 1]), 3))",
    "mean_per_class_accuracy": "metric(tf.metrics.mean_per_class_accuracy(tf.constant([0, 1, 2, 2]), tf.constant([0, 2, 2, 1]), 3))",
    "mean_tensor": "metric(tf.metrics.mean_tensor(x(2, 3)))",
    "percentage_below": "metric(tf.metrics.percentage_below(x(8), 0.2))",
    "mean_cosine_distance": "metric(tf.metrics.mean_cosine_distance(x(2, 3), x(2, 3) + 1., 1))",
    "mean_relative_error": "metric(tf.metrics.mean_relative_error(x(4), x(4) + .5, tf.constant([1., 2., 0., 4.])))",
    "at_thresholds": "[metric(f(tf.constant([0, 1, 1, 0]), tf.constant([.1, .4, .7, .8]), [.3, .5])) for f in (tf.metrics.precision_at_thresholds, "
                     "tf.metrics.recall_at_thresholds, tf.metrics.true_positives_at_thresholds, "
                     "tf.metrics.false_negatives_at_thresholds)]",
    "sensitivity": "metric(tf.metrics.sensitivity_at_specificity(tf.constant([0, 1, 1, 0]), tf.constant([.1, .4, .7, .8]), 0.5))",
    "specificity": "metric(tf.metrics.specificity_at_sensitivity(tf.constant([0, 1, 1, 0]), tf.constant([.1, .4, .7, .8]), 0.5))",
    "recall_at_k": "metric(tf.metrics.recall_at_k(tf.constant([[0], [2], [1]], tf.int64), x(3, 4), 2))",
    "precision_at_k": "metric(tf.metrics.precision_at_k(tf.constant([[0, 1], [2, 3], [1, 0]], tf.int64), x(3, 4), 2))",
}


def evaluate(tf, expression):
    """The value of one expression, as numpy arrays."""
    rng = np.random.RandomState(7)
    names = {"tf": tf, "np": np}

    def x(*shape):
        return tf.constant(rng.randn(*shape).astype(np.float32))

    def v(*shape):
        names["V"] = tf.placeholder_with_default(x(*shape), list(shape))
        return names["V"]

    def spd(n):
        a = rng.randn(n, n).astype(np.float32)
        return tf.constant(a.dot(a.T) + np.eye(n, dtype=np.float32))

    def metric(pair):
        return ("metric", pair)

    def sp(value):
        return [value.indices, value.values, value.dense_shape]

    @tf.custom_gradient
    def clipped(value):
        return tf.identity(value), lambda dy: tf.clip_by_value(dy, -2., 2.)

    with tf.Graph().as_default(), tf.Session() as session:
        names.update(x=x, v=v, spd=spd, metric=metric, sp=sp, clipped=clipped,
                     S=tf.SparseTensor([[0, 1], [0, 3], [2, 0]], [1., -2., 3.], [3, 4]),
                     T=tf.SparseTensor([[0, 1], [1, 1], [2, 3]], [-1., 5., .5], [3, 4]))
        result = eval(expression, names)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])

        def value_of(part):
            if isinstance(part, tuple) and part and part[0] == "metric":
                value, update = part[1]
                return [session.run(value), session.run(update), session.run(value)]
            if isinstance(part, (list, tuple)):
                return [value_of(p) for p in part]
            return session.run(part)

        return value_of(result)


def main(path):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    values = {}
    for name, expression in EXPRESSIONS.items():
        try:
            values[name] = evaluate(tf, expression)
        except Exception as e:
            raise RuntimeError("%s: %s" % (name, e))
    with open(path, "wb") as file:
        pickle.dump(values, file)


if __name__ == "__main__":
    main(sys.argv[1])
