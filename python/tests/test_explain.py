"""Sessions say why nodes run where they do."""
import muster as tf
import pytest


def test_a_local_session_explains():
    with tf.Graph().as_default() as graph:
        with tf.device("/cpu:1"):
            variable = tf.Variable(1.0, name="v")
        follower = tf.assign_add(variable, 1.0, name="follower")
        with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            (here,) = session.explain_placement(variable.op)
            assert "is on /job:localhost/replica:0/task:0/device:CPU:1" in here and "not in" in here
            (because,) = session.explain_placement("follower")
            assert "/device:CPU:1" in because and "v" in because
            assert len(session.explain_placement()) == len(graph.get_operations())
            assert session.explain_placement(follower) == [because]
            with pytest.raises(tf.errors.NotFoundError, match="no node 'nowhere'"):
                session.explain_placement("nowhere")


def test_a_session_at_a_target_explains():
    server = tf.train.Server.create_local_server()
    with tf.Graph().as_default() as graph:
        x = tf.constant(1.0, name="x")
        with tf.Session(server.target, graph=graph) as session:
            (here,) = session.explain_placement(x)
            assert "/job:local/replica:0/task:0/device:CPU:0" in here
    server.stop()
