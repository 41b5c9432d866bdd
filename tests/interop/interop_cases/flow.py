"""Conditions and loops across tasks, with gradients, in both forms of control flow."""

import contextlib

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


def _cond(tf):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        x = tf.Variable(3.0, use_resource=False)

    def yes():
        with tf.device(WORKER):
            return x * x

    def no():
        with tf.device(OTHER):
            return x - 5.0

    return p, x, tf.cond(p, yes, no)


@case
def conditions(tf, c):
    p, x, r = _cond(tf)
    g = tf.gradients(r, x)[0]
    with c.session() as s:
        s.run(x.initializer)
        for _ in range(3):
            assert s.run([r, g], {p: True}) == [9.0, 6.0]
            assert s.run([r, g], {p: False}) == [-2.0, 1.0]


@case
def nested_conditions(tf, c):
    p, q = tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, [])
    with tf.device(PS):
        x = tf.constant(2.0) + tf.random_uniform([], 0, 1e-30)

    def inner():
        with tf.device(OTHER):
            return tf.cond(q, lambda: x * 10.0, lambda: x * 100.0)

    def outer():
        with tf.device(WORKER):
            return x + 1.0

    r = tf.cond(p, inner, outer)
    with c.session() as s:
        assert s.run(r, {p: True, q: True}) == 20.0
        assert s.run(r, {p: True, q: False}) == 200.0
        assert s.run(r, {p: False, q: True}) == 3.0


