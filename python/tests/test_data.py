"""tf.data: pipelines yield what TensorFlow's yield, and feed trainers in local sessions and through servers."""
import json
import os
import pathlib
import subprocess
import sys

import data_programs
import numpy as np
import pytest

import muster as tf

_HERE = pathlib.Path(__file__).resolve().parent
_NAMES = [program.__name__ for program in data_programs.PROGRAMS]
Dataset = tf.data.Dataset


@pytest.fixture(scope="module")
def theirs(tf_python, tmp_path_factory):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([tf_python, str(_HERE / "data_programs.py"), str(tmp_path_factory.mktemp("theirs"))],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", _NAMES)
def test_yields_what_tensorflow_yields(name, theirs, tmp_path):
    program = data_programs.PROGRAMS[_NAMES.index(name)]
    assert data_programs.run_one(tf, program, str(tmp_path)) == theirs[name]


@pytest.fixture
def graph():
    with tf.Graph().as_default() as made:
        yield made


def test_structure_of_elements(graph):
    dataset = Dataset.from_tensor_slices({"a": [1, 2], "b": ([[1.0], [2.0]], ["x", "y"])})
    assert dataset.output_types == {"a": tf.int32, "b": (tf.float32, tf.string)}
    assert str(dataset.output_shapes["b"][0]) == "(1,)" and dataset.output_classes["a"] is tf.Tensor
    assert Dataset.range(3).batch(2).output_shapes.as_list() == [None]
    assert Dataset.range(3).batch(2, drop_remainder=True).output_shapes.as_list() == [2]


def test_what_raises_while_building(graph):
    numbers = Dataset.range(3)
    with pytest.raises(TypeError, match="Unsupported return value from function passed to Dataset.map"):
        numbers.map(lambda x: None)
    with pytest.raises(TypeError, match="must return a `Dataset`"):
        numbers.flat_map(lambda x: x)
    with pytest.raises(ValueError, match="scalar boolean"):
        numbers.filter(lambda x: x)
    with pytest.raises(TypeError, match="use a tuple instead"):
        Dataset.zip([numbers, numbers])
    with pytest.raises(TypeError, match="different types"):
        numbers.concatenate(Dataset.from_tensors("a"))
    with pytest.raises(ValueError, match="index must be"):
        numbers.shard(2, 2)
    with pytest.raises(ValueError):
        Dataset.from_tensor_slices(([1, 2], [1, 2, 3]))
    with pytest.raises(ValueError, match="does not have an initializer"):
        numbers.make_one_shot_iterator().initializer
    sparse = Dataset.from_tensors(tf.SparseTensor([[0]], [1], [2]))
    assert sparse.output_classes is tf.SparseTensor and sparse.output_types == tf.int32
    assert sparse.batch(2).output_shapes.as_list() == [None, 2]
    with pytest.raises(TypeError, match="padded sparse tensors"):
        sparse.padded_batch(2, [None])
    with pytest.raises(AttributeError, match="Cannot set the property"):
        tf.data.Options().experimental_determinstic = True


def test_one_shot_iterators_take_no_state(graph):
    variable = tf.get_variable("v", initializer=np.int64(1))
    with pytest.raises(ValueError, match="use `Dataset.make_initializable_iterator"):
        Dataset.range(3).map(lambda x: x + variable).make_one_shot_iterator()
    fed = tf.placeholder(tf.int64, [])
    with pytest.raises(ValueError, match="Cannot capture a placeholder"):
        Dataset.range(fed).make_one_shot_iterator()


def test_initializers_take_feeds(graph):
    stop, factor = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
    iterator = Dataset.range(stop).map(lambda x: x * factor).make_initializable_iterator()
    following = iterator.get_next()
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="has not been initialized"):
            session.run(following)
        for n, f in ((2, 10), (3, 5)):
            session.run(iterator.initializer, {stop: n, factor: f})
            assert data_programs.drain(tf, session, following) == [["int64", i * f] for i in range(n)] + ["end"]


def test_reinitializable_and_feedable_iterators(graph):
    iterator = tf.data.Iterator.from_structure(tf.int64, tf.TensorShape([]))
    following = iterator.get_next()
    first, second = iterator.make_initializer(Dataset.range(2)), iterator.make_initializer(Dataset.range(10, 12))
    with pytest.raises(TypeError, match="Expected output types"):
        iterator.make_initializer(Dataset.from_tensors("a"))
    handle = tf.placeholder(tf.string, [])
    chosen = tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
    once = Dataset.range(100, 102).make_one_shot_iterator()
    with tf.Session() as session:
        for start, expected in ((first, [0, 1]), (second, [10, 11]), (first, [0, 1])):
            session.run(start)
            assert [session.run(following) for _ in range(2)] == expected
            with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
                session.run(following)
        session.run(second)
        one, other = session.run([once.string_handle(), iterator.string_handle()])
        assert [session.run(chosen, {handle: h}) for h in (one, other, one)] == [100, 10, 101]


