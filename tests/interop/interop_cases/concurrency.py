"""Many sessions, threads and steps at once."""

import threading

import numpy as np

from interop_cases import OTHER, PS, WORKER, case


def _together(functions):
    errors = []

    def guard(f):
        try:
            f()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=guard, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join(90)
        assert not t.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@case
def threads_of_one_session(tf, c):
    x = tf.placeholder(tf.float32, [])
    with tf.device(PS):
        v = tf.Variable(0.0, use_resource=False)
        y = x * 2.0
    with tf.device(WORKER):
        z = y + 1.0
    add = tf.assign_add(v, 1.0, use_locking=True)
    with c.session() as s:
        s.run(v.initializer)
        s.run(z, {x: 0.0})

        def work(k):
            def body():
                for i in range(20):
                    assert s.run([z, add.op], {x: float(k * 100 + i)})[0] == (k * 100 + i) * 2.0 + 1.0
            return body

        _together([work(k) for k in range(8)])
        assert s.run(v) == 160.0


@case
def many_sessions_at_all_masters(tf, c):
    with tf.device(PS):
        v = tf.Variable(np.zeros(4, "f"), use_resource=False)
    with tf.device(OTHER):
        one = tf.constant(np.ones(4, "f")) + 0.0
    add = tf.assign_add(v, one, use_locking=True)
    with c.session() as s:
        s.run(v.initializer)
    graph = tf.get_default_graph()
    targets = list(c.targets)

    def work(k):
        def body():
            with c.session(targets[k % 3], graph=graph) as s:
                for _ in range(10):
                    s.run(add.op)
        return body

    _together([work(k) for k in range(9)])
    with c.session() as s:
        np.testing.assert_array_equal(s.run(v), [90] * 4)


@case
def sessions_come_and_go_beside_a_long_one(tf, c):
    with tf.device(PS):
        x = tf.reduce_sum(tf.random_uniform([16, 16], 1.0, 1.0001))
    with tf.device(WORKER):
        y = tf.floor(x)
    graph = tf.get_default_graph()

    def short():
        for _ in range(8):
            with c.session(graph=graph) as s:
                assert s.run(y) == 256.0

    def long():
        with c.session(graph=graph) as s:
            for _ in range(60):
                assert s.run(y) == 256.0

    _together([short, short, long, long])


@case
def failures_beside_successes(tf, c):
    x = tf.placeholder(tf.float32, [None])
    with tf.device(PS):
        bad = tf.reshape(x, [4])
    with tf.device(WORKER):
        y = tf.reduce_sum(bad)
    with c.session() as s:
        def good():
            for _ in range(20):
                assert s.run(y, {x: np.ones(4, "f")}) == 4.0

        def wrong():
            for _ in range(20):
                try:
                    s.run(y, {x: np.ones(3, "f")})
                except tf.errors.InvalidArgumentError:
                    continue
                raise AssertionError("no error")

        _together([good, wrong, good, wrong])


@case
def two_workers_train_without_waiting(tf, c):
    """Each worker has its own graph, session and master; the weights are shared."""
    def graph_of(task):
        g = tf.Graph()
        with g.as_default():
            with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:%d" % task)):
                w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer(), use_resource=False)
                x = tf.placeholder(tf.float32, [None, 3])
                y = tf.placeholder(tf.float32, [None, 1])
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
                train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
                init = tf.global_variables_initializer()
        return g, x, y, loss, train, init

    graphs = [graph_of(t) for t in range(2)]
    r = np.random.RandomState(0)
    X = r.randn(32, 3).astype("f")
    Y = X @ np.array([[1.0], [2.0], [3.0]], "f")
    with c.session("worker/0", graph=graphs[0][0]) as s:
        s.run(graphs[0][5])
    finals = [None, None]

    def work(task):
        def body():
            g, x, y, loss, train, _ = graphs[task]
            with c.session("worker/%d" % task, graph=g) as s:
                for _ in range(60):
                    value, _ = s.run([loss, train], {x: X, y: Y})
                finals[task] = value
        return body

    _together([work(0), work(1)])
    assert max(finals) < 0.1, finals