@case
def conditions_with_effects_on_the_taken_side_only(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        a, b = (tf.Variable(0.0, use_resource=False) for _ in range(2))

    def add(v, device):
        def body():
            with tf.device(device):
                one = tf.constant(1.0) + 0.0
            return tf.assign_add(v, one)
        return body

    r = tf.cond(p, add(a, WORKER), add(b, OTHER))
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        for flag in (True, False, True, True):
            s.run(r, {p: flag})
        assert s.run([a, b]) == [3.0, 1.0]


@case
def a_dead_tensor_is_not_fetched(tf, c):
    with tf.device(PS):
        x = tf.constant(1.0) + tf.random_uniform([], 0, 1e-30)
    p = tf.placeholder(tf.bool, [])
    with tf.device(WORKER):
        no, yes = _switch(tf, x, p)
    with tf.device(OTHER):
        live = yes + 1.0
    with c.session() as s:
        assert s.run(live, {p: True}) == 2.0
        e = raised(tf.errors.InternalError, s.run, live, {p: False})
        assert "was not valid" in str(e), e


def _switch(tf, x, p):
    """A Switch, made by the public way to build one node."""
    both = tf.raw_ops.Switch(data=x, pred=p)
    return both.output_false, both.output_true


def _loop(tf, x, times=5, **options):
    def body(i, a):
        with tf.device(WORKER):
            a = a * 2.0
        with tf.device(OTHER):
            a = a + 1.0
        return i + 1, a

    with tf.device(PS):
        return tf.while_loop(lambda i, a: i < times, body, [tf.constant(0), x], **options)[1]


@case
def loops(tf, c):
    x = tf.placeholder(tf.float32, [])
    n = tf.placeholder(tf.int32, [])
    r = _loop(tf, x, n)
    g = tf.gradients(r, x)[0]
    with c.session() as s:
        for times in (0, 1, 2, 7, 0):
            want = 3.0 * 2 ** times + 2 ** times - 1
            assert s.run([r, g], {x: 3.0, n: times}) == [want, 2.0 ** times]


@case
def loops_of_a_hundred_rounds(tf, c):
    def body(i, a):
        with tf.device(WORKER):
            return i + 1, a + tf.cast(i, tf.float32)

    with tf.device(PS):
        r = tf.while_loop(lambda i, a: i < 100, body, [tf.constant(0), tf.constant(0.0)], parallel_iterations=10)
    with c.session() as s:
        assert tuple(s.run(r)) == (100, 4950.0)


@case
def loops_one_round_at_a_time(tf, c):
    x = tf.placeholder(tf.float32, [])
    r = _loop(tf, x, parallel_iterations=1)
    with c.session() as s:
        assert s.run(r, {x: 1.0}) == 63.0


@case
def nested_loops(tf, c):
    x = tf.placeholder(tf.float32, [])

    def outer(i, a):
        def inner(j, b):
            with tf.device(WORKER):
                return j + 1, b * 1.5
        with tf.device(OTHER):
            a = a + 1.0
        with tf.device(PS):
            _, a = tf.while_loop(lambda j, b: j < i, inner, [tf.constant(0), a])
        return i + 1, a

    with tf.device(PS):
        _, r = tf.while_loop(lambda i, a: i < 4, outer, [tf.constant(0), x])
    g = tf.gradients(r, x)[0]
    a, slope = 2.0, 1.0
    for i in range(4):
        a += 1.0
        for _ in range(i):
            a, slope = a * 1.5, slope * 1.5
    with c.session() as s:
        np.testing.assert_allclose(s.run([r, g], {x: 2.0}), [a, slope], rtol=1e-6)


@case
def a_condition_inside_a_loop(tf, c):
    def body(i, a):
        def even():
            with tf.device(WORKER):
                return a + 10.0

        def odd():
            with tf.device(OTHER):
                return a * 2.0
        return i + 1, tf.cond(tf.equal(i % 2, 0), even, odd)

    with tf.device(PS):
        x = tf.constant(1.0)
        _, r = tf.while_loop(lambda i, a: i < 4, body, [tf.constant(0), x])
    g = tf.gradients(r, x)[0]
    with c.session() as s:
        assert s.run([r, g]) == [((1 + 10) * 2 + 10) * 2, 4.0]


@case
def a_loop_inside_a_condition(tf, c):
    p = tf.placeholder(tf.bool, [])
    x = tf.placeholder(tf.float32, [])
    r = tf.cond(p, lambda: _loop(tf, x, 3), lambda: x - 1.0)
    g = tf.gradients(r, x)[0]
    with c.session() as s:
        assert s.run([r, g], {p: True, x: 1.0}) == [15.0, 8.0]
        assert s.run([r, g], {p: False, x: 1.0}) == [0.0, 1.0]


@case
def loops_with_matrices_and_variables(tf, c):
    with tf.device(PS):
        w = tf.Variable(np.eye(3, dtype="f") * 0.5, use_resource=False)
        x = tf.Variable(np.ones([1, 3], "f"), use_resource=False)

    def body(i, h):
        with tf.device(WORKER):
            return i + 1, tf.tanh(tf.matmul(h, w))

    with tf.device(WORKER):
        _, h = tf.while_loop(lambda i, h: i < 6, body, [tf.constant(0), x.value()])
        loss = tf.reduce_sum(h)
    g = tf.gradients(loss, [w, x])
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        value, dw, dx = s.run([loss] + g)
        h = np.ones([1, 3])
        for _ in range(6):
            h = np.tanh(h * 0.5)
        np.testing.assert_allclose(value, h.sum(), rtol=1e-5)
        assert dw.shape == (3, 3) and dx.shape == (1, 3)
        # The slope by differences.
        e = 1e-2
        up, down = (s.run(loss, {x: np.array([[1.0 + d, 1.0, 1.0]], "f")}) for d in (e, -e))
        np.testing.assert_allclose(dx[0, 0], (up - down) / (2 * e), rtol=2e-2)


@case
def tensor_arrays_in_loops(tf, c):
    with tf.device(WORKER):
        ta = tf.TensorArray(tf.float32, size=0, dynamic_size=True)

        def body(i, ta):
            with tf.device(PS):
                v = tf.cast(i, tf.float32) * 2.0
            return i + 1, ta.write(i, v)

        _, ta = tf.while_loop(lambda i, _: i < 5, body, [tf.constant(0), ta])
        r = ta.stack()
    with c.session() as s:
        np.testing.assert_array_equal(s.run(r), [0, 2, 4, 6, 8])


@case
def map_fn_and_scan(tf, c):
    x = tf.placeholder(tf.float32, [None])
    with tf.device(WORKER):
        a = tf.map_fn(lambda v: v * v, x)
        b = tf.scan(lambda s, v: s + v, x)
    g = tf.gradients(tf.reduce_sum(a), x)[0]
    with c.session() as s:
        a_, b_, g_ = s.run([a, b, g], {x: [1.0, 2.0, 3.0]})
        np.testing.assert_array_equal(a_, [1, 4, 9])
        np.testing.assert_array_equal(b_, [1, 3, 6])
        np.testing.assert_array_equal(g_, [2, 4, 6])


@case
def case_and_switch_case(tf, c):
    i = tf.placeholder(tf.int32, [])

    def at(device, value):
        def body():
            with tf.device(device):
                return tf.constant(value) * 1.0
        return body

    r = tf.case([(tf.equal(i, 0), at(PS, 1.0)), (tf.equal(i, 1), at(WORKER, 2.0))], default=at(OTHER, 3.0))
    with c.session() as s:
        assert [s.run(r, {i: k}) for k in (0, 1, 2)] == [1.0, 2.0, 3.0]


@case
def many_loops_at_once(tf, c):
    results = []
    for k in range(8):
        with tf.device((PS, WORKER, OTHER)[k % 3]):
            start = tf.constant(float(k))
        results.append(_loop(tf, start, 3))
    with c.session() as s:
        for _ in range(5):
            assert s.run(results) == [k * 8.0 + 7.0 for k in range(8)]


@contextlib.contextmanager
def _second_form(tf):
    tf.enable_control_flow_v2()
    try:
        yield
    finally:
        tf.disable_control_flow_v2()


@case(client="stock")
def second_form_conditions(tf, c):
    with _second_form(tf):
        p = tf.placeholder(tf.bool, [])
        with tf.device(PS):
            x = tf.Variable(3.0, use_resource=True)
        with tf.device(WORKER):
            r = tf.cond(p, lambda: x * x, lambda: x - 5.0)
        g = tf.gradients(r, x)[0]
        with c.session() as s:
            s.run(x.initializer)
            assert s.run([r, g], {p: True}) == [9.0, 6.0]
            assert s.run([r, g], {p: False}) == [-2.0, 1.0]


@case(client="stock")
def second_form_loops(tf, c):
    with _second_form(tf):
        x = tf.placeholder(tf.float32, [])
        n = tf.placeholder(tf.int32, [])
        with tf.device(WORKER):
            r = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 2.0), [tf.constant(0), x])[1]
        g = tf.gradients(r, x)[0]
        with c.session() as s:
            for times in (0, 1, 5):
                assert s.run([r, g], {x: 3.0, n: times}) == [3.0 * 2 ** times, 2.0 ** times]


