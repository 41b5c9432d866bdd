"""Clusters used in unplanned ways: odd addresses and names, strangers at a port, very many fetches."""
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from cluster_ports import free_ports

import muster as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def _pull_and_push(target, ps="/job:ps/task:0", worker="/job:worker/task:0"):
    """A variable on one task that another one adds to."""
    with tf.Graph().as_default():
        with tf.device(ps):
            v = tf.get_variable("v", [3], initializer=tf.ones_initializer())
        with tf.device(worker):
            delta = tf.identity(v) * 2.0
        with tf.Session(target) as session:
            session.run(v.initializer)
            assert session.run(tf.assign_add(v, delta)).tolist() == [3, 3, 3]
            assert len(session.list_devices()) == 2


def test_ipv6_addresses(start_task):
    if not _has_ipv6():
        address = "127.0.0.1"  # a machine without it still runs the test, on what it has
    else:
        address = "[::1]"
    ps, worker = ["%s:%d" % (address, port) for port in free_ports(2)]
    spec = "ps=%s;worker=%s" % (ps, worker)
    for job in ("ps", "worker"):
        start_task(["--cluster", spec, "--job", job, "--task", "0"])
    _pull_and_push("grpc://" + worker)


@pytest.mark.parametrize("host", ["LOCALHOST", "LocalHost"])
def test_host_names_in_upper_case(start_task, host):
    ps, worker = ["%s:%d" % (host, port) for port in free_ports(2)]
    spec = "ps=%s;worker=%s" % (ps, worker)
    for job in ("ps", "worker"):
        start_task(["--cluster", spec, "--job", job, "--task", "0"])
    _pull_and_push("grpc://" + worker)
    _pull_and_push("grpc://" + worker.lower())


def test_job_names_with_underscores(start_task):
    ports = free_ports(2)
    spec = "parameter_server_1=localhost:%d;my_worker=localhost:%d" % tuple(ports)
    for job in ("parameter_server_1", "my_worker"):
        start_task(["--cluster", spec, "--job", job, "--task", "0"])
    _pull_and_push("grpc://localhost:%d" % ports[1], "/job:parameter_server_1/task:0", "/job:my_worker/task:0")


def test_empty_tensors_cross_tasks(shared_cluster):
    x = tf.placeholder(tf.float32, [None, 3])
    with tf.device("/job:ps/task:0"):
        nothing = [tf.zeros([0]), tf.zeros([0, 5], tf.int64), tf.zeros([2, 0, 3], tf.string), tf.identity(x)]
    with tf.device("/job:worker/task:1"):
        passed = [tf.identity(each) for each in nothing]
        joined = tf.concat([passed[0], [1.0]], 0)
    with tf.Session(shared_cluster.target()) as session:
        result = session.run(passed + nothing + [joined], {x: np.zeros([0, 3], np.float32)})
        assert [value.shape for value in result] == 2 * [(0,), (0, 5), (2, 0, 3), (0, 3)] + [(1,)]
        assert [value.dtype for value in result[:4]] == [np.float32, np.int64, object, np.float32]


@pytest.mark.parametrize("count", [1000, 5000])
def test_very_many_fetches(shared_cluster, count):
    fetches = []
    for i in range(count):
        with tf.device(("/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1")[i % 3]):
            fetches.append(tf.constant(i))
    with tf.device("/job:worker/task:1"):
        total = tf.add_n(fetches)
    with tf.Session(shared_cluster.target()) as session:
        for _ in range(2):
            result = session.run(fetches + [total])
            assert result[:-1] == list(range(count))
            assert result[-1] == count * (count - 1) // 2


def test_one_tensor_fetched_very_often(shared_cluster):
    with tf.device("/job:ps/task:0"):
        value = tf.constant([1.0, 2.0])
    with tf.Session(shared_cluster.target()) as session:
        result = session.run([value] * 5000)
        assert len(result) == 5000 and all(each.tolist() == [1, 2] for each in result)


def test_a_task_of_another_cluster_at_the_port(start_task):
    """Two clusters that share a port by mistake: no session waits for ever, and the log names the task that is there."""
    mine, strange, other = free_ports(3)
    start_task(["--cluster", "worker=localhost:%d;chief=localhost:%d" % (strange, other), "--job", "worker"])
    master = start_task(["--cluster", "ps=localhost:%d;worker=localhost:%d" % (strange, mine), "--job", "worker"])
    config = tf.ConfigProto(operation_timeout_in_ms=20000)
    with tf.device("/job:ps/task:0"):
        one = tf.constant(1) + 0
    with tf.Session("grpc://localhost:%d" % mine, config=config) as session:
        with pytest.raises(tf.errors.OpError) as caught:
            session.run(one)
    assert "/job:ps/replica:0/task:0" in str(caught.value), caught.value
    _, errors = master.end()
    assert "at the address of /job:ps/replica:0/task:0 there is /job:worker/replica:0/task:0" in errors, errors
    # The other cluster has taken no harm.
    with tf.Graph().as_default(), tf.Session("grpc://localhost:%d" % strange, config=tf.ConfigProto(
            device_filters=["/job:worker"])) as session:
        assert session.run(tf.constant(1)) == 1


