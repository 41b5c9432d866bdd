"""Collectives among tasks of Muster and of TensorFlow in one group, each with its own master."""
import json
import os
import pathlib
import signal
import sys
import time

import interop_processes
import numpy as np
import pytest

RANK = pathlib.Path(__file__).resolve().parent / "collective_rank.py"
TYPES = ("float32", "float64", "int32", "int64", "float16")


def value(rank, dtype, count):
    return ((np.arange(count) * 7 + rank * 3) % 11).astype(dtype)


def expected(name, size):
    words = name.split()
    if name == "subdivided":
        return sum(value(r, "float32", 300) for r in range(size))
    if words[0] == "gather":
        return np.concatenate([value(r, words[1], 12) for r in range(size)])
    if words[0] == "broadcast":
        return value(int(words[2]), words[1], 9)
    merge, final, dtype, count = words[0], words[1], words[2], int(words[3])
    all_values = [value(r, dtype, count) for r in range(size)]
    merged = np.sum(all_values, axis=0, dtype=dtype) if merge == "Add" else np.prod(all_values, axis=0, dtype=dtype)
    if final == "Id":
        return merged
    return merged // size if dtype.startswith("int") else (merged / np.array(size, dtype)).astype(dtype)


class Ranks(object):
    def __init__(self, tf_python, kinds, leader=0):
        ports = interop_processes.free_ports(len(kinds))
        cluster = {"worker": ["localhost:%d" % port for port in ports]}
        self.processes = []
        for rank, kind in enumerate(kinds):
            order = {"kind": kind, "cluster": cluster, "rank": rank,
                     "leader": "/job:worker/replica:0/task:%d" % leader}
            program = sys.executable if kind == "muster" else tf_python
            self.processes.append(interop_processes.Process([program, RANK, json.dumps(order)]))
        try:
            for process in self.processes:
                process.line(interop_processes.START_SECONDS)
        except BaseException:
            self.close()
            raise

    def start(self, ranks=None):
        for rank in range(len(self.processes)) if ranks is None else ranks:
            self.processes[rank].process.stdin.write("run\n")
            self.processes[rank].process.stdin.flush()

    def reply(self, rank, timeout=interop_processes.CALL_SECONDS):
        return json.loads(self.processes[rank].line(timeout))

    def close(self):
        for process in self.processes:
            process.end()


@pytest.fixture
def ranks(tf_python):
    started = []

    def start(kinds, leader=0):
        started.append(Ranks(tf_python, kinds, leader))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.parametrize("kinds,leader", [
    (("muster", "muster", "muster"), 0),
    (("muster", "stock"), 0),
    (("stock", "muster"), 0),
    (("stock", "muster", "muster"), 2),
])
def test_results_are_numpys(ranks, kinds, leader):
    group = ranks(kinds, leader)
    size = len(kinds)
    for _ in range(2):
        group.start()
        replies = [group.reply(rank) for rank in range(size)]
        for reply in replies:
            assert "error" not in reply, reply
        for name, result in replies[0].items():
            np.testing.assert_allclose(result, expected(name, size).astype("float64"), rtol=1e-3, err_msg=name)
            for other in replies[1:]:
                assert other[name] == result, name


def test_a_killed_rank_fails_the_others_by_name(ranks):
    group = ranks(("muster", "muster", "muster"))
    group.start()
    for rank in range(3):
        assert "error" not in group.reply(rank)
    group.start([0, 1])
    os.kill(group.processes[2].process.pid, signal.SIGKILL)
    begin = time.monotonic()
    for rank in (0, 1):
        reply = group.reply(rank)
        assert reply["error"] in ("UnavailableError", "AbortedError"), reply
        assert "/job:worker/replica:0/task:2" in reply["message"]
    assert time.monotonic() - begin < 45


def test_a_rank_that_dies_before_it_comes_fails_the_others_by_name(ranks):
    group = ranks(("muster", "muster", "muster"))
    group.start([0, 1])
    time.sleep(5)  # the leader has heard of all three by then, and waits for the third
    os.kill(group.processes[2].process.pid, signal.SIGKILL)
    for rank in (0, 1):
        reply = group.reply(rank)
        assert reply["error"] == "AbortedError", reply
        assert "/job:worker/replica:0/task:2" in reply["message"]


def test_a_rank_hears_of_a_lost_one_from_which_it_awaits_nothing(ranks):
    group = ranks(("muster", "muster", "muster"), leader=1)
    group.start()
    for rank in range(3):
        assert "error" not in group.reply(rank)
    group.start([2])  # waits for rank 1, which does not begin
    os.kill(group.processes[0].process.pid, signal.SIGKILL)
    reply = group.reply(2)
    assert reply["error"] == "UnavailableError", reply
    assert "/job:worker/replica:0/task:0" in reply["message"]
