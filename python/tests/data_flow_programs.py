"""Programs with queues, accumulators, barriers and staging areas; each gives the list of what its steps answered.

Run by test_data_flow.py in TensorFlow's interpreter too, which writes its answers as JSON.
"""
import json
import os
import re
import sys
import tempfile
import threading
import time

import numpy as np

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    return _plain(value.tolist()) if hasattr(value, "tolist") else value


def _text(error):
    """The error's class and the line that says what was wrong, without the numbers of private resources."""
    lines = [line.strip() for line in str(error).split("\n")]
    lines = [line for line in lines if line and not re.match(r"Graph execution|Detected at|File |Node:|\[\[|Original|\(", line)]
    text = re.sub(r"'_\d+_", "'_N_", re.sub(r"barrier _\d+_|Barrier _\d+_", "barrier _N_", lines[0] if lines else ""))
    text = re.sub(r" for '.*| *\[\[.*", "", text)
    return "%s: %s" % (type(error).__name__, text)


def answers(tf, build):
    with tf.Graph().as_default():
        try:
            steps = build(tf)
        except (ValueError, TypeError) as error:
            return [_text(error)]
        with tf.Session() as session:
            found = []
            for step in steps:
                try:
                    found.append(_plain(step(session) if callable(step) else session.run(step)))
                except tf.errors.OpError as error:
                    found.append(_text(error))
            return found


def _fed(tf, value, dtype):
    """A value whose shape is not known while the graph is built."""
    return tf.placeholder_with_default(np.array(value, dtype.as_numpy_dtype), None)


def _until(condition):
    until = time.time() + 60
    while not condition() and time.time() < until:
        time.sleep(0.01)


def _meanwhile(waits, then, wait_seconds=0.6):
    """Runs `waits` on another thread, then `then` while it waits; gives how `waits` ended."""
    def step(session):
        ended = []

        def run():
            try:
                ended.append(_plain(session.run(waits)))
            except Exception as error:  # an OpError of either library
                ended.append(_text(error))

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(wait_seconds)
        waited = not ended
        results = [_plain(session.run(fetch)) for fetch in then]
        thread.join(60)
        return [waited, results, ended]

    return step


@program
def fifo(tf):
    q = tf.FIFOQueue(3, [tf.float32, tf.string], [[2], []], name="q")
    put = q.enqueue(([1., 2.], "a"))
    many = q.enqueue_many(([[3., 4.], [5., 6.]], ["b", "c"]))
    return [q.size(), put, many, q.size(), q.dequeue(), q.dequeue_many(2), q.is_closed(), q.close(), q.is_closed(),
            q.dequeue(), put, many, q.close(), q.close(cancel_pending_enqueues=True), q.dequeue_many(2),
            q.dequeue_up_to(2), q.dequeue_many(0)]


@program
def fifo_with_names(tf):
    q = tf.FIFOQueue(3, [tf.float32, tf.int32], [[], []], names=["x", "y"], name="q")
    return [q.enqueue({"x": 1., "y": 2}), q.dequeue()]


@program
def old_handles(tf):
    q = tf.raw_ops.FIFOQueue(component_types=[tf.int32], shapes=[[]], capacity=5, shared_name="old")
    new = tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shapes=[[]], capacity=5, shared_name="old")
    return [tf.raw_ops.QueueEnqueueMany(handle=q, components=[[1, 2, 3]]), tf.raw_ops.QueueSize(handle=q),
            tf.raw_ops.QueueDequeue(handle=q, component_types=[tf.int32]),
            tf.raw_ops.QueueDequeueManyV2(handle=new, n=2, component_types=[tf.int32]),
            tf.raw_ops.QueueClose(handle=q), tf.raw_ops.QueueIsClosedV2(handle=new), tf.raw_ops.QueueIsClosed(handle=q)]


@program
def waiting(tf):
    q = tf.FIFOQueue(2, tf.int32, [[]], name="q")
    size = q.size()
    return [_meanwhile(q.dequeue(), [q.enqueue(7)]), size,
            _meanwhile(q.dequeue_many(3), [q.enqueue_many([[1, 2]]), size, q.enqueue_many([[3, 4]])]), size,
            _meanwhile(q.enqueue_many([[5, 6, 7]]), [size, q.dequeue(), q.dequeue_many(3)]), size,
            _meanwhile(q.enqueue_many([[1, 2, 3]]), [q.close(cancel_pending_enqueues=True), size]), size]


