"""The oracle's third column: the table by TensorFlow's own client, computed by a Muster server.

All types take too long for every run: of each case one type is taken, another for each case, and all of them with
MUSTER_ORACLE_FULL=1.
"""

import collections
import hashlib
import os
import pathlib
import subprocess
import sys

import pytest
from cluster_ports import free_ports

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cases  # noqa: E402
import compare  # noqa: E402
import coverage  # noqa: E402
import graphs  # noqa: E402
import oracle  # noqa: E402
import registry  # noqa: E402
import runner  # noqa: E402

FULL = os.environ.get("MUSTER_ORACLE_FULL") == "1"
JOBS = 2  # processes with clients, each with its own part of the table


@pytest.fixture(scope="module")
def target(root):
    """The master of a cluster of two tasks; the ps computes."""
    program = root / "build" / os.environ.get("MUSTER_BUILD", "release") / "bin" / "muster"
    if not program.exists():
        pytest.fail("%s is not built" % program)
    ps, worker = free_ports(2)
    tasks = []
    try:
        for job in ("ps", "worker"):
            tasks.append(subprocess.Popen(
                [str(program), "serve", "--cluster", "ps=localhost:%d;worker=localhost:%d" % (ps, worker), "--job", job,
                 "--task", "0"], stdout=subprocess.PIPE, text=True))
            assert "serves at" in tasks[-1].stdout.readline()
        yield "grpc://localhost:%d" % worker
        assert all(task.poll() is None for task in tasks), "a server has died"
    finally:
        for task in tasks:
            task.kill()
            task.wait()
            task.stdout.close()


def _sample(table):
    """Of the cases that differ in their types only, one; which is decided by a hash, so that types take turns."""
    groups = collections.defaultdict(list)
    for case in table:
        groups[case.op, case.kind, case.note, case.gradient, case.sliced, case.shaped].append(case)
    for key, found in groups.items():
        number = int(hashlib.sha256(repr(key).encode()).hexdigest()[:8], 16)
        yield found[number % len(found)]


# What TensorFlow's servers answer differently from its local sessions.
OF_SERVERS = {
    ("Switch", "a dead output"): 13, ("RefSwitch", "a dead output"): 13,  # "Failed to fetch outputs for step …"
}


def _judge(table, programs, expected, actual):
    gaps, differences = coverage.known_gaps(), coverage.known_differences()
    for case, program in zip(table, programs):
        want, got = expected[program["key"]], actual[program["key"]]
        if case.gradient and want[0] == "error" and want[1] == -1:
            continue  # as in the other columns
        code = OF_SERVERS.get((case.op, case.note))
        if code is not None and got[0] == "error" and got[1] == code:
            continue
        found = compare.difference(want, got, case.tolerance)
        if found is not None and differences.match_case(case) is None and gaps.match(
                (case.op, case.typing, case.kind)) is None:
            yield f"{case}: {found}"


def test_a_stock_client_at_a_muster_server(tf_python, target):
    known = registry.load(tf_python, runner.WORKER, oracle.FOLDER)
    table = list(cases.all_cases(known))
    if not FULL:
        table = list(_sample(table))
    programs = [graphs.program(case, known) for case in table]
    expected, actual = runner.Oracle(tf_python, oracle.FOLDER, FULL).served(
        list({p["key"]: p for p in programs}.values()), target, JOBS)
    problems = list(_judge(table, programs, expected, actual))
    assert not problems, f"{len(problems)} of {len(table)} differ:\n" + "\n".join(problems[:100])
    assert len(table) > 4000
