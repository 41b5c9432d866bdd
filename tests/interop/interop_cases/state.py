"""Variables and other state of tasks: shared, kept, cleared, of both kinds."""

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


def _variable(tf, kind, value, name):
    if kind == "ref":
        return tf.Variable(value, name=name, use_resource=False)
    return tf.Variable(value, name=name, use_resource=True)


def _kinds(tf, device, value=0.0):
    with tf.device(device):
        return [_variable(tf, kind, value, "v_" + kind) for kind in ("ref", "resource")]


@case
def variables_are_shared_between_sessions_and_masters(tf, c):
    both = _kinds(tf, PS, [1.0, 2.0])
    adds = [v.assign_add([1.0, 1.0]) for v in both]
    reads = [v.read_value() for v in both]
    with c.session("worker/0") as first, c.session("worker/1") as second, c.session("ps/0") as third:
        first.run([v.initializer for v in both])
        second.run([a.op for a in adds])
        third.run([a.op for a in adds])
        for s in (first, second, third):
            for got in s.run(reads):
                np.testing.assert_array_equal(got, [3.0, 4.0])


@case
def variables_outlive_sessions(tf, c):
    both = _kinds(tf, PS)
    adds = [v.assign_add(1.0) for v in both]
    with c.session() as s:
        s.run([v.initializer for v in both])
    for i in range(3):
        with c.session() as s:
            s.run([a.op for a in adds])
    with c.session("worker/1") as s:
        assert s.run([v.read_value() for v in both]) == [3.0, 3.0]


@case
def uninitialised_variables(tf, c):
    for v in _kinds(tf, PS, [1.0]):
        with tf.device(WORKER):
            y = v + 1.0
        with c.session() as s:
            e = raised(tf.errors.FailedPreconditionError, s.run, y)
            assert "ninitialized" in str(e) or "initialized" in str(e) or "not exist" in str(e), e
            assert s.run(tf.report_uninitialized_variables([v])).tolist() == [v.op.name.encode()]
            s.run(v.initializer)
            assert s.run(tf.report_uninitialized_variables([v])).tolist() == []
            assert s.run(y).tolist() == [2.0]


@case
def is_initialized_from_afar(tf, c):
    for v in _kinds(tf, PS):
        known = tf.is_variable_initialized(v)
        with c.session() as s:
            assert not s.run(known)
            s.run(v.initializer)
            assert s.run(known)


@case
def reset_clears_variables(tf, c):
    both = _kinds(tf, PS, 5.0)
    with c.session() as s:
        s.run([v.initializer for v in both])
    tf.Session.reset(c.target)
    with c.session() as s:
        for v in both:
            raised(tf.errors.FailedPreconditionError, s.run, v.read_value())


@case
def reset_of_named_containers(tf, c):
    with tf.device(PS):
        with tf.container("keep"):
            a = tf.Variable(1.0, use_resource=False, name="a")
        with tf.container("drop"):
            b = tf.Variable(2.0, use_resource=False, name="b")
        d = tf.Variable(3.0, use_resource=False, name="d")
    with c.session() as s:
        s.run(tf.variables_initializer([a, b, d]))
    tf.Session.reset(c.target, ["drop"])
    with c.session() as s:
        assert s.run([a, d]) == [1.0, 3.0]
        raised(tf.errors.FailedPreconditionError, s.run, b)


@case
def containers_separate_variables_of_one_name(tf, c):
    values = []
    for container in ("", "one", "two"):
        with tf.Graph().as_default() as g, tf.device(PS), tf.container(container):
            v = tf.Variable(float(len(values)), use_resource=False, name="v")
            values.append((g, v, v.initializer))
    for g, v, init in values:
        with c.session(graph=g) as s:
            s.run(init)
    for i, (g, v, _) in enumerate(values):
        with c.session(graph=g) as s:
            assert s.run(v) == float(i)


@case
def a_shared_variable_keeps_its_shape(tf, c):
    graphs = []
    for shape in ([2], [3]):
        with tf.Graph().as_default() as g, tf.device(PS):
            v = tf.Variable(tf.zeros(shape), use_resource=False, name="same")
            graphs.append((g, v))
    with c.session(graph=graphs[0][0]) as s:
        s.run(graphs[0][1].initializer)
        with c.session(graph=graphs[1][0]) as t:
            # The variable that is there wins, whatever the other graph thinks of it.
            assert t.run(graphs[1][1]).shape == (2,)


