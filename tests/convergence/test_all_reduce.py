"""N workers whose gradients are averaged by all-reduce do what one process does on their batches joined.

The workers are threads with a server each; no parameter server is needed."""
import threading

import numpy as np
import pytest
import replica_models as models
from cluster_ports import free_ports

import muster as tf


class Ring(object):
    """Workers with a model each. `table_at_ps`: the sparse table stays at a parameter server."""

    def __init__(self, model, optimizer, workers, steps=models.STEPS, table_at_ps=False, same_start=True, **options):
        self._model, self._optimizer, self._workers, self._steps = model, optimizer, workers, steps
        self._table_at_ps, self._same_start, self._options = table_at_ps, same_start, options
        ports = ["127.0.0.1:%d" % p for p in free_ports(workers + 1)]
        jobs = {"worker": ports[:workers]}
        if table_at_ps:
            jobs["ps"] = ports[workers:]
        self._cluster = tf.train.ClusterSpec(jobs)
        self._servers = [tf.train.Server(self._cluster, "worker", i) for i in range(workers)]
        if table_at_ps:
            self._servers.append(tf.train.Server(self._cluster, "ps", 0))
        self._failures = []
        self.found = [None] * workers

    def run(self):
        threads = [threading.Thread(target=self._guarded, args=(i,)) for i in range(self._workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        for server in self._servers:
            server.stop(0)
        if self._failures:
            raise self._failures[0]
        return self.found

    def _guarded(self, task):
        try:
            with tf.Graph().as_default():
                self.found[task] = self._train(task)
        except Exception as e:
            self._failures.append(e)
            self._servers[task].stop(0)

    def _variables(self, task):
        found = {}
        for name, value in sorted(self._model.first.items()):
            device = "/job:ps/task:0" if self._table_at_ps and name == "table" else "/job:worker/task:%d" % task
            with tf.device(device):
                found[name] = tf.get_variable(
                    name, initializer=value if self._same_start or task == 0 else np.full_like(value, 7))
        return found

    def _train(self, task):
        own = "/job:worker/task:%d" % task
        with tf.device(own):
            step = tf.train.get_or_create_global_step()
            v = self._variables(task)
            x, y = self._model.inputs()
            staying = models.optimizer_of(self._optimizer) if self._table_at_ps else None
            optimizer = tf.train.AllReduceOptimizer(models.optimizer_of(self._optimizer), staying_optimizer=staying,
                                                    **self._options)
            train = optimizer.minimize(self._model.loss(v, x, y), global_step=step)
        hook = optimizer.make_session_run_hook(self._servers[task])
        config = tf.ConfigProto(device_filters=["/job:ps", own])
        with tf.train.MonitoredTrainingSession(self._servers[task].target, is_chief=task == 0, hooks=[hook],
                                               config=config) as session:
            for i in range(self._steps):
                batch, wanted = self._model.batch(i, task)
                session.run(train, {x: batch, y: wanted})
            found = session.run_step_fn(lambda step_context: step_context.session.run(dict(v, step=step)))
        assert found.pop("step") == self._steps
        return found


def expect_equal(found, wanted, tolerance):
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind, dtype, tolerance", [("dense", np.float64, 1e-10), ("dense", np.float32, 1e-4),
                                                    ("sparse_anyhow", np.float64, 1e-10)])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_workers_equal_one_process(workers, kind, dtype, tolerance, optimizer):
    model = models.model_of(kind, dtype)
    found = Ring(model, optimizer, workers).run()
    expect_equal(found[0], models.joined(model, optimizer, workers), tolerance)
    for other in found[1:]:
        for name, value in found[0].items():
            assert np.array_equal(value, other[name]), name


@pytest.mark.parametrize("bucket_bytes", [0, 64, 1 << 30])
def test_buckets_change_nothing(bucket_bytes):
    model = models.model_of("dense", np.float64)
    found = Ring(model, "sgd", 2, steps=10, bucket_bytes=bucket_bytes).run()
    again = Ring(model, "sgd", 2, steps=10, bucket_bytes=bucket_bytes).run()
    for name, value in found[0].items():
        assert np.array_equal(value, again[1][name]), name  # from run to run
    expect_equal(found[0], Ring(model, "sgd", 2, steps=10).run()[0], 1e-12)


def test_everybody_starts_with_the_same_model():
    model = models.model_of("dense", np.float64)
    found = Ring(model, "momentum", 3, steps=5, same_start=False).run()
    for other in found[1:]:
        for name, value in found[0].items():
            assert np.array_equal(value, other[name]), name
    assert np.abs(found[0]["w1"]).max() < 7  # the first one's, not the others'


def test_a_table_may_stay_at_a_parameter_server():
    model = models.model_of("sparse_sorted", np.float64)
    found = Ring(model, "sgd", 2, table_at_ps=True).run()
    expect_equal(found[0], models.joined(model, "sgd", 2), 1e-10)
    assert np.array_equal(found[0]["table"], found[1]["table"])


def test_parameters_averaged_now_and_then():
    """SGD is linear: averaging after every step is averaging gradients."""
    model = models.model_of("dense", np.float64)
    every = Ring(model, "sgd", 2, average_every=1).run()
    expect_equal(every[0], models.joined(model, "sgd", 2), 1e-10)
    rarely = Ring(model, "sgd", 2, steps=20, average_every=10).run()
    for name, value in rarely[0].items():
        assert np.array_equal(value, rarely[1][name]), name
    apart = Ring(model, "sgd", 2, steps=19, average_every=10).run()
    assert not np.array_equal(apart[0]["w1"], apart[1]["w1"])


def test_mistakes_are_named():
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=1.0)
        sgd = tf.train.GradientDescentOptimizer(0.1)
        with pytest.raises(ValueError, match="staying_optimizer must be an optimizer of its own"):
            tf.train.AllReduceOptimizer(sgd, staying_optimizer=sgd)
        optimizer = tf.train.AllReduceOptimizer(sgd)
        server = tf.train.Server.create_local_server()
        hook = optimizer.make_session_run_hook(server)
        with pytest.raises(ValueError, match="apply_gradients must be called before its hook"):
            hook.begin()
        train = optimizer.minimize(w * w)
        with tf.Session(server.target) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            with pytest.raises(tf.errors.InvalidArgumentError, match="group"):
                session.run(train)  # no group has been formed
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", initializer=1.0)
        with pytest.raises(ValueError, match="'?w'? stays at /job:ps/task:0.*staying_optimizer"):
            tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1)).minimize(w * w)
