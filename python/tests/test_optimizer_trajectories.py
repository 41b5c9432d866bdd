"""Five steps of every optimizer and of raw Apply ops, for dense and sparse gradients, as TensorFlow 1.15.5 took them."""
import numpy as np
import pytest

import golden_cases

_GOLDEN = golden_cases.load("optimizer_trajectories.json")
_CASES = _GOLDEN["cases"]


def _array(values, shape=None, dtype="float32"):
    array = np.array([float.fromhex(v) for v in values], dtype=dtype)
    return array if shape is None else array.reshape(shape)


_SHAPE = _GOLDEN["variable_initial"]["shape"]
_STEPS = len(_GOLDEN["dense_gradients"])


def _close(name, step, got, expected):
    expected = _array(expected, dtype="float64")
    got = np.asarray(got, dtype="float64").reshape(-1)
    assert got.shape == expected.shape, name
    limit = 1e-6 * np.maximum(1, np.abs(expected))
    worst = np.argmax(np.abs(got - expected) - limit)
    assert np.all(np.abs(got - expected) <= limit), "%s after step %d: [%d] is %r, not %r" % (
        name, step, worst, got[worst], expected[worst])


class _Gradient(object):
    """Placeholders for one step's gradient, and what to feed."""

    def __init__(self, tf, kind, dtype="float32"):
        self._sparse, self._dtype = kind == "sparse", dtype
        if self._sparse:
            self._values = tf.placeholder(dtype, [None, _SHAPE[1]])
            self._indices = tf.placeholder(tf.int32, [None])
            self.tensor = tf.IndexedSlices(self._values, self._indices, tf.constant(_SHAPE))
        else:
            self.tensor = tf.placeholder(dtype, _SHAPE)

    def feed(self, step):
        if not self._sparse:
            return {self.tensor: _array(_GOLDEN["dense_gradients"][step], _SHAPE, self._dtype)}
        given = _GOLDEN["sparse_gradients"][step]
        return {self._values: _array(given["values"], given["values_shape"], self._dtype),
                self._indices: given["indices"]}


def _state(optimizer, var, names):
    """The variables behind the names of a step: the variable, its slots, and those of the optimizer itself."""
    found = {}
    for name in names:
        if name == "var":
            found[name] = var
        else:
            found[name] = optimizer.get_slot(var, name)
            if found[name] is None:
                found[name] = optimizer._get_non_slot_variable(name)
        assert found[name] is not None, name
    return found


def _run_optimizer(case, use_resource):
    import muster as tf

    graph = tf.Graph()
    dtype = case.get("dtype", "float32")
    with graph.as_default():
        initial = _array(_GOLDEN["variable_initial"]["values"], _SHAPE, dtype)
        var = tf.Variable(initial, name="v", use_resource=use_resource)
        gradient = _Gradient(tf, case["gradient"], dtype)
        arguments = dict(case["args"])
        step_counter = None
        if case["optimizer"] == "AdagradDA":
            step_counter = tf.Variable(0, trainable=False, name="gs", dtype=tf.int64)
            arguments["global_step"] = step_counter
        optimizer = getattr(tf.train, case["optimizer"] + "Optimizer")(**arguments)
        train = optimizer.apply_gradients([(gradient.tensor, var)], global_step=step_counter)
        state = _state(optimizer, var, case["steps"][0])
        if "slot_variable_names" in case:
            names = {name: optimizer.get_slot(var, name).op.name for name in optimizer.get_slot_names()}
            assert names == case["slot_variable_names"]
        if "ops" in case:
            used = {op.type for op in graph.get_operations()}
            assert set(case["ops"]["resource" if use_resource else "ref"]) <= used
        _check_steps(tf, case, train, state, gradient)


def _run_raw(case):
    import muster as tf

    with tf.Graph().as_default():
        state = {"var": tf.Variable(_array(_GOLDEN["variable_initial"]["values"], _SHAPE))}
        for name, value in case["initial"].items():
            state[name] = tf.Variable(np.full(_SHAPE, value, np.float32))
        gradient = _Gradient(tf, case["gradient"])
        train = getattr(tf.raw_ops, case["raw_op"])(grad=gradient.tensor, **state, **case["args"])
        _check_steps(tf, case, train, state, gradient)


def _check_steps(tf, case, train, state, gradient):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for name, expected in case["initial"].items():
            if isinstance(expected, list):
                _close(name, 0, session.run(state[name]), expected)
        for step in range(_STEPS):
            session.run(train, gradient.feed(step))
            values = session.run(state)
            assert set(values) == set(case["steps"][step])
            for name, expected in case["steps"][step].items():
                _close(name, step + 1, values[name], expected)


def _title(index):
    case = _CASES[index]
    return "%d-%s-%s" % (index, case.get("optimizer") or case["raw_op"], case["gradient"])


def _indices(wanted):
    return [pytest.param(i, id=_title(i)) for i, case in enumerate(_CASES) if wanted(case)]


@pytest.mark.parametrize("index", _indices(lambda case: "optimizer" in case))
def test_reference_variable(index):
    _run_optimizer(_CASES[index], use_resource=False)


@pytest.mark.parametrize("index", _indices(lambda case: case.get("resource_identical")))
def test_resource_variable(index):
    _run_optimizer(_CASES[index], use_resource=True)


@pytest.mark.parametrize("index", _indices(lambda case: "raw_op" in case))
def test_raw_op(index):
    _run_raw(_CASES[index])
