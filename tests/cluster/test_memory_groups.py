"""Tasks in a memory cgroup, where the system kills processes that take too much: allocations that do not fit are errors, and the tasks live on."""
import concurrent.futures
import os
import subprocess
import sys

import pytest
from cluster_ports import free_ports

import muster as tf

MEGA = 1 << 20


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def _lives(cluster, target="ps"):
    """All tasks live, and serve."""
    with tf.Graph().as_default(), tf.Session(cluster.target(target)) as session:
        assert session.run(tf.constant(3) + 4) == 7
    assert [task.process.poll() for task in cluster.tasks.values()] == [None] * len(cluster.tasks)


def _all_at_once(count, body):
    """Calls body(0), ... in threads of their own and gives what they return."""
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return list(threads.map(body, range(count), timeout=180))


# Feeds to a target, from a process of its own: in this package or in TensorFlow.
_CLIENT = """
import sys, threading
import numpy as np
package, target, megas, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if package == "tensorflow":
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
else:
    import muster as tf
fed = tf.placeholder(tf.float32, [None])
with tf.device("/job:ps/task:0"):
    first = fed[0] + 1
session = tf.Session(target)
def feed(size):
    try:
        return str(session.run(first, {fed: np.ones([size << 18], np.float32)}))
    except tf.errors.OpError as error:
        return "%s %s" % (type(error).__name__, error.message)
print(feed(1), flush=True)
said = [None] * threads
def many(i):
    said[i] = feed(megas)
them = [threading.Thread(target=many, args=(i,)) for i in range(threads)]
for t in them: t.start()
for t in them: t.join()
for text in said: print(text.replace(chr(10), " "), flush=True)
print(feed(1), flush=True)
"""


