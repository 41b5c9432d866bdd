"""Loops and conditionals whose nodes are on several devices give what they give on one."""
import random

import numpy as np
import pytest


def _run(tf, build, devices):
    """Values of build(tf, device) where device(k) is the name of device k."""
    with tf.Graph().as_default():
        fetches = build(tf, lambda k: "/cpu:%d" % (k % devices))
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": devices})) as session:
            session.run(tf.global_variables_initializer())
            options = tf.RunOptions(timeout_in_ms=30000)
            return [session.run(fetches, options=options) for _ in range(3)]


def _same(build):
    import muster as tf

    one = _run(tf, build, 1)
    for devices in (2, 3):
        assert _run(tf, build, devices) == one


def test_loop_with_gradient():
    def build(tf, device):
        with tf.device(device(0)):
            x = tf.Variable(0.7, name="x")

            def body(i, v):
                with tf.device(device(1)):
                    w = tf.tanh(v) * x
                with tf.device(device(2)):
                    return i + 1, w + v

            _, y = tf.while_loop(lambda i, v: i < 7, body, [0, 1.5 * x])
            return [y] + tf.gradients(y, x)

    _same(build)


@pytest.mark.parametrize("parallel_iterations", [1, 10])
def test_nested_loops_with_gradient(parallel_iterations):
    def build(tf, device):
        with tf.device(device(0)):
            x = tf.Variable(0.7, name="x")
            rows = tf.constant([3, 0, 2, 1])

            def body(i, v):
                def inner(j, w):
                    with tf.device(device(1)):
                        return j + 1, tf.sin(w) * x

                with tf.device(device(2)):
                    count = tf.gather(rows, i)
                _, v = tf.while_loop(lambda j, w: j < count, inner, [0, v], parallel_iterations=parallel_iterations)
                return i + 1, v + x

            _, y = tf.while_loop(lambda i, v: i < 4, body, [0, x], parallel_iterations=parallel_iterations)
            return [y] + tf.gradients(y, x)

    _same(build)


def test_cond_with_gradient():
    def build(tf, device):
        results = []
        for start in (0.5, 2.5):
            with tf.device(device(0)):
                x = tf.Variable(start)

            def loop():
                with tf.device(device(1)):
                    return tf.while_loop(lambda v: v < 10.0, lambda v: v * x, [x * x])

            def plain():
                with tf.device(device(2)):
                    return tf.exp(x) * 3.0

            with tf.device(device(1)):
                y = tf.cond(x > 1.0, loop, plain)
            results += [y] + tf.gradients(y, x)
        return results

    _same(build)


def test_arrays_that_live_elsewhere():
    def build(tf, device):
        values = tf.constant(np.arange(12, dtype=np.float32).reshape(6, 2))
        with tf.device(device(1)):
            array = tf.TensorArray(tf.float32, 6).unstack(values)
            result = tf.TensorArray(tf.float32, 6)

        def body(i, total, out):
            with tf.device(device(0)):
                total = total + tf.reduce_sum(array.read(i))
            return i + 1, total, out.write(i, total)

        _, total, out = tf.while_loop(lambda i, t, o: i < 6, body, [0, 0.0, result])
        return [total, tf.reduce_sum(out.stack())]

    _same(build)


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_changed_in_a_loop(use_resource):
    def build(tf, device):
        with tf.device(device(1)):
            v = tf.get_variable("v", initializer=0.0, use_resource=use_resource)

        def body(i):
            with tf.device(device(0)):
                amount = tf.cast(i, tf.float32) * 2.0
            with tf.control_dependencies([tf.assign_add(v, amount)]):
                return i + 1

        with tf.control_dependencies([tf.assign(v, 0.0)]):
            i = tf.while_loop(lambda i: i < 5, body, [0])
        with tf.control_dependencies([i]), tf.device(device(2)):
            return [v.read_value() * 2.0, i]

    _same(build)


class _Program:
    """Random arithmetic, loops and conditionals, every node on some device; the same for the same seed."""

    def __init__(self, tf, device, seed):
        self.tf, self.device, self.random = tf, device, random.Random(seed)

    def _there(self):
        return self.tf.device(self.device(self.random.randrange(3)))

    def value(self, known, depth):
        tf = self.tf
        for _ in range(self.random.randrange(1, 4)):
            kind = self.random.randrange(6 if depth > 0 else 3)
            a, b = self.random.choice(known), self.random.choice(known)
            with self._there():
                if kind == 0:
                    known = known + [tf.tanh(a)]
                elif kind == 1:
                    known = known + [a * b]
                elif kind == 2:
                    known = known + [a - 0.5 * b]
                elif kind == 3:
                    known = known + [self.cond(known, a, depth)]
                else:
                    known = known + [self.loop(known, a, b, depth)]
        return known[-1]

    def cond(self, known, a, depth):
        pred = a > self.random.choice([-0.5, 0.0, 0.5])
        return self.tf.cond(pred, lambda: self.value(known, depth - 1), lambda: self.value(known, depth - 1))

    def loop(self, known, a, b, depth):
        tf = self.tf
        count = self.random.choice([0, 1, 3])
        parallel = self.random.choice([1, 2, 10])

        def condition(i, v):
            with self._there():
                return tf.less(i, count)

        def body(i, v):
            with self._there():
                i = i + 1
            return i, tf.tanh(self.value(known + [v], depth - 1) + b)

        return tf.while_loop(condition, body, [0, a], parallel_iterations=parallel)[1]


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed):
    def build(tf, device):
        with tf.device(device(0)):
            xs = [tf.Variable(0.3), tf.Variable(-0.8)]
        y = _Program(tf, device, seed).value([x * 1.0 for x in xs], 3)
        gradients = [0.0 if g is None else g for g in tf.gradients(y, xs)]
        return [y] + [tf.convert_to_tensor(g) for g in gradients]

    _same(build)
