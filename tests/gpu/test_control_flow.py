"""Loops, branches, arrays, lists, functions and staging on the emulated card, against the CPU."""
import subprocess
import sys

import card

PROGRAM = """
import numpy as np
import muster as tf

ops = tf.raw_ops
random = np.random.RandomState(0)

def normal(*shape):
    return random.randn(*shape).astype(np.float32)

def run(device, build, feeds=(), steps=1, soft=False):
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        inputs = [tf.placeholder(feed.dtype, feed.shape) for feed in feeds]
        with tf.device(device):
            outputs = list(build(*inputs))
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=soft)) as session:
            session.run(tf.global_variables_initializer())
            return [session.run(outputs, dict(zip(inputs, feeds))) for _ in range(steps)]

def check(name, build, feeds=(), steps=1, tolerance=1e-4, soft=False):
    wanted = run("/cpu:0", build, feeds, steps)
    got = run("/gpu:0", build, feeds, steps, soft)
    for of_step, wanted_of_step in zip(got, wanted):
        for value, want in zip(of_step, wanted_of_step):
            np.testing.assert_allclose(value, want, tolerance, tolerance, err_msg=name)
    return got
"""


def _check(program):
    return card.run(PROGRAM + program)


def test_recurrent_networks_train_as_on_the_cpu():
    _check("""
x, y = normal(4, 6, 5), normal(4, 3)

def train(loss):
    weights = tf.trainable_variables()
    step = tf.train.GradientDescentOptimizer(0.3).apply_gradients(zip(tf.gradients(loss, weights), weights))
    with tf.control_dependencies([step]):
        return [tf.identity(loss)]

def dynamic(swap):
    def build(x, y):
        cell = tf.nn.rnn_cell.BasicLSTMCell(3)
        lengths = tf.constant([6, 3, 1, 6])
        outputs, state = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32, swap_memory=swap)
        return train(tf.reduce_sum(tf.square(state.h - y)) + tf.reduce_mean(outputs))
    return build

for swap in False, True:
    losses = check("dynamic_rnn", dynamic(swap), [x, y], steps=4, soft=True)  # Assert
    assert losses[-1][0] < losses[0][0]

def static(x, y):
    cell = tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.BasicLSTMCell(3), output_keep_prob=0.8, seed=7)
    outputs, state = tf.nn.static_rnn(cell, tf.unstack(x, axis=1), dtype=tf.float32)
    return train(tf.reduce_sum(tf.square(tf.add_n(outputs) - y)))

check("static_rnn", static, [x, y], steps=3)
""")


def test_loops_and_branches():
    _check("""
x = normal(3, 4)
w = normal(4, 4)

def power(x, w):
    # A counter on the host, products on the card.
    _, y = tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), [0, x])
    return [y] + tf.gradients(y, [x, w])

def decided(x, w):
    # The card decides how long.
    n, y = tf.while_loop(lambda n, y: tf.reduce_sum(tf.abs(y)) > 0.5, lambda n, y: (n + 1, y * 0.5), [0, x])
    return [n, y] + tf.gradients(y, x)

def nested(x, w):
    def outer(i, y):
        _, z = tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, tf.cond(
            tf.equal((i + j) % 2, 0), lambda: z + 1.0, lambda: tf.cond(tf.reduce_sum(z) > 0, lambda: z * 0.5, lambda: -z))),
            [0, y])
        return i + 1, z
    _, y = tf.while_loop(lambda i, y: i < 4, outer, [0, x])
    return [y] + tf.gradients(y, x)

def case(x, w):
    index = tf.constant(1)
    return [tf.case([(tf.equal(index, 0), lambda: x), (tf.equal(index, 1), lambda: x @ w)], default=lambda: -x),
            tf.switch_case(tf.constant(2), [lambda: x, lambda: 2 * x, lambda: 3 * x])] if hasattr(tf, "switch_case") else [
            tf.case([(tf.equal(index, 0), lambda: x), (tf.equal(index, 1), lambda: tf.matmul(x, w))], default=lambda: -x)]

def higher(x, w):
    mapped = tf.map_fn(lambda row: tf.reduce_sum(row * row), x)
    scanned = tf.scan(lambda sum, row: sum + row, x)
    left = tf.foldl(lambda sum, row: sum * 0.5 + row, x)
    right = tf.foldr(lambda sum, row: sum * 0.5 + row, x)
    return [mapped, scanned, left, right] + tf.gradients([mapped, scanned, left, right], x)

def counts(x, w):
    # A search with a beam: integers that the host and the card both have.
    tokens = tf.zeros([2, 1], tf.int32)
    def step(i, tokens, scores):
        logits = tf.matmul(scores, w) + tf.cast(tf.reshape(tokens[:, -1:], [2, 1]), tf.float32)
        best = tf.cast(tf.argmax(logits, 1), tf.int32)
        values, _ = tf.nn.top_k(logits, 4)
        return i + 1, tf.concat([tokens, best[:, None]], 1), values
    _, tokens, scores = tf.while_loop(lambda i, t, s: tf.logical_and(i < 6, tf.reduce_max(t) < 100), step, [0, tokens, x[:2]],
                                      shape_invariants=[tf.TensorShape([]), tf.TensorShape([2, None]), tf.TensorShape([2, 4])])
    return [tokens, scores]

for build in power, decided, nested, case, higher:
    check(build.__name__, build, [x, w])
check("counts", counts, [x, w], soft=True)
""")


