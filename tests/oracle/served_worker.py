"""Runs programs of the oracle by TensorFlow's client at a given server; a process of its own, like worker.py.

    python served_worker.py remote PROGRAMS RESULTS TARGET

Apart from worker.py, whose text decides which results of TensorFlow are kept.
"""

import os
import pickle
import sys

import worker


class Served(worker.TensorFlow):
    """Another task than the master's computes, so that every value passes between tasks."""

    def __init__(self, target):
        super().__init__()
        self.target = target
        self.config.operation_timeout_in_ms = 30000

    def build(self, graph_def):
        graph_def = self.tf.GraphDef.FromString(graph_def)
        for node in graph_def.node:
            if node.op not in ("Placeholder", "Const"):
                node.device = "/job:ps/task:0"
        graph, local = super().build(graph_def.SerializeToString())
        local.close()
        return graph, self.tf.Session(self.target, graph=graph, config=self.config)

    def close(self, built):
        try:
            built[1].close()
        except self.tf.errors.OpError:
            pass  # what went wrong was seen in the step


def main(argv):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # as in worker.py
    with open(argv[2], "rb") as file:
        programs = pickle.load(file)
    with open(argv[3], "ab") as results:
        worker.run_all(Served(argv[4]), programs, results)


if __name__ == "__main__":
    main(sys.argv)
