"""A whole trainer (replica_trainer.py), 1 ps and 2 workers: seconds of a global step."""
import json
import os
import subprocess
import sys

from cluster import ENVIRONMENT, HERE
from ports import free_ports
from side import MUSTER, SIDE, main


class Replicas:
    """A ps and two workers, each a process as a user starts it."""

    def __init__(self, arguments):
        ports = ["127.0.0.1:%d" % port for port in free_ports(3)]
        script = os.path.join(HERE, "replica_trainer.py")
        command = [MUSTER, "run", script] if SIDE == "muster" else [sys.executable, script]
        command += ["--ps_hosts", ports[0], "--worker_hosts", ",".join(ports[1:])] + arguments
        self._tasks = [
            subprocess.Popen(command + ["--job_name", job, "--task_index", str(index)], env=ENVIRONMENT, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for job, index in [("ps", 0), ("worker", 0), ("worker", 1)]]
        self.workers = self._tasks[1:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for task in self._tasks:
            task.kill()
            task.wait()

    @staticmethod
    def line(worker, accepts):
        for line in worker.stdout:
            if accepts(line):
                return line
        raise RuntimeError("a worker ended early")


def _replicas(*arguments):
    """Seconds for a global step, as the chief sees them pass while both workers train."""
    with Replicas(list(arguments)) as cluster:
        for worker in cluster.workers:
            cluster.line(worker, lambda line: line.startswith("ready"))
        chief = cluster.workers[0]
        chief.stdin.write("go\n")
        chief.stdin.flush()
        found = json.loads(cluster.line(chief, lambda line: line.startswith("{")))
        return found["seconds"] / found["steps"]


def replicas_async():
    return _replicas("--steps", "2000")


def replicas_sync():
    return _replicas("--steps", "800", "--sync")


def replicas_allreduce():
    """All-reduce in place of the parameter server; TensorFlow 1.x has no such trainer, its synchronous one is compared."""
    return _replicas("--steps", "800", "--allreduce" if SIDE == "muster" else "--sync")


if __name__ == "__main__":
    main(globals())
