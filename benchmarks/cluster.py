"""One ps process, and a worker that is this process, or a client that is not a task."""
import json
import os
import subprocess
import sys

from ports import free_ports
from side import MUSTER, SIDE, tf

ENVIRONMENT = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
HERE = os.path.dirname(os.path.abspath(__file__))


def start_python_server(spec):
    """A server as a Python user starts it, of either side; prints a line when it is ready."""
    return subprocess.Popen([sys.executable, os.path.join(HERE, "python_server.py"), SIDE, json.dumps(spec)],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT)


def start_muster_serve(spec):
    text = ";".join("%s=%s" % (job, tasks[0]) for job, tasks in spec.items())
    return subprocess.Popen([MUSTER, "serve", "--cluster", text, "--job", "ps", "--task", "0"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT)


class Cluster:
    """A ps process and, unless `outside`, this process as the worker. Each side serves the ps with what its users
    start: Muster with `muster serve` unless told otherwise, TensorFlow with a Python server."""

    def __init__(self, outside=False, serve=start_muster_serve if SIDE == "muster" else start_python_server):
        ports = free_ports(2)
        self.spec = {"ps": ["127.0.0.1:%d" % ports[0]]}
        if not outside:
            self.spec["worker"] = ["127.0.0.1:%d" % ports[1]]
        self.ps = serve(self.spec)
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