class _Stranger(object):
    """A server at a free port that answers every client with the same bytes."""

    def __init__(self, answer):
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            try:
                peer.sendall(self._answer)
                peer.recv(1)
            except OSError:
                pass
            peer.close()

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", bytes(range(256)) * 64])
def test_something_else_listens_at_the_target(answer):
    stranger = _Stranger(answer)
    try:
        start = time.time()
        with pytest.raises((tf.errors.DeadlineExceededError, tf.errors.UnavailableError)):
            tf.Session("grpc://" + stranger.address, config=tf.ConfigProto(operation_timeout_in_ms=3000)).run(
                tf.constant(1))
        assert time.time() - start < 10
    finally:
        stranger.close()


def test_garbage_at_the_port_of_a_server(start_cluster):
    cluster = start_cluster(worker=1)
    port = int(cluster.jobs["worker"][0].rsplit(":", 1)[1])
    random = np.random.RandomState(1)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for text in [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", random.bytes(100000),
                 preface + random.bytes(100000), preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x00", b""]:
        with socket.create_connection(("localhost", port), timeout=10) as stranger:
            try:
                stranger.sendall(text)
            except OSError:
                pass  # it hangs up on nonsense
    with tf.Session(cluster.target()) as session:
        assert session.run(tf.constant(1)) == 1


def test_a_missing_ps_is_named_to_the_client_that_does_not_wait(start_cluster):
    cluster = start_cluster(ps=1, worker=1)
    cluster.tasks["ps", 0].kill()
    config = tf.ConfigProto(operation_timeout_in_ms=3000)
    start = time.time()
    with pytest.raises(tf.errors.DeadlineExceededError):
        tf.Session(cluster.target(), config=config).run(tf.constant(1))
    assert time.time() - start < 10
    # A session that does not need it does without.
    config = tf.ConfigProto(device_filters=["/job:worker/task:0"])
    with tf.Session(cluster.target(), config=config) as session:
        assert session.run(tf.constant(1)) == 1
        with tf.device("/job:ps/task:0"):
            one = tf.constant(1) + 0
        with pytest.raises(tf.errors.InvalidArgumentError, match="/job:ps/task:0"):
            session.run(one)


WAITING = """
import sys
import muster as tf
session = tf.Session(sys.argv[1])
print("ready", flush=True)
try:
    if sys.argv[2] == "run":
        session.run(tf.constant(1))
    elif sys.argv[2] == "list":
        session.list_devices()
    else:
        tf.Session.reset(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    session.close()
"""


@pytest.mark.parametrize("state, what", [("missing", "run"), ("stopped", "run"), ("stopped", "list"), ("stopped", "reset")])
def test_ctrl_c_while_a_client_waits_for_its_master(start_cluster, state, what):
    cluster = start_cluster(worker=1)
    if state == "missing":
        cluster.tasks["worker", 0].kill()
    else:
        cluster.tasks["worker", 0].process.send_signal(signal.SIGSTOP)
    client = subprocess.Popen([sys.executable, "-c", WAITING, cluster.target(), what], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(os.environ))
    try:
        assert client.stdout.readline() == "ready\n"
        time.sleep(1)
        start = time.time()
        client.send_signal(signal.SIGINT)
        output, errors = client.communicate(timeout=60)
        assert output == "interrupted\n", errors
        assert time.time() - start < 6 and client.returncode == 0
    finally:
        client.kill()
        client.communicate()


def test_killing_tasks_in_the_middle_of_a_large_transfer(start_cluster):
    cluster = start_cluster(ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        large = tf.random_uniform([64 << 18])
    with tf.device("/job:worker/task:0"):
        total = tf.reduce_sum(large)
    session = tf.Session(cluster.target())
    assert session.run(total) > 0
    errors = []

    def steps():
        try:
            while True:
                session.run(total)
        except tf.errors.OpError as error:
            errors.append(error)

    thread = threading.Thread(target=steps, daemon=True)
    thread.start()
    time.sleep(0.7)
    cluster.tasks["ps", 0].kill()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(errors[0], tf.errors.UnavailableError), errors
    assert "/job:ps/replica:0/task:0" in str(errors[0])
    session.close()
    cluster.start("ps", 0)
    with tf.Session(cluster.target()) as session:
        assert session.run(total) > 0
