"""The layers of one model are on two ps tasks, and worker 0, the only client, computes: a regression on the sine of a sum."""
import numpy as np
import one_client
import tensorflow as tf

INPUTS, UNITS, EXAMPLES = 16, 32, 256

server, _, steps = one_client.start(ps="localhost:2222,localhost:2223", workers="localhost:2224", steps=200)


def layer(task, name, inputs, outputs, seed):
    with tf.device("/job:ps/task:%d" % task), tf.name_scope(name):
        return (tf.Variable(tf.truncated_normal([inputs, outputs], stddev=0.3, seed=seed), name="weights"),
                tf.Variable(tf.zeros([outputs]), name="biases"))


hidden, output = layer(0, "hidden", INPUTS, UNITS, seed=1), layer(1, "output", UNITS, 1, seed=2)
with tf.device("/job:worker/task:0"):
    x = tf.placeholder(tf.float32, [None, INPUTS])
    y = tf.placeholder(tf.float32, [None, 1])
    activations = tf.nn.relu(tf.matmul(x, hidden[0]) + hidden[1])
    loss = tf.reduce_mean(tf.square(tf.matmul(activations, output[0]) + output[1] - y))
    train_op = tf.train.GradientDescentOptimizer(0.05).minimize(loss)

examples = np.random.RandomState(0).randn(EXAMPLES, INPUTS).astype(np.float32)
wanted = np.sin(examples.sum(axis=1, keepdims=True)).astype(np.float32)
first, last = one_client.train(server, train_op, loss, {x: examples, y: wanted}, steps, log_device_placement=True)
assert last < first