def test_effects_of_functions_happen_in_order(graph):
    seen = []

    def body(x):
        tf.py_func(lambda v: seen.append(("first", int(v))), [x], [])
        tf.py_func(lambda v: seen.append(("second", int(v))), [x], [])
        return x

    following = Dataset.range(2).map(body).make_initializable_iterator()
    element = following.get_next()
    with tf.Session() as session:
        session.run(following.initializer)
        assert data_programs.drain(tf, session, element)[-1] == "end"
    assert seen == [("first", 0), ("second", 0), ("first", 1), ("second", 1)]


def test_nested_functions_capture_from_every_graph_around(graph):
    outer = tf.placeholder(tf.int64, [])
    iterator = Dataset.range(1, 3).flat_map(
        lambda x: Dataset.range(2).flat_map(lambda y: Dataset.from_tensors(x * 100 + y * 10 + outer))
    ).make_initializable_iterator()
    following = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer, {outer: 7})
        assert [v[1] for v in data_programs.drain(tf, session, following)[:-1]] == [107, 117, 207, 217]


def test_defun(graph):
    from muster.graph.functions import Defun

    scale = tf.placeholder(tf.float32, [])

    @Defun(tf.float32, tf.float32)
    def scaled(a, b):
        return a * scale + b, a - b

    total, difference = scaled([1.0, 2.0], 3.0)
    with tf.Session() as session:
        got = session.run([total, difference], {scale: 10.0})
    np.testing.assert_allclose(got, [[13.0, 23.0], [-2.0, -1.0]])


def _trainer(target, config, iterator_kind, steps):
    """Fits y = 3 x - 1 from batches of a pipeline; returns the weights."""
    xs = np.linspace(-1.0, 1.0, 64).astype(np.float32)
    dataset = Dataset.from_tensor_slices((xs, 3.0 * xs - 1.0)).map(lambda x, y: (tf.reshape(x, [1]), tf.reshape(y, [1])))
    dataset = dataset.shuffle(64, seed=1).repeat().batch(16).prefetch(1)
    if iterator_kind == "one_shot":
        iterator = dataset.make_one_shot_iterator()
    else:
        iterator = dataset.make_initializable_iterator()
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    x, y = iterator.get_next()
    w = tf.get_variable("w", initializer=[[0.0]])
    b = tf.get_variable("b", initializer=[0.0])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=step)
    with tf.train.MonitoredTrainingSession(master=target, config=config,
                                           hooks=[tf.train.StopAtStepHook(last_step=steps)]) as session:
        values = None
        while not session.should_stop():
            _, *values = session.run([train, w, b])
    return float(values[0].reshape(())), float(values[1].reshape(()))


@pytest.mark.parametrize("through_server", [False, True])
@pytest.mark.parametrize("iterator_kind", ["one_shot", "initializable"])
def test_trainer(graph, iterator_kind, through_server):
    target = ""
    if through_server:
        server = tf.train.Server.create_local_server()
        target = server.target
    w, b = _trainer(target, None, iterator_kind, 80)
    assert abs(w - 3.0) < 0.05 and abs(b + 1.0) < 0.05


def test_epochs_end_a_monitored_session(graph):
    iterator = Dataset.range(5).repeat(2).make_initializable_iterator()
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    following = iterator.get_next()
    tf.train.get_or_create_global_step()
    seen = []
    with tf.train.MonitoredTrainingSession() as session:
        while not session.should_stop():
            seen.append(int(session.run(following)))
    assert seen == list(range(5)) * 2


def test_names_under_tensorflow():
    code = ("from muster.names import alias; alias.install()\n"
            "import tensorflow as tf\n"
            "from tensorflow.python.data.ops import dataset_ops, iterator_ops\n"
            "from tensorflow.python.framework import function\n"
            "assert dataset_ops.Dataset is tf.data.Dataset and iterator_ops.Iterator is tf.data.Iterator\n"
            "assert function.Defun and tf.contrib.data.map_and_batch and tf.data.experimental.AUTOTUNE == -1\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
