"""tf.saved_model: TensorFlow's folder is loaded, ours is written, and TensorFlow loads it."""
import json
import subprocess

import numpy as np
import pytest

import golden_cases
import muster as tf

_GOLDEN = golden_cases.folder("files") / "saved_model"


def _load(folder, tags=("serve",), **more):
    graph = tf.Graph()
    session = tf.Session(graph=graph)
    return session, tf.saved_model.loader.load(session, list(tags), str(folder), **more)


def test_tensorflows_folder():
    session, proto = _load(_GOLDEN)
    signature = proto.signature_def[tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
    assert signature.method_name == "tensorflow/serving/predict"
    with session:
        assert session.run(signature.outputs["y"].name, {signature.inputs["x"].name: [[1, 1]]}).tolist() == [[3]]
    session, _ = _load(_GOLDEN, import_scope="inner")
    with session:
        assert session.run("inner/y:0", {"inner/x:0": [[2, 1]]}).tolist() == [[4]]
    with pytest.raises(RuntimeError, match="MetaGraphDef associated with tags 'train' could not be found in SavedModel"):
        _load(_GOLDEN, ["train"])
    with pytest.raises(IOError, match="SavedModel file does not exist at"):
        _load(_GOLDEN.parent)
    assert tf.saved_model.maybe_saved_model_directory(str(_GOLDEN))
    assert not tf.saved_model.contains_saved_model(str(_GOLDEN.parent))


def _write(folder, as_text=False):
    """The model of the golden folder, and a second graph that shares its variables."""
    asset = folder.parent / "vocab.txt"
    asset.write_text("a\nb\n")
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        w = tf.get_variable("w", initializer=tf.constant([[1.0], [2.0]]))
        y = tf.matmul(x, w, name="y")
        started = tf.Variable(0, name="started", collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
        tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, tf.constant(str(asset), name="vocab"))
        session.run(tf.global_variables_initializer())
        builder = tf.saved_model.builder.SavedModelBuilder(str(folder))
        with pytest.raises(AssertionError, match="has not been saved yet"):
            builder.add_meta_graph(["eval"])
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.tag_constants.SERVING],
            {"serving_default": tf.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": y})},
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.group(started.initializer, name="start"))
        with pytest.raises(AssertionError, match="has already been saved"):
            builder.add_meta_graph_and_variables(session, ["serve"])
    with tf.Graph().as_default():
        w = tf.get_variable("w", [2, 1])
        tf.reduce_sum(w, name="sum")
        builder.add_meta_graph(["eval", "extra"])
    return builder.save(as_text=as_text)


@pytest.mark.parametrize("as_text", [False, True])
def test_our_folder(tmp_path, as_text):
    folder = tmp_path / "model"
    assert _write(folder, as_text) == str(folder / ("saved_model.pbtxt" if as_text else "saved_model.pb"))
    assert (folder / "assets" / "vocab.txt").read_text() == "a\nb\n"
    assert (folder / "variables" / "variables.index").exists()
    with pytest.raises(AssertionError, match="Export directory already exists, and isn't empty"):
        tf.saved_model.builder.SavedModelBuilder(str(folder))
    session, proto = _load(folder)
    with session:
        assert session.run("y:0", {"x:0": [[1, 1]]}).tolist() == [[3]]
        assert session.run("started:0") == 0  # the main op has run
    session, _ = _load(folder, ["extra", "eval"])
    with session:
        assert session.run("sum:0") == 3.0
    with pytest.raises(RuntimeError):
        _load(folder, ["eval"])


def test_simple_save(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2], name="x")
        with tf.device("/device:CPU:0"):
            v = tf.Variable([1.0, 2.0], name="v")
        session.run(v.initializer)
        tf.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"z": x * v})
    session, proto = _load(tmp_path / "m")
    with session:
        outputs = proto.signature_def["serving_default"].outputs
        assert session.run(outputs["z"].name, {"x:0": [3, 4]}).tolist() == [3, 8]
        assert session.graph.get_operation_by_name("v").device == ""
    with tf.Graph().as_default(), tf.Session() as session:  # a model without variables
        x = tf.placeholder(tf.float32, [2], name="x")
        tf.saved_model.simple_save(session, str(tmp_path / "n"), {"x": x}, {"z": tf.square(x, name="z")})
    session, _ = _load(tmp_path / "n")
    with session:
        assert session.run("z:0", {"x:0": [3, 4]}).tolist() == [9, 16]


