"""Real processes whose peers die, stop, come back or vanish."""
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from cutting_proxy import CuttingProxy

import muster as tf

QUICK = ["--heartbeat", "0.3", "--warn-after", "1", "--fail-after", "3", "--orphan-grace", "1"]


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def _counter(device="/job:ps/task:0", name="v"):
    with tf.device(device):
        v = tf.Variable(0, name=name, dtype=tf.int64)
        return v, tf.assign_add(v, tf.constant(1, tf.int64))


def _endless(device):
    """A loop of cheap nodes that never ends."""
    with tf.device(device):
        return tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)])


class _Run(threading.Thread):
    """A step in a thread of its own."""

    def __init__(self, session, fetch):
        super().__init__(daemon=True)
        self._session, self._fetch = session, fetch
        self.error = None
        self.start()

    def run(self):
        try:
            self._session.run(self._fetch)
        except tf.errors.OpError as error:
            self.error = error

    def wait(self, seconds):
        start = time.time()
        self.join(seconds)
        assert not self.is_alive(), "the step has not ended after %.1f s" % seconds
        return time.time() - start


def _processor_seconds(task):
    with open("/proc/%d/stat" % task.process.pid) as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _wait_until_idle(task, seconds):
    end = time.time() + seconds
    while time.time() < end:
        before = _processor_seconds(task)
        time.sleep(0.5)
        if _processor_seconds(task) - before < 0.1:
            return
    raise AssertionError("the server still computes after %.1f s" % seconds)


def _expect_next_session_works(cluster):
    with tf.Graph().as_default():
        v, add = _counter(name="next")
        with tf.Session(cluster.target()) as session:
            session.run(tf.variables_initializer([v]))
            assert session.run(add) == 1


def test_a_killed_task_fails_the_step_at_once(start_cluster):
    cluster = start_cluster(ps=1, worker=2)
    loop = _endless("/job:ps/task:0")
    with tf.device("/job:worker/task:1"):
        consumer = loop + 1
    with tf.Session(cluster.target()) as session:
        run = _Run(session, consumer)
        time.sleep(1)
        cluster.tasks["ps", 0].kill()
        assert run.wait(30) < 15
        assert isinstance(run.error, tf.errors.UnavailableError), run.error
        assert "/job:ps/replica:0/task:0" in str(run.error)
        # A new step fails too, and closing does not wait for the dead.
        with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0"):
            session.run(consumer)
        start = time.time()
    assert time.time() - start < 6
    cluster.start("ps", 0)
    _expect_next_session_works(cluster)


def test_a_stopped_task_is_named_and_fails_the_step(start_cluster):
    cluster = start_cluster(flags=QUICK, ps=1, worker=2)
    with tf.Session(cluster.target()) as session:
        run = _Run(session, _endless("/job:ps/task:0"))
        time.sleep(1)
        ps = cluster.tasks["ps", 0].process
        ps.send_signal(signal.SIGSTOP)
        try:
            took = run.wait(30)
        finally:
            ps.send_signal(signal.SIGCONT)
        assert 1 < took < 9  # its silence is counted from the last answer
        assert isinstance(run.error, tf.errors.UnavailableError), run.error
        assert "/job:ps/replica:0/task:0 has been silent for 3" in str(run.error)
    _wait_until_idle(cluster.tasks["ps", 0], 20)
    _expect_next_session_works(cluster)
    _, errors = cluster.tasks["worker", 0].end()
    assert re.search("/job:ps/replica:0/task:0 has not answered for 1", errors), errors


STEP = """
import sys, time
import muster as tf
with tf.device("/job:worker/task:0"):
    loop = tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)])
session = tf.Session(sys.argv[1])
print(session.run(tf.constant("ready")).decode(), flush=True)
for fetch in [loop, tf.constant(1)]:
    start = time.time()
    try:
        session.run(fetch)
    except tf.errors.UnavailableError as error:
        print("%.1f %s" % (time.time() - start, error.message.splitlines()[0]), flush=True)
start = time.time()
try:
    session.close()
except tf.errors.OpError:
    pass
print("%.1f" % (time.time() - start), flush=True)
"""


