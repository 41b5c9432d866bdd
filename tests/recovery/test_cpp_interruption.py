"""A trainer in C++, examples/mnist_replica.cc, gets Ctrl-C or SIGTERM: its chief saves, and each process prints one line."""
import os
import re
import signal

import pytest
from trainer_cluster import PRESET, ROOT, Task, free_ports

BINARIES = os.path.join(ROOT, "build", PRESET, "bin")
TRAINER = [os.path.join(BINARIES, "mnist_replica_cc"), "--data_dir=" + os.path.join(ROOT, "data", "digits"), "--train_steps=6000"]


@pytest.fixture
def start():
    tasks = []

    def run(name, words):
        tasks.append(Task(name, words, dict(os.environ)))
        return tasks[-1]

    yield run
    for task in tasks:
        if task.process.poll() is None:
            task.process.kill()
        task.process.wait()


def step_of(event):
    """The step of a line `step 20  loss ...`, which the launcher puts a name before."""
    found = re.search(r"step +(\d+)  loss", event.line)
    return found and int(found.group(1))


def check_saved(folder, chief, word):
    """`chief` has printed which checkpoint it saved, and that is there and as new as what it printed before."""
    lines = [event.line for event in chief.drain()]
    [line] = [line for line in lines if re.search(r"(Interrupted|Terminated)", line) and "worker 1" not in line]
    saved = re.search(r"(^|\] )%s; saved (.*-(\d+))$" % word, line)
    assert saved, line
    assert saved.group(2).startswith(os.path.join(folder, "model.ckpt"))
    assert os.path.exists(saved.group(2) + ".index")
    with open(os.path.join(folder, "checkpoint")) as state:
        assert saved.group(2) in state.readline()
    assert int(saved.group(3)) >= max(filter(None, map(step_of, chief.events)))


def test_ctrl_c_saves_and_prints_a_line_for_each_worker(tmp_path, start):
    launch = start("launch", [os.path.join(BINARIES, "muster"), "launch", "--ps", "1", "--workers", "2", "--stop_seconds", "60",
                              *TRAINER, "--logdir", str(tmp_path)])
    launch.wait_for(lambda event: (step_of(event) or 0) >= 100)
    launch.process.send_signal(signal.SIGINT)
    assert launch.wait(90) == 130
    check_saved(str(tmp_path), launch, "Interrupted")
    lines = [event.line for event in launch.events]
    assert [line for line in lines if "Interrupted" in line and "worker 1" in line] == ["[worker 1] Interrupted"], lines
    assert not any("CANCELLED" in line for line in lines), lines


def test_sigterm_for_the_chief_alone_saves(tmp_path, start):
    hosts = ["localhost:%d" % port for port in free_ports(3)]

    def task(job, index):
        return start("%s %d" % (job, index), TRAINER + [
            "--logdir=" + str(tmp_path), "--ps_hosts=" + hosts[0], "--worker_hosts=" + ",".join(hosts[1:]),
            "--job_name=" + job, "--task_index=%d" % index])

    task("ps", 0)
    chief, other = task("worker", 0), task("worker", 1)
    chief.wait_for(lambda event: (step_of(event) or 0) >= 100)
    chief.process.send_signal(signal.SIGTERM)
    assert chief.wait(60) == 128 + signal.SIGTERM
    check_saved(str(tmp_path), chief, "Terminated")
    # The other one needs the parameter server only.
    assert other.process.poll() is None
    other.process.send_signal(signal.SIGINT)
    assert other.wait(60) == 128 + signal.SIGINT
    assert other.drain()[-1].line == "Interrupted"


def test_a_worker_that_waits_for_the_chief_ends(tmp_path, start):
    hosts = ["localhost:%d" % port for port in free_ports(2)]
    flags = ["--logdir=" + str(tmp_path), "--ps_hosts=" + hosts[0], "--worker_hosts=localhost:1," + hosts[1]]
    start("ps 0", TRAINER + flags + ["--job_name=ps"])
    worker = start("worker 1", TRAINER + flags + ["--job_name=worker", "--task_index=1"])
    worker.wait_for("Waiting for model to be ready")
    worker.process.send_signal(signal.SIGINT)
    assert worker.wait(60) == 128 + signal.SIGINT
    assert worker.drain()[-1].line == "Interrupted"
