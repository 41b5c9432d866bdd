"""The network of the MNIST tutorial: two hidden layers, its loss, a training step and the count of right answers."""
import math

import muster as tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def _linear(inputs, inputs_size, units):
    weights = tf.Variable(tf.truncated_normal([inputs_size, units], stddev=1.0 / math.sqrt(float(inputs_size))),
                          name="weights")
    biases = tf.Variable(tf.zeros([units]), name="biases")
    return tf.matmul(inputs, weights) + biases


def inference(images, hidden1_units, hidden2_units):
    """Logits for a batch of flat images."""
    with tf.name_scope("hidden1"):
        hidden1 = tf.nn.relu(_linear(images, IMAGE_PIXELS, hidden1_units))
    with tf.name_scope("hidden2"):
        hidden2 = tf.nn.relu(_linear(hidden1, hidden1_units, hidden2_units))
    with tf.name_scope("softmax_linear"):
        return _linear(hidden2, hidden2_units, NUM_CLASSES)


def loss(logits, labels):
    """The mean cross entropy."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.cast(labels, tf.int64), logits=logits)


def training(loss, learning_rate):
    """A step of gradient descent that counts itself; the loss becomes a summary."""
    tf.summary.scalar("loss", loss)
    optimizer = tf.train.GradientDescentOptimizer(learning_rate)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return optimizer.minimize(loss, global_step=global_step)


def evaluation(logits, labels):
    """How many images of the batch are recognized."""
    return tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 1), tf.int32))
