"""Sessions: making, extending, closing them; fetches, partial runs, callables, devices, metadata."""

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


@case
def constants_on_every_task(tf, c):
    values = []
    for device in (PS, WORKER, OTHER):
        with tf.device(device):
            values.append(tf.constant(2.0) * 3.0)
    total = tf.add_n(values)
    for target in c.targets:
        with c.session(target) as s:
            assert s.run(values) == [6.0, 6.0, 6.0]
            assert s.run(total) == 18.0


@case
def nothing_is_placed_by_hand(tf, c):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    y = tf.matmul(x, x) + tf.reduce_sum(x)
    with c.session() as s:
        np.testing.assert_allclose(s.run(y), [[17, 20], [25, 32]])


@case
def structures_of_fetches(tf, c):
    with tf.device(PS):
        a = tf.constant(1.0, name="a")
    with tf.device(WORKER):
        b = a + 1.0
    with c.session() as s:
        got = s.run({"x": a, "y": [b, (a, b)], "again": a, "none": tf.no_op()})
        assert got == {"x": 1.0, "y": [2.0, (1.0, 2.0)], "again": 1.0, "none": None}
        assert s.run("a:0") == 1.0
        assert s.run(a.op) is None
        assert s.run([]) == []
        assert s.run([a, a, a]) == [1.0, 1.0, 1.0]


@case
def the_graph_grows_between_runs(tf, c):
    with c.session() as s:
        with tf.device(PS):
            v = tf.Variable(1.0, use_resource=False)
        s.run(v.initializer)
        for i in range(5):
            with tf.device((PS, WORKER, OTHER)[i % 3]):
                grown = v + float(i)
            assert s.run(grown) == 1.0 + i
        with tf.device(OTHER):
            more = tf.assign_add(v, 10.0)
        assert s.run(more) == 11.0
        assert s.run(grown) == 15.0


@case
def two_sessions_with_different_graphs_and_equal_names(tf, c):
    answers = []
    for value in (1.0, 2.0):
        g = tf.Graph()
        with g.as_default(), tf.device(PS):
            x = tf.constant(value, name="x")
        answers.append((c.session(graph=g), x, value))
    for s, x, value in answers + answers:
        assert s.run(x) == value
    for s, _, _ in answers:
        s.close()


@case
def partial_runs(tf, c):
    a, b, d = (tf.placeholder(tf.float32, [], name=n) for n in "abd")
    with tf.device(PS):
        r1 = a + b
    with tf.device(WORKER):
        r2 = r1 * d
    with c.session() as s:
        h = s.partial_run_setup([r1, r2], [a, b, d])
        assert s.partial_run(h, r1, {a: 1, b: 2}) == 3.0
        assert s.partial_run(h, r2, {d: 17}) == 51.0
        # Two at a time, interleaved.
        h1 = s.partial_run_setup([r1, r2], [a, b, d])
        h2 = s.partial_run_setup([r1, r2], [a, b, d])
        assert s.partial_run(h1, r1, {a: 1, b: 2}) == 3.0
        assert s.partial_run(h2, r1, {a: 5, b: 6}) == 11.0
        assert s.partial_run(h2, r2, {d: 2}) == 22.0
        assert s.partial_run(h1, r2, {d: 3}) == 9.0


@case
def partial_runs_fetch_in_one_go(tf, c):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    r1, r2 = a + 1.0, b * 2.0
    with c.session() as s:
        h = s.partial_run_setup([r1, r2], [a, b])
        assert s.partial_run(h, [r1, r2], {a: 1, b: 2}) == [2.0, 4.0]


@case
def partial_run_mistakes(tf, c):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    r = a + b
    other = a * 2.0
    with c.session() as s:
        h = s.partial_run_setup([r], [a, b])
        raised(tf.errors.InvalidArgumentError, s.partial_run, h, other, {a: 1.0})
        h = s.partial_run_setup([r], [a, b])
        assert s.partial_run(h, r, {a: 1.0, b: 2.0}) == 3.0
        raised(tf.errors.InvalidArgumentError, s.partial_run, h, r, {a: 1.0, b: 2.0})