def test_signatures():
    with tf.Graph().as_default():
        text, number = tf.placeholder(tf.string, [None]), tf.placeholder(tf.float32, [None, 3])
        sparse = tf.sparse_placeholder(tf.int64)
        utils = tf.saved_model.signature_def_utils
        regression = utils.regression_signature_def(text, number)
        assert regression.method_name == "tensorflow/serving/regress" and regression.inputs["inputs"].name == text.name
        classes = utils.classification_signature_def(text, text, number)
        assert sorted(classes.outputs) == ["classes", "scores"]
        info = tf.saved_model.utils.build_tensor_info(sparse)
        assert info.coo_sparse.values_tensor_name == sparse.values.name
        again = tf.saved_model.utils.get_tensor_from_tensor_info(info)
        assert again.indices is sparse.indices
        for call, message in ((lambda: utils.regression_signature_def(number, number), "must be of type string"),
                              (lambda: utils.classification_signature_def(text, None, None), "cannot both be None"),
                              (lambda: utils.predict_signature_def({}, {"a": number}), "inputs cannot be None or empty")):
            with pytest.raises(ValueError, match=message):
                call()


_CONSUME = r"""
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.Session(graph=tf.Graph()) as session:
    proto = tf.saved_model.loader.load(session, ["serve"], sys.argv[1])
    found = proto.signature_def["serving_default"]
    y = session.run(found.outputs["y"].name, {found.inputs["x"].name: [[1, 1]]}).tolist()
    vocab = [a.decode() for a in [session.run("vocab:0")]]
    started = int(session.run("started:0"))
print(json.dumps([y, vocab, started]))
"""


@pytest.mark.parametrize("as_text", [False, True])
def test_our_folder_in_tensorflow(tf_python, tmp_path, as_text):
    folder = tmp_path / "model"
    _write(folder, as_text)
    said = subprocess.run([tf_python, "-c", _CONSUME, str(folder)], check=True, capture_output=True, timeout=100, text=True)
    y, vocab, started = json.loads(said.stdout.splitlines()[-1])
    assert y == [[3]] and started == 0 and vocab == [str(tmp_path / "vocab.txt")]


def test_object_based_checkpoint(tf_python, tmp_path):
    """A checkpoint of tf.train.Checkpoint: variables are found by their names."""
    program = r"""
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.Session() as session:
    v = tf.get_variable("scope/v", initializer=[1.0, 2.0], use_resource=True)
    w = tf.get_variable("w", initializer=[3], use_resource=True)
    session.run(tf.global_variables_initializer())
    saved = tf.train.Checkpoint(a=v, b=w)
    saved.save(sys.argv[1] + "/ckpt", session=session)
"""
    subprocess.run([tf_python, "-c", program, str(tmp_path)], check=True, capture_output=True, timeout=100)
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("scope/v", shape=[2])
        w = tf.get_variable("w", shape=[1], dtype=tf.int32)
        saver = tf.train.Saver()
        saver.restore(session, tf.train.latest_checkpoint(str(tmp_path)))
        assert session.run(v).tolist() == [1, 2] and session.run(w).tolist() == [3]
        other = tf.get_variable("other", shape=[2])
        with pytest.raises(tf.errors.NotFoundError, match="Existing variables not in the checkpoint: other"):
            tf.train.Saver([other]).restore(session, tf.train.latest_checkpoint(str(tmp_path)))
    assert np is not None


def test_init_from_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("old/a", initializer=tf.constant([1.0, 2.0]))
        tf.get_variable("old/b", initializer=tf.constant(np.arange(6, dtype=np.float32).reshape(3, 2)))
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("new"):
            a = tf.get_variable("a", [2])
            b = tf.get_variable("b", [3, 2], partitioner=tf.fixed_size_partitioner(2))
        c = tf.get_variable("c", [2], use_resource=True)
        d = tf.get_variable("d", [4])
        tf.train.init_from_checkpoint(str(tmp_path), {"old/": "new/"})
        tf.train.init_from_checkpoint(path, {"old/a": c})
        for given, message in (({"old/a": d}, "doesn't match with shape of tensor old/a"),
                               ({"gone": c}, "Tensor gone is not found in"),
                               ({"old/a": "nothing/"}, "should map to scope only old/a")):
            with pytest.raises(ValueError, match=message):
                tf.train.init_from_checkpoint(path, given)
        session.run(tf.global_variables_initializer())
        assert session.run(a).tolist() == [1, 2] and session.run(c).tolist() == [1, 2]
        assert session.run(tf.convert_to_tensor(b)).tolist() == [[0, 1], [2, 3], [4, 5]]