@case
def assignments_of_every_kind(tf, c):
    with tf.device(PS):
        v = tf.Variable([1.0, 2.0, 3.0], use_resource=False)
        w = tf.Variable([1.0, 2.0, 3.0], use_resource=True)
    with tf.device(WORKER):
        delta = tf.constant([1.0, 1.0, 1.0])
        index, update = tf.constant([0, 2]), tf.constant([10.0, 20.0])
    steps = [(tf.assign_add(v, delta), w.assign_add(delta)), (tf.assign_sub(v, delta), w.assign_sub(delta)),
             (tf.scatter_add(v, index, update), tf.scatter_add(w, index, update)),
             (tf.scatter_update(v, index, update), tf.scatter_update(w, index, update)),
             (tf.assign(v, [0.0, 0.0, 0.0]), w.assign([0.0, 0.0, 0.0]))]
    expected = [[2, 3, 4], [1, 2, 3], [11, 2, 23], [10, 2, 20], [0, 0, 0]]
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        for (a, b), want in zip(steps, expected):
            s.run([a, b])
            for got in s.run([v.read_value(), w.read_value()]):
                np.testing.assert_array_equal(got, want)


@case
def gathers_of_variables_from_afar(tf, c):
    with tf.device(PS):
        v = tf.Variable(np.arange(12, dtype="f").reshape(6, 2), use_resource=False)
        w = tf.Variable(np.arange(12, dtype="f").reshape(6, 2), use_resource=True)
    with tf.device(WORKER):
        a, b = tf.nn.embedding_lookup(v, [5, 0]), tf.nn.embedding_lookup(w, [5, 0])
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        for got in s.run([a, b]):
            np.testing.assert_array_equal(got, [[10, 11], [0, 1]])


@case
def variables_on_every_task_are_initialised_together(tf, c):
    variables = []
    for i, device in enumerate((PS, WORKER, OTHER)):
        with tf.device(device):
            variables.append(tf.Variable(float(i), use_resource=False))
    with tf.device(PS):
        last = tf.Variable(tf.zeros([]), use_resource=False)
    sum_up = tf.assign(last, tf.add_n(variables))
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        s.run(sum_up.op)
        assert s.run(variables + [last]) == [0.0, 1.0, 2.0, 3.0]


@case
def variables_of_every_type(tf, c):
    names = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "complex64",
             "complex128", "bool", "string"]
    variables, values = [], []
    with tf.device(PS):
        for name in names:
            for kind in (False, True):
                value = np.array([b"a\x00", b""], object) if name == "string" else np.array([1, 0]).astype(name)
                values.append(value)
                variables.append(tf.Variable(tf.constant(value, getattr(tf, name)), use_resource=kind))
    with tf.device(WORKER):
        reads = [tf.identity(v) for v in variables]
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        for got, want in zip(s.run(reads), values):
            np.testing.assert_array_equal(got, want)


@case
def random_numbers_with_seeds(tf, c):
    """Streams are of the session: each new one begins again, runs of one go on."""
    with tf.device(PS):
        x = tf.random_uniform([3], seed=7)
    with tf.device(OTHER):
        y = tf.random_normal([2, 2], seed=3)
    runs = []
    for _ in range(2):
        with c.session() as s:
            runs.append([s.run([x, y]) for _ in range(3)])
    for first, second in zip(runs[0], runs[1]):
        for a, b in zip(first, second):
            np.testing.assert_array_equal(a, b)
    assert not np.array_equal(runs[0][0][0], runs[0][1][0])


@case
def queues(tf, c):
    """Queues live on a task like variables do; the task that has them must serve them."""
    if "FIFOQueue" not in dir(tf):
        return
    with tf.device(PS):
        q = tf.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="q")
    with tf.device(WORKER):
        put, take, size = q.enqueue([3.0]), q.dequeue(), q.size()
    with c.session() as s:
        try:
            s.run(put)
        except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as e:
            assert "muster" in (c.kinds["ps/0"], c.kinds["worker/0"]) and "Queue" in str(e), e
            return
        with c.session("worker/1") as t:
            t.run(put)
            assert t.run(size) == 2
        assert s.run([take]) == [3.0]
        s.run(q.close())
        assert s.run(take) == 3.0
        raised(tf.errors.OutOfRangeError, s.run, take)
