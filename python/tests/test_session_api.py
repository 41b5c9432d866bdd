"""tf.Session as programs use it."""
import collections
import os
import threading
import time

import numpy as np
import pytest

import muster as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


@pytest.fixture
def session(graph):
    with tf.Session(graph=graph) as made:
        yield made


# --- Fetches. ---
Pair = collections.namedtuple("Pair", ["first", "second"])


def test_structures(session):
    a, b = tf.constant(1, name="a"), tf.constant([2.0, 3.0], name="b")
    nothing = tf.no_op(name="nothing")
    assert session.run(a) == 1 and isinstance(session.run(a), np.int32)
    assert session.run("a:0") == 1 and session.run(a.op) is None and session.run("nothing") is None
    assert session.run([]) == [] and session.run(()) == () and session.run({}) == {}
    result = session.run([a, (b, nothing), {"x": a, "y": [b.op, Pair(a, "b:0")]}])
    assert result[0] == 1 and result[1][1] is None and result[2]["x"] == 1
    assert result[1][0].tolist() == [2, 3] and isinstance(result[1], tuple)
    inner = result[2]["y"]
    assert inner[0] is None and isinstance(inner[1], Pair) and inner[1].first == 1
    assert inner[1].second.tolist() == [2, 3]
    ordered = session.run(collections.OrderedDict([("z", a), ("a", b)]))
    assert isinstance(ordered, collections.OrderedDict) and list(ordered) == ["z", "a"]
    factory = session.run(collections.defaultdict(list, k=a))
    assert factory["k"] == 1 and factory["other"] == []
    twice = session.run([a, a, "a:0"])
    assert twice == [1, 1, 1]


def test_attrs_classes(session):
    class Like(object):  # what @attr.s leaves on a class
        Attribute = collections.namedtuple("Attribute", ["name"])
        __attrs_attrs__ = (Attribute("left"), Attribute("right"))

        def __init__(self, left, right):
            self.left, self.right = left, right

    found = session.run(Like(tf.constant(1), [tf.constant(2)]))
    assert isinstance(found, Like) and found.left == 1 and found.right == [2]


def test_sparse_values(session):
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([3]), tf.constant([5, 1]))
    value = session.run(slices)
    assert value.values.tolist() == [[1]] and value.indices.tolist() == [3] and value.dense_shape.tolist() == [5, 1]
    sparse = tf.sparse_placeholder(tf.float32)
    fed = tf.SparseTensorValue(np.array([[0, 1]], np.int64), np.array([2.0], np.float32), np.array([2, 2], np.int64))
    back = session.run(sparse, {sparse: fed})
    assert isinstance(back, tf.SparseTensorValue) and back.values.tolist() == [2] and back.indices.tolist() == [[0, 1]]
    assert session.run(sparse.values * 2, {sparse: (fed.indices, fed.values, fed.dense_shape)}).tolist() == [4]


def test_strings(session):
    x = tf.placeholder(tf.string)
    assert session.run(tf.constant("text")) == b"text"
    assert session.run(x, {x: "déjà"}) == "déjà".encode()
    back = session.run(x, {x: np.array([[b"a\x00b", b""]], object)})
    assert back.dtype == object and back.tolist() == [[b"a\x00b", b""]]
    assert session.run(tf.string_join([x, x]), {x: ["a", "bc"]}).tolist() == [b"aa", b"bcbc"]
    assert session.run(x, {x: np.array(["u", "vw"])}).tolist() == [b"u", b"vw"]


def test_fed_strings_keep_zero_bytes_at_their_end(session):
    x = tf.placeholder(tf.string)
    y = tf.identity(x)
    for text in (b"\x00", b"a\x00b\x00", b""):
        assert session.run(y, {x: text}) == text
    assert session.run(y, {x: [b"a\x00", u"b"]}).tolist() == [b"a\x00", b"b"]
    assert session.run(y, {x: np.array(["a", "b"])}).tolist() == [b"a", b"b"]