@pytest.fixture
def start_client():
    """start_client(target) runs STEP in a process of its own; gives it when its session is there."""
    clients = []

    def start(target, program=STEP):
        client = subprocess.Popen([sys.executable, "-c", program, target], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=dict(os.environ, MUSTER_HEARTBEAT="0.3",
                                                                   MUSTER_WARN_AFTER="1", MUSTER_FAIL_AFTER="3"))
        clients.append(client)
        return client

    yield start
    for client in clients:
        client.kill()
        client.communicate()


def test_a_stopped_master_fails_its_clients_step(start_cluster, start_client):
    cluster = start_cluster(worker=1)
    client = start_client(cluster.target())
    assert client.stdout.readline() == "ready\n"
    time.sleep(1)
    master = cluster.tasks["worker", 0].process
    master.send_signal(signal.SIGSTOP)
    try:
        output, errors = client.communicate(timeout=90)
    finally:
        master.send_signal(signal.SIGCONT)
    first, second, closed = output.splitlines()
    assert "the master %s has been silent for 3" % cluster.target() in first
    assert 1 < float(first.split()[0]) < 15
    assert "the master %s has been silent for" % cluster.target() in second
    assert float(second.split()[0]) < 3
    assert float(closed) < 9
    assert "the master %s has not answered for 1" % cluster.target() in errors
    with tf.Session(cluster.target()) as session:
        assert session.run(tf.constant(1)) == 1


def test_a_stopped_master_fails_a_new_client(start_cluster, start_client):
    cluster = start_cluster(worker=1)
    master = cluster.tasks["worker", 0].process
    master.send_signal(signal.SIGSTOP)
    try:
        client = start_client(cluster.target())
        output, errors = client.communicate(timeout=90)
    finally:
        master.send_signal(signal.SIGCONT)
    assert output == ""
    assert "the master %s has been silent for 3" % cluster.target() in errors


def test_a_killed_master_fails_its_clients_step(start_cluster, start_client):
    cluster = start_cluster(worker=1)
    client = start_client(cluster.target())
    assert client.stdout.readline() == "ready\n"
    time.sleep(1)
    cluster.tasks["worker", 0].kill()
    output, _ = client.communicate(timeout=90)
    first, second, closed = output.splitlines()
    for line in [first, second]:
        assert "the master %s is gone" % cluster.target() in line
        assert float(line.split()[0]) < 15
    assert float(closed) < 9


def test_a_master_that_starts_late_is_waited_for(start_cluster, start_client):
    cluster = start_cluster(worker=1)
    cluster.tasks["worker", 0].kill()
    client = start_client(cluster.target())
    said = client.stderr.readline()
    assert "Waiting for the master %s: " % cluster.target() in said and "refused" in said, said
    time.sleep(4)  # longer than it may be silent
    assert client.poll() is None
    cluster.start("worker", 0)
    assert client.stdout.readline() == "ready\n"


def test_a_busy_task_is_not_taken_for_dead(start_cluster):
    cluster = start_cluster(flags=QUICK[:-4] + ["--fail-after", "6"], ps=1, worker=1)
    loops = [_endless("/job:ps/task:0") for _ in range(2 * os.cpu_count())]
    with tf.Session(cluster.target()) as session:
        run = _Run(session, loops)
        run.join(10)
        assert run.is_alive(), run.error
    # Steps that keep all threads busy can be cancelled all the same.
    run.wait(30)
    _wait_until_idle(cluster.tasks["ps", 0], 30)


def test_a_restarted_task_tells_the_client_to_start_anew(start_cluster):
    cluster = start_cluster(ps=1, worker=1)
    v, add = _counter()
    with tf.Session(cluster.target()) as session:
        session.run(tf.variables_initializer([v]))
        assert session.run(add) == 1
        cluster.tasks["ps", 0].kill()
        cluster.start("ps", 0)
        # Until it is reached again a step may still find it gone.
        end = time.time() + 30
        while True:
            try:
                with pytest.raises(tf.errors.AbortedError, match="/job:ps/replica:0/task:0"):
                    session.run(add)
                break
            except tf.errors.UnavailableError:
                assert time.time() < end
                time.sleep(0.2)
    _expect_next_session_works(cluster)


