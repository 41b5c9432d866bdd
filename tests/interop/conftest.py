"""Servers and clients that the interop tests share; each is started when it is first needed."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import interop_processes  # noqa: E402


@pytest.fixture(scope="session")
def clusters(tf_python):
    """clusters(name) of interop_processes.CLUSTERS."""
    if not interop_processes.MUSTER.exists():
        pytest.fail("%s is not built" % interop_processes.MUSTER)
    running = {}

    def get(name):
        dead = name in running and any(t.process.poll() is not None for t in running[name].tasks.values())
        if dead:
            running.pop(name).close()
        if name not in running:
            running[name] = interop_processes.Cluster(tf_python, interop_processes.CLUSTERS[name])
        return running[name]

    yield get
    for cluster in running.values():
        cluster.close()


@pytest.fixture(scope="session")
def clients(tf_python):
    """clients(kind): stock or muster."""
    running = {}

    def get(kind):
        if kind not in running:
            running[kind] = interop_processes.Client(tf_python, kind)
        return running[kind]

    yield get
    for client in running.values():
        client.close()


@pytest.fixture
def start_cluster(tf_python):
    """start_cluster(kinds) gives a cluster of the test's own, which it may break."""
    started = []

    def start(kinds, flags=()):
        started.append(interop_processes.Cluster(tf_python, kinds, flags))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()
