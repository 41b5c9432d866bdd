"""Pipelines of tf.data that TensorFlow 2.21 has built: Muster reads the elements that TensorFlow reads."""

import pickle
import subprocess
import threading

import dataset_programs
import numpy as np
import pytest

import muster as tf

NAMES = list(dataset_programs.PIPELINES) + [name + "/one_shot" for name in dataset_programs.ONE_SHOT]


@pytest.fixture(scope="module")
def cases(tf_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("datasets")
    done = subprocess.run([tf_python, dataset_programs.__file__, str(folder)], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return {"folder": folder, **{case[0]: case[1:] for case in pickle.loads((folder / "cases").read_bytes())}}


@pytest.mark.parametrize("name", NAMES)
def test_elements(cases, name):
    serialized, initializer, outputs, readings = cases[name]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(tf.GraphDef.FromString(serialized), name="")
        with tf.Session() as session:
            for expected in readings:
                if initializer:
                    session.run(graph.get_operation_by_name(initializer))
                got = dataset_programs.read(tf, session, outputs)
                assert len(got) == len(expected), (got, expected)
                for mine, theirs in zip(got, expected):
                    np.testing.assert_equal(mine, theirs)


def load(cases, name):
    serialized, initializer, outputs, _ = cases[name]
    tf.import_graph_def(tf.GraphDef.FromString(serialized), name="")
    return initializer and tf.get_default_graph().get_operation_by_name(initializer), outputs


def test_iterator_without_dataset(cases):
    with tf.Graph().as_default(), tf.Session() as session:
        _, outputs = load(cases, "range")
        with pytest.raises(tf.errors.FailedPreconditionError, match="the iterator has not been initialized"):
            session.run(outputs)


def test_string_handles(cases):
    """A fed string chooses the iterator."""
    with tf.Graph().as_default(), tf.Session() as session:
        serialized, (first, second), (fed, element), _ = cases["feedable"]
        tf.import_graph_def(tf.GraphDef.FromString(serialized), name="")
        one, other = session.run([first, second])
        got = [int(session.run(element, {fed: handle})) for handle in [one, other, one, other, one]]
        assert got == [0, 100, 1, 101, 2]


def test_fused_shuffle_and_repeat(cases):
    """TensorFlow 1.15 makes shuffle and repeat one where its optimizations are on: golden random_vectors.json."""
    serialized, initializer, outputs, _ = cases["shuffle_repeat"]
    graph_def = tf.GraphDef.FromString(serialized)
    make = next(node for node in graph_def.node if node.op == "MakeIterator")
    repeat = next(node for node in graph_def.node if node.op == "RepeatDataset")
    names = graph_def.node.add(name="optimizations", op="Const")
    names.attr["dtype"].type = tf.string.as_datatype_enum
    tensor = names.attr["value"].tensor
    tensor.dtype = tf.string.as_datatype_enum
    tensor.tensor_shape.dim.add(size=2)
    tensor.string_val.extend([b"noop_elimination", b"shuffle_and_repeat_fusion"])
    optimize = graph_def.node.add(name="optimize", op="OptimizeDataset", input=[repeat.name, names.name])
    for attr in ["output_types", "output_shapes"]:
        optimize.attr[attr].CopyFrom(repeat.attr[attr])
    make.input[0] = optimize.name
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        session.run(graph.get_operation_by_name(initializer))
        assert [int(element[0]) for element in dataset_programs.read(tf, session, outputs)] == [
            2, 3, 0, 7, 4, 8, 6, 11, 5, 10, 9, 1, 3, 2, 5, 4, 0, 8, 10, 1, 9, 6, 11, 7, 2, 1, 5, 0, 3, 9, 4, 11, 6, 10,
            8, 7]


def test_server(cases):
    """The pipeline and its functions live on a server and outlast the step that made them."""
    server = tf.train.Server.create_local_server()
    with tf.Graph().as_default(), tf.Session(server.target) as session:
        initializer, outputs = load(cases, "training")
        for expected in cases["training"][3]:
            session.run(initializer)
            for mine, theirs in zip(dataset_programs.read(tf, session, outputs), expected, strict=True):
                np.testing.assert_equal(mine, theirs)


def test_cache_written_anew(cases):
    """Files of a cache are written when they are not there, and read when they are."""
    folder = cases["folder"]
    _, _, _, readings = cases["cache_file"]
    assert (folder / "cached.index").exists()
    for file in folder.glob("cached*"):
        file.unlink()
    with tf.Graph().as_default(), tf.Session() as session:
        initializer, outputs = load(cases, "cache_file")
        for _ in range(2):
            session.run(initializer)
            np.testing.assert_equal(dataset_programs.read(tf, session, outputs), readings[0])
            assert (folder / "cached.index").exists()


def test_closed_while_reading_ahead(cases):
    """A session that ends while elements are read for it ends at once."""
    with tf.Graph().as_default():
        initializer, outputs = load(cases, "prefetch_given_up")
        for _ in range(20):
            session = tf.Session()
            session.run(initializer)
            session.run(outputs)
            session.close()
            del session


def test_many_threads_share_an_iterator(cases):
    """Every element goes to one of the threads."""
    with tf.Graph().as_default(), tf.Session() as session:
        initializer, outputs = load(cases, "parallel_map")
        session.run(initializer)
        seen, lock = [], threading.Lock()

        def take():
            while True:
                try:
                    value = session.run(outputs)[0]
                except tf.errors.OutOfRangeError:
                    return
                with lock:
                    seen.append(int(value))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(seen) == [i * i for i in range(20)]


@pytest.mark.parametrize("calls", [1, 3])
def test_iterators_that_end_with_their_calls(calls):
    """A pipeline is dropped while its last calls return."""
    with tf.Graph().as_default():
        data = tf.data.Dataset.range(10).map(lambda x: x * x, num_parallel_calls=calls)
        iterator = tf.data.make_initializable_iterator(data)
        following = iterator.get_next()
        with tf.Session() as session:
            for _ in range(200):
                session.run(iterator.initializer)
                assert session.run(following) == 0
