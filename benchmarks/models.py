"""The networks that are trained here: plain TensorFlow 1.x, for both sides alike."""
import numpy as np

from side import tf


def dense(hidden=100, variables=None, compute=None):
    """784-hidden-10 with Adam; (placeholders, training op, loss). The devices are those of variables and of the rest."""
    with tf.device(variables):
        w1 = tf.Variable(tf.truncated_normal([784, hidden], stddev=0.04, seed=1))
        b1 = tf.Variable(tf.zeros([hidden]))
        w2 = tf.Variable(tf.truncated_normal([hidden, 10], stddev=0.1, seed=2))
        b2 = tf.Variable(tf.zeros([10]))
    with tf.device(compute):
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.float32, [None, 10])
        activation = tf.nn.relu(tf.nn.xw_plus_b(x, w1, b1))
        probabilities = tf.nn.softmax(tf.nn.xw_plus_b(activation, w2, b2))
        loss = -tf.reduce_sum(y * tf.log(tf.clip_by_value(probabilities, 1e-10, 1.0)))
        train = tf.train.AdamOptimizer(0.001).minimize(loss)
    return (x, y), train, loss


def cnn():
    """5x5x32, 5x5x64, 1024, 10 with pooling and Adam."""
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.float32, [None, 10])

    def weights(shape):
        return tf.Variable(tf.truncated_normal(shape, stddev=0.1, seed=1))

    image = tf.reshape(x, [-1, 28, 28, 1])
    conv1 = tf.nn.relu(tf.nn.conv2d(image, weights([5, 5, 1, 32]), [1, 1, 1, 1], "SAME") + tf.Variable(tf.zeros([32])))
    pool1 = tf.nn.max_pool(conv1, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    conv2 = tf.nn.relu(tf.nn.conv2d(pool1, weights([5, 5, 32, 64]), [1, 1, 1, 1], "SAME") + tf.Variable(tf.zeros([64])))
    pool2 = tf.nn.max_pool(conv2, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    flat = tf.reshape(pool2, [-1, 7 * 7 * 64])
    activation = tf.nn.relu(tf.matmul(flat, weights([7 * 7 * 64, 1024])) + tf.Variable(tf.zeros([1024])))
    logits = tf.matmul(activation, weights([1024, 10])) + tf.Variable(tf.zeros([10]))
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
    return (x, y), tf.train.AdamOptimizer(1e-4).minimize(loss), loss


def batches(placeholders, size, count=8):
    """Feeds with made-up digits, one after the other without end."""
    rng = np.random.RandomState(0)
    made = [{placeholders[0]: rng.rand(size, 784).astype(np.float32),
             placeholders[1]: np.eye(10, dtype=np.float32)[rng.randint(0, 10, size)]} for _ in range(count)]
    while True:
        for feed in made:
            yield feed
