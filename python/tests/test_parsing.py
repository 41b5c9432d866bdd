"""Examples and SequenceExamples: names of nodes, values, and what wrong features and wrong bytes give."""
import random

import numpy as np
import pytest

import muster as tf


def _feature(values):
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _example(**features):
    return tf.train.Example(features=tf.train.Features(feature={
        key: _feature(values) for key, values in features.items()})).SerializeToString()


def _sequence(context, **lists):
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={key: _feature(values) for key, values in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list={
            key: tf.train.FeatureList(feature=[_feature(step) for step in steps]) for key, steps in lists.items()})
    ).SerializeToString()


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def _run(fetches):
    with tf.Session() as sess:
        return sess.run(fetches)


def _nodes(graph):
    return [(node.name, node.op) for node in graph.as_graph_def().node]


def test_nodes_of_parse_example(graph):
    tf.parse_example(tf.placeholder(tf.string, [None], name="in"), {
        "a b": tf.FixedLenFeature([2], tf.float32, [1., 2.]), "v": tf.VarLenFeature(tf.string),
        "s": tf.FixedLenSequenceFeature([], tf.int64, allow_missing=True), "r": tf.FixedLenFeature([], tf.int64)})
    assert _nodes(graph)[1:] == [
        ("ParseExample/key_a_b", "Const"), ("ParseExample/Reshape/shape", "Const"), ("ParseExample/Reshape", "Reshape"),
        ("ParseExample/Const", "Const"), ("ParseExample/Const_1", "Const"),
        ("ParseExample/ParseExample/names", "Const"), ("ParseExample/ParseExample/sparse_keys_0", "Const"),
        ("ParseExample/ParseExample/dense_keys_0", "Const"), ("ParseExample/ParseExample/dense_keys_1", "Const"),
        ("ParseExample/ParseExample/dense_keys_2", "Const"), ("ParseExample/ParseExample", "ParseExample")]


def test_nodes_of_parse_single_example(graph):
    parsed = tf.parse_single_example(tf.placeholder(tf.string, [], name="in"), {"r": tf.FixedLenFeature([3], tf.int64)})
    assert _nodes(graph)[1:] == [("ParseSingleExample/Const", "Const"),
                                 ("ParseSingleExample/ParseSingleExample", "ParseSingleExample")]
    assert parsed["r"].get_shape().as_list() == [3]


