"""A cluster over several hosts, and what breaks there. Bounds have threefold slack: calls fail after 6 s of silence."""
import concurrent.futures
import signal
import subprocess
import threading
import time

import pytest

import muster as tf
from tests.netns.conftest import PORT

SILENCE = 6
SLACK = 3


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


class _Blocked(threading.Thread):
    """A step on a worker that waits for ever for a loop on the ps."""

    def __init__(self, hosts):
        super().__init__(daemon=True)
        with tf.device("/job:ps/task:0"):
            loop = tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)])
        with tf.device("/job:worker/task:1"):
            self._fetch = loop + 1
        self._session = tf.Session(hosts.target())
        self.error = None
        self.start()
        time.sleep(2)
        assert self.is_alive(), self.error

    def run(self):
        try:
            self._session.run(self._fetch)
        except tf.errors.OpError as error:
            self.error = error

    def expect(self, kind, seconds, text):
        """Ends within the time, with this error."""
        start = time.time()
        self.join(seconds * SLACK)
        assert not self.is_alive(), "the step has not ended after %.1f s" % (time.time() - start)
        assert isinstance(self.error, kind), self.error
        assert text in str(self.error)
        self.end()

    def end(self):
        start = time.time()
        self._session.close()
        self.join(2 * SLACK)
        assert not self.is_alive()
        assert time.time() - start < 2 * SLACK


def _expect_next_session_works(hosts):
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(1.0)
        with tf.device("/job:worker/task:1"):
            twice = v * 2.0
        config = tf.ConfigProto(operation_timeout_in_ms=60000)
        with tf.Session(hosts.target(), config=config) as session:
            session.run(tf.variables_initializer([v]))
            assert session.run(twice) == 2.0


def _connections(hosts, server, client):
    """How many connections the host `client` has to the port of the task `server`."""
    listed = subprocess.run(["ip", "netns", "exec", hosts.hosts[server].name, "ss", "-Htn", "state", "established"],
                            stdout=subprocess.PIPE, check=True, text=True).stdout
    own, other = "%s:%d" % (hosts.hosts[server].address, PORT), hosts.hosts[client].address
    return sum(own in line and other + ":" in line for line in listed.splitlines())


def test_steps_go_over_links(hosts):
    """A link is a second connection to the same port."""
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(tf.zeros([300000]))
        add = tf.assign_add(v, tf.ones([300000])).op
    with tf.device("/job:worker/task:0"):
        total = tf.reduce_sum(v.read_value())
    with tf.Session(hosts.target()) as session:
        session.run(v.initializer)
        end = time.time() + 60
        while _connections(hosts, ("ps", 0), ("worker", 0)) < 2:
            assert time.time() < end
            assert session.run(total) == 0
        for step in range(1, 20):
            session.run(add)
            assert session.run(total) == 300000.0 * step


def test_a_task_is_killed_and_restarted(hosts):
    _expect_next_session_works(hosts)
    blocked = _Blocked(hosts)
    hosts.tasks["ps", 0].kill()
    blocked.expect(tf.errors.UnavailableError, 5, "/job:ps/replica:0/task:0")
    hosts.start("ps", 0)
    _expect_next_session_works(hosts)


def test_a_task_is_restarted_between_steps(hosts):
    with tf.device("/job:ps/task:0"):
        init = tf.Variable(1.0).initializer
    session = tf.Session(hosts.target())
    session.run(init)
    hosts.tasks["ps", 0].kill()
    hosts.start("ps", 0)
    # Until it is reached again a step may still find it gone.
    end = time.time() + 30
    while True:
        try:
            with pytest.raises(tf.errors.AbortedError, match="/job:ps/replica:0/task:0"):
                session.run(init)
            break
        except tf.errors.UnavailableError:
            assert time.time() < end
            time.sleep(0.2)
    session.close()
    _expect_next_session_works(hosts)


def test_a_task_is_stopped(hosts):
    blocked = _Blocked(hosts)
    hosts.tasks["ps", 0].process.send_signal(signal.SIGSTOP)
    blocked.expect(tf.errors.UnavailableError, SILENCE, "/job:ps/replica:0/task:0 has been silent")
    hosts.tasks["ps", 0].process.send_signal(signal.SIGCONT)
    _expect_next_session_works(hosts)


def test_a_link_is_cut(hosts):
    blocked = _Blocked(hosts)
    hosts.hosts["ps", 0].cut()
    blocked.expect(tf.errors.UnavailableError, SILENCE, "/job:ps/replica:0/task:0")
    hosts.hosts["ps", 0].mend()
    _expect_next_session_works(hosts)


def test_all_packets_are_dropped(hosts):
    blocked = _Blocked(hosts)
    hosts.hosts["ps", 0].drop_packets()
    blocked.expect(tf.errors.UnavailableError, SILENCE, "/job:ps/replica:0/task:0")
    hosts.hosts["ps", 0].accept_packets()
    _expect_next_session_works(hosts)
    _, errors = hosts.tasks["worker", 0].end()
    assert "/job:ps/replica:0/task:0 has not answered for 2" in errors, errors


def test_some_packets_are_dropped(hosts):
    """TCP sends them again: steps are slower, and that is all."""
    hosts.hosts["ps", 0].drop_packets(10)
    for _ in range(3):
        _expect_next_session_works(hosts)


def test_an_attempt_to_connect_is_lost(hosts):
    """As when a route changes: the attempt that went the old way is never answered, the next one is."""
    hosts.hosts["worker", 0].lose_connections()
    start = time.time()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        client = pool.submit(_expect_next_session_works, hosts)
        time.sleep(2)
        assert not client.done()
        hosts.hosts["worker", 0].accept_connections()
        client.result()
    assert time.time() - start < 5 + 2 * SLACK


def test_a_short_cut_is_survived(hosts):
    blocked = _Blocked(hosts)
    hosts.hosts["ps", 0].cut()
    time.sleep(2)
    hosts.hosts["ps", 0].mend()
    blocked.join(SILENCE + 2)
    assert blocked.is_alive(), blocked.error
    blocked.end()


def test_a_worker_joins_late(hosts):
    hosts.tasks["worker", 1].kill()
    start = time.time()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        client = pool.submit(_expect_next_session_works, hosts)
        time.sleep(4)
        hosts.start("worker", 1)  # not by another thread: a task dies with the thread that started it
        client.result()
    assert 3 < time.time() - start < 4 + 2 * SLACK
    _, errors = hosts.tasks["worker", 0].end()
    assert "still waiting for response from worker: /job:worker/replica:0/task:1" in errors, errors
    assert "TCP: Connection refused" in errors, errors