def test_zero_sized_and_all_types(session):
    for kind in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16,
                 np.uint32, np.uint64, np.bool_, np.complex64, np.complex128):
        x = tf.placeholder(tf.as_dtype(kind))
        for shape in ((), (0,), (2, 0, 3), (3, 2)):
            value = np.ones(shape, kind)
            back = session.run(tf.identity(x), {x: value})
            assert back.dtype == kind and back.shape == shape and np.all(back == value)


# --- Feeds. ---
def test_feeds_of_intermediates(session):
    a = tf.constant(2.0, name="a")
    b = tf.multiply(a, 3.0, name="b")
    c = tf.add(b, 1.0, name="c")
    assert session.run(c) == 7
    assert session.run(c, {b: 10.0}) == 11
    assert session.run(c, {"a:0": 1}) == 4
    assert session.run([a, b, c], {b: 1, a: 5}) == [5, 1, 2]
    assert session.run([b, c.op], {b: 4.5})[0] == 4.5
    split = tf.split(tf.constant([1, 2, 3]), 3)
    assert session.run(split, {split[1]: [20]})[1].tolist() == [20]
    assert [v.tolist() for v in session.run(split, {split[1]: [20]})] == [[1], [20], [3]]
    # What is fed is not computed.
    bad = tf.check_numerics(tf.constant(float("nan")), "never")
    assert session.run(bad + 1, {bad: 1.0}) == 2


def test_variables_can_be_fed_and_fetched(session):
    v = tf.Variable(1.0)
    session.run(tf.global_variables_initializer())
    assert session.run(v) == 1 and session.run(v + 1, {v: 5.0}) == 6 and session.run(v) == 1


def test_feeds_belong_to_the_caller(session, graph):
    """Arrays are not copied on their way in; changes of the array by its owner are not seen by the step."""
    x = tf.placeholder(tf.float32, [1000])
    v = tf.Variable(tf.zeros([1000]))
    session.run(v.initializer)
    array = np.ones(1000, np.float32)
    kept = session.run(tf.assign(v, x), {x: array})
    array[:] = 7
    assert np.all(session.run(v) == 1) and np.all(kept == 1)
    # In-place updates do not reach back into the array.
    session.run(tf.assign(v, x), {x: array})
    session.run(tf.assign_add(v, x), {x: array})
    assert np.all(array == 7)
    # Nor do kernels that work in the memory of their inputs.
    y = tf.nn.relu(tf.negative(x) + 1.0)
    session.run(y, {x: array})
    assert np.all(array == 7)
    # Fetching what was fed, and changing it.
    same = session.run(x, {x: array})
    same = np.array(same)
    same[:] = 3
    assert np.all(array == 7)
    # A fetched value stays when the variable goes on.
    before = session.run(v)
    session.run(tf.assign_add(v, x), {x: array})
    assert np.all(before == 14) and np.all(session.run(v) == 21)
    # Read-only and strided arrays.
    frozen = np.arange(2000, dtype=np.float32)[::2]
    frozen.flags.writeable = False
    assert np.all(session.run(tf.identity(x), {x: frozen}) == np.arange(0, 2000, 2))


def test_feed_outlives_the_array(session):
    x = tf.placeholder(tf.float64)
    results = [session.run(tf.identity(x), {x: np.full(512, i, np.float64)}) for i in range(50)]
    assert all(np.all(value == i) for i, value in enumerate(results))


def test_conversions(session):
    i, f = tf.placeholder(tf.int32), tf.placeholder(tf.float32)
    assert session.run(i, {i: 3.7}) == 3
    assert session.run(f, {f: 3}) == 3
    assert session.run(f, {f: [[1, 2], [3, 4]]}).shape == (2, 2)
    with pytest.raises(ValueError):
        session.run(f, {f: [[1], [2, 3]]})


def test_not_feedable(session, graph):
    x = tf.constant(1)
    graph.prevent_feeding(x)
    with pytest.raises(ValueError, match="may not be fed"):
        session.run(x, {x: 2})
    graph.prevent_fetching(x.op)
    with pytest.raises(ValueError, match="not fetchable"):
        session.run(x.op)


