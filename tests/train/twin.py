"""A small network trained from Python, the twin of muster/train/twin_test.cc: the same nodes, the same losses.

    python twin.py         # with TensorFlow: prints the losses
    python twin.py nodes   # with Muster on the path: prints twin.json's "nodes"
"""
import json
import sys

import numpy as np

STEPS = 20
ROWS, INPUTS, HIDDEN, CLASSES = 6, 4, 5, 3
RUNS = [(optimizer, resource) for optimizer in ("adam", "momentum") for resource in (False, True)]


def title(run):
    return "%s %s" % (run[0], "resource" if run[1] else "ref")


def _pattern(rows, columns, scale):
    """Numbers that C++ computes exactly alike: small fractions of powers of two."""
    return np.array([[((7 * i + 3 * j) % 11 - 5) * scale for j in range(columns)] for i in range(rows)], np.float32)


def build(tf, run):
    """(feeds, loss, train op, initializer) in the default graph."""
    optimizer, resource = run
    x = tf.placeholder(tf.float32, [None, INPUTS], name="x")
    y = tf.placeholder(tf.float32, [None, CLASSES], name="y")
    w1 = tf.Variable(_pattern(INPUTS, HIDDEN, 0.125), name="w1", use_resource=resource)
    b1 = tf.get_variable("b1", [HIDDEN], initializer=tf.zeros_initializer(), use_resource=resource)
    w2 = tf.Variable(_pattern(HIDDEN, CLASSES, 0.0625), name="w2", use_resource=resource)
    b2 = tf.get_variable("b2", [CLASSES], initializer=tf.constant_initializer(0.5), use_resource=resource)
    step = tf.get_variable("global_step", [], tf.int64, tf.zeros_initializer(), trainable=False, use_resource=resource)
    hidden = tf.raw_ops.BiasAdd(value=tf.matmul(x, w1.value()), bias=b1.value())
    logits = tf.raw_ops.BiasAdd(value=tf.matmul(tf.nn.relu(hidden), w2.value()), bias=b2.value())
    losses = tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=logits, labels=y)[0]
    loss = tf.raw_ops.Mean(input=losses, axis=tf.constant([0], name="axis"))
    if optimizer == "adam":
        made = tf.train.AdamOptimizer(0.05)
    else:
        rate = tf.train.exponential_decay(0.5, step, 10, 0.5, staircase=True)
        made = tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True)
    train = made.minimize(loss, global_step=step)
    init = tf.global_variables_initializer()
    labels = np.eye(CLASSES, dtype=np.float32)[np.arange(ROWS) % CLASSES]
    return {x: _pattern(ROWS, INPUTS, 0.25), y: labels}, loss, train, init


def losses(tf, run):
    with tf.Graph().as_default():
        feeds, loss, train, init = build(tf, run)
        with tf.Session() as session:
            session.run(init)
            return [float(session.run([loss, train], feeds)[0]) for _ in range(STEPS)]


def nodes(tf, run):
    """[name, op, inputs..., control inputs...] of every node."""
    with tf.Graph().as_default() as graph:
        build(tf, run)
        return [[op.name, op.type] + [t.name for t in op.inputs] + ["^" + c.name for c in op.control_inputs]
                for op in graph.get_operations()]


if __name__ == "__main__":
    if sys.argv[1:] == ["nodes"]:
        import muster

        print(json.dumps({title(run): nodes(muster, run) for run in RUNS}))
    else:
        import tensorflow.compat.v1

        tensorflow.compat.v1.disable_v2_behavior()
        print(json.dumps({title(run): losses(tensorflow.compat.v1, run) for run in RUNS}))