@case
def partial_run_left_open_when_the_session_closes(tf, c):
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    r1 = a + 1.0
    r2 = r1 * b
    s = c.session()
    h = s.partial_run_setup([r1, r2], [a, b])
    assert s.partial_run(h, r1, {a: 1.0}) == 2.0
    s.close()


@case
def callables(tf, c):
    a = tf.placeholder(tf.float32, [])
    with tf.device(PS):
        y = a * 3.0
    v = tf.Variable(0.0, use_resource=False)
    add = tf.assign_add(v, a)
    with c.session() as s:
        s.run(v.initializer)
        f = s.make_callable(y, [a])
        assert [f(x) for x in (1.0, 2.0, 3.0)] == [3.0, 6.0, 9.0]
        assert s.make_callable([y, a * 2.0], [a])(5.0) == [15.0, 10.0]
        s.make_callable(add.op, [a])(2.5)
        assert s.run(v) == 2.5
        assert s.make_callable(y + 1.0, [y])(1.0) == 2.0


@case(client="stock")
def callables_of_options(tf, c):
    """The RPCs MakeCallable, RunCallable and ReleaseCallable, as Keras uses them."""
    from tensorflow.core.protobuf import config_pb2
    a = tf.placeholder(tf.float32, [2], name="a")
    b = tf.placeholder(tf.float32, [2], name="b")
    with tf.device(PS):
        y = tf.add(a, b, name="y")
    z = tf.reduce_sum(y, name="z")
    with tf.device(PS):
        v = tf.Variable(0.0, use_resource=False)
    bump = tf.assign_add(v, 1.0, name="bump")
    with c.session() as s:
        s.run(v.initializer)
        o = config_pb2.CallableOptions()
        o.feed.extend(["a:0", "b:0"])
        o.fetch.extend(["z:0", "y:0"])
        o.target.append("bump")
        f = s._make_callable_from_options(o)
        for i in range(3):
            z_, y_ = f(np.array([i, 1], "f"), np.array([1, 2], "f"))
            np.testing.assert_allclose(y_, [i + 1, 3])
            assert z_ == i + 4
        assert s.run(v) == 3.0
        o = config_pb2.CallableOptions(fetch=["z:0"])
        connection = o.tensor_connection.add()
        connection.from_tensor, connection.to_tensor = "a:0", "y:0"
        o.feed.append("a:0")
        try:
            assert s._make_callable_from_options(o)(np.array([3, 4], "f"))[0] == 7.0
        except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError):
            assert c.kinds["worker/0"] == "stock"
        metadata = tf.RunMetadata()
        o = config_pb2.CallableOptions(fetch=["y:0"], feed=["a:0", "b:0"])
        o.run_options.trace_level = tf.RunOptions.FULL_TRACE
        f = s._make_callable_from_options(o)
        f(np.zeros(2, "f"), np.zeros(2, "f"), run_metadata=metadata)
        raised(tf.errors.InvalidArgumentError, f, np.zeros(3, "f"), np.zeros(2, "f"))
        del f


@case
def devices_are_listed(tf, c):
    with c.session() as s:
        names = sorted(d.name for d in s.list_devices())
    cpus = [n for n in names if "device:CPU:0" in n]
    assert cpus == ["/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0",
                    "/job:worker/replica:0/task:1/device:CPU:0"], names


@case
def metadata_of_a_step(tf, c):
    with tf.device(PS):
        x = tf.random_normal([10], name="source")
    with tf.device(WORKER):
        y = tf.nn.relu(x, name="sink")
    with c.session() as s:
        m = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
        s.run(y, options=options, run_metadata=m)
        stats = {d.device: d for d in m.step_stats.dev_stats}
        ps = [d for d in stats if d.startswith("/job:ps/replica:0/task:0")]
        worker = [d for d in stats if d.startswith("/job:worker/replica:0/task:0")]
        assert ps and worker, list(stats)
        seen = {n.node_name for d in m.step_stats.dev_stats for n in d.node_stats}
        assert any("sink" in n for n in seen), seen
        assert any("source" in n for n in seen), seen
        for d in m.step_stats.dev_stats:
            for n in d.node_stats:
                assert n.all_start_micros > 0
        if c.kinds["worker/0"] == "muster":
            assert len(m.partition_graphs) == 2
            ops = {n.op for g in m.partition_graphs for n in g.node}
            assert {"_Send", "_Recv"} <= ops, ops


