"""Programs written for TensorFlow 1.x, unchanged, and the example that trains on a cluster."""
import os
import re
import subprocess

import pytest
from cluster_ports import free_ports

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")


def _start(words):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run_tasks(muster, program, client, others, *flags):
    """Runs a program once per task; gives what the client printed."""
    processes = [_start([muster, "run", os.path.join(PROGRAMS, program)] + list(flags) + ["--job_name", job, "--task_index", str(task)])
                 for job, task in others + [client]]
    try:
        output, errors = processes[-1].communicate(timeout=120)
        assert processes[-1].returncode == 0, errors[-3000:]
        return output
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _losses(output):
    return [float(x) for x in re.search(r"loss (\S+) -> (\S+)", output).groups()]


def test_hello(muster_program):
    done = subprocess.run([muster_program, "run", os.path.join(PROGRAMS, "hello.py")], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'Hello, distributed TensorFlow!'\n"


def test_model_parallel(muster_program):
    ports = ["localhost:%d" % port for port in free_ports(3)]
    output = _run_tasks(muster_program, "model_parallel.py", ("worker", 0), [("ps", 0), ("ps", 1)],
                        "--ps_hosts", ",".join(ports[:2]), "--worker_hosts", ports[2])
    first, last = _losses(output)  # TensorFlow 1.15.5 and 2.21 give these
    assert abs(first - 1.1552) < 1e-3 and abs(last - 0.3617) < 1e-3


def test_in_graph_replication(muster_program):
    ports = ["localhost:%d" % port for port in free_ports(3)]
    output = _run_tasks(muster_program, "in_graph.py", ("worker", 0), [("ps", 0), ("worker", 1)],
                        "--ps_hosts", ports[0], "--worker_hosts", ",".join(ports[1:]))
    first, last = _losses(output)
    assert abs(first - 1.1906) < 1e-3 and abs(last - 0.1210) < 1e-3


@pytest.mark.parametrize("words", [("--train_steps=1500",), ("--train_steps=700", "--sync")], ids=["async", "sync"])
def test_the_example_trains_on_a_cluster(root, muster_program, tmp_path, words):
    done = subprocess.run([muster_program, "launch", "--ps", "1", "--workers", "2",
                           os.path.join(root, "examples", "mnist_replica.py"), "--logdir", str(tmp_path), *words],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert float(re.search(r"^\[worker 0\] test accuracy (\d\.\d+)$", done.stdout, re.M).group(1)) >= 0.95
    assert len(re.findall(r"worker \d made \d+ steps", done.stdout)) == 2
    names = os.listdir(str(tmp_path))
    assert "checkpoint" in names and "graph.pbtxt" in names
    assert any(name.startswith("events.out.tfevents.") for name in names)
    assert (tmp_path / "learning_curve.svg").read_text().startswith("<svg")
