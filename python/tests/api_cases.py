"""Little programs over the API of graphs, sessions and control flow: test_api_tf221.py compares Muster with TensorFlow.

Each returns something that compares and pickles. Run in TensorFlow's interpreter it writes what TensorFlow answers.
"""

import collections
import pickle
import sys

import numpy as np

CASES = {}
Pair = collections.namedtuple("Pair", ["a", "b"])


def case(function):
    CASES[function.__name__] = function
    return function


def error(function):
    try:
        return "no error", function()
    except Exception as e:
        return type(e).__name__


def plain(value):
    """Numbers for arrays, tuples that are plain ones for named ones."""
    if isinstance(value, Pair):
        return "Pair", tuple(plain(v) for v in value)
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


@case
def loops_return_what_the_body_returned(tf):
    def run(body, variables, **options):
        return lambda: plain(tf.Session().run(tf.while_loop(lambda i, *_: i < 5, body, variables, **options)))

    tests = [
        run(lambda i, x: (i + 1, x * 2), [0, 1]), run(lambda i, x: [i + 1, x * 2], (0, 1)),
        run(lambda i: i + 1, [0]), run(lambda i: (i + 1,), [0]), run(lambda i: (i + 1,), [0], return_same_structure=True),
        run(lambda i, x: [i + 1, (x[0] * 2, x[1])], (0, (1, 2))), run(lambda a, b: Pair(a + 1, b * 2), Pair(0, 1)),
        run(lambda i, x: (i + 1, x * 2), [0, 1], maximum_iterations=3),
        run(lambda i, x: (i + 1, x * 2), (0, 1), maximum_iterations=3)]
    nested = tf.while_loop(lambda d: d["i"] < 5, lambda d: [{"i": d["i"] + 1}], [{"i": 0}])
    lists = tf.while_loop(lambda d: d[0] < 5, lambda d: [[d[0] + 1, d[1]]], [[0, 7]])
    return [error(t) for t in tests], plain(tf.Session().run([nested, lists]))


@case
def conditions(tf):
    p = tf.placeholder(tf.bool, [])
    session = tf.Session()
    picked = tf.cond(p, lambda: [tf.constant(1), Pair(tf.constant(2), tf.constant(3))],
                     lambda: [tf.constant(4), Pair(tf.constant(5), tf.constant(6))])
    return [plain(session.run(picked, {p: value})) for value in (True, False)], [error(f) for f in (
        lambda: tf.cond(tf.constant(1), lambda: 1, lambda: 2), lambda: tf.cond(True, lambda: 1, lambda: 2),
        lambda: tf.cond(p, lambda: 1, lambda: 1.0), lambda: tf.cond(p, 1, 2), lambda: tf.cond(p, lambda: 1),
        lambda: tf.cond(tf.constant([True]), lambda: 1, lambda: 2), lambda: tf.cond(p, lambda: None, lambda: None))]


@case
def arguments_of_gradients(tf):
    x = tf.constant(2.0)
    return plain(tf.Session().run(tf.gradients([x * 2, x * 3], x, grad_ys=[10.0, None]))), [error(f) for f in (
        lambda: tf.gradients(x * 2, x, grad_ys=[1.0, 2.0]), lambda: tf.gradients(x * 2 + x, x, aggregation_method=77),
        lambda: tf.gradients(x, x, unconnected_gradients="foo"), lambda: tf.gradients(3, 4))]


@case
def feeds(tf):
    x = tf.placeholder(tf.float32, name="x")
    small = tf.placeholder(tf.int8)
    session = tf.Session()
    fixed = tf.constant(1.0)
    fixed.graph.prevent_feeding(fixed)
    return (plain(session.run(x * 1, {x: 1.0, "x:0": 2.0})), plain(session.run(small + 0, {small: [300, -129]})),
            [error(f) for f in (
                lambda: session.run(x, [1]), lambda: session.run(x, {3: 1}),
                lambda: session.run(x, {"y:0": 1}), lambda: session.run(x, {x: tf.constant(1.0)}),
                lambda: session.run(small, {small: 300}), lambda: session.run(fixed, {fixed: 2.0}))])


