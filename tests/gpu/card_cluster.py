"""Servers in processes of their own: workers with the emulated card and parameter servers without."""
import json
import subprocess
import sys

import card
import muster as tf
import numpy as np

sys.path.insert(0, str(card.ROOT / "tests" / "cluster"))

from cluster_ports import free_ports, readable  # noqa: E402

SERVER = """
import ctypes, json, os, sys
import muster as tf
server = tf.train.Server(json.loads(sys.argv[1]), job_name=sys.argv[2], task_index=int(sys.argv[3]))
print("ready", flush=True)
for line in sys.stdin:
    report = tf._muster.gpu_reports()[0]
    driver = ctypes.CDLL(os.environ["MUSTER_CUDA_DRIVER"])
    print(json.dumps([report["calls"], report["replayed_calls"], driver.emulated_gpu_bytes_to_registered(),
                      driver.emulated_gpu_bytes_from_registered()]), flush=True)
server.join()
"""


class Task:
    def __init__(self, cluster, job, index, **more):
        environment = card.environment(**more)
        if job == "ps":
            del environment["MUSTER_CUDA_DRIVER"]
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, json.dumps(cluster), job, str(index)], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._line() == "ready"

    def _line(self):
        assert readable(self.process.stdout, 60)
        return self.process.stdout.readline().strip()

    def counts(self):
        """Calls of the card, those replayed, bytes that the card wrote where peers read them, and that it read where they had written."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return np.array(json.loads(self._line()))

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Cluster:
    def __init__(self, workers=1):
        ports = ["127.0.0.1:%d" % port for port in free_ports(1 + workers)]
        self.addresses = {"ps": ports[:1], "worker": ports[1:]}
        self.tasks = {}

    def start(self, job, index=0, **more):
        self.tasks[job, index] = Task(self.addresses, job, index, **more)
        return self.tasks[job, index]

    def start_all(self):
        for job, addresses in self.addresses.items():
            for i in range(len(addresses)):
                self.start(job, i)

    @property
    def target(self):
        return "grpc://" + self.addresses["worker"][0]

    def session(self, graph=None):
        return tf.Session(self.target, graph=graph)

    def stop(self):
        for task in self.tasks.values():
            task.kill()