@program
def closing_behind_an_enqueue(tf):
    q = tf.FIFOQueue(1, tf.int32, [[]], name="q")
    closed = q.is_closed()
    return [q.enqueue(1), _meanwhile(q.enqueue(2), [closed, q.dequeue()]), _meanwhile(q.enqueue(3), [q.dequeue()]),
            _meanwhile(q.dequeue_many(3), [q.close()]), q.size(), q.dequeue_up_to(3)]


@program
def random_shuffle(tf):
    tf.set_random_seed(11)
    a = tf.RandomShuffleQueue(50, 0, tf.int32, [[]], seed=3, name="a")
    b = tf.RandomShuffleQueue(50, 5, tf.int32, [[]], seed=-8, name="b")
    c = tf.RandomShuffleQueue(50, 5, tf.int32, [[]], shared_name="c", name="c")
    steps = []
    for q in (a, b, c):
        steps += [q.enqueue_many([list(range(20))]), q.dequeue_many(7), q.dequeue(), q.enqueue_many([[50, 51, 52]]),
                  q.dequeue_many(4), q.size(), q.close(), q.dequeue_up_to(6), q.dequeue_up_to(60), q.dequeue()]
    return steps


@program
def priorities(tf):
    q = tf.PriorityQueue(30, [tf.string], [[]], name="q")
    keys = [3, 1, 1, 2, 1, 2, 3, 1, 0, 0, 1, 1, -5]
    return [q.enqueue_many((keys, [str(i) for i in range(len(keys))])), q.dequeue(), q.dequeue_many(4),
            q.enqueue((1, "new")), q.close(), q.dequeue_up_to(9), q.dequeue()]


@program
def padding(tf):
    q = tf.PaddingFIFOQueue(10, [tf.float32, tf.string], [[None, 2], [None]], name="q")
    return [q.enqueue(([[1., 2.]], ["a", "b", "c"])), q.enqueue((np.zeros([0, 2], np.float32), ["d"])),
            q.enqueue(([[3., 4.], [5., 6.]], np.zeros([0], "S1"))), q.dequeue_many(3), q.dequeue_many(0),
            q.enqueue_many(([[[1., 2.]]], [["z"]])), q.dequeue(), q.close(), q.dequeue_many(2), q.dequeue()]


@program
def wrong_elements(tf):
    f32 = tf.float32
    q = tf.FIFOQueue(5, [f32, f32], name="q")
    shaped = tf.FIFOQueue(5, [f32, f32], [[], []], name="shaped")
    pads = tf.PaddingFIFOQueue(3, f32, [[None, 2]], name="pads")
    raw = tf.raw_ops
    return [q.enqueue_many((_fed(tf, [1.], f32), _fed(tf, [1., 2.], f32))),
            shaped.enqueue_many((_fed(tf, [1.], f32), _fed(tf, [1., 2.], f32))), q.dequeue_many(2),
            pads.enqueue(_fed(tf, [[1.]], f32)), pads.enqueue_many(_fed(tf, [[[1.]]], f32)),
            raw.QueueEnqueueV2(handle=q.queue_ref, components=[_fed(tf, 1, tf.int32)]),
            raw.QueueDequeueV2(handle=q.queue_ref, component_types=[tf.int32, f32]), shaped.dequeue_up_to(-1),
            raw.QueueDequeueV2(handle=q.queue_ref, component_types=[f32, f32], timeout_ms=10)]


@program
def wrong_count(tf):
    return [tf.FIFOQueue(5, tf.float32, [[]], name="q").dequeue_many(-1)]


