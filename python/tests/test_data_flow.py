"""Queues, accumulators, barriers and staging areas: Muster answers what TensorFlow 2.21 answers."""
import json
import subprocess
import threading
import time

import data_flow_programs
import numpy as np
import pytest

import muster as tf


@pytest.fixture(scope="module")
def expected(tf_python, tmp_path_factory):
    out = tmp_path_factory.mktemp("data_flow") / "answers"
    done = subprocess.run([tf_python, data_flow_programs.__file__, str(out)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", data_flow_programs.PROGRAMS)
def test_answers(expected, name):
    got = json.loads(json.dumps(data_flow_programs.answers(tf, data_flow_programs.PROGRAMS[name])))
    assert got == expected[name]


@pytest.mark.parametrize("wait", ["dequeue", "dequeue_many", "enqueue", "take", "close", "unstage"])
def test_a_waiting_step_ends_with_its_time_or_its_session(wait):
    """A step that waits blocks no other: it ends when its time is over, or when the session closes."""
    with tf.Graph().as_default():
        empty, full = tf.FIFOQueue(2, tf.int32, [[]]), tf.FIFOQueue(1, tf.int32, [[]])
        put = full.enqueue(1)
        accumulator = tf.ConditionalAccumulator(tf.float32, [])
        area = tf.contrib.staging.StagingArea([tf.float32])
        op = {"dequeue": empty.dequeue, "dequeue_many": lambda: empty.dequeue_many(3), "enqueue": lambda: put,
              "take": lambda: accumulator.take_grad(1), "close": full.close, "unstage": area.get}[wait]()
        fill, size = empty.enqueue(5), empty.size()
        begun = threading.Event()
        begins = tf.py_func(begun.set, [], [])
        with tf.Session() as session:
            session.run([put, fill])
            if wait == "dequeue":
                session.run(empty.dequeue())
            blocked = threading.Thread(target=lambda: pytest.raises(tf.errors.OpError, session.run, put))
            if wait == "close":
                blocked.start()
                time.sleep(0.1)
            start = time.monotonic()
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(op, options=tf.RunOptions(timeout_in_ms=200))
            assert 0.15 < time.monotonic() - start < 5
            assert session.run(size) == (0 if wait == "dequeue" else 1)
            ended = []

            def run():
                try:
                    session.run([op, begins])
                    assert wait == "close"  # the enqueue that it waited for was cancelled first
                    ended.append("closed")
                except tf.errors.CancelledError as e:
                    ended.append(e.message)

            waits = threading.Thread(target=run)
            waits.start()
            assert begun.wait(60)
            time.sleep(0.2)
            assert not ended
        waits.join(60)
        assert len(ended) == 1
        if wait == "close":
            blocked.join(60)


def test_private_queues_belong_to_a_session_and_a_node():
    with tf.Graph().as_default():
        a = tf.FIFOQueue(5, tf.int32, [[]], name="a")
        put, size = a.enqueue(1), a.size()
        with tf.Session() as first, tf.Session() as second:
            first.run(put)
            first.run([put])  # another plan, the same queue
            assert first.run(size) == 2
            assert second.run(size) == 0


def test_fed_arrays_may_change_after_the_step():
    with tf.Graph().as_default():
        q = tf.FIFOQueue(5, tf.float32, [[1000]])
        x = tf.placeholder(tf.float32, [1000])
        put, get = q.enqueue(x), q.dequeue()
        accumulator = tf.ConditionalAccumulator(tf.float32, [1000])
        apply, take = accumulator.apply_grad(x), accumulator.take_grad(1)
        with tf.Session() as session:
            array = np.ones(1000, np.float32)
            session.run([put, apply], {x: array})
            array[:] = 7
            assert session.run(get).tolist() == [1] * 1000
            assert session.run(take).tolist() == [1] * 1000


def test_many_producers_and_consumers():
    with tf.Graph().as_default():
        q = tf.FIFOQueue(7, tf.int64, [[]])
        x = tf.placeholder(tf.int64, [None])
        put, get, close = q.enqueue_many(x), q.dequeue_up_to(5), q.close()
        found = []
        with tf.Session() as session:
            def produce(first):
                for i in range(50):
                    session.run(put, {x: [first + 3 * i, first + 3 * i + 1, first + 3 * i + 2]})

            def consume():
                try:
                    while True:
                        found.extend(session.run(get).tolist())
                except tf.errors.OutOfRangeError:
                    pass

            producers = [threading.Thread(target=produce, args=(1000 * i,)) for i in range(4)]
            consumers = [threading.Thread(target=consume) for _ in range(3)]
            for thread in producers + consumers:
                thread.start()
            for thread in producers:
                thread.join(60)
            session.run(close)
            for thread in consumers:
                thread.join(60)
        assert sorted(found) == sorted(1000 * i + j for i in range(4) for j in range(150))


def test_staging_area_keeps_names_and_shapes():
    with tf.Graph().as_default():
        area = tf.contrib.staging.StagingArea([tf.float32, tf.int32], shapes=[[2], []], names=["x", "y"])
        put = area.put({"x": tf.constant([1., 2.]), "y": tf.constant(3)})
        got = area.get()
        assert got["x"].shape.as_list() == [2]
        with tf.Session() as session:
            session.run(put)
            assert session.run(area.size()) == 1
            values = session.run(got)
            assert values["x"].tolist() == [1, 2] and values["y"] == 3


def test_modules_of_old_scripts():
    from muster.names import alias

    alias.install()
    from tensorflow.python.ops import data_flow_ops

    assert data_flow_ops.FIFOQueue is tf.FIFOQueue is tf.queue.FIFOQueue
    assert data_flow_ops.StagingArea is tf.contrib.staging.StagingArea
    assert data_flow_ops.Barrier