@case
def what_may_not_be_fetched(tf):
    x = tf.constant(1)
    graph = x.graph
    before = graph.is_fetchable(x), graph.is_fetchable(x.op)
    graph.prevent_fetching(x.op)
    session = tf.Session()
    return before, graph.is_fetchable(x), graph.is_fetchable(x.op), error(lambda: session.run(x)), error(
        lambda: session.run([x.op])), error(lambda: session.run(None)), error(lambda: session.run("y"))


@case
def names_of_sessions(tf):
    x = tf.constant(1)
    session = tf.Session()
    return session.sess_str, session.graph is x.graph, tf.Session.reset(""), error(lambda: tf.Session("foo://x"))


@case
def numbers_too_large_for_their_type(tf):
    return plain(tf.Session().run([tf.constant(300, tf.int8), tf.constant([-1, 256, 5], tf.uint8),
                                   tf.constant([[2 ** 40 + 1]], tf.int32)]))


@case
def masks(tf):
    x = tf.constant([[1, 2], [3, 4], [5, 6]])
    return plain(tf.Session().run([x[tf.constant([True, False, True])], x[np.array([False, True, False])], x[x > 2]]))


@case
def angles(tf):
    return plain(tf.Session().run([tf.atan2(1.0, 2.0), tf.atan2(x=1.0, y=2.0), tf.math.atan2([1.0, -1.0], [-1.0, 2.0])]))


@case
def pooling(tf):
    x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    a, b = tf.nn.avg_pool2d(x, 2, 2, "SAME"), tf.nn.avg_pool2d(value=None, input=x, ksize=2, strides=2, padding="SAME")
    return a.op.name, plain(tf.Session().run([a, b]))


@case
def libraries_of_ops(tf):
    return error(lambda: tf.load_op_library("/nowhere/ops.so"))


def main(out):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    answers = {}
    for name, function in CASES.items():
        with tf.Graph().as_default():
            answers[name] = function(tf)
    with open(out, "wb") as file:
        pickle.dump(answers, file)


@case
def labels_without_alignment(tf):
    logits = tf.constant(np.random.RandomState(0).randn(5, 2, 4).astype("f"))
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [0, 1, 2], [2, 2])
    loss = tf.nn.ctc_loss(labels, logits, [5, 4])
    decoded, scores = tf.nn.ctc_greedy_decoder(logits, [5, 4])
    distance = tf.edit_distance(tf.cast(decoded[0], tf.int32), labels, normalize=False)
    with tf.Session() as session:
        return plain(session.run([loss, tf.gradients(loss, logits)[0], decoded[0].values, scores, distance]))


@case
def sets_and_sparse_values(tf):
    a, b = tf.constant([[1, 2, 3], [4, 5, 5]]), tf.constant([[2, 3, 9], [5, 6, 7]])
    sparse = tf.SparseTensor([[0, 1]], [-4.0], [2, 2])
    both = tf.sets.set_union(a, b)
    results = [tf.sets.set_intersection(a, b).values, both.values, tf.sets.set_difference(a, b).values, tf.sets.set_size(both)]
    results += [f(sparse).values for f in (tf.abs, tf.negative, tf.sign, tf.square, tf.tanh)]
    with tf.Session() as session:
        return plain(session.run(results))


@case
def volumes(tf):
    random = np.random.RandomState(0)
    value, filters = (tf.constant(random.randn(*shape).astype("f")) for shape in ((1, 4, 4, 4, 2), (2, 2, 2, 3, 2)))
    results = [tf.nn.max_pool3d(value, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "SAME"), tf.nn.avg_pool3d(value, 2, 1, "VALID"),
               tf.nn.conv3d_transpose(value, filters, [1, 8, 8, 8, 3], [1, 2, 2, 2, 1])]
    gradients = tf.gradients(tf.add_n([tf.reduce_sum(result ** 2) for result in results]), [value, filters])
    with tf.Session() as session:
        return [t.op.name for t in results], plain(session.run(results + gradients))


if __name__ == "__main__":
    main(sys.argv[1])