@program
def wrong_queues(tf):
    raw, f32 = tf.raw_ops, tf.float32
    size = lambda handle: raw.QueueSizeV2(handle=handle)
    return [size(raw.FIFOQueueV2(component_types=[f32, f32], shapes=[[]])),
            size(raw.FIFOQueueV2(component_types=[f32], shapes=[[None]])),
            size(raw.FIFOQueueV2(component_types=[f32], shared_name="_x")),
            size(raw.FIFOQueueV2(component_types=[f32], container="_x")),
            size(raw.RandomShuffleQueueV2(component_types=[f32], capacity=5, min_after_dequeue=5)),
            size(raw.RandomShuffleQueueV2(component_types=[f32], capacity=5, min_after_dequeue=-1))]


@program
def shared_queues(tf):
    raw, f32 = tf.raw_ops, tf.float32
    steps = []
    for name, makers in enumerate([
            (("FIFOQueueV2", dict(component_types=[f32])), ("FIFOQueueV2", dict(component_types=[tf.int32, f32]))),
            (("FIFOQueueV2", dict(component_types=[f32], capacity=3)), ("FIFOQueueV2", dict(component_types=[f32]))),
            (("FIFOQueueV2", dict(component_types=[f32], shapes=[[2]])), ("FIFOQueueV2", dict(component_types=[f32]))),
            (("FIFOQueueV2", dict(component_types=[f32])), ("RandomShuffleQueueV2", dict(component_types=[f32]))),
            (("RandomShuffleQueueV2", dict(component_types=[f32])),
             ("RandomShuffleQueueV2", dict(component_types=[f32], min_after_dequeue=2))),
            (("RandomShuffleQueueV2", dict(component_types=[f32], seed=1, seed2=2)),
             ("RandomShuffleQueueV2", dict(component_types=[f32], seed=1))),
            (("RandomShuffleQueueV2", dict(component_types=[f32], seed=1, seed2=2)),
             ("RandomShuffleQueueV2", dict(component_types=[f32]))),
            (("PaddingFIFOQueueV2", dict(component_types=[f32], shapes=[[None]])),
             ("PaddingFIFOQueueV2", dict(component_types=[f32], shapes=[[2]]))),
            (("PriorityQueueV2", dict(component_types=[f32], shapes=[[2]])),
             ("PriorityQueueV2", dict(component_types=[f32], shapes=[[3]])))]):
        steps += [raw.QueueSizeV2(handle=getattr(raw, op)(shared_name="s%d" % name, **attrs)) for op, attrs in makers]
    return steps


@program
def dense_accumulator(tf):
    a = tf.ConditionalAccumulator(tf.float32, [2], name="a")
    total = tf.ConditionalAccumulator(tf.float64, reduction_type="SUM", name="total")
    half = tf.ConditionalAccumulator(tf.float16, [3], name="half")
    count = a.num_accumulated()
    steps = [a.apply_grad([1., 2.]), a.apply_grad([3., 5.], local_step=7), count,
             a.apply_grad(_fed(tf, [1.], tf.float32)), count, a.take_grad(1), count,
             a.apply_grad([1., 2.], local_step=0), a.apply_grad(_fed(tf, [9.], tf.float32), local_step=0), count,
             a.set_global_step(3), a.apply_grad([1., 1.], local_step=2), count, a.set_global_step(2),
             a.apply_grad([1., 1.], local_step=2), count, a.take_grad(0), a.take_grad(-3),
             _meanwhile(a.take_grad(3), [a.apply_grad([2., 2.], 2), a.apply_grad([3., 3.], 2)]), count]
    steps += [total.apply_grad(_fed(tf, v, tf.float64)) for v in ([1.5, 2.], [2.], [0.5, 1.])] + [total.take_grad(2)]
    steps += [half.apply_grad(v) for v in ([1.1, 1000, 60000], [2.3, 1001, 60000], [3.7, 0.3, 1])] + [half.take_grad(3)]
    return steps


@program
def takes_in_line(tf):
    a = tf.ConditionalAccumulator(tf.float32, [1], name="a")
    far = 100
    apply = a.apply_grad([2.], local_step=far)
    one, three = a.take_grad(1), a.take_grad(3)

    def step(session):
        ended = []
        threads = [threading.Thread(target=lambda op=op, name=name: ended.append([name, _plain(session.run(op))]))
                   for name, op in (("three", three), ("one", one))]
        for thread in threads:
            thread.start()
            time.sleep(0.6)
        session.run(apply)
        time.sleep(0.3)
        before = list(ended)
        session.run(apply)
        session.run(apply)
        _until(lambda: ended)
        session.run(apply)
        for thread in threads:
            thread.join(60)
        return [before, ended]

    return [step]


