"""Small programs whose graphs are compared between Muster and TensorFlow 2.21.

Run as a script, by the interpreter that has TensorFlow, it prints their nodes as JSON.
"""
import json
import sys


def dense_adam(tf):
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int64, [None])
    step = tf.train.get_or_create_global_step()
    with tf.variable_scope("hidden"):
        w = tf.get_variable("w", [8, 16], initializer=tf.glorot_uniform_initializer())
        b = tf.get_variable("b", [16], initializer=tf.zeros_initializer())
        hidden = tf.nn.relu(tf.matmul(x, w) + b)
    with tf.variable_scope("out"):
        w = tf.get_variable("w", [16, 4], initializer=tf.truncated_normal_initializer(stddev=0.1))
        b = tf.get_variable("b", [4], initializer=tf.constant_initializer(0.5))
        logits = tf.nn.xw_plus_b(hidden, w, b)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    tf.global_variables_initializer()


def convnet_momentum(tf):
    images = tf.placeholder(tf.float32, [None, 784])
    labels = tf.placeholder(tf.float32, [None, 10])
    x = tf.reshape(images, [-1, 28, 28, 1])
    w1 = tf.Variable(tf.truncated_normal([5, 5, 1, 8], stddev=0.1), name="w1")
    b1 = tf.Variable(tf.constant(0.1, shape=[8]), name="b1")
    x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w1, strides=[1, 1, 1, 1], padding="SAME"), b1))
    x = tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    w2 = tf.Variable(tf.random_normal([14 * 14 * 8, 10], stddev=0.1), name="w2")
    logits = tf.matmul(tf.reshape(x, [-1, 14 * 14 * 8]), w2)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits))
    loss += 1e-4 * (tf.nn.l2_loss(w1) + tf.nn.l2_loss(w2))
    step = tf.Variable(0, trainable=False, name="step")
    rate = tf.train.exponential_decay(0.1, step, 100, 0.9, staircase=True)
    optimizer = tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    gradients, _ = tf.clip_by_global_norm(gradients, 5.0)
    optimizer.apply_gradients(zip(gradients, variables), global_step=step)


def embedding_sparse(tf):
    ids, target = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, 4])
    table = tf.Variable(tf.random_uniform([100, 4], -1.0, 1.0), name="table")
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids) - target))
    tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def embedding_adam(tf):
    ids = tf.placeholder(tf.int32, [None])
    table = tf.get_variable("table", [100, 4], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
    tf.train.AdamOptimizer().minimize(loss)


def resource_adam(tf):
    x = tf.placeholder(tf.float32, [None, 3])
    w = tf.get_variable("w", [3, 2], use_resource=True)
    v = tf.get_variable("v", [2], use_resource=True, initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + v))
    tf.train.AdamOptimizer(0.1).minimize(loss, global_step=tf.train.get_or_create_global_step())
    v.assign_add([1.0, 1.0])


def resource_embedding(tf):
    ids = tf.placeholder(tf.int32, [None])
    table = tf.get_variable("table", [100, 4], use_resource=True, initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
    tf.train.AdagradOptimizer(0.1).minimize(loss)


def conditional(tf):
    x = tf.placeholder(tf.float32, [])
    v = tf.Variable(2.0, name="v")
    y = tf.cond(x > 0.0, lambda: x * v, lambda: x - 1.0)
    tf.gradients(y, [x, v])


def loop_gradients(tf):
    x = tf.placeholder(tf.float32, [2, 2])
    w = tf.Variable(tf.ones([2, 2]), name="w")
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.tanh(tf.matmul(a, w))), [0, x])
    loss = tf.reduce_sum(y)
    tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def batch_norm_moments(tf):
    x = tf.placeholder(tf.float32, [None, 6])
    gamma = tf.Variable(tf.ones([6]), name="gamma")
    beta = tf.Variable(tf.zeros([6]), name="beta")
    mean, variance = tf.nn.moments(x, [0])
    normal = tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3)
    tf.train.RMSPropOptimizer(0.1).minimize(tf.reduce_sum(tf.sigmoid(normal)))


def dropout(tf):
    x = tf.placeholder(tf.float32, [None, 6])
    w = tf.Variable(tf.ones([6, 3]), name="w")
    y = tf.nn.softmax(tf.matmul(tf.nn.dropout(x, rate=0.4, seed=3), w))
    tf.gradients(-tf.reduce_sum(tf.log(tf.clip_by_value(y, 1e-10, 1.0))), w)


def averages(tf):
    v, n = tf.Variable(1.0, name="v"), tf.Variable(0, name="n", trainable=False)
    tf.train.ExponentialMovingAverage(0.9, num_updates=n, zero_debias=True).apply([v, v * 1.0])


def schedules(tf):
    step = tf.Variable(0, trainable=False, name="step", dtype=tf.int64)
    tf.train.natural_exp_decay(0.1, step, 10, 0.5)
    tf.train.inverse_time_decay(0.1, step, 10, 0.5, staircase=True)
    tf.train.polynomial_decay(0.1, step, 10, power=0.5)
    tf.train.piecewise_constant(step, [5, 10], [1.0, 0.5, 0.1])
    tf.train.cosine_decay(0.1, step, 10, alpha=0.1)
    tf.train.cosine_decay_restarts(0.1, step, 5)
    tf.train.linear_cosine_decay(0.1, step, 10)
    tf.train.noisy_linear_cosine_decay(0.1, step, 10)


def loops_of_arrays(tf):
    x = tf.placeholder(tf.float32, [5, 3])
    tf.map_fn(lambda a: a * 2.0, x)
    total = tf.scan(lambda a, b: a + b, x)
    tf.foldl(lambda a, b: a + b, x)
    tf.gradients(tf.reduce_sum(total), x)