def test_threads(graph):
    """A session that asks for its own threads gets them, and runs on them."""
    before = len(os.listdir("/proc/self/task"))
    config = tf.ConfigProto(intra_op_parallelism_threads=7, inter_op_parallelism_threads=3, use_per_session_threads=True)
    x = tf.ones([64, 64])
    with tf.Session(config=config) as session:
        assert session.run(tf.matmul(x, x))[0, 0] == 64
        assert len(os.listdir("/proc/self/task")) >= before + 6


# --- make_callable, partial_run. ---
def test_make_callable(session):
    x, y = tf.placeholder(tf.float32, name="x"), tf.placeholder(tf.float32)
    add = session.make_callable({"sum": x + y, "op": tf.no_op()}, [x, y])
    assert add(1, 2) == {"sum": 3, "op": None} and add(2, np.float32(5))["sum"] == 7
    with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder"):
        add(1)
    metadata = tf.RunMetadata()
    with_options = session.make_callable(x + y, [x, y], accept_options=True)
    assert with_options(1, 2, options=tf.RunOptions(trace_level=3), run_metadata=metadata) == 3
    assert metadata.step_stats.dev_stats
    constant = session.make_callable(tf.constant(5))
    assert constant() == 5
    session.close()
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session."):
        constant()


def test_partial_run(session):
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    first = a + 1.0
    second = first * b
    handle = session.partial_run_setup([first, second], [a, b])
    got = session.partial_run(handle, first, {a: 2})
    assert got == 3
    assert session.partial_run(handle, [second], {b: got * 10})[0] == 90
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.partial_run(handle, first, {a: 2})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Must run 'setup'"):
        session.partial_run("no such handle", first, {a: 2})
    other = session.partial_run_setup([second], [a, b])
    with pytest.raises(tf.errors.InvalidArgumentError):  # b is still to come
        session.partial_run(other, second, {a: 1})


# --- Options and metadata. ---
def test_run_metadata(session):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    y = tf.nn.softmax(tf.matmul(x, tf.ones([3, 4])), name="y")
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    metadata = tf.RunMetadata()
    before = time.time() * 1e6
    session.run(y, {x: np.ones((2, 3))}, options, metadata)
    device, = metadata.step_stats.dev_stats
    assert device.device == "/job:localhost/replica:0/task:0/device:CPU:0"
    nodes = {n.node_name: n for n in device.node_stats}
    node = nodes["y"]
    assert node.timeline_label == "y = Softmax(MatMul)"
    assert before - 1e6 < node.all_start_micros < time.time() * 1e6 + 1e6
    assert 0 <= node.op_start_rel_micros <= node.op_end_rel_micros <= node.all_end_rel_micros
    assert node.all_end_rel_micros > 0 and node.thread_id and node.scheduled_micros <= node.all_start_micros
    description = node.output[0].tensor_description
    assert description.dtype == 1 and [d.size for d in description.shape.dim] == [2, 4]
    assert description.allocation_description.requested_bytes == 32
    assert node.memory[0].total_bytes == 32
    partition, = metadata.partition_graphs
    assert {"MatMul", "y"} <= {n.name for n in partition.node}
    empty = tf.RunMetadata()
    session.run(y, {x: np.ones((2, 3))}, tf.RunOptions(), empty)
    assert not empty.step_stats.dev_stats and not empty.partition_graphs