@program
def sparse_accumulator(tf):
    f32, i64 = tf.float32, tf.int64
    steps = []
    for shape, gradients in (
            ([], [([1, 3], [[1., 1], [3, 3]], None), ([3, 3], [[5., 5], [7, 7]], None)]),
            ([4, 2], [([1, 3], [[1., 1], [3, 3]], [4, 2]), ([0, 3], [[1., 1], [5, 3]], None)]),
            ([4, 2], [([4], [[1., 1]], None)]), ([4, 2], [([1], [[1., 1, 1]], None)]), ([4, 2], [([1], [1.], None)]),
            ([4, 2], [([1], [[1., 2]], [4, 3])]), ([4, 2], [([1], [[1., 2]], [5, 2])]),
            ([4, 2], [([1], [[1., 2]], [4])]), ([], [([1], [[1., 2]], None), ([1], [[1.]], None)]),
            ([], [([1], [[1., 2]], None), ([1], [1.], None)]), ([], [([1], 1., None)]), ([], [([[1]], [[1.]], None)]),
            ([], [([1, 2], [[1.]], None)]), ([], [([], np.zeros([0, 2]), None), ([1], [[1., 2]], None)]),
            ([None, 2], [([2], [[1., 2]], None), ([], np.zeros([0, 2]), None)])):
        a = tf.SparseConditionalAccumulator(f32, shape)
        for indices, values, dense in gradients:
            steps.append(a.apply_grad(_fed(tf, indices, i64), _fed(tf, values, f32),
                                      None if dense is None else _fed(tf, dense, i64), local_step=5))
        count = a.num_accumulated()
        steps += [count, a.set_global_step(6), a.apply_grad([99], [[1.]], local_step=5), count]
        steps.append(lambda session, a=a, count=count: session.run(a.take_grad(1)) if session.run(count) else None)
    return steps


@program
def barrier(tf):
    raw = tf.raw_ops
    steps = []
    for name in ("a", "b"):
        b = raw.Barrier(component_types=[tf.float32, tf.int32], shapes=[[], [2]], name=name)
        insert = lambda component, keys, values: raw.BarrierInsertMany(
            handle=b, keys=keys, values=tf.constant(values, [tf.float32, tf.int32][component]),
            component_index=component)
        take = lambda count, fewer=False: raw.BarrierTakeMany(
            handle=b, num_elements=count, component_types=[tf.float32, tf.int32], allow_small_batch=fewer)
        ready, incomplete = raw.BarrierReadySize(handle=b), raw.BarrierIncompleteSize(handle=b)
        close = raw.BarrierClose(handle=b)
        steps += [insert(0, ["x", "y", "z"], [1, 2, 3]), ready, incomplete, insert(1, ["z", "x"], [[7, 8], [9, 0]]),
                  ready, take(2), insert(0, ["y"], [5]), insert(1, ["w"], [[1, 2]]), insert(1, ["y"], [[3, 4]]), take(1)]
        if name == "a":
            steps += [close, close, insert(0, ["new"], [1]), incomplete, insert(0, ["w"], [5]), take(3, True),
                      take(1, True), take(1), insert(0, ["q"], [1])]
        steps += [raw.BarrierClose(handle=b, cancel_pending_enqueues=True), incomplete, insert(0, ["w"], [1]), take(1),
                  close]
    return steps


@program
def staging(tf):
    raw, f32 = tf.raw_ops, tf.float32
    area = dict(shared_name="s", capacity=2, memory_limit=100)
    size = raw.StageSize(dtypes=[f32], **area)
    put = lambda v: raw.Stage(values=[_fed(tf, v, f32)], **area)
    get = raw.Unstage(dtypes=[f32], **area)
    return [put([1.]), put([2.]), size, raw.StagePeek(index=1, dtypes=[f32], **area), _meanwhile(put([3.]), [get]), size,
            get, get, _meanwhile(get, [put([4., 5.])]), put(np.zeros(99)), put([1.]),
            raw.StageClear(dtypes=[f32], **area), size]


