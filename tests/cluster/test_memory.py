"""Tensors larger than memory, or than the limit of a task or session, are errors; freed memory returns to the system."""
import re
import time

import numpy as np
import pytest

import muster as tf

MEGA = 1 << 20


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize("fast", ["1", "0"])
def test_a_tensor_larger_than_memory_is_refused(start_cluster, fast):
    cluster = start_cluster(ps=1, environment={"MUSTER_FAST": fast})
    with tf.device("/job:ps/task:0"):
        shape = tf.placeholder_with_default([10**8, 1000], [2])
        filled = tf.fill(shape, 1.0)
        total = tf.reduce_sum(filled)
        drawn = tf.reduce_sum(tf.random_uniform([10**8, 1000]))
    with tf.Session(cluster.target("ps")) as session:
        for fetch in (total, drawn, filled):
            with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM when allocating tensor"):
                session.run(fetch)
        assert session.run(total, {shape: [10, 10]}) == 100.0
    assert cluster.tasks["ps", 0].process.poll() is None


def test_a_task_keeps_to_its_limit(start_cluster):
    cluster = start_cluster(ps=1, flags=["--max-memory-bytes", str(100 * MEGA)])
    with tf.device("/job:ps/task:0"):
        size = tf.placeholder(tf.int32, [])
        total = tf.reduce_sum(tf.fill([size], 1.0))
        queue = tf.FIFOQueue(1000, tf.float32, [MEGA // 4], shared_name="many")
        enqueue = queue.enqueue(tf.zeros([MEGA // 4]))
        dequeue = queue.dequeue().op
    with tf.Session(cluster.target("ps")) as session:
        assert session.run(total, {size: 10 * MEGA // 4}) == 10 * MEGA // 4
        with pytest.raises(tf.errors.ResourceExhaustedError, match="may take 104857600 bytes"):
            session.run(total, {size: 200 * MEGA // 4})
        # Many of middling size add up, and are counted back.
        for _ in range(2):
            held = 0
            with pytest.raises(tf.errors.ResourceExhaustedError, match="may take 104857600 bytes"):
                for held in range(1000):
                    session.run(enqueue)
            assert 50 <= held <= 100
            for _ in range(held):
                session.run(dequeue)


def test_a_variable_that_must_be_copied_to_change_keeps_to_the_limit(start_cluster):
    cluster = start_cluster(ps=1, flags=["--max-memory-bytes", str(100 * MEGA)])
    with tf.device("/job:ps/task:0"):
        variable = tf.get_variable("v", [15, MEGA], initializer=tf.zeros_initializer(), use_resource=True)
        queue = tf.FIFOQueue(1, tf.float32, shared_name="kept")
        keep = queue.enqueue(variable.read_value())
        let_go = queue.dequeue().op
        change = tf.scatter_add(variable, [3], tf.ones([1, MEGA]))
        element = variable[3, 5]
    with tf.Session(cluster.target("ps")) as session:
        session.run(variable.initializer)
        session.run(change.op)
        session.run(keep)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="may take 104857600 bytes"):
            session.run(change.op)
        assert session.run(element) == 1.0
        session.run(let_go)
        session.run(change.op)
        assert session.run(element) == 2.0


def test_feeds_keep_to_the_limit(start_cluster, monkeypatch):
    monkeypatch.setenv("MUSTER_FAST", "0")  # on the fast plane they stay in the client's memory
    cluster = start_cluster(ps=1, flags=["--max-memory-bytes", str(100 * MEGA)])
    fed = tf.placeholder(tf.float32, [None])
    with tf.device("/job:ps/task:0"):
        first = fed[0]
    with tf.Session(cluster.target("ps")) as session:
        for _ in range(2):
            assert session.run(first, {fed: np.ones([40 * MEGA // 4], np.float32)}) == 1.0
            with pytest.raises(tf.errors.ResourceExhaustedError, match="may take 104857600 bytes"):
                session.run(first, {fed: np.ones([120 * MEGA // 4], np.float32)})


def test_a_dataset_keeps_to_the_limit(start_cluster):
    cluster = start_cluster(ps=1, flags=["--max-memory-bytes", str(100 * MEGA)])
    with tf.device("/job:ps/task:0"):
        size = tf.placeholder(tf.int64, [])
        iterator = tf.data.Dataset.range(2**60).batch(size).make_initializable_iterator()
        total = tf.reduce_sum(iterator.get_next())
    with tf.Session(cluster.target("ps")) as session:
        session.run(iterator.initializer, {size: 2**40})
        with pytest.raises(tf.errors.ResourceExhaustedError, match="may take 104857600 bytes"):
            session.run(total)
        session.run(iterator.initializer, {size: 4})
        assert session.run(total) == 6


def test_a_session_keeps_to_its_limit(start_cluster):
    cluster = start_cluster(ps=1, environment={"MUSTER_MAX_SESSION_MEMORY_BYTES": str(50 * MEGA)})
    with tf.device("/job:ps/task:0"):
        size = tf.placeholder(tf.int32, [])
        total = tf.reduce_sum(tf.fill([size], 1.0))
        variable = tf.get_variable("v", [30 * MEGA // 4], use_resource=True)
    first, second = tf.Session(cluster.target("ps")), tf.Session(cluster.target("ps"))
    first.run(variable.initializer)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="this session at /job:ps"):
        first.run(total, {size: 40 * MEGA // 4})
    # What the other one has made is not on its account.
    assert second.run(total, {size: 40 * MEGA // 4}) == 40 * MEGA // 4
    for session in (first, second):
        session.close()


@pytest.mark.parametrize("fast", ["1", "0"])
def test_what_large_feeds_leave_goes_back(start_cluster, monkeypatch, fast):
    monkeypatch.setenv("MUSTER_FAST", fast)
    cluster = start_cluster(ps=1)
    fed = tf.placeholder(tf.float32, [None])
    with tf.device("/job:ps/task:0"):
        total = tf.reduce_sum(tf.sqrt(fed + 1.0) * 2.0)

    def resident():
        with open("/proc/%d/status" % cluster.tasks["ps", 0].process.pid) as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) << 10

    with tf.Session(cluster.target("ps")) as session:
        for megas in (400, 300, 350):
            session.run(total, {fed: np.zeros([megas * MEGA // 4], np.float32)})
        end = time.time() + 60  # from here on: feeding takes its time on a busy machine
        while resident() > 250 * MEGA:
            assert time.time() < end, "%d bytes are still there" % resident()
            time.sleep(0.1)
        assert session.run(total, {fed: [3.0]}) == 4.0
