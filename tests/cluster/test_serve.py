"""`muster serve` as users start it: flags, messages, signals."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from cluster_ports import free_ports

import muster as tf


def _fails(program, *words, environment=None):
    done = subprocess.run([program, "serve"] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, env=dict(os.environ, **(environment or {})))
    assert done.returncode != 0
    return done.stderr


def test_says_where_it_serves_and_ends_with_sigterm(start_cluster):
    cluster = start_cluster(ps=1)
    task = cluster.tasks["ps", 0]
    assert task.first_line == "muster: /job:ps/replica:0/task:0 serves at grpc://" + cluster.jobs["ps"][0]
    code, errors = task.end(signal.SIGTERM)
    assert code == 0
    assert "WARNING" not in errors.upper()  # no other machine can reach it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_with_status_0(start_cluster, number):
    assert start_cluster(worker=1).tasks["worker", 0].end(number)[0] == 0


@pytest.mark.parametrize("form", ["ours", "tensorflow", "json", "tf_config", "config_text", "config_binary"])
def test_every_way_to_name_the_cluster(start_task, tmp_path, form):
    port = free_ports(1)[0]
    address = "localhost:%d" % port
    words, environment = [], {}
    if form == "ours":
        words = ["--cluster", "ps=%s;worker=localhost:1" % address, "--job", "ps", "--task", "0"]
    elif form == "tensorflow":
        words = ["--cluster_spec=ps|%s,worker|localhost:1;localhost:2" % address, "--job_name=ps", "--task_id=0"]
    elif form == "json":
        words = ["--cluster", json.dumps({"ps": {"0": address}, "worker": {"3": "localhost:1"}}), "--job", "ps"]
    elif form == "tf_config":
        environment["TF_CONFIG"] = json.dumps(
            {"cluster": {"ps": [address], "worker": ["localhost:1"]}, "task": {"type": "ps", "index": 0}})
    else:
        import muster as tf

        definition = tf.train.ServerDef(job_name="ps", task_index=0, protocol="grpc",
                                        cluster=tf.train.ClusterSpec({"ps": [address]}).as_cluster_def())
        path = tmp_path / "server"
        path.write_bytes(str(definition).encode() if form == "config_text" else definition.SerializeToString())
        words = ["--config", str(path)]
    task = start_task(words, environment)
    assert task.first_line == "muster: /job:ps/replica:0/task:0 serves at grpc://" + address
    assert task.end()[0] == 0


def test_errors_name_what_is_wrong(muster_program, tmp_path):
    cluster = "ps=localhost:1;worker=localhost:2,localhost:3"
    assert "--cluster" in _fails(muster_program)
    assert "the port 'x'" in _fails(muster_program, "--cluster", "ps=a:x")
    assert 'Job "chief" was not defined in cluster' in _fails(
        muster_program, "--cluster", cluster, "--job", "chief", "--task", "0")
    assert "Task 7 was not defined" in _fails(muster_program, "--cluster", cluster, "--job", "worker", "--task", "7")
    assert "the task must be given" in _fails(muster_program, "--cluster", cluster, "--job", "worker")
    assert "the job must be given" in _fails(muster_program, "--cluster", cluster)
    assert "TF_CONFIG" in _fails(muster_program, environment={"TF_CONFIG": "{nonsense"})
    assert "no/such/file" in _fails(muster_program, "--config", "no/such/file")
    bad = tmp_path / "bad.pbtxt"
    bad.write_text("job_name: 3")
    assert "ServerDef" in _fails(muster_program, "--config", str(bad))


def test_a_taken_port_is_named(muster_program):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        errors = _fails(muster_program, "--cluster", "ps=127.0.0.1:%d" % port)
    assert "Could not start gRPC server" in errors and str(port) in errors


def test_binds_to_its_address_only(start_task):
    port = free_ports(1)[0]
    task = start_task(["--cluster", "ps=127.0.0.1:%d" % port])
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    assert task.end()[0] == 0


def test_warns_when_everybody_can_reach_it(start_task):
    task = start_task(["--cluster", "ps=no-such-host.invalid:%d" % free_ports(1)[0]])
    code, errors = task.end()
    assert code == 0
    assert "not an address of this machine" in errors
    assert len(re.findall("neither TLS nor a token", errors)) == 1


def test_bind_overrides(start_task):
    port = free_ports(1)[0]
    task = start_task(["--cluster", "ps=no-such-host.invalid:%d" % port, "--bind", "127.0.0.1"])
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    code, errors = task.end()
    assert code == 0 and "WARNING" not in errors.upper()


def test_starts_without_python_and_fast(start_task):
    started = time.time()
    task = start_task(["--cluster", "ps=127.0.0.1:%d" % free_ports(1)[0]])
    assert time.time() - started < 15
    with open("/proc/%d/maps" % task.process.pid) as maps:
        assert "libpython" not in maps.read()
    task.end()


def test_large_messages_and_graphs_are_refused(start_cluster):
    cluster = start_cluster(flags=["--max-message-bytes", "100000", "--max-graph-nodes", "50"], worker=1)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        total = tf.reduce_sum(x)
        with tf.Session(cluster.target()) as session:
            assert session.run(total, {x: [1.0, 2.0]}) == 3.0
            with pytest.raises(tf.errors.ResourceExhaustedError):
                session.run(total, {x: [1.0] * 100000})
            for _ in range(60):
                tf.constant(1)
            with pytest.raises(tf.errors.ResourceExhaustedError, match="this master takes at most 50"):
                session.run(total + 1.0, {x: [1.0]})
    with tf.Graph().as_default(), tf.Session(cluster.target()) as session:
        assert session.run(tf.constant(7)) == 7


SERVER = """
import muster as tf
server = tf.train.Server.create_local_server()
with tf.Session(server.target) as session:
    values = [tf.constant(1) for _ in range(30)]
    try:
        session.run(values)
    except tf.errors.ResourceExhaustedError as error:
        print(error.message)
"""


def test_servers_in_python_read_the_environment():
    def run(**environment):
        return subprocess.run([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60, env=dict(os.environ, **environment))

    assert "this master takes at most 20" in run(MUSTER_MAX_GRAPH_NODES="20").stdout
    assert run().stdout == ""
    assert "MUSTER_FAIL_AFTER is 'soon'" in run(MUSTER_FAIL_AFTER="soon").stderr
