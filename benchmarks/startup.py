"""Startup: the time until a server is ready, and the memory that it holds while idle."""
import resource
import subprocess
import sys
import time

import numpy as np

import models
from cluster import Cluster, on_ps, start_muster_serve, start_python_server
from ports import free_ports
from side import SIDE, main, tf


def _until_ready(start):
    """From the start of the process to the line with which it says that it serves."""
    best = float("inf")
    for _ in range(5 if SIDE == "muster" else 2):
        begin = time.perf_counter()
        process = start({"ps": ["127.0.0.1:%d" % free_ports(1)[0]]})
        process.stdout.readline()
        best = min(best, time.perf_counter() - begin)
        process.kill()
        process.wait()
    return best


def server_python():
    return _until_ready(start_python_server)


def server_serve():
    """`muster serve` against what TensorFlow has, its Python server."""
    return _until_ready(start_muster_serve if SIDE == "muster" else start_python_server)


def _idle(**options):
    """Resident megabytes of a ps that has run one step."""
    with on_ps():
        op = tf.no_op()
    with Cluster(outside=True, **options) as cluster:
        with cluster.session() as session:
            session.run(op)
        with open("/proc/%d/status" % cluster.ps.pid) as status:
            return next(int(line.split()[1]) / 1024.0 for line in status if line.startswith("VmRSS:"))


def idle_serve():
    return _idle()


def idle_python():
    return _idle(serve=start_python_server)


def start():
    """From the start of the ps process to the end of the first step that a client elsewhere has run on it."""
    with on_ps():
        op = tf.no_op()
    begin = time.perf_counter()
    with Cluster(outside=True) as cluster, cluster.session() as session:
        session.run(op)
        return time.perf_counter() - begin


def import_time():
    module = "muster" if SIDE == "muster" else "tensorflow"
    code = "import time; b = time.perf_counter(); import %s; print(time.perf_counter() - b)" % module
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3))


def memory():
    """Resident megabytes after one training step."""
    (x, y), train, _ = models.dense()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {x: np.zeros([100, 784], np.float32), y: np.zeros([100, 10], np.float32)})
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


if __name__ == "__main__":
    main(globals())
