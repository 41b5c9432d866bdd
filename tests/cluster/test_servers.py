"""tf.train.Server in the processes of programs."""
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import muster as tf
from cluster_ports import free_ports


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def test_local_server():
    server = tf.train.Server.create_local_server()
    try:
        assert server.target.startswith("grpc://localhost:")
        assert server.server_def.job_name == "local"
        with tf.Session(server.target) as session:
            assert session.run(tf.constant("Hello")) == b"Hello"
            assert [d.name for d in session.list_devices()] == ["/job:local/replica:0/task:0/device:CPU:0"]
        config = tf.ConfigProto()
        config.rpc_options.use_rpc_for_inprocess_master = True
        with tf.Session(server.target, config=config) as session:
            assert session.run(tf.constant(2)) == 2
    finally:
        server.stop()


def test_a_cluster_in_one_process_shares_variables():
    addresses = ["localhost:%d" % port for port in free_ports(3)]
    cluster = tf.train.ClusterSpec({"ps": addresses[:1], "worker": addresses[1:]})
    servers = [tf.train.Server(cluster, job, task) for job, task in (("ps", 0), ("worker", 0), ("worker", 1))]
    try:
        with tf.device("/job:ps"):
            v = tf.Variable(3.0)
        with tf.device("/job:worker/task:1"):
            w = v * 2.0
        with tf.Session(servers[1].target) as session:
            session.run(v.initializer)
            assert session.run(w) == 6.0
        with tf.Session("grpc://127.0.0.1:%s" % addresses[2].split(":")[1]) as session:
            assert session.run(v) == 3.0
    finally:
        for server in servers:
            server.stop()


def test_stop_frees_the_port_and_join_returns():
    port = free_ports(1)[0]
    cluster = {"worker": ["localhost:%d" % port]}
    for _ in range(2):
        server = tf.train.Server(cluster)
        joined = threading.Thread(target=server.join)
        joined.start()
        with tf.Session(server.target) as session:
            assert session.run(tf.constant(1)) == 1
        server.stop()
        joined.join(timeout=10)
        assert not joined.is_alive()
        with pytest.raises(OSError):
            socket.create_connection(("localhost", port), timeout=5)
    with pytest.raises(tf.errors.OpError):
        server.start()


def test_stop_cancels_steps_after_the_grace_period():
    server = tf.train.Server.create_local_server()
    endless = tf.while_loop(lambda i: i >= 0, lambda i: i * 0, [tf.constant(1)])
    failed = []
    session = tf.Session(server.target)

    def run():
        try:
            session.run(endless)
        except tf.errors.OpError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    started = time.time()
    server.stop(grace=0.5)
    thread.join(timeout=20)
    assert not thread.is_alive() and len(failed) == 1
    assert time.time() - started < 15


def test_starts_later():
    port = free_ports(1)[0]
    server = tf.train.Server({"worker": ["localhost:%d" % port]}, start=False)
    try:
        assert server.target == "grpc://localhost:%d" % port
        with pytest.raises(OSError):
            socket.create_connection(("localhost", port), timeout=5)
        server.start()
        server.start()
        with tf.Session(server.target) as session:
            assert session.run(tf.constant(1)) == 1
    finally:
        server.stop()


def test_errors_have_tensorflows_classes():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(tf.errors.UnknownError, match="Could not start gRPC server"):
            tf.train.Server({"a": ["127.0.0.1:%d" % taken.getsockname()[1]]})
    cluster = {"ps": ["localhost:0"], "worker": ["localhost:0", "localhost:0"]}
    with pytest.raises(tf.errors.InternalError, match='Job "x" was not defined in cluster'):
        tf.train.Server(cluster, "x", 0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.train.Server(cluster, "worker", 5)
    with pytest.raises(tf.errors.NotFoundError):
        tf.train.Server(cluster, "ps", 0, protocol="carrier+pigeon")
    with pytest.raises(ValueError, match="job_name"):
        tf.train.Server(cluster)
    with pytest.raises(ValueError, match="task_index"):
        tf.train.Server(cluster, "worker")
    with pytest.raises(TypeError):
        tf.train.Server(3)


def test_takes_every_form_of_a_cluster():
    spec = tf.train.ClusterSpec({"worker": {2: "localhost:0"}})
    server_def = tf.train.ServerDef(cluster=spec.as_cluster_def(), job_name="worker", task_index=2, protocol="grpc")
    for form in (spec, spec.as_cluster_def(), spec.as_dict(), server_def):
        server = tf.train.Server(form)
        try:
            with tf.Session(server.target) as session:
                assert session.list_devices()[0].name == "/job:worker/replica:0/task:2/device:CPU:0"
        finally:
            server.stop()


JOINER = """
import muster as tf
server = tf.train.Server.create_local_server()
try:
    print("joining", flush=True)
    server.join()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_join():
    process = subprocess.Popen([sys.executable, "-c", JOINER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "joining\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        assert output == "interrupted\n" and process.returncode == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_program_that_forgets_its_server_ends():
    started = time.time()
    code = "import muster as tf; s = tf.Session(tf.train.Server.create_local_server().target); print(s.run(tf.constant(7)))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "7\n"
    assert time.time() - started < 30


def test_short_steps_run_on_the_thread_that_waits_for_them():
    server = tf.train.Server.create_local_server()
    try:
        def thread_of_this():
            time.sleep(0.0005)
            return np.int64(threading.get_ident())

        where = tf.py_func(thread_of_this, [], tf.int64)
        with tf.Session(server.target) as session:
            # The cost of a step is measured in the first runs, and again from time to time.
            assert any(session.run(where) == threading.get_ident() for _ in range(1000))
    finally:
        server.stop()