@program
def staging_with_keys(tf):
    raw, f32 = tf.raw_ops, tf.float32
    steps = []
    for prefix in ("Map", "OrderedMap"):
        op = lambda name: getattr(raw, prefix + name)
        area = dict(shared_name="m" + prefix)
        both = dict(area, dtypes=[f32, f32])
        put = lambda key, indices, values: op("Stage")(key=tf.constant(key, tf.int64), indices=indices,
                                                       values=[tf.constant(v, f32) for v in values], **both)
        get = lambda name, key, indices: op(name)(key=tf.constant(key, tf.int64), indices=indices,
                                                  dtypes=[f32] * len(indices), **area)
        size, incomplete = op("Size")(**both), op("IncompleteSize")(**both)
        steps += [put(5, [0, 1], [1., 2.]), put(3, [0], [3.]), size, incomplete, put(3, [0], [3.]), put(3, [1], [4.]),
                  size, incomplete, put(3, [0, 1], [1., 2.]), get("Peek", 3, [0, 1]), get("Unstage", 3, [1]),
                  get("Peek", 3, [1]), size, get("Unstage", 3, [0]), size, op("UnstageNoKey")(indices=[0, 1], **both),
                  put(5, [1, 0], [1., 2.]), _meanwhile(get("Unstage", 8, [0, 1]), [put(8, [0, 1], [8., 9.])]),
                  put(1, [0, 1], [1., 2.]), op("Clear")(**both), size]
    return steps


@program
def kept_tensors(tf):
    value = tf.constant([1., 2.]) * 2
    handle = tf.get_session_handle(value)

    def step(session):
        kept = session.run(handle)
        holder, tensor = tf.get_session_tensor(kept.handle, tf.float32)
        first = session.run([tensor * 3, value + 1], {holder: kept.handle, value: kept})
        raw = kept.get_raw_handle()
        second = session.run(tensor, {holder: raw})
        name, _, device = raw.split(";")
        holder2, deleter = tf.delete_session_tensor(raw)
        session.run(deleter, {holder2: raw})
        again = session.run(handle)
        evaluated = again.eval()
        again.delete()
        return [name, device, _plain(first), _plain(second), _plain(evaluated)]

    return [step]


@program
def kept_sparse_tensors(tf):
    raw = tf.raw_ops
    indices, values = [[0, 0], [0, 3], [2, 1]], tf.constant(["a", "b", "c"])
    shape = np.int64([3, 4])
    add = raw.AddSparseToTensorsMap(sparse_indices=indices, sparse_values=values, sparse_shape=shape, shared_name="kept")
    many = raw.AddManySparseToTensorsMap(sparse_indices=indices, sparse_values=values, sparse_shape=shape, shared_name="kept")

    def take(handles, dtype=tf.string):
        return list(raw.TakeManySparseFromTensorsMap(sparse_handles=np.array(handles, np.int64), dtype=dtype, shared_name="kept"))

    vector = raw.AddManySparseToTensorsMap(sparse_indices=_fed(tf, [[1]], tf.int64), sparse_values=_fed(tf, [1.0], tf.float32),
                                           sparse_shape=_fed(tf, [2], tf.int64), shared_name="kept")
    outside = raw.AddManySparseToTensorsMap(sparse_indices=_fed(tf, [[5, 0]], tf.int64), sparse_values=_fed(tf, [1.0], tf.float32),
                                            sparse_shape=_fed(tf, [2, 2], tf.int64), shared_name="kept")
    return [add, add, many, take([1, 0]), take([0]), take([4, 3, 2]), take([]), vector, outside, add, take([5], tf.int32), add, many,
            take([6, 7])]