def test_arrays_of_tensors():
    _check("""
x = normal(6, 16)

def pieces(x):
    array = tf.TensorArray(tf.float32, 3, infer_shape=False, clear_after_read=False).split(x, [1, 3, 2])
    return [array.read(1)] + tf.gradients(array.concat(), x)

def twice(x):
    # Gradients of one element come from two readers, those of others from none.
    array = tf.TensorArray(tf.float32, 6, clear_after_read=False).unstack(x)
    y = array.read(1) * array.read(1) + array.read(4)
    return [y, array.size()] + tf.gradients(y, x)

def gathered(x):
    array = tf.TensorArray(tf.float32, 6, clear_after_read=False).unstack(x)
    y = array.gather([3, 1, 1]) * 2.0
    return [y] + tf.gradients(y, x)

def written(x):
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True).write(2, x[0]).write(0, x[1]).write(1, x[2])
    y = array.stack()
    return [y] + tf.gradients(y * y, x)

def unwritten(x):
    return [tf.TensorArray(tf.float32, 3, element_shape=[16]).write(1, x[0]).stack()]

for build in pieces, twice, gathered, written, unwritten:
    check(build.__name__, build, [x])
for dtype in tf.float16, tf.float64, tf.complex64:
    check("of %s" % dtype, lambda x: [tf.TensorArray(dtype, 6).unstack(tf.cast(x, dtype)).stack()], [x], tolerance=1e-2)
# Types that TensorFlow has no such kernels for run on the CPU.
check("int32", lambda x: [tf.TensorArray(tf.int32, 2).write(0, 4).write(1, 5).stack()], [x], soft=True)

def broken(x):
    return [tf.TensorArray(tf.float32, 2).write(5, x).flow]
try:
    run("/gpu:0", broken, [x])
    raise AssertionError
except tf.errors.InvalidArgumentError as error:
    assert "Tried to write to index 5" in error.message, error.message
""")