def _feed(python, package, cluster, megas, threads=1):
    done = subprocess.run([python, "-c", _CLIENT, package, cluster.target("ps"), str(megas), str(threads)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=170)
    lines = done.stdout.splitlines()
    assert len(lines) == threads + 2, done.stdout + done.stderr
    assert lines[0] == lines[-1] == "2.0", done.stdout
    return lines[1:-1]


@pytest.mark.parametrize("megas", [200, 400, 1500])
def test_a_feed_that_does_not_fit_is_refused(start_cluster, memory_group, monkeypatch, megas):
    monkeypatch.setenv("MUSTER_FAST", "0")
    cluster = start_cluster(ps=1, cgroup=memory_group(300 * MEGA))
    fitting = _feed(sys.executable, "muster", cluster, 100)
    assert fitting == ["2.0"]
    for text in _feed(sys.executable, "muster", cluster, megas, threads=2):
        if megas > 200 or text != "2.0":
            assert text.startswith("ResourceExhaustedError OOM when receiving "), text
            assert " bytes left of %d" % (300 * MEGA) in text
    _lives(cluster)


def test_a_feed_over_the_fast_plane_lies_with_the_client(start_cluster, memory_group):
    cluster = start_cluster(ps=1, cgroup=memory_group(300 * MEGA))
    assert _feed(sys.executable, "muster", cluster, 400, threads=2) == ["2.0", "2.0"]
    _lives(cluster)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_feed_of_tensorflow_that_does_not_fit_is_refused(start_cluster, memory_group, tf_python, threads):
    cluster = start_cluster(ps=1, cgroup=memory_group(300 * MEGA))
    for text in _feed(tf_python, "tensorflow", cluster, 700, threads):
        assert text.startswith("ResourceExhaustedError"), text
        assert "OOM when receiving a message" in text
    _lives(cluster)


def test_feeds_of_several_clients_that_do_not_fit_together(start_cluster, memory_group, tf_python):
    cluster = start_cluster(ps=1, cgroup=memory_group(400 * MEGA))
    for lines in _all_at_once(3, lambda _: _feed(tf_python, "tensorflow", cluster, 250)):
        assert lines == ["2.0"] or lines[0].startswith("ResourceExhaustedError"), lines
    _lives(cluster)


@pytest.mark.parametrize("fast", ["1", "0"])
def test_a_tensor_of_another_task_that_does_not_fit_is_refused(start_cluster, memory_group, fast):
    cluster = start_cluster(ps=1, worker=1, cgroup=memory_group(500 * MEGA), environment={"MUSTER_FAST": fast})
    with tf.device("/job:worker/task:0"):
        size = tf.placeholder(tf.int32, [])
        filled = tf.fill([size, MEGA // 4], 1.0)
    with tf.device("/job:ps/task:0"):
        total = tf.reduce_sum(filled + 1.0)
    with tf.Session(cluster.target("ps")) as session:
        for _ in range(2):
            with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM when"):
                session.run(total, {size: 300})
            assert session.run(total, {size: 1}) == 2 * MEGA // 4
    _lives(cluster)
    _lives(cluster, "worker")


def test_two_tasks_are_not_promised_the_same_memory(start_cluster, memory_group):
    cluster = start_cluster(ps=2, cgroup=memory_group(900 * MEGA))
    graph, totals = tf.get_default_graph(), []
    for task in range(2):
        with tf.device("/job:ps/task:%d" % task):
            totals.append(tf.reduce_sum(tf.fill([560, MEGA // 4], 1.0)))

    def run(number):
        try:
            with tf.Session(cluster.target("ps", number), graph=graph) as session:
                return session.run(totals[number])
        except tf.errors.ResourceExhaustedError as error:
            return error.message

    for _ in range(5):
        results = _all_at_once(2, run)
        refused = [text for text in results if isinstance(text, str)]
        assert len(refused) < 2, results
        assert all("OOM when allocating tensor" in text for text in refused)
        assert all(total == 560 * MEGA // 4 for total in results if total not in refused)
        _lives(cluster)


# Fetches from a target, from a process of its own whose memory is limited.
_FETCHER = """
import os, sys
import muster as tf
size = tf.placeholder(tf.int32, [])
with tf.device("/job:ps/task:0"):
    filled = tf.fill([size, 1 << 18], 1.0)
session = tf.Session(sys.argv[1])
def reads_shared_memory():
    return any("r--s" in line and "memfd:muster" in line for line in open("/proc/self/maps"))
# The first calls go over gRPC.
while os.environ.get("MUSTER_FAST") == "1" and not reads_shared_memory():
    session.run(filled, {size: 1})
for megas in [1] + [int(sys.argv[2])] * 2 + [1]:
    try:
        print(session.run(filled, {size: megas})[-1, -1], flush=True)
    except tf.errors.OpError as error:
        print(type(error).__name__, error.message.replace(chr(10), " "), flush=True)
"""


def _fetch(target, group, megas, **environment):
    done = subprocess.run(group.command + [sys.executable, "-c", _FETCHER, target, str(megas)], text=True, timeout=170,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment})
    lines = done.stdout.splitlines()
    assert len(lines) == 4, "exit code %d\n%s%s" % (done.returncode, done.stdout, done.stderr)
    assert lines[0] == lines[-1] == "1.0", done.stdout
    return lines[1:-1]


@pytest.mark.parametrize("fast, what", [("1", "allocating tensor with shape[700,262144] "), ("0", "receiving a part of ")])
def test_a_fetch_that_does_not_fit_into_the_client_is_refused(start_cluster, memory_group, fast, what):
    cluster = start_cluster(ps=1)
    group = memory_group(400 * MEGA)
    for text in _fetch(cluster.target("ps"), group, 700, MUSTER_FAST=fast):
        assert text.startswith("ResourceExhaustedError OOM when " + what), text
        assert " bytes left of %d" % (400 * MEGA) in text
    _lives(cluster)


_FUNCTION_CALLER = """
import muster as tf
size = tf.placeholder(tf.int32, [])
filled = tf.fill([size, 1 << 18], 1.0)
last = tf.py_func(lambda values: values[-1, -1], [filled], tf.float32)
with tf.control_dependencies([last]):
    again = filled[-1, -1]  # so that the function gets a copy
session = tf.Session()
for megas in [1, 200, 1]:
    try:
        print(session.run(again, {size: megas}), flush=True)
    except tf.errors.OpError as error:
        print(type(error).__name__, error.message.replace(chr(10), " "), flush=True)
"""


def test_an_argument_of_a_python_function_that_does_not_fit_is_refused(memory_group):
    done = subprocess.run(memory_group(400 * MEGA).command + [sys.executable, "-c", _FUNCTION_CALLER], text=True,
                          timeout=170, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, "exit code %d\n%s%s" % (done.returncode, done.stdout, done.stderr)
    assert lines[0] == lines[2] == "1.0"
    assert lines[1].startswith("ResourceExhaustedError "), lines[1]
    assert "OOM when allocating tensor with shape[200,262144] " in lines[1]


_STOCK_SERVER = """
import sys
import tensorflow.compat.v1 as tf
server = tf.train.Server({"ps": [sys.argv[1]]}, job_name="ps", task_index=0)
print("started", flush=True)
sys.stdin.read()
"""


def test_a_fetch_from_tensorflow_that_does_not_fit_into_the_client_is_refused(tf_python, memory_group):
    address = "localhost:%d" % free_ports(1)[0]
    with subprocess.Popen([tf_python, "-c", _STOCK_SERVER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as server:
        assert server.stdout.readline() == "started\n"
        for text in _fetch("grpc://" + address, memory_group(400 * MEGA), 700):
            assert text.startswith("ResourceExhaustedError OOM when receiving a message from "), text
            assert " bytes left of %d" % (400 * MEGA) in text
        server.stdin.close()