def test_a_restarted_task_is_reached_by_all_tasks_of_a_new_session(start_cluster):
    """Another task has tried to reach it in vain, and would wait before it tries again."""
    cluster = start_cluster(ps=2, worker=1)
    v, _ = _counter("/job:ps/task:1")
    with tf.device("/job:ps/task:0"):
        received = v + 1
    for _ in range(4):
        with tf.Session(cluster.target()) as session:
            session.run(v.initializer)
            assert session.run(received) == 1
            cluster.tasks["ps", 1].kill()
            end = time.time() + 1.5
            while time.time() < end:
                with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError)):
                    session.run(received)
                time.sleep(0.02)
        cluster.start("ps", 1)
    with tf.Session(cluster.target()) as session:
        session.run(v.initializer)
        assert session.run(received) == 1


CLIENT = """
import sys
import muster as tf
with tf.device("/job:ps/task:0"):
    loop = tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)])
session = tf.Session(sys.argv[1])
session.run(tf.constant(1))
print("ready", flush=True)
if sys.argv[2] == "busy":
    session.run(loop)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["busy", "idle"])
def test_a_vanished_client_leaves_nothing_behind(start_cluster, state):
    cluster = start_cluster(flags=QUICK, ps=1, worker=1)
    client = subprocess.Popen([sys.executable, "-c", CLIENT, cluster.target(), state], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "ready\n"
    time.sleep(1)
    client.kill()
    client.communicate()
    _wait_until_idle(cluster.tasks["ps", 0], 15)
    time.sleep(4)
    _expect_next_session_works(cluster)
    _, errors = cluster.tasks["worker", 0].end()
    assert re.search(r"Session \w+ of client 127\.0\.0\.1:\d+ is closed: its client vanished 1s ago", errors), errors


def test_sigterm_cancels_steps_and_frees_the_port(start_cluster):
    cluster = start_cluster(flags=["--grace", "0.5"], worker=1)
    session = tf.Session(cluster.target())
    run = _Run(session, _endless("/job:worker/task:0"))
    time.sleep(1)
    start = time.time()
    code, _ = cluster.tasks["worker", 0].end(signal.SIGTERM)
    assert code == 0 and time.time() - start < 6
    cluster.start("worker", 0)
    run.wait(15)
    assert isinstance(run.error, (tf.errors.UnavailableError, tf.errors.AbortedError)), run.error
    with pytest.raises(tf.errors.AbortedError):
        session.close()  # the new master does not know it
    with tf.Session(cluster.target()) as session:
        assert session.run(tf.constant(1)) == 1


def test_missing_tasks_are_named_with_what_was_tried(start_cluster):
    cluster = start_cluster(ps=2, worker=1)
    cluster.tasks["ps", 1].kill()
    config = tf.ConfigProto(operation_timeout_in_ms=9000)
    with pytest.raises(tf.errors.DeadlineExceededError):
        tf.Session(cluster.target(), config=config).run(tf.constant(1))
    _, errors = cluster.tasks["worker", 0].end()
    lines = [line for line in errors.splitlines() if "still waiting" in line]
    assert lines and len(lines) < 4, errors
    assert all("/job:ps/replica:0/task:1" in line for line in lines)
    assert "'localhost' is " in lines[0] and "TCP: Connection refused" in lines[0], lines[0]


FLOW = """
import sys
import time
import muster as tf
with tf.device("/job:worker/task:0"):
    one = tf.constant(1)
    begun = tf.Variable(0, name="begun", use_resource=False)
    with tf.control_dependencies([tf.assign_add(begun, 1, use_locking=True)]):
        start = tf.constant(0)
    endless = tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [start])