def test_timeline(session):
    import json

    from muster.session import timeline

    x = tf.random_normal([64, 64])
    metadata = tf.RunMetadata()
    session.run([tf.matmul(x, x), tf.reduce_sum(x)], None, tf.RunOptions(trace_level=3), metadata)
    text = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
    events = json.loads(text)["traceEvents"]
    spans = {e["args"]["name"]: e for e in events if e["ph"] == "X"}
    assert spans["MatMul"]["name"] == "MatMul" and spans["MatMul"]["args"]["input0"] and spans["MatMul"]["dur"] > 0
    device = "/job:localhost/replica:0/task:0/device:CPU:0 "
    assert [(e["pid"], e["args"]["name"]) for e in events if e["ph"] == "M"] == [
        (0, "Allocators"), (1, device + "Compute"), (2, device + "Tensors")]
    by_lane = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            by_lane[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for lane in by_lane.values():
        lane.sort()
        assert all(one[1] <= other[0] for one, other in zip(lane, lane[1:]))
    analysis = timeline.Timeline(metadata.step_stats).analyze_step_stats()
    assert analysis.allocator_maximums["cpu"].num_bytes >= 64 * 64 * 4


def _waits():
    """A step that does not end by itself: it receives what is never sent."""
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    return tf.get_default_graph().create_op("_Recv", [], attrs=dict(
        tensor_type=tf.float32, tensor_name="never", send_device=device, send_device_incarnation=1,
        recv_device=device), name="waits").outputs[0]


def test_timeouts(graph):
    step = _waits()
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=50)) as session:
        started = time.time()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(step)
        assert time.time() - started < 20
        assert session.run(tf.constant(1)) == 1  # the session goes on
    with tf.Session() as session:
        with pytest.raises(tf.errors.DeadlineExceededError, match="Timed out"):
            session.run(step, options=tf.RunOptions(timeout_in_ms=30))


def test_close_cancels_steps(graph):
    begun = threading.Event()
    step = [_waits(), tf.py_func(begun.set, [], [])]
    session = tf.Session()
    seen = []

    def run():
        try:
            session.run(step)
        except Exception as e:
            seen.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(60)
    session.close()
    thread.join(20)
    assert not thread.is_alive() and isinstance(seen[0], tf.errors.CancelledError)


# --- Life. ---
def test_closed_and_empty(graph):
    session = tf.Session()
    with pytest.raises(RuntimeError, match="The Session graph is empty"):
        session.run([])
    x = tf.constant(1)
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session."):
        session.run(x)


def test_default_sessions(graph):
    x = tf.constant(4)
    assert tf.get_default_session() is None
    with pytest.raises(ValueError, match="No default session is registered"):
        x.eval()
    session = tf.Session()
    with session.as_default():
        assert tf.get_default_session() is session and x.eval() == 4
        with tf.Session() as inner:
            assert tf.get_default_session() is inner
        x.op.run()
    assert session.run(x) == 4  # as_default does not close
    assert x.eval(session=session) == 4
    session.close()


def test_interactive_session(graph):
    session = tf.InteractiveSession()
    try:
        x = tf.placeholder(tf.float32)
        assert (x + 1).eval({x: 1}) == 2
        with pytest.warns(UserWarning, match="An interactive session is already active"):
            tf.InteractiveSession().close()
    finally:
        session.close()
    assert tf.get_default_session() is None


def test_graph_grows_between_runs(session):
    v = tf.Variable(1)
    session.run(v.initializer)
    total = v
    for i in range(20):
        total = total + i
        assert session.run(total) == 1 + sum(range(i + 1))
    session.run(tf.assign(v, 10))
    assert session.run(total) == 200


def test_sessions_have_their_own_variables(graph):
    v = tf.Variable(1)
    with tf.Session() as one, tf.Session() as other:
        one.run(v.initializer)
        assert one.run(v) == 1
        with pytest.raises(tf.errors.FailedPreconditionError):
            other.run(v)


def test_concurrent_runs(session):
    x = tf.placeholder(tf.float32, [64])
    counter = tf.Variable(0, dtype=tf.int32)
    add = tf.assign_add(counter, 1, use_locking=True)
    y = tf.reduce_sum(x * x)
    session.run(counter.initializer)
    wrong = []

    def work(k):
        for i in range(40):
            value = np.full(64, k + i, np.float32)
            if session.run([y, add.op], {x: value})[0] != 64.0 * (k + i) ** 2:
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and session.run(counter) == 320


def test_devices(graph):
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        names = [d.name for d in session.list_devices()]
        assert names == ["/job:localhost/replica:0/task:0/device:CPU:%d" % i for i in range(2)]
        assert all(d.device_type == "CPU" and d.memory_limit_bytes == 268435456 for d in session.list_devices())
        with tf.device("/cpu:1"):
            x = tf.constant(1) + 1
        assert session.run(x) == 2
    with tf.device("/gpu:0"):
        y = tf.constant(1)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(y) == 1
    from muster.session import device_lib

    device, = device_lib.list_local_devices()
    assert device.name == "/device:CPU:0" and device.device_type == "CPU" and device.incarnation


