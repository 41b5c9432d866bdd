"""Tasks of one machine: tensors are read where they lie in another process, and are right all the same."""
import numpy as np
import pytest

import muster as tf

STEPS = 30


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


@pytest.mark.parametrize("fast", [True, False])
def test_values_are_right_with_and_without(start_cluster, fast):
    cluster = start_cluster(ps=1, worker=1, environment={"MUSTER_FAST": "1" if fast else "0"})
    for size in (1, 5000, 300000):
        _update_and_read(cluster.target(), size)
    for task in cluster.tasks.values():
        assert _reads_memory_of_others(task) == fast
