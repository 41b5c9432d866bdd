"""Steps of a session in one process."""
import numpy as np

import models
from side import main, tf
from timing import best_call, best_of


def null_step():
    op = tf.no_op()
    with tf.Session() as session:
        return best_of(lambda: session.run(op), 2000)


def _train(model, batch, repeats, rounds):
    placeholders, train, _ = model
    feeds = models.batches(placeholders, batch)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return best_of(lambda: session.run(train, next(feeds)), repeats, rounds)


def mnist_step():
    return _train(models.dense(), 100, 100, 20)


def cnn_step():
    return _train(models.cnn(), 50, 5, 6)


def matmul_2048():
    size = 2048
    # Variables, which a step before the timed one changes: feeding 32 MB would count otherwise.
    a = tf.Variable(tf.random_normal([size, size], seed=1))
    b = tf.Variable(tf.random_normal([size, size], seed=2))
    scale = tf.placeholder(tf.float32, [])
    change = tf.assign(a, a * scale).op
    product = tf.matmul(a, b).op
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return best_call(lambda: session.run(product), 10,
                         before=lambda i: session.run(change, {scale: -1.0 - 1e-6 * i}))


def _many_nodes():
    """5,000 times mul and tanh of what is fed, and one add_n."""
    x = tf.placeholder(tf.float32, [16])
    return x, tf.add_n([tf.tanh(x * (i * 1e-4)) for i in range(5000)])


def _many_fed(i):
    return np.linspace(-1, 1, 16).astype(np.float32) * (1 + 0.01 * (i % 50))


def _check_many(i, result):
    factors = np.arange(5000, dtype=np.float32) * np.float32(1e-4)
    wanted = np.tanh(_many_fed(i)[None, :] * factors[:, None]).sum(0)
    np.testing.assert_allclose(result, wanted, rtol=1e-3)


def nodes_first_run():
    x, total = _many_nodes()
    with tf.Session() as session:
        return best_call(lambda: session.run(total, {x: _many_fed(0)}), 1, after=_check_many, warm_up=0)


def nodes_later_step():
    x, total = _many_nodes()
    with tf.Session() as session:
        feeds = [{x: _many_fed(i)} for i in range(103)]
        steps = iter(feeds)
        return best_call(lambda: session.run(total, next(steps)), 100, after=_check_many)


def build_graph():
    """Seconds per op, three kinds of them, in a graph of 3,000."""
    def build():
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [16])
            y = x
            for _ in range(1000):
                y = tf.add(tf.tanh(tf.multiply(x, y)), x)
    return best_call(build, 5, warm_up=1) / 3000


if __name__ == "__main__":
    main(globals())
