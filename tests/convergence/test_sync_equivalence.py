"""N workers that train synchronously do what one process does on their batches joined.

The workers are threads with a server each. They meet before every step: tokens belong to no worker, and one that is
fast enough may take another's and give two batches to one update, which is allowed but not what is compared here."""
import threading

import numpy as np
import pytest
from cluster_ports import free_ports
from replica_models import STEPS, WIDTH, Sparse, joined, model_of, optimizer_of, variables_of

import muster as tf

class Replicas(object):
    """The same on a ps and several workers."""

    def __init__(self, model, optimizer, workers, steps=STEPS):
        self._model, self._optimizer, self._workers, self._steps = model, optimizer, workers, steps
        ports = ["127.0.0.1:%d" % p for p in free_ports(1 + workers)]
        self._cluster = tf.train.ClusterSpec({"ps": ports[:1], "worker": ports[1:]})
        self._servers = [tf.train.Server(self._cluster, "ps", 0)]
        self._servers += [tf.train.Server(self._cluster, "worker", i) for i in range(workers)]
        self._meet = threading.Barrier(workers, timeout=120)
        self._failures = []
        self.found = None

    def run(self):
        threads = [threading.Thread(target=self._guarded, args=(i,)) for i in range(self._workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for server in self._servers:
            server.stop(0)
        if self._failures:
            raise self._failures[0]
        return self.found

    def _guarded(self, task):
        try:
            with tf.Graph().as_default():
                self._train(task)
        except Exception as e:
            self._failures.append(e)
            self._meet.abort()

    def _train(self, task):
        own = "/job:worker/task:%d" % task
        with tf.device(tf.train.replica_device_setter(cluster=self._cluster, worker_device=own)):
            step = tf.train.get_or_create_global_step()
            v = variables_of(self._model)
            x, y = self._model.inputs()
            optimizer = tf.train.SyncReplicasOptimizer(optimizer_of(self._optimizer), self._workers,
                                                       total_num_replicas=self._workers)
            train = optimizer.minimize(self._model.loss(v, x, y), global_step=step)
        hook = optimizer.make_session_run_hook(task == 0, num_tokens=0)
        config = tf.ConfigProto(device_filters=["/job:ps", own])
        with tf.train.MonitoredTrainingSession(self._servers[1 + task].target, is_chief=task == 0, hooks=[hook],
                                               config=config) as session:
            for i in range(self._steps):
                self._meet.wait()
                batch, wanted = self._model.batch(i, task)
                session.run(train, {x: batch, y: wanted})
            self._meet.wait()
            if task == 0:
                assert session.run_step_fn(lambda step_context: step_context.session.run(step)) == self._steps
                self.found = session.run_step_fn(lambda step_context: step_context.session.run(v))
            self._meet.wait()


@pytest.mark.parametrize("dtype,tolerance", [(np.float64, 1e-10), (np.float32, 1e-4)], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", ["dense", "sparse_sorted", "sparse_anyhow"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_do_what_one_does_with_all_their_batches(workers, optimizer, kind, dtype, tolerance):
    model = model_of(kind, dtype)
    wanted = joined(model, optimizer, workers)
    found = Replicas(model, optimizer, workers).run()
    assert sorted(found) == sorted(wanted)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=tolerance, atol=tolerance, err_msg=name)
        assert np.abs(wanted[name] - model.first[name]).max() > 0.01, name + " did not move"


class OwnRows(Sparse):
    """Worker 0 has rows 0 and 1, worker 1 rows 1 and 2."""

    def batch(self, step, worker):
        return np.array([worker, worker + 1]), np.ones(2, self._dtype)

    def loss(self, v, x, y):
        return tf.reduce_sum(tf.nn.embedding_lookup(v["table"], x)) + 0 * tf.reduce_sum(v["w2"]) * tf.reduce_sum(y)


def test_the_mean_of_a_row_is_over_the_workers_that_have_it():
    """As TensorFlow's accumulator: rows of one worker only are not halved, unlike in the joined mean."""
    model = OwnRows(np.float64, "sorted")
    found = Replicas(model, "sgd", 2, steps=1).run()
    moved = (model.first["table"] - found["table"]) / 0.1
    np.testing.assert_allclose(moved[:4], np.array([1, 1, 1, 0])[:, None] * np.ones([1, WIDTH]), atol=1e-12)
