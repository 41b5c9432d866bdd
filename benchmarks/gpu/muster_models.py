"""The models of models.py as TensorFlow 1.x programs write them."""
import math

import numpy as np

import models
import muster as tf
import workloads


def _kernel(shape, seed):
    return tf.Variable(workloads.weights(shape, seed))


# --- ResNet-50 of images [batch, 224, 224, 3]; the variables are float32, products are computed in `dtype`
def resnet(images, labels, dtype):
    seeds = iter(range(10000))

    def convolution(at, size, filters, stride=1, activation=True, scale=1.0):
        kernel = tf.cast(_kernel((size, size, int(at.shape[3]), filters), next(seeds)), dtype)
        at = tf.nn.conv2d(at, kernel, strides=[1, stride, stride, 1], padding="SAME")
        at, _, _ = tf.nn.fused_batch_norm(at, tf.Variable(tf.fill([filters], scale)), tf.Variable(tf.zeros([filters])), epsilon=1e-5)
        return tf.nn.relu(at) if activation else at

    at = convolution(tf.cast(images, dtype), 7, 64, stride=2)
    at = tf.nn.max_pool(at, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")
    for group, (blocks, filters) in enumerate(models.ResNet.groups):
        for block in range(blocks):
            stride = 2 if group > 0 and block == 0 else 1
            shortcut = convolution(at, 1, 4 * filters, stride, activation=False) if block == 0 else at
            at = convolution(at, 1, filters)
            at = convolution(at, 3, filters, stride)
            at = convolution(at, 1, 4 * filters, activation=False, scale=models.ResNet.last_scale)
            at = tf.nn.relu(at + shortcut)
    at = tf.cast(tf.reduce_mean(at, [1, 2]), tf.float32)
    logits = tf.matmul(at, _kernel((2048, models.ResNet.classes), next(seeds))) + tf.Variable(tf.zeros([models.ResNet.classes]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return loss, tf.train.MomentumOptimizer(models.ResNet.rate, 0.9).minimize(loss)


# --- BERT-base, predicting masked words
def _layer_norm(at):
    width = int(at.shape[-1])
    mean, variance = tf.nn.moments(at, [-1], keep_dims=True)
    return tf.nn.batch_normalization(at, mean, variance, tf.Variable(tf.zeros([width])), tf.Variable(tf.ones([width])), 1e-12)


def _gelu(x):
    return x * (0.5 * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3)))))


def bert(words, masked, truth, dtype):
    options = models.Bert
    width, heads = options.width, options.heads
    tokens = options.batch * options.length
    seeds = iter(range(10000))

    def dense(at, outputs):
        kernel = models.small_weights((int(at.shape[1]), outputs), next(seeds))
        product = tf.matmul(tf.cast(at, dtype), tf.cast(tf.Variable(kernel), dtype))
        return tf.nn.bias_add(product, tf.cast(tf.Variable(tf.zeros([outputs])), dtype))

    table = tf.Variable(models.small_weights((options.words, width), next(seeds)))
    places = tf.Variable(models.small_weights((options.length, width), next(seeds)))
    at = tf.reshape(tf.nn.embedding_lookup(table, words), [options.batch, options.length, width]) + places
    at = _layer_norm(tf.reshape(at, [tokens, width]))

    def split(part):
        return tf.transpose(tf.reshape(part, [options.batch, options.length, heads, width // heads]), [0, 2, 1, 3])

    for _ in range(options.layers):
        query, key, value = (split(dense(at, width)) for _ in range(3))
        scores = tf.matmul(query, key, transpose_b=True) * (1.0 / math.sqrt(width // heads))
        context = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        at = _layer_norm(tf.cast(dense(tf.reshape(context, [tokens, width]), width), tf.float32) + at)
        inner = _gelu(dense(at, 4 * width))
        at = _layer_norm(tf.cast(dense(inner, width), tf.float32) + at)
    at = tf.gather(at, masked)
    at = _layer_norm(tf.cast(_gelu(dense(at, width)), tf.float32))
    logits = tf.cast(tf.matmul(tf.cast(at, dtype), tf.cast(table, dtype), transpose_b=True), tf.float32) + tf.Variable(
        tf.zeros([options.words]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=truth, logits=logits))
    return loss, _adam_with_decay(loss)


def _adam_with_decay(loss):
    """As BERT's own optimizer: slots are variables, the update is written out."""
    options, updates = models.Bert, []
    variables = tf.trainable_variables()
    for gradient, variable in zip(tf.gradients(loss, variables), variables):
        gradient = tf.convert_to_tensor(gradient)
        m = tf.Variable(tf.zeros(variable.shape), trainable=False)
        v = tf.Variable(tf.zeros(variable.shape), trainable=False)
        next_m = 0.9 * m + 0.1 * gradient
        next_v = 0.999 * v + 0.001 * tf.square(gradient)
        update = next_m / (tf.sqrt(next_v) + 1e-6) + options.decay * variable
        updates += [tf.assign(variable, variable - options.rate * update), tf.assign(m, next_m), tf.assign(v, next_v)]
    return tf.group(*updates)


# --- A language model of two LSTM layers, its time steps unrolled
def lstm(words, truth):
    options = models.Lstm
    width = options.width
    table = tf.Variable(models.small_weights((options.words, width), 0))
    inputs = tf.unstack(tf.nn.embedding_lookup(table, words), axis=1)
    cells = [tf.nn.rnn_cell.BasicLSTMCell(width, forget_bias=0.0) for _ in range(options.layers)]
    with tf.variable_scope("lstm", initializer=tf.random_uniform_initializer(-0.05, 0.05, seed=1)):
        outputs, _ = tf.nn.static_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), inputs, dtype=tf.float32)
    at = tf.reshape(tf.concat(outputs, 1), [-1, width])
    logits = tf.matmul(at, tf.Variable(models.small_weights((width, options.words), 1))) + tf.Variable(tf.zeros([options.words]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(truth, [-1]), logits=logits))
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), options.clip)
    return loss, tf.train.GradientDescentOptimizer(options.rate).apply_gradients(zip(gradients, variables))


def _row(build, inputs):
    """A step without feeds, of `inputs` that are on the card."""
    with tf.device("/gpu:0"):
        loss, train = build(*[tf.Variable(value, trainable=False) for value in inputs])
    # Initial values of integers are on the host.
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        session.run(tf.global_variables_initializer())
        first = float(session.run(loss))
        ms = workloads.timed(lambda i: session.run([loss, train]), lambda: None, warm_up=8, warm_seconds=8.0)
    return {"ms": ms, "loss": first}


ROWS = {
    "resnet50_tf32": lambda: _row(lambda *inputs: resnet(*inputs, dtype=tf.float32), models.ResNet.inputs()),
    "resnet50_bfloat16": lambda: _row(lambda *inputs: resnet(*inputs, dtype=tf.bfloat16), models.ResNet.inputs()),
    "bert_tf32": lambda: _row(lambda *inputs: bert(*inputs, dtype=tf.float32), models.Bert.inputs()),
    "bert_bfloat16": lambda: _row(lambda *inputs: bert(*inputs, dtype=tf.bfloat16), models.Bert.inputs()),
    "lstm": lambda: _row(lstm, models.Lstm.inputs()),
}
