"""Options of sessions: filters, soft placement, isolation, clusters that are handed over, optimizers."""

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


@case
def device_filters(tf, c):
    filters = ["/job:ps", "/job:worker/task:0"]
    with tf.device(PS):
        x = tf.constant(1.0) + 1.0
    with c.session(device_filters=filters) as s:
        names = {d.name for d in s.list_devices()}
        assert s.run(x) == 2.0
    assert "/job:ps/replica:0/task:0/device:CPU:0" in names
    with tf.device(OTHER):
        y = tf.constant(1.0) + 2.0
    with c.session(device_filters=filters) as s:
        raised(tf.errors.InvalidArgumentError, s.run, y)
    with c.session() as s:
        assert s.run([x, y]) == [2.0, 3.0]


@case
def soft_placement(tf, c):
    with tf.device("/job:ps/task:0/device:GPU:0"):
        x = tf.constant(1.0) + 1.0
    with c.session(allow_soft_placement=True) as s:
        assert s.run(x) == 2.0


@case
def isolated_sessions(tf, c):
    with tf.device(PS):
        v = tf.Variable(1.0, use_resource=False, name="isolated")
    more = tf.assign_add(v, 1.0)
    with c.session(isolate_session_state=True) as first:
        first.run(v.initializer)
        assert first.run(more) == 2.0
        with c.session(isolate_session_state=True) as second:
            raised(tf.errors.FailedPreconditionError, second.run, v)
            second.run(v.initializer)
            assert second.run(v) == 1.0
        with c.session() as shared:
            raised(tf.errors.FailedPreconditionError, shared.run, v)
        assert first.run(v) == 2.0


@case
def log_device_placement(tf, c):
    with tf.device(PS):
        x = tf.constant(1.0) + 1.0
    with c.session(log_device_placement=True) as s:
        assert s.run(x) == 2.0


def _rewrites(tf, **options):
    config = tf.ConfigProto(operation_timeout_in_ms=30000, **options)
    return config


@case
def without_rewriting(tf, c):
    config = _rewrites(tf)
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.device(PS):
        x = tf.constant(2.0) * tf.constant(3.0)
    with tf.device(WORKER):
        y = x + tf.constant(1.0) * 2.0
    with tf.Session(c.target, config=config) as s:
        assert s.run(y) == 8.0


@case
def fused_kernels_arrive(tf, c):
    """A TensorFlow master joins MatMul, BiasAdd and Relu to one op before it sends the graph to a worker."""
    r = np.random.RandomState(0)
    x_, w_, b_ = r.randn(4, 3).astype("f"), r.randn(3, 5).astype("f"), r.randn(5).astype("f")
    image_, filter_ = r.randn(1, 6, 6, 2).astype("f"), r.randn(3, 3, 2, 5).astype("f")
    x, image = tf.placeholder(tf.float32, [4, 3]), tf.placeholder(tf.float32, [1, 6, 6, 2])
    with tf.device(PS):
        w, b, f = (tf.Variable(v, use_resource=False) for v in (w_, b_, filter_))
        product = tf.nn.bias_add(tf.matmul(x, w), b)
        results = [tf.nn.relu(product), tf.nn.relu6(product), tf.nn.elu(product), tf.nn.leaky_relu(product, 0.3),
                   tf.tanh(product), tf.sigmoid(product), tf.nn.bias_add(tf.matmul(x, w), b)]
        convolved = tf.nn.bias_add(tf.nn.conv2d(image, f, strides=[1, 1, 1, 1], padding="SAME"), b)
        results += [tf.nn.relu(convolved), tf.nn.bias_add(tf.nn.conv2d(image, f, [1, 2, 2, 1], "VALID"), b)]
    with c.session() as s:
        s.run(tf.global_variables_initializer())
        with tf.Graph().as_default():
            fetched = s.run(results, {x: x_, image: image_})
    p = x_ @ w_ + b_
    want = [np.maximum(p, 0), np.clip(p, 0, 6), np.where(p > 0, p, np.expm1(p)), np.where(p > 0, p, 0.3 * p), np.tanh(p),
            1 / (1 + np.exp(-p)), p]
    for got, expected in zip(fetched, want):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert fetched[-2].shape == (1, 6, 6, 5) and fetched[-1].shape == (1, 2, 2, 5)
    padded = np.pad(image_, [(0, 0), (1, 1), (1, 1), (0, 0)])
    middle = sum(padded[0, 2 + i, 3 + j] @ filter_[i, j] for i in range(3) for j in range(3)) + b_
    np.testing.assert_allclose(fetched[-2][0, 2, 3], np.maximum(middle, 0), rtol=1e-4, atol=1e-5)


