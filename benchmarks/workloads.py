"""What is measured: each workload is a plain TF1 program that runs on TensorFlow and on Muster alike.

Run as `python workloads.py NAME`, prints one line of JSON. `tensorflow` is whatever the caller made it."""
import json
import os
import resource
import sys
import tempfile
import time

started = time.perf_counter()
if sys.argv[1].startswith("muster:"):
    import muster as tf
else:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
import_seconds = time.perf_counter() - started
import numpy as np  # noqa: E402

from timing import best_of  # noqa: E402


def null_step():
    op = tf.no_op()
    with tf.Session() as session:
        return best_of(lambda: session.run(op), 2000)


def dense_model():
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.float32, [None, 10])
    w1 = tf.Variable(tf.truncated_normal([784, 100], stddev=0.04, seed=1))
    b1 = tf.Variable(tf.zeros([100]))
    w2 = tf.Variable(tf.truncated_normal([100, 10], stddev=0.1, seed=2))
    b2 = tf.Variable(tf.zeros([10]))
    hidden = tf.nn.relu(tf.nn.xw_plus_b(x, w1, b1))
    probabilities = tf.nn.softmax(tf.nn.xw_plus_b(hidden, w2, b2))
    loss = -tf.reduce_sum(y * tf.log(tf.clip_by_value(probabilities, 1e-10, 1.0)))
    return x, y, tf.train.AdamOptimizer(0.001).minimize(loss)


def mnist_step():
    x, y, train = dense_model()
    rng = np.random.RandomState(0)
    feed = {x: rng.rand(100, 784).astype(np.float32), y: np.eye(10, dtype=np.float32)[rng.randint(0, 10, 100)]}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return best_of(lambda: session.run(train, feed), 200)


def cnn_step():
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
    dense = tf.nn.relu(tf.matmul(flat, weights([7 * 7 * 64, 1024])) + tf.Variable(tf.zeros([1024])))
    logits = tf.matmul(dense, weights([1024, 10])) + tf.Variable(tf.zeros([10]))
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
    train = tf.train.AdamOptimizer(1e-4).minimize(loss)
    rng = np.random.RandomState(0)
    feed = {x: rng.rand(50, 784).astype(np.float32), y: np.eye(10, dtype=np.float32)[rng.randint(0, 10, 50)]}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return best_of(lambda: session.run(train, feed), 5)


def matmul_2048():
    a = tf.Variable(tf.random_normal([2048, 2048], seed=1))
    b = tf.Variable(tf.random_normal([2048, 2048], seed=2))
    product = tf.matmul(a, b).op
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return best_of(lambda: session.run(product), 3)


def import_time():
    return import_seconds


def memory():
    """Resident megabytes after one training step."""
    x, y, train = dense_model()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {x: np.zeros([100, 784], np.float32), y: np.zeros([100, 10], np.float32)})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def _checkpoint(measure):
    """measure(session, names, variables, folder) with 256 MB of variables."""
    variables = [tf.Variable(tf.random_normal([1024, 4096], seed=i)) for i in range(16)]
    with tf.Session() as session, tempfile.TemporaryDirectory() as folder:
        session.run(tf.global_variables_initializer())
        return measure(session, ["v%d" % i for i in range(16)], variables, folder)


def _seconds(call, after=lambda: None, rounds=5):
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
        after()
    return best


def checkpoint_write():
    """Muster's includes the wait until the data is on the disk; TensorFlow leaves that to chance."""
    def measure(session, names, variables, folder):
        save = tf.raw_ops.SaveV2(prefix=os.path.join(folder, "m"), tensor_names=names, shape_and_slices=[""] * 16,
                                 tensors=variables)

        def clear():
            for name in os.listdir(folder):
                os.remove(os.path.join(folder, name))
        return _seconds(lambda: session.run(save), clear)
    return _checkpoint(measure)


def checkpoint_read():
    def measure(session, names, variables, folder):
        prefix = os.path.join(folder, "m")
        session.run(tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * 16, tensors=variables))
        restored = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * 16,
                                        dtypes=[tf.float32] * 16)
        load = tf.group(*[tf.assign(v, t) for v, t in zip(variables, restored)])
        return _seconds(lambda: session.run(load))
    return _checkpoint(measure)


if __name__ == "__main__":
    name = sys.argv[1].split(":")[-1]
    print(json.dumps({"name": name, "value": globals()[name]()}))
