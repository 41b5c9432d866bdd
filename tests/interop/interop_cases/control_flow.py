"""Corners of control flow: raw Switch and Merge, invariants, limits, effects, second derivatives, all cut by tasks."""

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


def _unknown(tf, value):
    """A value that no optimizer folds."""
    return tf.placeholder_with_default(tf.constant(value), None)


@case
def merge_takes_the_live_input(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        x = _unknown(tf, 3.0)
        both = tf.raw_ops.Switch(data=x, pred=p)
    with tf.device(WORKER):
        no = both.output_false * 10.0
    with tf.device(OTHER):
        yes = both.output_true * 100.0
    with tf.device(WORKER):
        merged = tf.raw_ops.Merge(inputs=[no, yes])
    with c.session() as s:
        assert list(s.run([merged.output, merged.value_index], {p: False})) == [30.0, 0]
        assert list(s.run([merged.output, merged.value_index], {p: True})) == [300.0, 1]


@case
def a_dead_branch_of_many_nodes(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        both = tf.raw_ops.Switch(data=_unknown(tf, 1.0), pred=p)
    dead = both.output_true
    for i in range(12):
        with tf.device((PS, WORKER, OTHER)[i % 3]):
            dead = dead + 1.0
    with tf.device(OTHER):
        merged = tf.raw_ops.Merge(inputs=[both.output_false, dead])
    with c.session() as s:
        for _ in range(3):
            assert s.run(merged.output, {p: False}) == 1.0
            assert s.run(merged.output, {p: True}) == 13.0


@case
def dead_control_edges(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        v = tf.Variable(0.0, use_resource=False)
        both = tf.raw_ops.Switch(data=_unknown(tf, 1.0), pred=p)
    with tf.device(WORKER):
        taken = tf.identity(both.output_true)
    with tf.device(PS), tf.control_dependencies([taken]):
        add = tf.assign_add(v, 1.0)
    with c.session() as s:
        s.run(v.initializer)
        s.run(add.op, {p: True})
        s.run(add.op, {p: False})
        s.run(add.op, {p: True})
        assert s.run(v) == 2.0


@case
def conditions_of_several_results(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        x, y = _unknown(tf, 1.0), _unknown(tf, [2, 3])

    def yes():
        with tf.device(WORKER):
            return [x + 1.0, y * 2, tf.constant("yes")]

    def no():
        with tf.device(OTHER):
            return [x - 1.0, y * 3, tf.constant("no")]

    r = tf.cond(p, yes, no)
    with c.session() as s:
        a, b, t = s.run(r, {p: True})
        assert a == 2.0 and b.tolist() == [4, 6] and t == b"yes"
        a, b, t = s.run(r, {p: False})
        assert a == 0.0 and b.tolist() == [6, 9] and t == b"no"


@case
def conditions_without_results(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        v = tf.Variable(0.0, use_resource=False)
    r = tf.cond(p, lambda: tf.group(tf.assign_add(v, 1.0)), lambda: tf.no_op())
    with c.session() as s:
        s.run(v.initializer)
        for flag in (True, False, True):
            s.run(r, {p: flag})
        assert s.run(v) == 2.0


@case
def a_condition_with_an_error_on_the_other_side(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        x = _unknown(tf, np.arange(4, dtype="f"))

    def bad():
        with tf.device(OTHER):
            return tf.reduce_sum(tf.reshape(x, [3, tf.size(x)]))

    def good():
        with tf.device(WORKER):
            return tf.reduce_sum(x)

    r = tf.cond(p, good, bad)
    with c.session() as s:
        assert s.run(r, {p: True}) == 6.0
        raised(tf.errors.InvalidArgumentError, s.run, r, {p: False})
        assert s.run(r, {p: True}) == 6.0


@case
def loops_with_invariant_shapes(tf, c):
    def body(i, a):
        with tf.device(WORKER):
            return i + 1, tf.concat([a, [tf.cast(i, tf.float32)]], 0)

    with tf.device(PS):
        _, r = tf.while_loop(lambda i, a: i < 5, body, [tf.constant(0), tf.zeros([0])],
                             shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])])
    with c.session() as s:
        assert s.run(r).tolist() == [0, 1, 2, 3, 4]


@case
def loops_with_a_largest_number_of_rounds(tf, c):
    n = tf.placeholder(tf.int32, [])

    def body(a):
        with tf.device(OTHER):
            return a * 2.0

    with tf.device(PS):
        r = tf.while_loop(lambda a: a > 0.0, body, [tf.constant(1.0)], maximum_iterations=n)
    with c.session() as s:
        assert [s.run(r, {n: k}) for k in (0, 3, 5)] == [1.0, 8.0, 32.0]


@case
def loops_with_strings(tf, c):
    def body(i, t):
        with tf.device(WORKER):
            return i + 1, tf.string_join([t, tf.as_string(i)])

    with tf.device(PS):
        _, r = tf.while_loop(lambda i, t: i < 4, body, [tf.constant(0), tf.constant("")])
    with c.session() as s:
        assert s.run(r) == b"0123"


@case
def loops_that_change_variables(tf, c):
    with tf.device(PS):
        v = tf.Variable(0.0, use_resource=False)

    def body(i):
        with tf.device(WORKER):
            amount = tf.cast(i, tf.float32) + 0.0
        with tf.control_dependencies([tf.assign_add(v, amount)]):
            return i + 1

    with tf.device(PS):
        r = tf.while_loop(lambda i: i < 5, body, [tf.constant(0)], parallel_iterations=1)
    with c.session() as s:
        s.run(v.initializer)
        assert s.run(r) == 5
        assert s.run(v) == 10.0


@case
def loops_after_loops(tf, c):
    def body_on(device, factor):
        def body(i, a):
            with tf.device(device):
                return i + 1, a * factor
        return body

    with tf.device(PS):
        i, a = tf.while_loop(lambda i, a: i < 3, body_on(WORKER, 2.0), [tf.constant(0), _unknown(tf, 1.0)])
        i, a = tf.while_loop(lambda i, a: i < 6, body_on(OTHER, 3.0), [i, a], shape_invariants=[
            i.get_shape(), tf.TensorShape(None)])
    with c.session() as s:
        assert list(s.run([i, a])) == [6, 8.0 * 27.0]


@case
def gradients_inside_loops(tf, c):
    x = tf.placeholder(tf.float32, [])

    def body(i, a):
        with tf.device(WORKER):
            y = a * a
        return i + 1, tf.gradients(y, a)[0]

    with tf.device(PS):
        _, r = tf.while_loop(lambda i, a: i < 3, body, [tf.constant(0), x])
    with c.session() as s:
        assert s.run(r, {x: 5.0}) == 40.0


@case
def loops_without_gradients(tf, c):
    x = tf.placeholder(tf.float32, [])

    def body(i, a):
        with tf.device(WORKER):
            return i + 1, tf.stop_gradient(a) * 2.0

    with tf.device(PS):
        _, r = tf.while_loop(lambda i, a: i < 3, body, [tf.constant(0), x], back_prop=True)
    g = tf.gradients(r, x)[0]
    with c.session() as s:
        got = s.run([r] + ([g] if g is not None else []), {x: 1.0})
        assert got[0] == 8.0 and (g is None or got[1] == 0.0)


@case
def gradients_through_conditions_and_loops_of_variables(tf, c):
    p = tf.placeholder(tf.bool, [])
    with tf.device(PS):
        w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=False)
        x = tf.Variable([[1.0, -1.0]], use_resource=False)

    def body(i, h):
        with tf.device(WORKER):
            grown = tf.matmul(h, w)
        def yes():
            with tf.device(OTHER):
                return grown * 0.5
        return i + 1, tf.cond(p, yes, lambda: grown)

    with tf.device(WORKER):
        _, h = tf.while_loop(lambda i, h: i < 3, body, [tf.constant(0), x.value()])
        loss = tf.reduce_sum(h)
    gw, gx = tf.gradients(loss, [w, x])
    w_ = np.array([[1.0, 2.0], [3.0, 4.0]])
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        for flag, scale in ((True, 0.125), (False, 1.0)):
            value, dw, dx = s.run([loss, gw, gx], {p: flag})
            cube = np.linalg.matrix_power(w_, 3) * scale
            np.testing.assert_allclose(value, (np.array([[1.0, -1.0]]) @ cube).sum(), rtol=1e-5)
            np.testing.assert_allclose(dx, cube.sum(1)[None], rtol=1e-5)
            assert dw.shape == (2, 2)


@case
def gradients_of_arrays_in_loops(tf, c):
    x = tf.placeholder(tf.float32, [4])
    with tf.device(PS):
        source = tf.TensorArray(tf.float32, 4).unstack(x)
        result = tf.TensorArray(tf.float32, 4)

        def body(i, ta):
            v = source.read(i)
            with tf.device(PS):
                return i + 1, ta.write(i, v * v)

        _, result = tf.while_loop(lambda i, _: i < 4, body, [tf.constant(0), result])
        y = tf.reduce_sum(result.stack())
    g = tf.gradients(y, x)[0]
    with c.session() as s:
        value, slopes = s.run([y, g], {x: [1, 2, 3, 4]})
        assert value == 30.0 and slopes.tolist() == [2, 4, 6, 8]


@case
def sparse_gradients_of_a_table_in_a_loop(tf, c):
    with tf.device(PS):
        table = tf.Variable(np.arange(10, dtype="f").reshape(5, 2), use_resource=False)

    def body(i, a):
        with tf.device(WORKER):
            return i + 1, a + tf.reduce_sum(tf.nn.embedding_lookup(table, [i, i + 1]))

    with tf.device(WORKER):
        _, r = tf.while_loop(lambda i, a: i < 3, body, [tf.constant(0), tf.constant(0.0)])
    g = tf.convert_to_tensor(tf.gradients(r, table)[0])
    with c.session() as s:
        s.run(table.initializer)
        value, dense = s.run([r, g])
        assert value == (0 + 1 + 2 + 3) + (2 + 3 + 4 + 5) + (4 + 5 + 6 + 7)
        assert dense.tolist() == [[1, 1], [2, 2], [2, 2], [1, 1], [0, 0]]


@case
def parallel_rounds_keep_their_order(tf, c):
    with tf.device(WORKER):
        ta = tf.TensorArray(tf.int32, 40)

    def body(i, ta):
        with tf.device(PS):
            v = i * i
        return i + 1, ta.write(i, v)

    with tf.device(WORKER):
        _, ta = tf.while_loop(lambda i, _: i < 40, body, [tf.constant(0), ta], parallel_iterations=8)
        r = ta.stack()
    with c.session() as s:
        for _ in range(3):
            assert s.run(r).tolist() == [i * i for i in range(40)]


@case
def tuples_and_groups_across_tasks(tf, c):
    with tf.device(PS):
        a = tf.Variable(1.0, use_resource=False)
    with tf.device(OTHER):
        b = tf.Variable(2.0, use_resource=False)
    both = tf.group(tf.assign_add(a, 1.0), tf.assign_add(b, 1.0))
    x, y = tf.tuple([a + 10.0, b + 20.0])
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        assert s.run(both) is None
        assert s.run([x, y]) == [12.0, 23.0]


@case
def loops_read_what_was_fed_outside(tf, c):
    x = tf.placeholder(tf.float32, [None])
    with tf.device(OTHER):
        k = tf.reduce_sum(x)

    def body(i, a):
        with tf.device(WORKER):
            return i + 1, a + k

    with tf.device(PS):
        _, r = tf.while_loop(lambda i, a: i < 3, body, [tf.constant(0), tf.constant(0.0)])
    with c.session() as s:
        assert s.run(r, {x: [1, 2]}) == 9.0
        assert s.run(r, {k: 5.0}) == 15.0


@case
def a_loop_whose_condition_is_elsewhere(tf, c):
    def condition(i, a):
        with tf.device(OTHER):
            return tf.less(a, 100.0)

    def body(i, a):
        with tf.device(WORKER):
            return i + 1, a * 3.0

    with tf.device(PS):
        i, a = tf.while_loop(condition, body, [tf.constant(0), _unknown(tf, 1.0)])
    with c.session() as s:
        assert list(s.run([i, a])) == [5, 243.0]


@case
def three_levels_of_loops(tf, c):
    def inner(device):
        def body(i, a):
            with tf.device(device):
                return i + 1, a + 1.0
        return body

    def middle(i, a):
        with tf.device(WORKER):
            a = tf.while_loop(lambda j, b: j < 2, inner(OTHER), [tf.constant(0), a])[1]
        return i + 1, a

    def outer(i, a):
        with tf.device(OTHER):
            a = tf.while_loop(lambda j, b: j < 2, middle, [tf.constant(0), a])[1]
        return i + 1, a

    with tf.device(PS):
        x = _unknown(tf, 0.0)
        x.set_shape([])
        r = tf.while_loop(lambda i, a: i < 2, outer, [tf.constant(0), x])[1]
    g = tf.gradients(r, x)[0]
    with c.session() as s:
        assert s.run([r, g]) == [8.0, 1.0]


@case
def a_nested_loop_that_is_skipped(tf, c):
    """The inner frame is never entered alive: its transfers have to be dead, not missing."""
    n = tf.placeholder(tf.int32, [])

    def outer(i, a):
        def inner(j, b):
            with tf.device(WORKER):
                return j + 1, b + 1.0
        with tf.device(PS):
            a = tf.while_loop(lambda j, b: j < i, inner, [tf.constant(0), a])[1]
        return i + 1, a

    with tf.device(PS):
        r = tf.while_loop(lambda i, a: i < n, outer, [tf.constant(0), tf.constant(0.0)])[1]
    with c.session() as s:
        assert [s.run(r, {n: k}) for k in (0, 1, 2, 4)] == [0.0, 0.0, 1.0, 6.0]
