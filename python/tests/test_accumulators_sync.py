"""Scripts of conditional accumulators and rounds of SyncReplicasOptimizer, as TensorFlow 1.15.5 ran them."""
import threading

import numpy as np
import pytest

import golden_cases

_GOLDEN = golden_cases.load("accumulators_sync.json")
_SCRIPTS, _ROUNDS = _GOLDEN["accumulators"], _GOLDEN["sync_replicas"]


def _close(got, expected):
    expected = np.array([float.fromhex(v) for v in expected])
    got = np.asarray(got, dtype=np.float64).reshape(-1)
    assert got.shape == expected.shape
    assert np.all(np.abs(got - expected) <= 1e-6 * np.maximum(1, np.abs(expected))), (got, expected)


class _Accumulator(object):
    """Runs the steps of a script."""

    def __init__(self, tf, case):
        self._sparse = case["kind"] == "sparse"
        self._dtype = getattr(tf, case["dtype"])
        kind = tf.SparseConditionalAccumulator if self._sparse else tf.ConditionalAccumulator
        self._accumulator = kind(self._dtype, shape=case["shape"], reduction_type=case["reduction_type"])
        self._count = self._accumulator.num_accumulated()

    def step(self, session, step):
        if step["op"] == "set_global_step":
            session.run(self._accumulator.set_global_step(step["value"]))
        elif step["op"] == "apply":
            session.run(self._apply(step))
        else:
            assert step["op"] == "take"
            taken = session.run(self._accumulator.take_grad(step["num_required"]))
            if self._sparse:
                indices, values, shape = taken
                assert indices.tolist() == step["indices"]
                assert list(values.shape) == step["values_shape"]
                assert shape.tolist() == step["shape"]
                _close(values, step["values"])
            else:
                _close(taken, step["average"])
        if "num_accumulated" in step:
            assert session.run(self._count) == step["num_accumulated"]

    def _apply(self, step):
        if not self._sparse:
            gradient = np.array(step["gradient"], dtype=self._dtype.as_numpy_dtype)
            return self._accumulator.apply_grad(gradient, local_step=step["local_step"])
        values = np.array(step["values"], dtype=self._dtype.as_numpy_dtype)
        return self._accumulator.apply_grad(np.array(step["indices"], np.int64), values, local_step=step["local_step"])


def _run_script(case):
    import muster as tf

    with tf.Graph().as_default():
        accumulator = _Accumulator(tf, case)
        with tf.Session() as session:
            for step in case["script"]:
                accumulator.step(session, step)


def _run_rounds(case):
    """Two replicas are two threads that train on one session; the chief's queue runner is a third."""
    import muster as tf

    with tf.Graph().as_default():
        v = tf.Variable(case["v_initial"], dtype=tf.float32, name="v")
        step = tf.Variable(0, trainable=False, name="global_step", dtype=tf.int64)
        optimizer = tf.train.SyncReplicasOptimizer(eval(case["optimizer"], {"tf": tf}), case["replicas_to_aggregate"],
                                                   total_num_replicas=case["total_num_replicas"])
        gradient = tf.placeholder(tf.float32, [2])
        train = optimizer.apply_gradients([(gradient, v)], global_step=step)
        runner = optimizer.get_chief_queue_runner()
        tokens = optimizer.get_init_tokens_op(num_tokens=case["init_tokens"])
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            session.run(optimizer.chief_init_op)
            session.run(tokens)
            coordinator = tf.train.Coordinator()
            runner.create_threads(session, coordinator, start=True, daemon=True)
            for expected in case["rounds"]:
                replicas = [threading.Thread(target=session.run, args=(train, {gradient: g}))
                            for g in expected["gradients"]]
                for replica in replicas:
                    replica.start()
                for replica in replicas:
                    replica.join(60)
                    assert not replica.is_alive()
                assert session.run(step) == expected["global_step_after"]
                _close(session.run(v), expected["v"])
            coordinator.request_stop()


_SCRIPT_IDS = ["accumulator %d %s" % (i, case["kind"]) for i, case in enumerate(_SCRIPTS)]
_ROUND_IDS = ["sync %d" % i for i in range(len(_ROUNDS))]


@pytest.mark.parametrize("index", range(len(_SCRIPTS)), ids=_SCRIPT_IDS)
def test_script(index):
    _run_script(_SCRIPTS[index])


@pytest.mark.parametrize("index", range(len(_ROUNDS)), ids=_ROUND_IDS)
def test_rounds(index):
    _run_rounds(_ROUNDS[index])
