"""What is measured between tasks: one ps process, and a worker that is this process (or a client that is no task).

Run as `python cluster_workloads.py muster:NAME` or `tensorflow:NAME`; prints one line of JSON. Each side serves the
ps with what its users start: Muster with `muster serve`, TensorFlow with a Python server."""
import json
import os
import socket
import subprocess
import sys
import time

SIDE, NAME = sys.argv[1].split(":")
if SIDE == "muster":
    import muster as tf
else:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
import numpy as np  # noqa: E402

from timing import best_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MUSTER = os.environ.get("MUSTER_COMMAND", os.path.join(ROOT, "build", "release", "bin", "muster"))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    """A ps process and, unless `outside`, this process as the worker."""

    def __init__(self, outside=False):
        ports = free_ports(2)
        self.spec = {"ps": ["127.0.0.1:%d" % ports[0]]}
        if not outside:
            self.spec["worker"] = ["127.0.0.1:%d" % ports[1]]
        self.started = time.perf_counter()
        if SIDE == "muster":
            text = ";".join("%s=%s" % (job, tasks[0]) for job, tasks in self.spec.items())
            command = [MUSTER, "serve", "--cluster", text, "--job", "ps", "--task", "0"]
        else:
            command = [sys.executable, os.path.abspath(__file__), "tensorflow:serve", json.dumps(self.spec)]
        self.ps = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"))
        self.target = "grpc://" + self.spec["ps"][0]
        if not outside:
            self.server = tf.train.Server(self.spec, "worker", 0)
            self.target = self.server.target

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ps.kill()
        self.ps.wait()

    def session(self):
        return tf.Session(self.target, config=tf.ConfigProto(operation_timeout_in_ms=120000))


def on_ps():
    return tf.device("/job:ps/task:0")


def on_worker():
    return tf.device("/job:worker/task:0")


def timed(op, repeats, outside=False):
    with Cluster(outside) as cluster, cluster.session() as session:
        session.run(tf.global_variables_initializer())
        return best_of(lambda: session.run(op), repeats)


def null_outside():
    with on_ps():
        op = tf.no_op()
    return timed(op, 500, outside=True)


def null_from_worker():
    with on_ps():
        op = tf.no_op()
    return timed(op, 500)


def pull(elements, repeats):
    with on_ps():
        variable = tf.Variable(tf.zeros([elements]))
    with on_worker():
        op = tf.identity(variable).op
    return timed(op, repeats)


def push(elements, repeats):
    with on_ps():
        variable = tf.Variable(tf.zeros([elements]))
    with on_worker():
        value = tf.Variable(tf.ones([elements]))
    with on_ps():
        op = tf.assign_add(variable, value).op
    return timed(op, repeats)


def pull_scalar():
    with on_ps():
        variable = tf.Variable(0.0)
    with on_worker():
        op = tf.identity(variable).op
    return timed(op, 500)


def pull_1mb():
    return pull(1 << 18, 50)


def pull_64mb():
    return pull(1 << 24, 3)


def push_1mb():
    return push(1 << 18, 50)


def push_64mb():
    return push(1 << 24, 3)


def pull_200():
    with on_ps():
        variables = [tf.Variable(tf.zeros([1024])) for _ in range(200)]
    with on_worker():
        # Targets each, because TensorFlow's optimizer drops what a group only waits for.
        ops = [tf.identity(v).op for v in variables]
    return timed(ops, 20)


def start():
    """From the start of the ps process to the first step that a client elsewhere has run on it."""
    with on_ps():
        op = tf.no_op()
    with Cluster(outside=True) as cluster, cluster.session() as session:
        session.run(op)
        return time.perf_counter() - cluster.started


def idle_memory():
    """Resident megabytes of a ps that has run one step."""
    with on_ps():
        op = tf.no_op()
    with Cluster(outside=True) as cluster:
        with cluster.session() as session:
            session.run(op)
        with open("/proc/%d/status" % cluster.ps.pid) as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024.0


class Replicas(object):
    """A ps and two workers of replica_trainer.py, each a process as a user starts it."""

    def __init__(self, arguments):
        ports = ["127.0.0.1:%d" % port for port in free_ports(3)]
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "replica_trainer.py")
        command = [MUSTER, "run", script] if SIDE == "muster" else [sys.executable, script]
        command += ["--ps_hosts", ports[0], "--worker_hosts", ",".join(ports[1:])] + arguments
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
        self._tasks = [
            subprocess.Popen(command + ["--job_name", job, "--task_index", str(index)], env=environment, text=True,
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


def replicas(*arguments):
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
    return replicas("--steps", "2000")


def replicas_sync():
    return replicas("--steps", "800", "--sync")


def replicas_allreduce():
    """All-reduce in place of the parameter server; TensorFlow 1.x has no such trainer, its synchronous one is compared."""
    return replicas("--steps", "800", "--allreduce" if SIDE == "muster" else "--sync")


def serve():
    server = tf.train.Server(json.loads(sys.argv[2]), "ps", 0)
    server.join()


if __name__ == "__main__":
    value = globals()[NAME]()
    print(json.dumps({"name": NAME, "value": value}), flush=True)
    # Servers of stock TensorFlow have no way to stop.
    os._exit(0)