def test_lists_of_tensors():
    _check("""
x = normal(5, 16)

def host(values):
    with tf.device("/cpu:0"):
        return tf.constant(values, tf.int32)

def lists(x):
    shape = host([16])
    whole = ops.TensorListFromTensor(tensor=x, element_shape=shape)
    empty = ops.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=tf.float32)
    pushed = ops.TensorListPushBack(input_handle=ops.TensorListPushBack(input_handle=empty, tensor=x[0]), tensor=x[1])
    popped, last = ops.TensorListPopBack(input_handle=pushed, element_shape=shape, element_dtype=tf.float32)
    reserved = ops.TensorListReserve(element_shape=shape, num_elements=3, element_dtype=tf.float32)
    set_ = ops.TensorListSetItem(input_handle=reserved, index=1, item=x[2])
    parts = ops.TensorListSplit(tensor=x, element_shape=host([-1, 16]), lengths=tf.constant([2, 0, 3], tf.int64))
    sum_ = ops.AddN(inputs=[whole, whole, whole])
    zeros = ops.ZerosLike(x=whole)
    scattered = ops.TensorListScatterV2(tensor=x[:2], indices=host([3, 1]), element_shape=shape, num_elements=-1)
    into = ops.TensorListScatterIntoExistingList(input_handle=scattered, tensor=x[2:4], indices=host([0, 1]))
    both = ops.TensorListConcatLists(input_a=whole, input_b=set_, element_dtype=tf.float32)
    stack = lambda handle: ops.TensorListStack(input_handle=handle, element_shape=shape, element_dtype=tf.float32)
    return [last, ops.TensorListLength(input_handle=pushed), stack(popped), stack(set_), stack(sum_), stack(zeros),
            stack(into), stack(both), ops.TensorListElementShape(input_handle=whole, shape_type=tf.int32),
            stack(ops.TensorListResize(input_handle=whole, size=7)),
            ops.TensorListGetItem(input_handle=whole, index=3, element_shape=shape, element_dtype=tf.float32),
            ops.TensorListGetItem(input_handle=set_, index=0, element_shape=shape, element_dtype=tf.float32),
            ops.TensorListGather(input_handle=whole, indices=host([4, 0, 4]), element_shape=shape, element_dtype=tf.float32),
            *ops.TensorListConcatV2(input_handle=parts, element_shape=host([-1, 16]), leading_dims=tf.constant([], tf.int64),
                                    element_dtype=tf.float32)]

check("lists", lists, [x])

def across(x):
    # Made on one device, read on another: the elements move with the list.
    made = []
    for here, there in ("/gpu:0", "/cpu:0"), ("/cpu:0", "/gpu:0"):
        with tf.device(here):
            for dtype in tf.float32, tf.int32:
                handle = ops.TensorListFromTensor(tensor=tf.cast(x, dtype), element_shape=host([16]))
                with tf.device(there):
                    made.append(ops.TensorListStack(input_handle=handle, element_shape=host([16]), element_dtype=dtype))
    some = ops.OptionalFromValue(components=[x, tf.constant(3)])
    with tf.device("/cpu:0"):
        made += ops.OptionalGetValue(optional=some, output_types=[tf.float32, tf.int32], output_shapes=[[5, 16], []])
    return made

with tf.device(None):
    check("across", across, [x])
""")


def test_functions_with_nodes_on_both_devices():
    _check("""
from muster.graph import functions

x = normal(3, 4)
types = [(tf.int32, []), (tf.float32, [3, 4])]

def define(name, body):
    return functions.define(name, types, body).name

def length(n):  # strings are on the host
    with tf.device("/cpu:0"):
        return tf.size(tf.string_split([tf.as_string(n)], "").values)

def loop(x):
    double = define("double", lambda n, y: [n, y * 2.0])
    less = define("less", lambda n, y: [n, y * 0.5 - 1.0])
    def turn(n, y):
        n, y = ops.If(cond=tf.reduce_sum(y) < 10.0, input=[n, y], Tout=[tf.int32, tf.float32], then_branch=double, else_branch=less)
        return [n + length(n), tf.tanh(y) + tf.cast(n, tf.float32)]
    return list(ops.While(input=[tf.constant(0), x], cond=define("goes_on", lambda n, y: [n < 12]), body=define("turn", turn)))

def decided(x):
    # The condition is in the card's memory.
    return list(ops.While(input=[tf.constant(0), x], cond=define("large", lambda n, y: [tf.reduce_sum(tf.abs(y)) > 0.1]),
                          body=define("halve", lambda n, y: [n + 1, y * 0.5])))

def counted(x):
    body = functions.define("add", types, lambda n, y: [y + tf.cast(n, tf.float32)]).name
    return list(ops.For(start=0, limit=5, delta=1, input=[x], body=body))

def called(x):
    inner = define("inner", lambda n, y: [n + 1, tf.matmul(y, y, transpose_b=True)])
    def outer(n, y):
        n, y = ops.PartitionedCall(args=[n, y], Tout=[tf.int32, tf.float32], f=inner)
        return [n + length(n), y * 2.0]
    return list(ops.PartitionedCall(args=[tf.constant(41), x], Tout=[tf.int32, tf.float32], f=define("outer", outer)))

def with_lists(x):
    # A list in the state of a loop, and a variable that another function reads.
    with tf.device("/cpu:0"):
        v = tf.get_variable("v", initializer=3.0, use_resource=True)
        shape = tf.constant([3, 4])
    kinds = [(tf.int32, []), (tf.variant, []), (tf.float32, [3, 4]), (tf.resource, [])]
    cond = functions.define("few", kinds, lambda n, list, y, v: [n < 4]).name
    body = functions.define("push", kinds, lambda n, list, y, v: [
        n + 1, ops.TensorListPushBack(input_handle=list, tensor=y), y * ops.ReadVariableOp(resource=v, dtype=tf.float32), v]).name
    empty = ops.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=tf.float32)
    _, made, _, _ = ops.While(input=[tf.constant(0), empty, x, v.handle], cond=cond, body=body)
    return [ops.TensorListStack(input_handle=made, element_shape=shape, element_dtype=tf.float32)]

for build in loop, decided, counted, called, with_lists:
    check(build.__name__, build, [x], steps=2, soft=build in (loop, called))

# Case takes a list of functions, which only a GraphDef can give it.
with tf.Graph().as_default() as graph:
    branches = [define("branch", lambda n, y, k=k: [n * k, tf.matmul(y, y, transpose_b=True) + k]) for k in range(3)]
    start, index = tf.placeholder(tf.float32, [3, 4], name="x"), tf.placeholder(tf.int32, [], name="index")
    tf.constant(5, name="n")
    made = graph.as_graph_def()
node = made.node.add(name="case", op="Case", input=["index", "n", "x"])
for name in branches:
    node.attr["branches"].list.func.add(name=name)
for key in "Tin", "Tout":
    node.attr[key].list.type.extend([tf.int32.as_datatype_enum, tf.float32.as_datatype_enum])
node.device = "/gpu:0"
with tf.Graph().as_default():
    tf.import_graph_def(made, name="")
    with tf.Session() as session:
        for i, k in (0, 0), (1, 1), (7, 2):
            number, value = session.run(["case:0", "case:1"], {"x:0": x, "index:0": i})
            assert number == 5 * k
            np.testing.assert_allclose(value, x @ x.T + k, 1e-3)
""")


