"""`muster explain`: why a node runs where it does."""
import subprocess

import pytest

import muster as tf


@pytest.fixture(params=["graph.pb", "graph.pbtxt"])
def graph_file(request, tmp_path):
    with tf.Graph().as_default() as graph:
        with tf.device(tf.train.replica_device_setter(cluster={"ps": ["a:1"], "worker": ["b:1"]})):
            v = tf.Variable(1.0, name="v")
            tf.multiply(v, 2.0, name="y")
    path = tmp_path / request.param
    definition = graph.as_graph_def()
    path.write_bytes(str(definition).encode() if request.param.endswith("txt") else definition.SerializeToString())
    return str(path)


def _explain(program, *words):
    return subprocess.run([program, "explain"] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)


def test_every_node_has_a_reason(muster_program, graph_file):
    done = _explain(muster_program, graph_file, "--cluster", "ps=a:1;worker=b:1,c:1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("v (VariableV2) is on /job:ps/replica:0/task:0/device:CPU:0") for line in lines)
    assert any(line.startswith("y (Mul) is on /job:worker/replica:0/task:0/device:CPU:0") for line in lines)
    one = _explain(muster_program, graph_file, "--cluster", "ps=a:1;worker=b:1", "--node", "y")
    assert len(one.stdout.splitlines()) == 1


def test_what_cannot_be_placed_is_named(muster_program, graph_file):
    done = _explain(muster_program, graph_file)
    assert done.returncode == 1 and "/job:ps" in done.stderr
    assert "no node 'z'" in _explain(muster_program, graph_file, "--node", "z").stderr
    assert "no/such.pb" in _explain(muster_program, "no/such.pb").stderr
