"""Graphs with parts on the cards and CPUs of several tasks."""
import itertools
import json
import subprocess

import muster as tf
import numpy as np
import pytest
from card_cluster import Cluster

_numbers = itertools.count()
X = np.linspace(-1, 1, 32).reshape(8, 4).astype(np.float32)


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster(workers=2)
    cluster.start_all()
    yield cluster
    cluster.stop()


def _weights(rows, columns, seed):
    return np.random.RandomState(seed).uniform(-1, 1, [rows, columns]).astype(np.float32)


def _losses(target, build, steps=12):
    # The variables of a task have one name each.
    with tf.Graph().as_default(), tf.name_scope("graph_%d" % next(_numbers)):
        x = tf.placeholder(tf.float32, [None, 4])
        loss, train = build(x)
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            return [session.run([loss, train], {x: X})[0] for _ in range(steps)]


def _same_as_on_cpu(cluster, build):
    """The losses of a training whose nodes are where `build` puts them, and of the same on one CPU."""
    expected = _losses("", lambda x: build(x, lambda device: tf.device("/cpu:0")))
    workers = [task for (job, _), task in cluster.tasks.items() if job == "worker"]
    before = [worker.counts() for worker in workers]
    np.testing.assert_allclose(_losses(cluster.target, lambda x: build(x, tf.device)), expected, rtol=1e-5)
    return [worker.counts() - earlier for worker, earlier in zip(workers, before)]


def test_towers_of_one_graph(cluster):
    def build(x, device):
        with device("/job:ps/cpu:0"):
            w = tf.Variable(_weights(4, 3, 0))
            parts = tf.split(x, 2)
        optimizer, losses, gradients = tf.train.MomentumOptimizer(0.1, 0.9), [], []
        for i, part in enumerate(parts):
            with device("/job:worker/task:%d/gpu:0" % i):
                losses.append(tf.reduce_mean(tf.square(tf.tanh(tf.matmul(part, w)) - 0.5)))
                gradients.append(optimizer.compute_gradients(losses[-1], [w])[0][0])
        with device("/job:ps/cpu:0"):
            return tf.add_n(losses), optimizer.apply_gradients([(tf.add_n(gradients) / 2, w)])

    counts = _same_as_on_cpu(cluster, build)
    assert all(calls > 0 for calls, *_ in counts)


# Layer after layer goes to another task and comes back: no part may wait for what it has to make itself.
def test_layers_on_cards_and_cpus_of_two_tasks(cluster):
    places = ["/job:worker/task:0/gpu:0", "/job:worker/task:1/gpu:0", "/job:worker/task:0/cpu:0", "/job:worker/task:0/gpu:0",
              "/job:worker/task:1/cpu:0", "/job:worker/task:1/gpu:0", "/job:worker/task:0/gpu:0"]

    def build(x, device):
        at, variables = x, []
        for i, place in enumerate(places):
            with device(place):
                variables.append(tf.Variable(_weights(4, 4, i)))
                at = tf.tanh(tf.matmul(at, variables[-1]))
        with device("/job:worker/task:1/gpu:0"):
            loss = tf.reduce_mean(tf.square(at - 0.25))
        return loss, tf.train.GradientDescentOptimizer(0.5).minimize(loss)

    counts = _same_as_on_cpu(cluster, build)
    assert all(calls > 0 for calls, *_ in counts)


# What a part computes goes through a queue that another device hands on to it in the same step.
def test_a_queue_that_the_step_fills_itself(cluster):
    with tf.Graph().as_default():
        with tf.device("/job:ps/cpu:0"):
            v = tf.Variable(2.0, name="handed_on")
            queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]])
        with tf.device("/job:worker/task:0/gpu:0"):
            made = v * 3
        with tf.device("/job:ps/cpu:0"):
            put, taken = queue.enqueue(made), queue.dequeue()
        with tf.device("/job:worker/task:0/gpu:0"):
            result = taken + v
        with tf.Session(cluster.target) as session:
            session.run(v.initializer)
            for _ in range(3):
                assert session.run([result, put], options=tf.RunOptions(timeout_in_ms=60000))[0] == 8


# Small variables travel in one tensor, of which the card gets one copy.
def test_many_small_variables(cluster):
    def build(x, device):
        with device("/job:ps/cpu:0"):
            variables = [tf.Variable(_weights(4, 4, i)) for i in range(10)]
            offset = tf.Variable(np.float32(0.5))
            count = tf.Variable(3, trainable=False)
        with device("/job:worker/task:0/gpu:0"):
            at = x
            for w in variables:
                at = tf.tanh(tf.matmul(at, w) + offset)
            loss = tf.reduce_mean(tf.square(at)) * tf.cast(count, tf.float32)
        return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)

    _same_as_on_cpu(cluster, build)


STOCK_CLIENT = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
with tf.device("/job:ps/cpu:0"):
    w = tf.Variable(np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32), name="of_tensorflow")
x = tf.placeholder(tf.float32, [None, 4])
with tf.device("/job:worker/task:0/gpu:0"):
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w)) - 0.5))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
values = np.linspace(-1, 1, 32).reshape(8, 4)
with tf.Session(sys.argv[1]) as session:
    session.run(tf.global_variables_initializer())
    print(json.dumps([float(session.run([loss, train], {x: values})[0]) for _ in range(20)]))
"""


def test_a_client_of_tensorflow(cluster, tf_python):
    worker = cluster.tasks["worker", 0]
    before = worker.counts()
    done = subprocess.run([tf_python, "-c", STOCK_CLIENT, cluster.target], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = json.loads(done.stdout.splitlines()[-1])
    calls, replayed, *_ = worker.counts() - before

    def build(x):
        w = tf.Variable(np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32))
        loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w)) - 0.5))
        return loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)

    np.testing.assert_allclose(losses, _losses("", build, 20), rtol=1e-5)
    assert replayed > calls / 2