def test_datasets_and_staging_areas_feed_a_step():
    _check("""
def pipeline(device, transform, session_run):
    with tf.Graph().as_default():
        data = tf.data.Dataset.range(8).map(lambda i: (tf.cast(i, tf.float32) * tf.ones([3]), tf.cast(i, tf.int32), tf.as_string(i)))
        iterator = data.apply(transform).make_initializable_iterator()
        value, number, text = iterator.get_next()
        with tf.device(device):
            y = value * 2.0 + tf.cast(number, tf.float32)
        with tf.Session() as session:
            found = []
            for _ in range(2):
                session.run(iterator.initializer)
                try:
                    while True:
                        found.append(session.run([y, number, text]))
                except tf.errors.OutOfRangeError:
                    pass
            return found, value.device

plain = pipeline("/cpu:0", lambda d: d, None)[0]
assert len(plain) == 16
for transform in (lambda d: d, tf.data.experimental.prefetch_to_device("/gpu:0"), tf.data.experimental.prefetch_to_device("/gpu:0", 3),
                  tf.data.experimental.copy_to_device("/gpu:0"),
                  lambda d: d.apply(tf.data.experimental.copy_to_device("/gpu:0")).prefetch(2)):
    found, _ = pipeline("/gpu:0", transform, None)
    for got, want in zip(found, plain, strict=True):
        np.testing.assert_array_equal(got[0], want[0])
        assert got[1:] == want[1:], (got, want)

def devices_of(op_types, build):
    with tf.Graph().as_default() as graph:
        fetches = build()
        metadata = tf.RunMetadata()
        with tf.Session() as session:
            session.run(fetches[0])
            session.run(fetches[1], options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
        nodes = {node.node_name: d.device for d in metadata.step_stats.dev_stats for node in d.node_stats}
        return {op.type: nodes[op.name] for op in graph.get_operations() if op.type in op_types and op.name in nodes}

def fed(transform):
    def build():
        iterator = tf.data.Dataset.from_tensors(np.float32([1, 2])).repeat().map(lambda x: tf.sqrt(x)).apply(transform).make_initializable_iterator()
        return iterator.initializer, tf.exp(iterator.get_next())
    return devices_of({"IteratorGetNext", "Exp"}, build)

# Without being asked for, an iterator is on the host, and so is what its functions compute.
where = fed(lambda d: d)
assert "CPU" in where["IteratorGetNext"] and "GPU" in where["Exp"], where
where = fed(tf.data.experimental.prefetch_to_device("/gpu:0"))
assert "GPU" in where["IteratorGetNext"] and "GPU" in where["Exp"], where

# The nodes that TensorFlow's copy_to_device is made of.
from muster.graph import functions

with tf.Graph().as_default():
    kinds = {"output_types": [tf.float32, tf.int32], "output_shapes": [[2], []]}
    source = tf.data.Dataset.range(3).map(lambda i: (tf.cast(i, tf.float32) * tf.ones([2]), tf.cast(i, tf.int32)))._variant_tensor
    def begin(dataset):
        iterator = ops.AnonymousIterator(**kinds)
        with tf.control_dependencies([ops.MakeIterator(dataset=dataset, iterator=iterator)]):
            return [ops.IteratorToStringHandle(resource_handle=iterator)]
    def following(text):
        return list(ops.IteratorGetNext(iterator=ops.IteratorFromStringHandleV2(string_handle=text, **kinds), **kinds))
    def remote(name, kind, types, body):
        inner = functions.define(name, [(kind, [])], body).name
        return functions.define("remote_" + name, [(kind, [])], lambda x: list(ops.RemoteCall(
            target="/cpu:0", args=[x], Tout=types, f=inner))).name
    with tf.device("/gpu:0"):
        generated = ops.GeneratorDataset(
            init_func_other_args=[source], next_func_other_args=[], finalize_func_other_args=[],
            init_func=remote("begin", tf.variant, [tf.string], begin),
            next_func=remote("following", tf.string, kinds["output_types"], following),
            finalize_func=functions.define("end", [(tf.string, [])], lambda text: [tf.constant(0, tf.int64)]).name, **kinds)
        iterator = ops.IteratorV2(shared_name="", container="", **kinds)
        start = ops.MakeIterator(dataset=generated, iterator=iterator)
        value, number = ops.IteratorGetNext(iterator=iterator, **kinds)
        y = value + tf.cast(number, tf.float32)
    with tf.Session() as session:
        session.run(start)
        for i in range(3):
            got = session.run([y, number])
            assert got[0].tolist() == [2 * i, 2 * i] and got[1] == i
        try:
            session.run(y)
            raise AssertionError
        except tf.errors.OutOfRangeError:
            pass

# A pipeline of two steps: what is computed in one is used in the next.
with tf.Graph().as_default(), tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [2])
    area = tf.contrib.staging.StagingArea([tf.float32, tf.int64], [[2], []], capacity=2)
    put = area.put([tf.exp(x), tf.cast(x[0], tf.int64)])
    y, n = area.get()
    out = [y * 2.0, n, area.size()]
    keyed = ops.MapStage(key=tf.constant(3, tf.int64), indices=[0], values=[x], dtypes=[tf.float32], shared_name="keyed")
    taken = ops.MapUnstage(key=tf.constant(3, tf.int64), indices=[0], dtypes=[tf.float32], shared_name="keyed")
    handle = tf.get_session_handle(x + 1.0)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=False)) as session:
        session.run(put, {x: [0, 1]})
        for i in range(3):
            session.run(put, {x: [i + 1, 1]})
            got = session.run(out)
            np.testing.assert_allclose(got[0], 2 * np.exp([i, 1]), 1e-5)
            assert got[1] == i
        session.run(keyed, {x: [5, 6]})
        assert session.run(taken)[0].tolist() == [5, 6]
        kept = session.run(handle, {x: [1, 2]})
        assert kept.eval().tolist() == [2, 3]
        kept.delete()

# Queues and functions of Python are on the host; their values go to the card.
with tf.Graph().as_default():
    queue = tf.FIFOQueue(4, [tf.float32], [[2]])
    fill = queue.enqueue_many([np.float32([[1, 2], [3, 4]])])
    value = tf.py_func(lambda v: v + np.float32(1), [queue.dequeue()], tf.float32)
    with tf.device("/gpu:0"):
        y = tf.sqrt(value)
    summary = tf.summary.histogram("y", y)
    with tf.Session() as session:
        session.run(fill)
        np.testing.assert_allclose(session.run(y), np.sqrt([2, 3]), 1e-6)
        assert len(session.run(summary)) > 0
""")


