"""tf.train.ClusterSpec and tf.train.replica_device_setter; what TensorFlow gives stands beside."""
import pytest

import muster as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def spec():
    return tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": {1: "c:1"}})


def test_a_cluster_is_made_from_every_form(spec):
    assert spec.as_dict() == {"ps": ["a:1", "b:1"], "worker": {1: "c:1"}}
    assert repr(spec) == "ClusterSpec({'ps': ['a:1', 'b:1'], 'worker': {1: 'c:1'}})"
    for form in (spec.as_cluster_def(), spec.as_dict(), spec, {"worker": {"1": "c:1"}, "ps": ("a:1", "b:1")}):
        assert tf.train.ClusterSpec(form) == spec
    assert [job.name for job in spec.as_cluster_def().job] == ["ps", "worker"]
    assert spec and not tf.train.ClusterSpec({})
    assert spec != tf.train.ClusterSpec({"ps": ["a:1"]})


def test_a_cluster_tells_about_its_tasks(spec):
    assert spec.jobs == ["ps", "worker"]
    assert spec.num_tasks("ps") == 2 and spec.task_indices("worker") == [1]
    assert spec.job_tasks("worker") == [None, "c:1"]
    assert spec.task_address("ps", 1) == "b:1"
    with pytest.raises(ValueError, match="No such job in cluster: 'q'"):
        spec.num_tasks("q")
    with pytest.raises(ValueError, match="No task with index 4 in job 'ps'"):
        spec.task_address("ps", 4)


@pytest.mark.parametrize("cluster", [[1], "ps=a:1", None, {"a": "b:1"}, {"a": [1]}, {1: ["a:1"]}, {"a": None}])
def test_other_values_are_no_cluster(cluster):
    with pytest.raises(TypeError):
        tf.train.ClusterSpec(cluster)


def test_variables_go_round_the_parameter_servers(spec):
    with tf.device(tf.train.replica_device_setter(cluster=spec)):
        first, second, third = (tf.Variable([1.0]) for _ in range(3))
        total = first + second
        with tf.device("/job:ps/task:1"):
            fixed = tf.Variable(1.0)  # advances the counter too
        with tf.device("/cpu:0"):
            on_cpu = tf.Variable(1.0)
        with tf.device("/job:x"):
            elsewhere = tf.Variable(1.0)  # does not
        last = tf.Variable(1.0)
    assert [v.device for v in (first, second, third)] == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]
    assert total.device == first.initial_value.device == "/job:worker"
    assert first.initializer.device == "/job:ps/task:0"
    assert fixed.device == "/job:ps/task:1"
    assert on_cpu.device == "/job:ps/task:0/device:CPU:0"
    assert elsewhere.device == "/job:x"
    assert last.device == "/job:ps/task:1"


def test_devices_that_are_set_win_without_merging():
    setter = tf.train.replica_device_setter(3, "/job:ps/cpu:0", "/job:worker/task:2/cpu:0", merge_devices=False)
    with tf.device(setter):
        a = tf.Variable(1.0)
        with tf.device("/gpu:0"):
            b = tf.Variable(2.0)
    assert a.device == "/job:ps/task:0/device:CPU:0" and b.device == "/device:GPU:0"
    assert a.initial_value.device == "/job:worker/task:2/device:CPU:0"


def test_without_parameter_servers_there_is_no_setter():
    assert tf.train.replica_device_setter(0) is None
    assert tf.train.replica_device_setter(cluster={"worker": ["a:1"]}) is None
    with pytest.raises(TypeError, match="callable"):
        tf.train.replica_device_setter(1, ps_strategy=3)


def test_greedy_load_balancing():
    strategy = tf.contrib.training.GreedyLoadBalancingStrategy(2, tf.contrib.training.byte_size_load_fn)
    with tf.device(tf.train.replica_device_setter(2, ps_strategy=strategy)):
        sizes = (10, 2, 3, 6)
        variables = [tf.get_variable("v%d" % n, [n], use_resource=n == 3) for n in sizes]
    assert [v.device[-1] for v in variables] == ["0", "1", "1", "1"]
