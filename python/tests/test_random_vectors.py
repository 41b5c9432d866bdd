"""Random ops against what TensorFlow 1.15.5 drew: run after run of one node, bit for bit."""
import numpy as np
import pytest

import golden_cases

_GOLDEN = golden_cases.load("random_vectors.json")
_OPS = _GOLDEN["random_ops"]
_RULES = _GOLDEN["seed_rule"]
# Normals of floats go through logarithms and sines of another library.
_NORMALS = {"RandomStandardNormal", "TruncatedNormal", "ParameterizedTruncatedNormal"}
_FLOAT_ATTRS = {"minvals": "dtype", "maxvals": "dtype", "means": "dtype", "stdevs": "dtype", "alpha": "T"}


def _number(value):
    return float.fromhex(value) if isinstance(value, str) else value


def _input(name, case):
    value = case["inputs"][name]
    if isinstance(value, str):
        assert value.startswith("range(")
        return np.arange(int(value[len("range("):-1]), dtype=np.int32)
    if name == "logits":
        return np.array([_number(v) for v in value], dtype=np.float32).reshape(case["inputs"]["logits_shape"])
    if name in _FLOAT_ATTRS:
        return np.array(value, dtype=case["attrs"].get(_FLOAT_ATTRS[name], "float32"))
    if name in ("minval", "maxval"):
        return np.array(value, dtype=case["attrs"]["Tout"])
    return np.array(value, dtype=np.int64 if name == "true_classes" else np.int32)


def _make(tf, case):
    """The op's outputs: a tensor, or a dict of them."""
    arguments = {name: _input(name, case) for name in case["inputs"] if not name.endswith("_shape")}
    for name, value in case["attrs"].items():
        if isinstance(value, str) and name in ("dtype", "T", "Tout", "output_dtype"):
            if name in ("T", "Tout"):
                continue  # The inputs say it.
            value = getattr(tf, value)
        arguments[name] = value
    result = getattr(tf.raw_ops, case["op"])(**arguments)
    if case["attrs"].get("dtype") == "bfloat16":
        return tf.cast(result, tf.float32)  # numpy has no bfloat16 of its own.
    return result._asdict() if hasattr(result, "_asdict") else result


def _compare(case, got, expected):
    got = np.asarray(got).reshape(-1)
    if "at_index" in case:
        got = got[case["at_index"]]
    expected = np.array([_number(v) for v in expected]).astype(got.dtype)
    if case["op"] in _NORMALS and got.dtype == np.float32:
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6)
    elif case["op"] == "RandomGamma" and got.dtype == np.float64:
        # Marsaglia and Tsang's method takes logarithms and powers: a fused multiply-add moves the last bit.
        np.testing.assert_array_almost_equal_nulp(got, expected, 4)
    else:
        np.testing.assert_array_equal(got, expected)


def _run(case):
    import muster as tf

    with tf.Graph().as_default():
        outputs = _make(tf, case)
        with tf.Session() as session:
            for expected in case["runs"]:
                got = session.run(outputs)
                if isinstance(expected, dict):
                    assert set(got) == set(expected)
                    for name in expected:
                        _compare(case, got[name], expected[name])
                else:
                    _compare(case, got, expected)


def _title(case):
    return "%s-%s-%s" % (case["op"], case["attrs"]["seed"], case["attrs"]["seed2"])


_IDS = ["random_ops %d %s" % (i, _title(case)) for i, case in enumerate(_OPS)]


@pytest.mark.parametrize("index", range(len(_OPS)), ids=_IDS)
def test_runs(index):
    _run(_OPS[index])


@pytest.mark.parametrize("rule", _RULES, ids=lambda r: "%s-%s" % (r["graph_seed"], r["op_seed"]))
def test_seed_rule(rule):
    import muster as tf

    graph = tf.Graph()
    with graph.as_default():
        if rule["graph_seed"] is not None:
            tf.set_random_seed(rule["graph_seed"])
        for _ in range(rule["ops_created_before_random_uniform_call"]):
            tf.no_op()
        tf.random_uniform([2], seed=rule["op_seed"])
    op, = [op for op in graph.get_operations() if op.type == "RandomUniform"]
    assert [op.get_attr("seed"), op.get_attr("seed2")] == [rule["attr_seed"], rule["attr_seed2"]]


def _queue_case(case):
    import muster as tf

    count = int(case["enqueue_many"][len("range("):-1])
    with tf.Graph().as_default():
        attrs = dict(case["attrs"], component_types=[tf.int32], shapes=[[]], capacity=count)
        queue = tf.raw_ops.RandomShuffleQueueV2(**attrs)
        enqueue = tf.raw_ops.QueueEnqueueManyV2(handle=queue, components=[list(range(count))])
        close = tf.raw_ops.QueueCloseV2(handle=queue)
        dequeue = tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.int32])
        with tf.Session() as session:
            session.run(enqueue)
            session.run(close)
            got = [int(session.run(dequeue)[0]) for _ in range(count)]
    assert got == case["dequeue_one_by_one"]


def test_random_shuffle_queue():
    for case in _GOLDEN["random_shuffle_queue"]:
        _queue_case(case)


def _data_case(case):
    import muster as tf

    D = tf.data.Dataset
    with tf.Graph().as_default():
        dataset = eval(case["dataset"], {"tf": tf, "D": D})
        if not case["default_optimizations"]:
            options = tf.data.Options()
            options.experimental_optimization.apply_default_optimizations = False
            dataset = dataset.with_options(options)
        iterator = tf.data.make_initializable_iterator(dataset)
        following = iterator.get_next()
        with tf.Session() as session:
            for expected in case["initializer_runs"]:
                session.run(iterator.initializer)
                got = []
                while True:
                    try:
                        got.append(session.run(following).tolist())
                    except tf.errors.OutOfRangeError:
                        break
                assert got == expected


def test_tf_data():
    for case in _GOLDEN["tf_data"]:
        _data_case(case)
