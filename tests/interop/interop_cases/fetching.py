"""What may be fetched and fed, and in which forms."""

import collections

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


@case
def named_tuples_and_ordered_dicts(tf, c):
    Pair = collections.namedtuple("Pair", ["a", "b"])
    with tf.device(PS):
        a, b = tf.constant(1.0), tf.constant([2.0, 3.0])
    with c.session() as s:
        got = s.run(Pair(a, b))
        assert isinstance(got, Pair) and got.a == 1.0 and got.b.tolist() == [2.0, 3.0]
        got = s.run(collections.OrderedDict([("y", b), ("x", a)]))
        assert list(got) == ["y", "x"] and got["x"] == 1.0
        got = s.run({"p": Pair(a, [b, a]), "q": (a,)})
        assert got["p"].b[1] == 1.0 and got["q"] == (1.0,)


@case
def by_name(tf, c):
    with tf.device(PS):
        v = tf.Variable(5.0, use_resource=False, name="v")
        tf.add(v, 1.0, name="more")
    with c.session() as s:
        assert s.run(v.initializer.name) is None
        assert s.run("more:0") == 6.0
        assert s.run(["more:0", "v:0"], {"more:0": 1.0}) == [1.0, 5.0]
        raised((ValueError, KeyError), s.run, "nothing:0")


@case
def feeding_what_is_no_placeholder(tf, c):
    with tf.device(PS):
        x = tf.constant([1.0, 2.0])
        n = tf.shape(x)
        v = tf.Variable(3.0, use_resource=False)
    with tf.device(WORKER):
        y = tf.reduce_sum(x) * tf.cast(n[0], tf.float32)
        z = v + 1.0
    with c.session() as s:
        s.run(v.initializer)
        assert s.run(y) == 6.0
        assert s.run(y, {x: [1.0, 1.0]}) == 4.0
        assert s.run(y, {n: [10]}) == 30.0
        assert s.run(z, {v: 7.0}) == 8.0
        assert s.run(z) == 4.0


@case
def placeholders_with_defaults(tf, c):
    with tf.device(PS):
        x = tf.placeholder_with_default(tf.constant([1.0, 2.0]), [None])
    with tf.device(OTHER):
        y = x * 2.0
    with c.session() as s:
        assert s.run(y).tolist() == [2, 4]
        assert s.run(y, {x: [5.0]}).tolist() == [10]


@case
def feeds_that_keep_their_order(tf, c):
    xs = [tf.placeholder(tf.int32, []) for _ in range(30)]
    with tf.device(PS):
        packed = tf.stack(xs)
    with c.session() as s:
        for shift in range(3):
            assert s.run(packed, {x: i + shift for i, x in enumerate(xs)}).tolist() == [i + shift for i in range(30)]


@case
def a_hundred_fetches(tf, c):
    with tf.device(PS):
        xs = [tf.constant(i) * 2 for i in range(50)]
    with tf.device(OTHER):
        ys = [x + 1 for x in xs]
    with c.session() as s:
        got = s.run(xs + ys)
        assert got == [2 * i for i in range(50)] + [2 * i + 1 for i in range(50)]


@case
def many_different_steps_of_one_session(tf, c):
    xs = []
    for i in range(40):
        with tf.device((PS, WORKER, OTHER)[i % 3]):
            xs.append(tf.constant(float(i)) + (xs[-1] if xs else 0.0))
    with c.session() as s:
        for i in list(range(40)) + [5, 5, 39]:
            assert s.run(xs[i]) == i * (i + 1) / 2


@case
def results_do_not_share_memory(tf, c):
    with tf.device(PS):
        v = tf.Variable([1.0, 2.0], use_resource=False)
    add = tf.assign_add(v, [1.0, 1.0])
    with c.session() as s:
        s.run(v.initializer)
        before = s.run(v)
        s.run(add)
        assert before.tolist() == [1.0, 2.0] and s.run(v).tolist() == [2.0, 3.0]
        s.run(v)[:] = 100.0
        assert s.run(v).tolist() == [2.0, 3.0]


@case
def every_output_of_an_op(tf, c):
    with tf.device(PS):
        values, indices, counts = tf.unique_with_counts(tf.constant([3, 1, 3, 2, 1, 3]))
    with c.session() as s:
        v, i, n = s.run([values, indices, counts])
        assert v.tolist() == [3, 1, 2] and i.tolist() == [0, 1, 0, 2, 1, 0] and n.tolist() == [3, 2, 1]
        assert s.run(counts).tolist() == [3, 2, 1]
        assert s.run(counts.op) is None


@case
def an_operation_and_its_result_together(tf, c):
    with tf.device(PS):
        v = tf.Variable(1.0, use_resource=False)
    add = tf.assign_add(v, 1.0)
    with c.session() as s:
        s.run(v.initializer)
        value, nothing = s.run([add, add.op])
        assert value == 2.0 and nothing is None
        assert s.run(v) == 2.0


@case
def graphs_that_were_imported(tf, c):
    with tf.Graph().as_default() as g:
        x = tf.placeholder(tf.float32, [None], name="x")
        with tf.device(PS):
            tf.multiply(x, 2.0, name="y")
        definition = g.as_graph_def()
    z, = tf.import_graph_def(definition, {"x:0": tf.constant([1.0, 2.0])}, return_elements=["y:0"], name="part")
    with tf.device(WORKER):
        total = tf.reduce_sum(z)
    with c.session() as s:
        assert s.run(total) == 6.0


@case
def shapes_known_only_at_run_time(tf, c):
    x = tf.placeholder(tf.float32)
    with tf.device(PS):
        y = tf.transpose(x)
        n = tf.shape(y)
    with tf.device(WORKER):
        z = tf.reshape(y, [-1])
    with c.session() as s:
        for shape in ((2, 3), (4, 1), (0, 5)):
            value = np.arange(np.prod(shape), dtype="f").reshape(shape)
            n_, z_ = s.run([n, z], {x: value})
            assert n_.tolist() == list(shape[::-1])
            np.testing.assert_array_equal(z_, value.T.ravel())


@case
def interactive_sessions(tf, c):
    with tf.device(PS):
        x = tf.constant(4.0) * 2.0
    s = tf.InteractiveSession(c.target, config=tf.ConfigProto(operation_timeout_in_ms=30000))
    try:
        assert x.eval() == 8.0
    finally:
        s.close()


@case
def numpy_scalars_and_lists_as_feeds(tf, c):
    x = tf.placeholder(tf.float64, [])
    k = tf.placeholder(tf.int64, [2])
    with tf.device(PS):
        y = x * 2.0
        m = k + 1
    with c.session() as s:
        assert s.run(y, {x: np.float32(1.5)}) == 3.0
        assert s.run(m, {k: (1, 2)}).tolist() == [2, 3]
        assert s.run(m, {k: np.array([1, 2], "int32")}).tolist() == [2, 3]
