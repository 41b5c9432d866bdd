"""Connections to a task: too many of them, too few descriptors for them, and callers that abuse them."""
import contextlib
import http.client
import os
import re
import resource
import socket
import struct
import time

import pytest
from cluster_ports import free_ports

import muster as tf

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def _call(stream):
    """The beginning of a call, and its cancellation before a request was sent."""
    path = b"/tensorflow.MasterService/RunStep"
    headers = (b"\x83\x86\x44" + bytes([len(path)]) + path + b"\x41\x01x" + b"\x5f\x10application/grpc" +
               b"\x40\x02te\x08trailers")
    return _frame(1, 4, stream, headers) + _frame(3, 0, stream, b"\0\0\0\x08")


def _page(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def _metric(port, name):
    return int(re.search(r"^%s\{[^}]*\} (\d+)$" % name, _page(port, "/metrics")[1], re.M).group(1))


def _run_one(target):
    with tf.Graph().as_default():
        with tf.Session(target, config=tf.ConfigProto(operation_timeout_in_ms=30000)) as session:
            assert session.run(tf.constant(1)) == 1


class _Served(object):
    def __init__(self, start_task, *flags):
        self.port, self.metrics = free_ports(2)
        self.task = start_task(["--cluster", "ps=127.0.0.1:%d" % self.port, "--metrics-port", str(self.metrics)] +
                               list(flags))
        self.pid = self.task.process.pid
        self.target = "grpc://127.0.0.1:%d" % self.port

    def connect(self, say=b""):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        if say:
            connection.sendall(say)
        return connection

    def resident_mb(self):
        with open("/proc/%d/status" % self.pid) as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) // 1024


@pytest.fixture
def serve(start_task):
    return lambda *flags: _Served(start_task, *flags)


@contextlib.contextmanager
def _own_soft_limit(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_port_comes_back_with_the_descriptors(serve, deadline):
    with _own_soft_limit(256) as hard:
        server = serve()
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    assert before[0] == min(hard, 1 << 20), "serve raises its soft limit"
    _run_one(server.target)
    # As many as it has, and two more.
    limit = max(int(fd) for fd in os.listdir("/proc/%d/fd" % server.pid)) + 3
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    strangers = [server.connect(PREFACE + _frame(4, 0, 0)) for _ in range(10)]
    while _page(server.metrics, "/healthz")[0] == 200:
        deadline()
        time.sleep(0.01)
    code, text = _page(server.metrics, "/healthz")
    assert code == 503 and "Too many open files" in text and "port %d" % server.port in text, text
    for stranger in strangers:
        stranger.close()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
    while _page(server.metrics, "/healthz") != (200, "ok\n"):
        deadline()
        time.sleep(0.01)
    _run_one(server.target)
    assert _metric(server.metrics, "muster_accept_failures_total") > 0


def test_idle_connections_keep_nobody_out(serve):
    server = serve("--max-connections", "40", "--max-connections-per-peer", "30")
    strangers = [server.connect() for _ in range(100)]
    _run_one(server.target)
    assert _page(server.metrics, "/healthz") == (200, "ok\n")
    assert _metric(server.metrics, "muster_connections") <= 40
    assert _metric(server.metrics, "muster_connections_dropped_total") >= 60
    for stranger in strangers:
        stranger.close()


def test_healthz_knows_when_all_places_are_taken(serve, deadline):
    server = serve("--max-connections", "4", "--max-connections-per-peer", "4")
    strangers = [server.connect(PREFACE + _frame(4, 0, 0)) for _ in range(4)]
    while _page(server.metrics, "/healthz")[0] == 200:
        deadline()
        time.sleep(0.01)
    assert "all 4 places are taken" in _page(server.metrics, "/healthz")[1]
    refused = server.connect()
    assert refused.recv(10) == b""
    for stranger in strangers + [refused]:
        stranger.close()
    while _page(server.metrics, "/healthz")[0] != 200:
        deadline()
        time.sleep(0.01)
    _run_one(server.target)


def test_sessions_of_a_process_share_a_connection(serve):
    server = serve()
    with tf.Graph().as_default():
        one = tf.constant(1)
        sessions = [tf.Session(server.target) for _ in range(60)]
        for session in sessions:
            assert session.run(one) == 1
        assert _metric(server.metrics, "muster_sessions") == 60
        # One for calls, and one over which the master is watched.
        assert _metric(server.metrics, "muster_connections_accepted_total") <= 2
        sessions[0].close()
        assert sessions[1].run(one) == 1
        for session in sessions[1:]:
            session.close()
    assert _metric(server.metrics, "muster_sessions") == 0


def test_sessions_that_bring_the_same_cluster_share_connections_between_its_tasks(serve):
    servers = [serve(), serve()]
    config = tf.ConfigProto()
    for name, server in zip("ab", servers):
        config.cluster_def.job.add(name=name).tasks[0] = "127.0.0.1:%d" % server.port
    with tf.Graph().as_default():
        with tf.device("/job:a"):
            one = tf.constant(1)
        with tf.device("/job:b"):
            two = one + 1
        with tf.device("/job:a"):
            three = two + one
        sessions = [tf.Session(servers[0].target, config=config) for _ in range(30)]
        for session in sessions:
            assert session.run(three) == 3
        for server in servers:
            assert _metric(server.metrics, "muster_connections_accepted_total") < 10
        for session in sessions:
            session.close()


def test_slow_requests_for_pages_keep_no_probe_out(serve):
    server = serve()
    slow = []
    for _ in range(300):
        slow.append(socket.create_connection(("127.0.0.1", server.metrics), timeout=10))
        slow[-1].sendall(b"GET /h")
    assert _page(server.metrics, "/healthz") == (200, "ok\n")
    for each in slow:
        each.close()


def test_calls_that_are_given_up_at_once_do_not_fill_the_memory(serve, tmp_path, deadline):
    (tmp_path / "token").write_text("a secret")
    server = serve("--auth-token-file", str(tmp_path / "token"))
    before = server.resident_mb()
    for _ in range(2):
        stranger = server.connect(PREFACE + _frame(4, 0, 0))
        with pytest.raises(OSError):
            for stream in range(1, 200001, 200):
                stranger.sendall(b"".join(_call(each) for each in range(stream, stream + 200, 2)))
        stranger.close()
    assert _metric(server.metrics, "muster_connections_dropped_total") == 2
    assert server.resident_mb() < before + 400
    while server.resident_mb() > before + 60:  # it is given back
        deadline()
        time.sleep(0.05)
    assert _page(server.metrics, "/healthz") == (200, "ok\n")
