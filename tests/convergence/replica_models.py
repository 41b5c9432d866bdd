"""Small models and their batches, for tests that compare several workers with one process."""
import numpy as np

import muster as tf

STEPS = 50
ROWS = 12
WIDTH = 5
BATCH = 16


def optimizer_of(name):
    return (tf.train.GradientDescentOptimizer(0.1) if name == "sgd" else tf.train.MomentumOptimizer(0.05, 0.9))


class Dense(object):
    """A hidden layer; batches are rows of numbers."""

    def __init__(self, dtype):
        r = np.random.RandomState(1)
        self.first = {"w1": r.randn(ROWS, WIDTH).astype(dtype), "b1": np.zeros(WIDTH, dtype),
                      "w2": r.randn(WIDTH, 1).astype(dtype)}
        self._dtype = dtype

    def batch(self, step, worker):
        r = np.random.RandomState(1000 * worker + step)
        x = r.randn(BATCH, ROWS).astype(self._dtype)
        return x, np.sin(x.sum(axis=1)).astype(self._dtype)

    def inputs(self):
        return tf.placeholder(self._dtype, [None, ROWS]), tf.placeholder(self._dtype, [None])

    def loss(self, v, x, y):
        hidden = tf.tanh(tf.matmul(x, v["w1"]) + v["b1"])
        return tf.reduce_mean(tf.square(tf.reshape(tf.matmul(hidden, v["w2"]), [-1]) - y))


class Sparse(object):
    """A table of which rows are looked up. The mean that the sparse accumulator takes is, for every row, over the
    gradients that have it; so workers look up the same rows in the same order, sorted and unique or anyhow."""

    def __init__(self, dtype, ids):
        r = np.random.RandomState(2)
        self.first = {"table": r.randn(ROWS, WIDTH).astype(dtype), "w2": r.randn(WIDTH, 1).astype(dtype)}
        self._dtype, self._ids = dtype, ids

    def batch(self, step, worker):
        if self._ids == "sorted":
            ids = np.arange(step % 2, ROWS, 2)  # the other half stands still
        else:
            ids = np.random.RandomState(step).randint(0, ROWS, BATCH)
        return ids, np.random.RandomState(1000 * worker + step).randn(len(ids)).astype(self._dtype)

    def inputs(self):
        return tf.placeholder(tf.int64, [None]), tf.placeholder(self._dtype, [None])

    def loss(self, v, x, y):
        rows = tf.tanh(tf.nn.embedding_lookup(v["table"], x))
        return tf.reduce_mean(tf.square(tf.reshape(tf.matmul(rows, v["w2"]), [-1]) - y))


def model_of(name, dtype):
    return Dense(dtype) if name == "dense" else Sparse(dtype, name.partition("_")[2])


def variables_of(model):
    return {name: tf.get_variable(name, initializer=value) for name, value in sorted(model.first.items())}


def joined(model, optimizer, workers):
    """The variables after one process has trained on the joined batches."""
    with tf.Graph().as_default(), tf.Session() as session:
        v = variables_of(model)
        x, y = model.inputs()
        train = optimizer_of(optimizer).minimize(model.loss(v, x, y))
        session.run(tf.global_variables_initializer())
        for step in range(STEPS):
            parts = [model.batch(step, w) for w in range(workers)]
            session.run(train, {x: np.concatenate([p[0] for p in parts]), y: np.concatenate([p[1] for p in parts])})
        return session.run(v)