def conditional_in_loop(tf):
    x, v = tf.placeholder(tf.float32, []), tf.Variable(1.0, name="v")

    def body(i, a):
        return i + 1, tf.cond(a > 0.0, lambda: a * v, lambda: a + 1.0)

    _, y = tf.while_loop(lambda i, a: i < 3, body, [0, x])
    tf.gradients(y, [v, x])


def cases(tf):
    x = tf.placeholder(tf.int32, [])
    pairs = [(x < 1, lambda: tf.constant(1)), (x > 5, lambda: tf.constant(2))]
    tf.case(pairs, default=lambda: tf.constant(3), exclusive=True)
    tf.case(pairs)


def partitioned(tf):
    with tf.variable_scope("p", partitioner=tf.fixed_size_partitioner(3)):
        w = tf.get_variable("w", [7, 2])
    rows = tf.nn.embedding_lookup(w, tf.placeholder(tf.int32, [None]))
    tf.convert_to_tensor(w) + 1.0
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(rows))


def activations(tf):
    x, y = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 4])
    tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x)
    tf.nn.l2_normalize(x, 1)
    tf.nn.log_softmax(x)
    tf.nn.softplus(x)
    tf.global_norm([x, y])
    tf.nn.zero_fraction(x)
    tf.nn.in_top_k(x, tf.placeholder(tf.int32, [None]), 2)
    tf.nn.top_k(x, 2)


def images(tf):
    x = tf.placeholder(tf.float32, [None, 4, 4, 3])
    scale, offset = tf.Variable(tf.ones([3]), name="scale"), tf.Variable(tf.zeros([3]), name="offset")
    y, _, _ = tf.nn.fused_batch_norm(x, scale, offset)
    tf.nn.avg_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
    tf.nn.conv2d_transpose(padded, tf.Variable(tf.ones([2, 2, 4, 3]), name="f"), [8, 12, 12, 4], [1, 2, 2, 1])
    tf.nn.depthwise_conv2d(x, tf.ones([2, 2, 3, 2]), [1, 1, 1, 1], "SAME")
    tf.nn.lrn(x)


def operators(tf):
    a, b = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.bool, [3])
    counts = tf.cast(b, tf.int32)
    tf.logical_and(b, ~b)
    b | b, b ^ b, a // 2.0, a % 2.0, -a, a ** 2, 2.0 - a, 1 / a, abs(a), a <= 1.0
    tf.truediv(counts, 2), tf.div(counts, 2), tf.floordiv(counts, 2)
    tf.maximum(a, 0.0), tf.squared_difference(a, 1.0)
    tf.reduce_all(b), tf.reduce_mean(a, keepdims=True), tf.reduce_max(a, axis=[0]), tf.add_n([a, a])


def randomness(tf):
    tf.random_shuffle(tf.range(5))
    tf.random_crop(tf.zeros([5, 5]), [2, 2])
    tf.multinomial(tf.zeros([1, 3]), 4)
    tf.random_gamma([2], 1.0)
    tf.random_uniform([2], maxval=5, dtype=tf.int32)
    tf.random_poisson(1.0, [2])


def assertions(tf):
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    checks = [tf.assert_equal(x, y), tf.assert_less(x, y), tf.assert_positive(x), tf.Assert(tf.reduce_all(x > 0), [x])]
    with tf.control_dependencies(checks):
        tf.identity(x)
    tf.check_numerics(x, "not a number")
    tf.Print(x, [x], "x")
    tf.assert_rank(x, 1)


def fills(tf):
    unknown, scalar, pair = tf.placeholder(tf.int32), tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [2])
    known, any_shape = tf.placeholder(tf.float32, [3, 4]), tf.placeholder(tf.float32)
    for size in (unknown, scalar, pair, [pair[0], 3], [2, 3], [0], (), [999], [1000], [2 ** 31, 2]):
        tf.zeros(size)
        tf.ones(size, tf.bool)
    tf.zeros([2, 3], tf.string)
    tf.zeros([3], tf.qint8)
    for x in (known, any_shape):
        tf.zeros_like(x)
        tf.zeros_like(x, tf.int32, name="integers")
        tf.zeros_like(x, optimize=False)
        tf.shape(x)
        tf.shape(x, name="extent", out_type=tf.int64)
    for kind in (tf.int16, tf.uint8, tf.float32):
        tf.shape(known, out_type=kind)
    tf.ones_like(any_shape)


PROGRAMS = (dense_adam, convnet_momentum, embedding_sparse, embedding_adam, resource_adam, resource_embedding,
            conditional, loop_gradients, batch_norm_moments, dropout, averages, schedules, loops_of_arrays,
            conditional_in_loop, cases, partitioned, activations, images, operators, randomness, assertions, fills)


def nodes(tf):
    """{program: [[name, op, inputs], ...]}; control inputs sorted and with a caret."""
    found = {}
    for program in PROGRAMS:
        graph = tf.Graph()
        with graph.as_default():
            program(tf)
        found[program.__name__] = [
            [op.name, op.type, [t.op.name if t.name.endswith(":0") else t.name for t in op.inputs]
             + sorted("^" + c.name for c in op.control_inputs)] for op in graph.get_operations()]
    return found


if __name__ == "__main__":
    import tensorflow.compat.v1 as tensorflow

    tensorflow.disable_eager_execution()
    tensorflow.disable_resource_variables()
    tensorflow.disable_control_flow_v2()
    json.dump(nodes(tensorflow), sys.stdout)