session = tf.Session(sys.argv[1])
session.run(one)
try:
    session.run(endless)
except tf.errors.UnavailableError as error:
    print(error.message.splitlines()[0], flush=True)
while True:
    try:
        print(session.run(one), flush=True)
        break
    except tf.errors.UnavailableError:
        time.sleep(0.1)
"""


def test_a_connection_that_goes_silent_is_left(start_cluster, start_client):
    """The machine in between takes what either side, or one of them, sends, and says nothing; the master lives."""
    cluster = start_cluster(worker=1)
    ways = [dict(), dict(back=False), dict(there=False)]
    proxies = [CuttingProxy(cluster.jobs["worker"][0], seed=1) for _ in ways]
    try:
        with tf.device("/job:worker/task:0"):
            begun = tf.Variable(0, name="begun", use_resource=False)
        with tf.Session(cluster.target()) as session:
            session.run(begun.initializer)
            clients = [start_client("grpc://" + proxy.address, FLOW) for proxy in proxies]
            end = time.time() + 60
            while session.run(begun) < len(clients):
                assert time.time() < end, "the steps do not begin"
                time.sleep(0.1)
        for proxy, way in zip(proxies, ways):
            proxy.swallow(**way)
        for proxy, client in zip(proxies, clients):
            error, value = client.communicate(timeout=60)[0].splitlines()
            assert "the master grpc://%s has been silent for 3" % proxy.address in error
            assert value == "1"
    finally:
        for proxy in proxies:
            proxy.close()


ENOUGH_CUTS = 15


def test_steps_of_a_client_that_retries_run_exactly_once(start_cluster):
    cluster = start_cluster(ps=1, worker=1)
    proxy = CuttingProxy(cluster.jobs["worker"][0], seed=1)
    try:
        v, add = _counter()
        steps = 1000
        with tf.Session("grpc://" + proxy.address) as session:
            session.run(tf.variables_initializer([v]))
            proxy.start_cutting()
            done = 0
            while done < steps or proxy.cuts < ENOUGH_CUTS:
                session.run(add)
                done += 1
                proxy.progress()
            proxy.stop_cutting()
            assert session.run(v) == done
    finally:
        proxy.close()


STOCK = """
import sys
import time
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.device("/job:ps/task:0"):
    v = tf.get_variable("v", [], tf.int64, initializer=tf.zeros_initializer())
    add = tf.assign_add(v, tf.constant(1, tf.int64))
config = tf.ConfigProto()
session = tf.Session(sys.argv[1], config=config)
session.run(v.initializer)
print("ready", flush=True)
attempts = successes = 0
while sys.stdin.readline() == "go\\n":
    for _ in range(250):
        attempts += 1
        try:
            session.run(add)
            successes += 1
        except tf.errors.UnavailableError:
            pass
    print(attempts, successes, flush=True)
while True:  # a connection may have been cut last
    try:
        value = session.run(v)
        break
    except tf.errors.UnavailableError:
        time.sleep(0.1)
print(value, flush=True)
"""


def test_steps_of_a_stock_client_that_gives_up(start_cluster, tf_python):
    cluster = start_cluster(ps=1, worker=1)
    proxy = CuttingProxy(cluster.jobs["worker"][0], seed=2)
    client = subprocess.Popen([tf_python, "-c", STOCK, "grpc://" + proxy.address], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"))
    try:
        assert client.stdout.readline() == "ready\n", client.stderr.read()
        proxy.start_cutting()
        attempts = successes = 0
        while attempts < 1000 or proxy.cuts < ENOUGH_CUTS:
            client.stdin.write("go\n")
            client.stdin.flush()
            line = client.stdout.readline()
            assert line, client.stderr.read()[-3000:]
            attempts, now = map(int, line.split())
            if now > successes:
                proxy.progress()
            successes = now
        proxy.stop_cutting()
        value, errors = client.communicate("stop\n", timeout=60)
        assert value, errors[-3000:]
        assert successes <= int(value) <= attempts
    finally:
        client.kill()
        client.communicate()
        proxy.close()
