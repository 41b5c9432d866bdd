"""The same program on several hosts, each of which knows its task by TF_CONFIG, and in one process: the same losses."""
import importlib.util
import json
import os
import re
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "..", "cluster", "shapes_program.py")
_spec = importlib.util.spec_from_file_location("netns_conftest", os.path.join(HERE, "conftest.py"))
_netns = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_netns)


class BareHosts(_netns.Hosts):
    """Hosts on which nothing runs yet."""

    def start(self, job, task):
        pass


@pytest.fixture
def bare_hosts(namespaces, muster_program):
    hosts = BareHosts(muster_program)
    yield hosts
    hosts.close()


def losses(text):
    found = dict(re.findall(r"\] step (\d+) loss (\S+)", text))
    assert sorted(map(int, found)) == list(range(12)), text
    return found


def test_hosts_give_the_losses_of_one_process(bare_hosts, muster_program):
    processes = {}
    try:
        for job, index in bare_hosts.TASKS:
            config = {"cluster": json.loads(bare_hosts.spec), "task": {"type": job, "index": index}}
            processes[job, index] = subprocess.Popen(
                ["ip", "netns", "exec", bare_hosts.hosts[job, index].name, muster_program, "launch", PROGRAM],
                env=dict(os.environ, TF_CONFIG=json.dumps(config)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True)
        output = ""
        for index in range(2):
            text, _ = processes["worker", index].communicate(timeout=180)
            assert processes["worker", index].returncode == 0, text
            output += text
        processes["ps", 0].terminate()
        assert processes["ps", 0].wait(timeout=60) == 128 + 15
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    alone = subprocess.run([muster_program, "launch", "--standalone", "--workers", "2", PROGRAM], capture_output=True,
                           text=True, timeout=180)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert losses(output) == losses(alone.stdout)
