"""tf.train.LocalCluster: tasks of one process, without sockets between them."""
import pytest

import muster as tf


def test_tasks_share_variables():
    with tf.Graph().as_default(), tf.train.LocalCluster({"ps": 1, "worker": 2}) as cluster:
        assert cluster.cluster_spec.jobs == ["ps", "worker"]
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(1.0)
        with tf.device("/job:worker/task:1"):
            twice = v * 2.0
        with tf.Session(cluster.target("worker", 0)) as one, tf.Session(cluster.target("worker", 1)) as other:
            one.run(v.initializer)
            other.run(tf.assign_add(v, 3.0))
            assert one.run(twice) == 8.0
        with pytest.raises(tf.errors.NotFoundError):
            cluster.target("worker", 2)


def test_wrong_jobs_are_refused():
    for jobs in ({}, {"ps": 0}, {"no job": 1}):
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.train.LocalCluster(jobs)