def test_errors_and_closed_sessions():
    _check("""
x = normal(64, 64)

def failing(x):
    def body(i, y):
        with tf.control_dependencies([tf.debugging.assert_less(i, 5)]):
            return i + 1, tf.matmul(y, y) * 0.01
    return tf.while_loop(lambda i, y: i < 10, body, [0, x])[1:]

for _ in range(2):
    try:
        run("/gpu:0", failing, [x], soft=True)
        raise AssertionError
    except tf.errors.InvalidArgumentError:
        pass

import threading
with tf.Graph().as_default(), tf.device("/gpu:0"):
    start = tf.placeholder(tf.float32, [64, 64])
    _, endless = tf.while_loop(lambda i, y: tf.reduce_max(y) < 1e30, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, y))), [0, start])
    with tf.device("/cpu:0"):
        queue = tf.FIFOQueue(1, tf.int32, [[]])
        begun, wait = queue.enqueue(1), queue.dequeue()
    session = tf.Session(config=tf.ConfigProto(allow_soft_placement=False))
    errors = []
    def go():
        try:
            session.run([endless, begun], {start: x})
        except tf.errors.OpError as error:
            errors.append(error)
    thread = threading.Thread(target=go)
    thread.start()
    assert session.run(wait) == 1  # the loop is under way
    session.close()
    thread.join()
    assert errors and isinstance(errors[0], (tf.errors.CancelledError, tf.errors.AbortedError)), errors
""")