def _handed_over(tf, c, **jobs):
    config = tf.ConfigProto(operation_timeout_in_ms=30000)
    for job, tasks in jobs.items():
        entry = config.cluster_def.job.add()
        entry.name = job
        for i, task in enumerate(tasks):
            entry.tasks[i] = c.targets[task][len("grpc://"):]
    return config


@case
def a_cluster_that_the_session_hands_over(tf, c):
    config = _handed_over(tf, c, store=["ps/0"], trainer=["worker/1", "worker/0"])
    with tf.device("/job:store/task:0"):
        v = tf.Variable(2.0, use_resource=False)
    with tf.device("/job:trainer/task:0"):
        y = v * 2.0
    with tf.device("/job:trainer/task:1"):
        z = y + 1.0
    with tf.Session(c.target, config=config) as s:
        s.run(v.initializer)
        assert s.run(z) == 5.0
        names = sorted(d.name for d in s.list_devices())
        assert "/job:trainer/replica:0/task:1/device:CPU:0" in names, names
        e = raised(tf.errors.InvalidArgumentError, s.run, tf.gather([1.0], tf.cast(z, tf.int32)))
        assert "is not in [0, 1)" in str(e), e


@case
def two_clusters_of_the_same_servers(tf, c):
    """The names differ from session to session, the tasks are the same."""
    for job in ("one", "two"):
        with tf.Graph().as_default() as g:
            with tf.device("/job:%s/task:0" % job):
                v = tf.Variable(1.0, use_resource=False, name="v")
            with tf.device("/job:%s/task:1" % job):
                y = tf.assign_add(v, 1.0) * 10.0
            config = _handed_over(tf, c, **{job: ["ps/0", "worker/0"]})
            with tf.Session(c.target, graph=g, config=config) as s:
                s.run(v.initializer)
                assert s.run(y) == 20.0


@case
def a_cluster_with_the_names_of_the_servers_own(tf, c):
    x = tf.constant(1.0)
    with tf.Session(c.target, config=_handed_over(tf, c, ps=["ps/0"], worker=["worker/0", "worker/1"])) as s:
        try:
            assert s.run(x) == 1.0
        except tf.errors.InvalidArgumentError as e:
            assert "same names" in str(e), e


@case
def colocation(tf, c):
    with tf.device(PS):
        v = tf.Variable(1.0, use_resource=False)
    with tf.device(OTHER):
        with tf.colocate_with(v.op):
            y = tf.constant(5.0) * 2.0
        z = tf.assign_add(v, y)
    with c.session() as s:
        s.run(v.initializer)
        m = tf.RunMetadata()
        assert s.run(z, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=m) == 11.0


@case
def thread_pools(tf, c):
    with tf.device(PS):
        x = tf.reduce_sum(tf.ones([100, 100]))
    with c.session(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1) as s:
        assert s.run(x) == 10000.0
        assert s.run(x, options=tf.RunOptions(inter_op_thread_pool=0)) == 10000.0


@case
def replica_device_setter(tf, c):
    spec = tf.train.ClusterSpec({"ps": [c.targets["ps/0"][7:]],
                                 "worker": [c.targets["worker/0"][7:], c.targets["worker/1"][7:]]})
    with tf.device(tf.train.replica_device_setter(cluster=spec, worker_device="/job:worker/task:1")):
        v = tf.Variable([1.0, 2.0], use_resource=False)
        y = v * 3.0
    assert v.device == "/job:ps/task:0" and y.device == "/job:worker/task:1"
    with c.session("worker/1") as s:
        s.run(v.initializer)
        np.testing.assert_array_equal(s.run(y), [3, 6])
