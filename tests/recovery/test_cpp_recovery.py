"""A trainer in C++, examples/mnist_replica.cc, loses its parameter server and goes on to the end."""
import os
import re

import pytest
from trainer_cluster import PRESET, ROOT, SLACK, Task, free_ports


# Enough steps that none has finished when the parameter server is killed.
@pytest.mark.parametrize("flags", [["--train_steps=3000"], ["--sync", "--train_steps=900"]],
                         ids=["asynchronous", "synchronous"])
def test_a_trainer_in_cpp_goes_on_when_its_parameter_server_was_lost(tmp_path, flags):
    hosts = ["localhost:%d" % port for port in free_ports(3)]
    words = [os.path.join(ROOT, "build", PRESET, "bin", "mnist_replica_cc"), "--ps_hosts=" + hosts[0],
             "--worker_hosts=" + ",".join(hosts[1:]), "--data_dir=" + os.path.join(ROOT, "data", "digits"),
             "--logdir=" + str(tmp_path / "model")] + flags
    tasks = []

    def start(job, index):
        task = Task("%s %d" % (job, index), words + ["--job_name=" + job, "--task_index=%d" % index], dict(os.environ))
        tasks.append(task)
        return task

    try:
        server = start("ps", 0)
        chief, other = start("worker", 0), start("worker", 1)
        chief.wait_for_step(60)
        died = server.kill()
        for worker in (chief, other):
            assert worker.wait_for("An error was raised", timeout=60).time - died < 5 * SLACK
        start("ps", 0)
        chief.wait_for("Restoring parameters from", timeout=60)
        assert chief.wait(240) == 0 and other.wait(120) == 0
        accuracy = re.findall(r"test accuracy (\d\.\d+)", "\n".join(event.line for event in chief.drain()))[-1]
        assert float(accuracy) >= 0.94
        for worker in (chief, other):
            assert any("steps" in event.line for event in worker.drain())
    finally:
        for task in tasks:
            if task.process.poll() is None:
                task.process.kill()
            task.process.wait()