def test_functions_of_datasets_run_on_the_cpu():
    done = subprocess.run([sys.executable, "-c", PROGRAM + """
iterator = tf.data.Dataset.from_tensors(normal(2) ** 2).map(lambda x: tf.sqrt(x, name="of_dataset")).make_initializable_iterator()
y = tf.exp(iterator.get_next(), name="of_step")
with tf.Session(config=tf.ConfigProto(log_device_placement=True)) as session:
    session.run(iterator.initializer)
    session.run(y)
"""], env=card.environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    placed = {name: [line for line in done.stderr.splitlines() if name + ":" in line] for name in ("of_dataset", "of_step")}
    assert [line[-5:] for lines in placed.values() for line in lines] == ["CPU:0", "GPU:0"], done.stderr


def test_loops_swap_what_gradients_need():
    card.emulated_only()  # it needs a card that is soon full
    _check("""
x = np.linspace(0.1, 1, 1 << 18).astype(np.float32)
config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.per_process_gpu_memory_fraction = 1 / 64  # 32 MiB of the 2 GiB that the emulated card has

def gradient(device, swap):
    with tf.Graph().as_default(), tf.device(device):
        start = tf.placeholder(tf.float32, x.shape)
        _, y = tf.while_loop(lambda i, y: i < 40, lambda i, y: (i + 1, y * tf.minimum(y, 1.0)), [0, start], swap_memory=swap,
                             parallel_iterations=1)
        with tf.Session(config=config) as session:
            return session.run(tf.gradients(y, start)[0], {start: x})

try:
    gradient("/gpu:0", False)
    raise AssertionError("the values would not fit")
except tf.errors.ResourceExhaustedError:
    pass
np.testing.assert_allclose(gradient("/gpu:0", True), gradient("/cpu:0", False), 1e-4)
""")


def test_sessions_that_close_give_their_memory_back():
    _check("""
x = normal(3, 8)
config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.per_process_gpu_memory_fraction = FRACTION

def build(x):
    # Elements of 4 MiB that were never written, values that the gradient keeps on stacks, a list and a variable.
    zeros = tf.TensorArray(tf.float32, 3, element_shape=[1 << 20], clear_after_read=False)
    rows = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x)
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y) * 0.5 + rows.read(i) + zeros.read(i)[:8]), [0, x])
    shape = tf.constant([8])
    handle = ops.TensorListFromTensor(tensor=y, element_shape=shape)
    v = tf.get_variable("v", [1 << 18], use_resource=True, initializer=tf.zeros_initializer())
    return [y, v[:2], ops.TensorListStack(input_handle=handle, element_shape=shape, element_dtype=tf.float32)] + tf.gradients(y, x)

with tf.Graph().as_default():
    inputs = tf.placeholder(tf.float32, [3, 8])
    with tf.device("/gpu:0"):
        outputs = build(inputs)
    start = tf.global_variables_initializer()
    for _ in range(200):  # a leak of 1 MiB would not fit
        with tf.Session(config=config) as session:
            session.run(start)
            session.run(outputs, {inputs: x})
""".replace("FRACTION", "1 / 32"))  # 64 MiB of the 2 GiB that the emulated card has