@case
def metadata_without_a_trace_is_empty(tf, c):
    x = tf.constant(1.0) + 1.0
    with c.session() as s:
        m = tf.RunMetadata()
        s.run(x, run_metadata=m)
        assert not m.step_stats.dev_stats and not m.partition_graphs


@case
def close_twice_and_use_after(tf, c):
    x = tf.constant(1.0)
    s = c.session()
    assert s.run(x) == 1.0
    s.close()
    s.close()
    raised(RuntimeError, s.run, x)


@case
def a_session_that_never_ran_closes(tf, c):
    c.session().close()


@case
def an_empty_graph(tf, c):
    with c.session() as s:
        assert len(s.list_devices()) >= 3
        raised(RuntimeError, s.run, [])
        assert s.run(tf.constant(4)) == 4
        assert s.run([]) == []


@case
def many_short_sessions(tf, c):
    with tf.device(PS):
        x = tf.constant(3.0) * 2.0
    for _ in range(30):
        with c.session() as s:
            assert s.run(x) == 6.0


@case
def eval_and_run_of_the_default_session(tf, c):
    with tf.device(PS):
        v = tf.Variable(3, use_resource=False)
    with c.session():
        v.initializer.run()
        assert v.eval() == 3
        tf.assign_add(v, 4).op.run()
        assert (v + 1).eval() == 8


@case
def the_same_fetch_with_different_feeds(tf, c):
    with tf.device(PS):
        a = tf.constant(1.0, name="a")
    with tf.device(WORKER):
        b = a + 1.0
    d = b * 10.0
    with c.session() as s:
        assert s.run(d) == 20.0
        assert s.run(d, {a: 5.0}) == 60.0
        assert s.run(d, {b: 7.0}) == 70.0
        assert s.run(d, {d: 1.5}) == 1.5
        assert s.run([a, b, d], {b: 0.0}) == [1.0, 0.0, 0.0]
        assert s.run(d) == 20.0


@case
def feeds_that_are_not_used(tf, c):
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.string)
    with c.session() as s:
        assert s.run(tf.constant(1.0), {a: 1.0, b: b"x"}) == 1.0


@case
def a_fetch_that_is_fed(tf, c):
    a = tf.placeholder(tf.float32, [2])
    with c.session() as s:
        np.testing.assert_array_equal(s.run(a, {a: [1, 2]}), [1, 2])
        got, two = s.run([a, a * 2.0], {a: [3, 4]})
        np.testing.assert_array_equal(got, [3, 4])
        np.testing.assert_array_equal(two, [6, 8])


@case
def a_graph_of_a_thousand_nodes(tf, c):
    x = tf.placeholder(tf.float32, [])
    y = x
    for i in range(1000):
        with tf.device((PS, WORKER, OTHER)[(i // 50) % 3]):
            y = y + 1.0
    with c.session() as s:
        assert s.run(y, {x: 1.0}) == 1001.0


@case
def many_tensors_between_two_tasks(tf, c):
    with tf.device(PS):
        xs = [tf.random_uniform([4], seed=i) + float(i) for i in range(200)]
    with tf.device(WORKER):
        y = tf.add_n([tf.reduce_min(tf.floor(x)) for x in xs])
    with c.session() as s:
        assert s.run(y) == sum(range(200))


@case
def control_edges_between_tasks(tf, c):
    with tf.device(PS):
        v = tf.Variable(0.0, use_resource=False)
        one = tf.assign_add(v, 1.0)
    with tf.device(WORKER), tf.control_dependencies([one]):
        barrier = tf.no_op()
    with tf.device(PS), tf.control_dependencies([barrier]):
        read = v.read_value() + 0.0
    with c.session() as s:
        s.run(v.initializer)
        assert [s.run(read) for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


@case
def multiplication_chains_through_all_tasks(tf, c):
    x = tf.placeholder(tf.float64, [8, 8])
    y = x
    for device in (PS, WORKER, OTHER, PS, OTHER, WORKER):
        with tf.device(device):
            y = tf.matmul(y, x)
    value = np.random.RandomState(0).rand(8, 8) / 4
    with c.session() as s:
        np.testing.assert_allclose(s.run(y, {x: value}), np.linalg.matrix_power(value, 7))
