"""Several hosts on one machine: network namespaces on a bridge."""
import importlib.util
import itertools
import json
import os
import re
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.util.spec_from_file_location("cluster_conftest", os.path.join(HERE, "..", "cluster", "conftest.py"))
_cluster = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cluster)
Task = _cluster.Task
muster_program = _cluster.muster_program

PORT = 2222
# Each cluster has a network of its own: a session that a test has left goes on trying to reach the addresses of its
# cluster, while their network is gone by way of the machine's gateway, which may answer.
_networks = ("10.213.%d." % number for number in itertools.cycle(range(77, 256)))


def _run(*words):
    subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _why_not():
    """What is missing on this machine; None when namespaces can be made."""
    if os.geteuid() != 0:
        return "they need root"
    probe = "mst%d" % os.getpid()
    try:
        _run("ip", "netns", "add", probe)
        try:
            _run("ip", "netns", "exec", probe, "nft", "list", "ruleset")
        finally:
            _run("ip", "netns", "del", probe)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(getattr(error, "stderr", "") or error).strip()
    return None


def _remove_leftovers():
    """Removes the hosts that a killed run has left, since they have the addresses of this one's."""
    listed = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True).stdout
    for name in re.findall(r"^(mst\d+h\d+)\b", listed, re.MULTILINE):
        if not os.path.exists("/proc/" + re.findall(r"\d+", name)[0]):
            pids = subprocess.run(["ip", "netns", "pids", name], stdout=subprocess.PIPE, text=True).stdout.split()
            subprocess.run(["kill", "-9"] + pids, stderr=subprocess.DEVNULL)
            subprocess.run(["ip", "netns", "del", name])
    links = subprocess.run(["ip", "-br", "link"], stdout=subprocess.PIPE, text=True).stdout
    for bridge, pid in re.findall(r"^(mb(\d+))\b", links, re.MULTILINE):
        if not os.path.exists("/proc/" + pid):
            subprocess.run(["ip", "link", "del", bridge])


class Host(object):
    """One namespace with one address."""

    def __init__(self, number, network, bridge):
        self.number = number
        self.name = "mst%dh%d" % (os.getpid() % 100000, number)
        self.address = network + str(number + 1)
        self.link = "mv%dh%d" % (os.getpid() % 100000, number)
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run("ip", "link", "set", self.link, "master", bridge, "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", self.address + "/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def run(self, *words):
        _run("ip", "netns", "exec", self.name, *words)

    def cut(self):
        _run("ip", "link", "set", self.link, "down")

    def mend(self):
        _run("ip", "link", "set", self.link, "up")

    def drop_packets(self, percent=100):
        self.run("nft", "add table inet mst; add chain inet mst in { type filter hook input priority 0; }; "
                 "add rule inet mst in %sdrop" % ("" if percent == 100 else "numgen random mod 100 < %d " % percent))

    def lose_connections(self):
        """Connections that are tried from now on are never answered, even after accept_connections."""
        self.run("nft", "add table inet lost; add set inet lost ports { type inet_service; flags dynamic; }; "
                 "add chain inet lost in { type filter hook input priority 0; }; "
                 "add chain inet lost new { type filter hook input priority 1; }; "
                 "add rule inet lost in tcp sport @ports drop; "
                 "add rule inet lost new tcp flags syn tcp dport %d add @ports { tcp sport } drop" % PORT)

    def accept_connections(self):
        self.run("nft", "flush chain inet lost new")

    def accept_packets(self):
        self.run("nft", "delete table inet mst")

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", self.link], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Hosts(object):
    """ps 0, worker 0 and worker 1, each on a host of its own; the client is beside the bridge."""

    TASKS = [("ps", 0), ("worker", 0), ("worker", 1)]

    def __init__(self, muster):
        self._muster = muster
        _remove_leftovers()
        self.bridge = "mb%d" % (os.getpid() % 100000)
        self.hosts, self.tasks = {}, {}
        network = next(_networks)
        _run("ip", "link", "add", self.bridge, "type", "bridge")
        try:
            _run("ip", "addr", "add", network + "254/24", "dev", self.bridge)
            _run("ip", "link", "set", self.bridge, "up")
            for number, task in enumerate(self.TASKS):
                self.hosts[task] = Host(number, network, self.bridge)
            jobs = {}
            for job, task in self.TASKS:
                jobs.setdefault(job, []).append("%s:%d" % (self.hosts[job, task].address, PORT))
            self.spec = json.dumps(jobs)
            for job, task in self.TASKS:
                self.start(job, task)
        except BaseException:
            self.close()
            raise

    def start(self, job, task):
        self.tasks[job, task] = Task(["ip", "netns", "exec", self.hosts[job, task].name, self._muster, "serve",
                                      "--cluster", self.spec, "--job", job, "--task", str(task),
                                      "--heartbeat", "0.5", "--warn-after", "2", "--fail-after", "6"])

    def target(self, job="worker", task=0):
        return "grpc://%s:%d" % (self.hosts[job, task].address, PORT)

    def close(self):
        for task in self.tasks.values():
            task.kill()
        for host in self.hosts.values():
            host.close()
        subprocess.run(["ip", "link", "del", self.bridge], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def namespaces():
    """Skips the test where no namespaces can be made."""
    missing = _why_not()
    if missing is not None:
        pytest.skip("network namespaces cannot be used (%s): the tests over several hosts do not run" % missing)


@pytest.fixture
def hosts(namespaces, muster_program):
    cluster = Hosts(muster_program)
    yield cluster
    cluster.close()