@case(client="stock")
def second_form_nested(tf, c):
    with _second_form(tf):
        x = tf.placeholder(tf.float32, [])

        def body(i, a):
            a = tf.cond(tf.equal(i % 2, 0), lambda: a + 10.0, lambda: a * 2.0)
            a = tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b + 1.0), [tf.constant(0), a])[1]
            return i + 1, a

        with tf.device(PS):
            r = tf.while_loop(lambda i, a: i < 4, body, [tf.constant(0), x])[1]
        g = tf.gradients(r, x)[0]
        with c.session() as s:
            assert s.run([r, g], {x: 1.0}) == [((1 + 10 + 2) * 2 + 2 + 10 + 2) * 2 + 2, 4.0]


@case(client="stock")
def functions(tf, c):
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, tf.float32)
    def product(a, b):
        return a * b + 1.0

    x = tf.placeholder(tf.float32, [])
    with tf.device(PS):
        y = product(x, 2.0)
    with tf.device(WORKER):
        z = product(y, y)
    with c.session() as s:
        assert s.run(z, {x: 1.0}) == 10.0
        with tf.device(OTHER):
            more = product(z, 1.0)
        assert s.run(more, {x: 1.0}) == 11.0


@case(client="stock")
def functions_of_tf_function(tf, c):
    import tensorflow as tf2

    @tf2.function
    def f(a):
        s = tf2.constant(0.0)
        for i in tf2.range(4):
            s += a * tf2.cast(i, tf2.float32)
        return s

    x = tf.placeholder(tf.float32, [])
    with tf.device(PS):
        y = f(x)
    with c.session() as s:
        assert s.run(y, {x: 2.0}) == 12.0