def test_missing_device(session):
    with tf.device("/gpu:0"):
        x = tf.constant(1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="GPU"):
        session.run(x)


def test_graph_element_names(graph):
    x = tf.constant(1, name="x")
    assert graph.as_graph_element("x") is x.op and graph.as_graph_element("x:0") is x
    assert graph.get_tensor_by_name("x:0") is x and graph.get_operation_by_name("x") is x.op
    with pytest.raises(KeyError, match="refers to an Operation not in the graph"):
        graph.get_operation_by_name("y")
    with pytest.raises(KeyError, match="only has 1 outputs"):
        graph.get_tensor_by_name("x:1")
    with pytest.raises(ValueError, match="refers to an Operation, not a Tensor"):
        graph.get_tensor_by_name("x")
    with pytest.raises(TypeError):
        graph.get_tensor_by_name(3)


def test_gradient_override(session, graph):
    @tf.RegisterGradient("TestTriple")
    def _triple(op, grad):
        return grad * 3.0

    x = tf.constant(2.0)
    with graph.gradient_override_map({"Negative": "TestTriple", "Neg": "TestTriple"}):
        y = -x
    assert session.run(tf.gradients(y, x)[0]) == 3 and session.run(tf.gradients(-x, x)[0]) == -1


def test_template(session):
    def scale(x, by=2.0):
        w = tf.get_variable("w", initializer=by)
        return x * w

    scaled = tf.make_template("scale", scale, by=3.0)
    a, b = scaled(tf.constant(1.0)), scaled(tf.constant(2.0))
    session.run(tf.global_variables_initializer())
    assert session.run([a, b]) == [3, 6]
    assert [v.name for v in scaled.variables] == ["scale/w:0"]
    other = tf.make_template("scale", scale, create_scope_now_=True)
    assert other.variable_scope_name == "scale_1"
    calls = tf.make_template("bad", lambda: tf.Variable(1.0))
    calls()
    with pytest.raises(ValueError, match="Trainable variable created when calling a template after the first time"):
        calls()


def test_a_nest_of_tensors_is_fed():
    """The state of a recurrent network, as one key."""
    with tf.Graph().as_default(), tf.Session() as sess:
        cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicLSTMCell(2), tf.nn.rnn_cell.BasicLSTMCell(2)])
        state = cell.zero_state(1, tf.float32)
        fed = sess.run(state)
        fed[1].h[:] = 5
        for _ in range(2):
            assert sess.run(state[1].h + state[0].c, {state: fed}).tolist() == [[5, 5]]
        with pytest.raises(ValueError, match="Could not flatten dictionary. Key had 4 elements, but value had 2"):
            sess.run(state, {state: fed[0]})


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
                                  "float64", "complex64", "complex128", "bool"])
def test_fetched_numbers_are_of_numpys_own_types(name):
    """np.longlong is not np.int64, though their dtypes are equal."""
    kind = np.dtype(name).type
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(name, [None])
        one, several = session.run([x[0], x], {x: np.ones(2, name)})
    assert type(one) is kind and type(several[0]) is kind and several.dtype.char == np.dtype(name).char
    assert several.flags.writeable


def test_numbers_in_lists_are_32_bit_ones():
    with tf.Graph().as_default() as graph:
        assert tf.constant([np.float64(1.5), 2]).dtype == tf.float32 and tf.constant((np.int64(1), 2)).dtype == tf.int32
        assert tf.constant([np.int64(2 ** 40)]).dtype == tf.int64 and tf.constant(np.float64(1.5)).dtype == tf.float64
        with pytest.raises(ValueError, match="Argument must be a dense tensor: .* got shape \\[1, 2\\], but wanted \\[1\\]"):
            tf.constant([np.zeros(2)])
        before = graph.version
        tf.stack([np.zeros(2), np.ones(2)])
        assert [o.name for o in graph.get_operations()[before:]] == ["stack", "stack_1/values_0", "stack_1/values_1", "stack_1"]
