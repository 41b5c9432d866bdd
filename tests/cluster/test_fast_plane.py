"""The fast plane: values are right, on one machine, where they are read in place in another process, and between machines."""
import numpy as np
import pytest

import muster as tf

STEPS = 30


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def _update_and_read(target, size):
    """Values that a ps changes in place and by what workers send, each read by another process after every change."""
    with tf.Graph().as_default():
        by = tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:0"):
            variable = tf.Variable(tf.zeros([size]), name="of_%d" % size)
            here = tf.assign_add(variable, tf.fill([size], by)).op
        with tf.device("/job:worker/task:0"):
            total = tf.reduce_sum(tf.cast(variable.read_value(), tf.float64))
            sent = 2 * tf.fill([size], by)
        with tf.device("/job:ps/task:0"):
            there = tf.assign_add(variable, sent).op
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            for step in range(STEPS):
                session.run(here, {by: 1.0})
                assert session.run(total) == (2 * step + 1) * size
                session.run(there, {by: 0.5})
                assert session.run(total) == (2 * step + 2) * size
            held = session.run(variable)
            session.run(here, {by: 1.0})
            # What was fetched is a value of its own.
            np.testing.assert_array_equal(held, np.full([size], 2.0 * STEPS, np.float32))


def _reads_memory_of_others(task):
    """Whether the process has mapped segments that it may only read: those are another one's."""
    with open("/proc/%d/maps" % task.process.pid) as maps:
        return any("memfd:muster" in line and " r--s " in line for line in maps)


@pytest.mark.parametrize("fast", ["1", "network", "0"])
def test_values_are_right_with_and_without(start_cluster, fast):
    cluster = start_cluster(ps=1, worker=1, environment={"MUSTER_FAST": fast})
    for size in (1, 5000, 300000):
        _update_and_read(cluster.target(), size)
    for task in cluster.tasks.values():
        assert _reads_memory_of_others(task) == (fast == "1")


def _many_variables(dtypes, count, shape):
    """(arrays, variables of the ps with these values, what a worker computes from each)."""
    rng = np.random.RandomState(0)
    held, variables, uses = [], [], []
    for i in range(count):
        held.append((rng.rand(*shape) * 100).astype(dtypes[i % len(dtypes)]))
        with tf.device("/job:ps/task:0"):
            variables.append(tf.Variable(held[-1], name="many_%d" % i, use_resource=i % 3 == 1))
        with tf.device("/job:worker/task:0"):
            uses.append(variables[-1].value() + variables[-1].value().dtype.as_numpy_dtype(1))
    return held, variables, uses


def _read_many(target, held, uses, added):
    """What the ps sends in a new session: (number of packed tensors, number of all tensors)."""
    options, metadata = tf.RunOptions(output_partition_graphs=True), tf.RunMetadata()
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        for step in range(3):
            for value, found in zip(held, session.run(uses, options=options, run_metadata=metadata)):
                np.testing.assert_array_equal(found, value + value.dtype.type(step + 1))
            session.run(added)
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    sent = [n for n in nodes if n.op == "_Send" and b"/job:ps" in n.attr["send_device"].s]
    return len([n for n in nodes if n.op == "_MusterPack"]), len(sent)


@pytest.mark.parametrize("batches", [True, False])
def test_small_variables_travel_together(start_cluster, batches):
    cluster = start_cluster(ps=1, worker=1, environment={"MUSTER_BATCHES": "1" if batches else "0"})
    held, variables, uses = _many_variables([np.float32, np.int64, np.float16, np.float64], 40, [3, 5])
    added = [tf.assign_add(v, tf.ones_like(v)).op for v in variables]
    # A master that does not know yet that they are tasks of Muster sends each tensor by itself.
    seen = {_read_many(cluster.target(), held, uses, added) for _ in range(4 if batches else 1)}
    assert seen <= {(1, 1), (0, 40)}
    assert ((1, 1) in seen) == batches


def test_small_variables_that_are_not_there_or_have_another_shape(start_cluster):
    cluster = start_cluster(ps=1, worker=1)
    held, variables, uses = _many_variables([np.float32], 12, [4])
    with tf.device("/job:ps/task:0"):
        wider = tf.assign(variables[5], tf.fill([2, 3], 7.0), validate_shape=False).op
    missing = variables[3]
    with tf.Session(cluster.target()) as session:
        session.run([v.initializer for v in variables if v is not missing])
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value many_3") as caught:
            session.run(uses)
        assert caught.value.op.name == "many_3/read"
        session.run(missing.initializer)
        session.run(wider)
        found = session.run(uses)
    for i, value in enumerate(held):
        np.testing.assert_array_equal(found[i], np.full([2, 3], 8.0) if i == 5 else value + 1)