@program
def mutexes(tf):
    """One step at a time holds a mutex; a lock that was not consumed ends with its step."""
    raw = tf.raw_ops
    count = tf.Variable(0)
    mutex = raw.MutexV2(shared_name="turn")
    held = raw.MutexLock(mutex=mutex)
    with tf.control_dependencies([held]):
        counted = tf.assign_add(count, 1)
    with tf.control_dependencies([counted]):
        consumed = raw.ConsumeMutexLock(mutex_lock=held)

    def together(session):
        threads = [threading.Thread(target=session.run, args=([counted, consumed],)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return session.run(count)

    return [tf.global_variables_initializer(), [counted, consumed], counted, counted, together]


@program
def warm_starts(tf):
    raw = tf.raw_ops
    folder = tempfile.mkdtemp()
    for name, words in (("old", "a b c d"), ("new", "c x a d y"), ("twice", "a a")):
        with open(os.path.join(folder, name), "w") as file:
            file.write(words.replace(" ", "\n") + "\n")

    def remapping(offset, count, old="old", size=-1, new="new"):
        return list(raw.GenerateVocabRemapping(new_vocab_file=os.path.join(folder, new), old_vocab_file=os.path.join(folder, old),
                                               new_vocab_offset=offset, num_new_vocab=count, old_vocab_size=size))

    path = os.path.join(folder, "checkpoint")
    save = raw.SaveV2(prefix=path, tensor_names=["m", "v"], shape_and_slices=["", ""],
                      tensors=[tf.reshape(tf.range(12.0), [4, 3]), tf.constant([1.0])])

    def load(rows, columns, fresh, num_cols=3, name="m"):
        return raw.LoadAndRemapMatrix(
            ckpt_path=path, old_tensor_name=name, row_remapping=np.array(rows, np.int64), col_remapping=np.array(columns, np.int64),
            initializing_values=np.array(fresh, np.float32), num_rows=len(rows), num_cols=num_cols)

    def kind(node):
        def step(session):
            try:
                return session.run(node)
            except tf.errors.OpError as error:
                return type(error).__name__
        return step

    good = [remapping(0, 5), remapping(1, 3), remapping(0, 5, size=2), remapping(0, 0), save, load([2, -1, 0], [], [7, 8, 9]),
            load([3, 1], [2, -1], [5, 6], num_cols=2), load([-1], [], [1, 2, 3])]
    bad = [remapping(3, 3), remapping(0, 1, new="none"), load([0, -1], [], [1]), load([0], [], [1]),
           load([0, 0], [], []), load([0], [], [], num_cols=2), load([0], [], [], name="v"), load([0], [], [], name="w")]
    return good + [kind(node) for node in bad]


@program
def crossed_features(tf):
    raw = tf.raw_ops
    words = dict(indices=[[0, 0], [0, 1], [2, 0]], values=tf.constant(["a", "b", "c"]), shape=[3, 2])
    numbers = dict(indices=[[0, 0], [1, 0], [2, 0], [2, 1]], values=tf.constant([5, 6, 7, -8], tf.int64), shape=[3, 2])
    dense = tf.constant([["x", "y"], ["z", "z"], ["", "w"]])

    def cross(hashed, columns=(words, numbers), more=(dense,), buckets=100, key=956888297470):
        kind = tf.int64 if hashed else tf.string
        return list(raw.SparseCross(
            indices=[np.array(c["indices"], np.int64) for c in columns], values=[c["values"] for c in columns],
            shapes=[np.array(c["shape"], np.int64) for c in columns], dense_inputs=list(more), hashed_output=hashed,
            num_buckets=buckets, hash_key=key, out_type=kind, internal_type=kind))

    joined = list(raw.SparseCrossV2(
        indices=[np.array(words["indices"], np.int64)], values=[words["values"]], shapes=[np.array(words["shape"], np.int64)],
        dense_inputs=[dense], sep="&"))
    empty = dict(indices=np.zeros([0, 2]), values=tf.constant([], tf.string), shape=[3, 0])
    return [cross(False), cross(False, (words,)), cross(True), cross(True, buckets=0, key=1), cross(True, (numbers,), ()), cross(False, (words,), ()),
            cross(False, (words, empty)), cross(True, (), (dense,)), joined]


def main(out):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    with open(out, "w") as file:
        json.dump({name: answers(tf, build) for name, build in PROGRAMS.items()}, file)


if __name__ == "__main__":
    main(sys.argv[1])