def test_a_named_example_is_a_batch_of_one():
    features = {"a": tf.FixedLenFeature([], tf.float32), "v": tf.VarLenFeature(tf.int64)}
    parsed = _run(tf.parse_single_example(_example(a=[1.5], v=[4, 5]), features, example_names="n"))
    assert parsed["a"] == 1.5
    np.testing.assert_array_equal(parsed["v"].indices, [[0], [1]])
    np.testing.assert_array_equal(parsed["v"].dense_shape, [2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Name: n, Feature: a"):
        _run(tf.parse_single_example(_example(), features, example_names="n")["a"])


def test_sparse_feature():
    examples = [_example(i=[3, 1], v=[1., 2.]), _example(i=[0], v=[5.])]
    found = _run(tf.parse_example(examples, {"s": tf.SparseFeature("i", "v", tf.float32, 10)}))["s"]
    np.testing.assert_array_equal(found.indices, [[0, 1], [0, 3], [1, 0]])
    np.testing.assert_array_equal(found.values, [2., 1., 5.])
    np.testing.assert_array_equal(found.dense_shape, [2, 10])


@pytest.mark.parametrize("features, text", [
    ({}, "Missing"), ({"a": 5}, "Unsupported int"), ({"a": tf.FixedLenFeature(None, tf.float32)}, "Missing shape"),
    ({"a": tf.FixedLenFeature([None], tf.float32)}, "First dimension of shape"),
    ({"a": tf.FixedLenFeature([2, None], tf.float32)}, "All dimensions of shape"),
    ({"a": tf.FixedLenSequenceFeature([], tf.float32)}, "requires allow_missing"),
    ({"a": tf.VarLenFeature(None)}, "Missing type"), ({"a": tf.SparseFeature("", "v", tf.float32, 1)}, "Missing index_key"),
    ({"a": tf.SparseFeature("i", "v", tf.float32, 1), "v": tf.VarLenFeature(tf.int64)}, "Conflicting type")])
def test_wrong_features(features, text):
    with pytest.raises(ValueError, match=text):
        tf.parse_example(["x"], features)


def test_sequence_example():
    bytes_ = _sequence({"c": [7], "w": [b"x", b"y"]}, f=[[1., 2.], [3., 4.]], v=[[1], [], [2, 3]])
    context, steps = tf.parse_single_sequence_example(
        bytes_, {"c": tf.FixedLenFeature([], tf.int64), "w": tf.VarLenFeature(tf.string)},
        {"f": tf.FixedLenSequenceFeature([2], tf.float32), "v": tf.VarLenFeature(tf.int64),
         "missing": tf.FixedLenSequenceFeature([], tf.int64, allow_missing=True)})
    assert steps["f"].get_shape().as_list() == [None, 2]
    context, steps = _run([context, steps])
    assert context["c"] == 7 and list(context["w"].values) == [b"x", b"y"]
    np.testing.assert_array_equal(steps["f"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(steps["v"].indices, [[0, 0], [2, 0], [2, 1]])
    np.testing.assert_array_equal(steps["v"].dense_shape, [3, 2])
    assert steps["missing"].shape == (0,)


@pytest.mark.parametrize("feature, text", [
    (tf.FixedLenSequenceFeature([3], tf.float32), "values != expected"),
    (tf.FixedLenSequenceFeature([2], tf.int64), "Data types don't match"), (tf.VarLenFeature(tf.string), "Data types")])
def test_wrong_sequences(feature, text):
    bytes_ = _sequence({}, f=[[1., 2.], [3., 4.]])
    parsed = tf.parse_single_sequence_example(bytes_, sequence_features={"f": feature})[1]
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        _run(parsed)


def test_a_sequence_that_is_missing():
    parsed = tf.parse_single_sequence_example(_sequence({}), sequence_features={
        "f": tf.FixedLenSequenceFeature([2], tf.float32)})[1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Feature list 'f' is required"):
        _run(parsed)


def test_bytes_that_somebody_made_up():
    """Mutated messages parse or are refused; the session goes on."""
    rng = random.Random(1)
    good = _example(a=[1., 2.], b=[b"x", b"yz"], c=[1, -1])
    given = tf.placeholder(tf.string, [])
    features = {"a": tf.VarLenFeature(tf.float32), "b": tf.VarLenFeature(tf.string), "c": tf.VarLenFeature(tf.int64)}
    single = tf.parse_single_example(given, features)
    batch = tf.parse_example(tf.stack([given, good]), features)
    sequence = tf.parse_single_sequence_example(given, features, {"f": tf.VarLenFeature(tf.int64)})
    outcomes = set()
    with tf.Session() as sess:
        for _ in range(300):
            bytes_ = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                bytes_[rng.randrange(len(bytes_))] = rng.randrange(256)
            for fetches in (single, batch, sequence):
                try:
                    sess.run(fetches, {given: bytes(bytes_[:rng.randint(1, len(bytes_))])})
                    outcomes.add("parsed")
                except tf.errors.InvalidArgumentError:
                    outcomes.add("refused")
    assert outcomes == {"parsed", "refused"}


def test_pictures_that_somebody_made_up():
    rng = random.Random(2)
    image = np.arange(5 * 7 * 3).reshape(5, 7, 3).astype(np.uint8)
    given = tf.placeholder(tf.string, [])
    decoded = [tf.image.decode_png(given), tf.image.decode_jpeg(given), tf.image.decode_gif(given),
               tf.image.decode_bmp(given), tf.image.extract_jpeg_shape(given),
               tf.image.decode_and_crop_jpeg(given, [0, 0, 2, 2])]
    with tf.Session() as sess:
        for good in sess.run([tf.image.encode_png(image), tf.image.encode_jpeg(image)]):
            for _ in range(100):
                bytes_ = bytearray(good)
                for _ in range(rng.randint(1, 3)):
                    bytes_[rng.randrange(len(bytes_))] = rng.randrange(256)
                for fetch in decoded:
                    try:
                        sess.run(fetch, {given: bytes(bytes_)})
                    except tf.errors.InvalidArgumentError:
                        pass
        np.testing.assert_array_equal(sess.run(decoded[0], {given: sess.run(tf.image.encode_png(image))}), image)


@pytest.mark.parametrize("splits", [tf.int32, tf.int64])
def test_ragged_columns_of_sequences(splits):
    examples = [_sequence({"c": [1, 2, 3]}, a=[[1], [], [2, 3]], s=[[b"x", b"y"]]), _sequence({}, a=[[7, 8, 9]]),
                _sequence({"c": [5]})]
    none = np.array([], object)
    parsed = tf.raw_ops.ParseSequenceExampleV2(
        serialized=examples, debug_name=none, context_sparse_keys=none, context_dense_keys=none, context_ragged_keys=["c"],
        feature_list_sparse_keys=none, feature_list_dense_keys=none, feature_list_ragged_keys=["a", "s"],
        feature_list_dense_missing_assumed_empty=np.zeros([0], bool), context_dense_defaults=[],
        context_ragged_value_types=[tf.int64], context_ragged_split_types=[splits],
        feature_list_ragged_value_types=[tf.int64, tf.string], feature_list_ragged_split_types=[splits, splits])
    with tf.Session() as session:
        found = {name: [value.tolist() for value in session.run(list(getattr(parsed, name)))]
                 for name in parsed._fields if "ragged" in name}
    # As TensorFlow 2.21 has it.
    assert found == {
        "context_ragged_values": [[1, 2, 3, 5]], "context_ragged_row_splits": [[0, 3, 3, 4]],
        "feature_list_ragged_values": [[1, 2, 3, 7, 8, 9], [b"x", b"y"]],
        "feature_list_ragged_outer_splits": [[0, 3, 4, 4], [0, 1, 1, 1]],
        "feature_list_ragged_inner_splits": [[0, 1, 1, 3, 6], [0, 2]]}
    assert parsed.feature_list_ragged_outer_splits[0].dtype == splits
