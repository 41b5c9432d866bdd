"""Checkpoints: files of TensorFlow 1.15.5 are read and rewritten; 2.21 and Muster read what the other has written."""
import hashlib
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import muster as tf

PROGRAM = str(pathlib.Path(__file__).with_name("checkpoint_program.py"))


@pytest.fixture(scope="session")
def files(golden):
    return golden / "files"


def _run(fetch):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(fetch())


def _save(prefix, names, specs, arrays):
    _run(lambda: tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=specs,
                                   tensors=[tf.constant(a) for a in arrays]))


def _restore(prefix, names, specs, dtypes):
    return _run(lambda: tf.raw_ops.RestoreV2(prefix=str(prefix), tensor_names=names, shape_and_slices=specs, dtypes=dtypes))


@pytest.mark.parametrize("prefix", ["ckpt_dtypes/model.ckpt-7", "ckpt_parts/model.ckpt", "ckpt_rawsave/raw",
                                    "ckpt_sharded/model.ckpt-1", "ckpt_slots/model.ckpt-3", "ckpt_snappy/model.ckpt-3"])
def test_golden_values_are_read(files, prefix):
    folder = "ckpt_slots" if "snappy" in prefix else prefix.split("/")[0]
    expected = np.load(str(files / folder / "values.npz"))
    reader = tf.train.NewCheckpointReader(str(files / prefix))
    types = reader.get_variable_to_dtype_map()
    names = [name for name in types if types[name] != tf.string]
    assert set(names) == {n for n in expected.files if types.get(n) != tf.string}
    for name in names:
        value = np.asarray(reader.get_tensor(name))
        if types[name] == tf.bfloat16:
            value = value.astype(np.float32)
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
        assert reader.get_variable_to_shape_map()[name] == list(expected[name].shape)


def test_small_files_are_written_byte_for_byte(files, tmp_path):
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    _save(tmp_path / "scalar", ["v"], [""], [np.float32(1)])
    _save(tmp_path / "slices", ["w", "w"], ["4 3 0,2:0,3", "4 3 2,2:0,3"], [w[:2], w[2:]])
    _save(tmp_path / "slices_dash", ["w", "w"], ["4 3 0,2:-", "4 3 2,2:-"], [w[:2], w[2:]])
    _save(tmp_path / "strings", ["s"], [""], [np.array([b"ab", b"", b"c"])])
    _save(tmp_path / "binary_names", [b"a\xffb", b"a\x01c", b"\xff"], ["2 0,1", "", ""],
          [np.array([5], np.int8), np.int8(6), np.int8(7)])
    _save(tmp_path / "temp" / "a", ["a"], [""], [np.float32(1)])
    _save(tmp_path / "temp" / "b", ["w", "w"], ["4 3 2,2:0,3", "4 3 0,2:0,3"], [w[2:], w[:2]])
    _run(lambda: tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[str(tmp_path / "temp" / x) for x in "ab"],
                                               destination_prefix=str(tmp_path / "merged")))
    written = sorted(p for p in tmp_path.iterdir())
    assert len(written) == 13 and all(p.is_file() for p in written)
    for path in written:
        assert path.read_bytes() == (files / "ckpt_min" / path.name).read_bytes(), path.name


def test_an_index_of_several_blocks_is_written_byte_for_byte(tmp_path):
    names = ["n/" + hashlib.sha256(b"%d" % i).hexdigest() for i in range(3600)]
    _save(tmp_path / "m", names, [""] * 3600, [np.float32(i) for i in range(3600)])
    index = (tmp_path / "m.index").read_bytes()
    assert len(index) == 285421
    assert hashlib.sha256(index).hexdigest() == "73b1d307db120b00c42024997b4615c527967d033b535e961ab79e32d8cf1bb7"
    assert hashlib.sha256((tmp_path / "m.data-00000-of-00001").read_bytes()).hexdigest() == "b478e819b43bceed3816eab244bc7930d82320fab237de0b04b7ba4ee12da230"
    assert _restore(tmp_path / "m", names[::997], [""] * 4, [tf.float32] * 4) == [0.0, 997.0, 1994.0, 2991.0]


@pytest.mark.parametrize("writer,reader", [("muster", "tensorflow"), ("tensorflow", "muster")])
def test_every_type_goes_from_one_to_the_other(tf_python, tmp_path, writer, reader):
    pythons = {"muster": sys.executable, "tensorflow": tf_python}
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    for library, command in ((writer, "save"), (reader, "load")):
        done = subprocess.run([pythons[library], PROGRAM, library, command, str(tmp_path)], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-3000:]


def test_both_write_the_same_bytes(tf_python, tmp_path):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    for library, python in (("muster", sys.executable), ("tensorflow", tf_python)):
        (tmp_path / library).mkdir()
        subprocess.run([python, PROGRAM, library, "save", str(tmp_path / library)], env=environment, check=True, timeout=300,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    names = sorted(p.name for p in (tmp_path / "tensorflow").iterdir())
    assert names == sorted(p.name for p in (tmp_path / "muster").iterdir())
    for name in names:
        assert (tmp_path / "muster" / name).read_bytes() == (tmp_path / "tensorflow" / name).read_bytes(), name


@pytest.mark.parametrize("names,specs,dtypes,error,text", [
    (["zz"], [""], [tf.float32], tf.errors.NotFoundError, "Key zz not found in checkpoint"),
    (["a", "w"], ["", ""], [tf.int32, tf.int64], tf.errors.InvalidArgumentError,
     "tensor_name = a; expected dtype int32 does not equal original dtype float\n"
     "tensor_name = w; expected dtype int64 does not equal original dtype float"),
    (["w"], ["5 3 0,2:-"], [tf.float32], tf.errors.InvalidArgumentError,
     "tensor_name = w; shape in shape_and_slice spec [5,3] does not match the shape stored in checkpoint: [4,3]"),
])
def test_wrong_requests_are_told_in_tensorflows_words(files, names, specs, dtypes, error, text):
    with pytest.raises(error) as raised:
        _restore(files / "ckpt_min" / "merged", names, specs, dtypes)
    assert raised.value.message.startswith(text)


def test_missing_and_damaged_files_are_named(files, tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="Failed to find any matching files for .*none"):
        _restore(tmp_path / "none", ["v"], [""], [tf.float32])
    with pytest.raises(tf.errors.NotFoundError, match="Failed to find any matching files for .*none"):
        tf.train.NewCheckpointReader(str(tmp_path / "none"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="sufficient slices for partitioned tensor w to restore in"):
        _restore(files / "ckpt_min" / "slice_missing", ["w"], [""], [tf.float32])
    _save(tmp_path / "m", ["layer/w"], [""], [np.ones([3], np.float32)])
    data = tmp_path / "m.data-00000-of-00001"
    good = data.read_bytes()
    data.write_bytes(b"\1" + good[1:])
    with pytest.raises(tf.errors.DataLossError, match="Checksum does not match: .*layer/w.*data-00000"):
        _restore(tmp_path / "m", ["layer/w"], [""], [tf.float32])
    data.write_bytes(good[:-1])
    with pytest.raises(tf.errors.OutOfRangeError, match="Read less bytes than requested.*layer/w"):
        tf.train.load_variable(str(tmp_path / "m"), "layer/w")
    (tmp_path / "m.index").write_bytes(b"x" * 100)
    with pytest.raises(tf.errors.DataLossError, match="bad magic number.*m.index"):
        tf.train.load_checkpoint(str(tmp_path / "m"))


def test_the_state_file_names_the_newest(tmp_path, monkeypatch):
    folder = str(tmp_path)
    assert tf.train.get_checkpoint_state(folder) is None and tf.train.latest_checkpoint(folder) is None
    paths = [os.path.join(folder, "m-%d" % i) for i in (1, 2)]
    for path in paths:
        _save(path, ["v"], [""], [np.float32(1)])
    tf.train.update_checkpoint_state(folder, paths[1], [paths[0]])
    assert (tmp_path / "checkpoint").read_text() == (
        'model_checkpoint_path: "%s"\nall_model_checkpoint_paths: "%s"\nall_model_checkpoint_paths: "%s"\n' % (
            paths[1], paths[0], paths[1]))
    assert tf.train.latest_checkpoint(folder) == paths[1]
    assert list(tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths) == paths
    assert tf.train.list_variables(folder) == [("v", [])] and tf.train.load_variable(folder, "v:0") == 1.0
    monkeypatch.chdir(tmp_path.parent)
    tf.train.update_checkpoint_state(tmp_path.name, tmp_path.name + "/m-2", latest_filename="relative")
    assert (tmp_path / "relative").read_text().startswith('model_checkpoint_path: "m-2"\n')
    assert tf.train.latest_checkpoint(folder, "relative") == paths[1]
    state = tf.train.generate_checkpoint_state_proto("d", "d/m", ["d/k", "d/m"], [1.5, 2.5], 3.5)
    assert list(state.all_model_checkpoint_paths) == ["k", "m"] and state.last_preserved_timestamp == 3.5
    with pytest.raises(ValueError, match="must match checkpoint paths"):
        tf.train.generate_checkpoint_state_proto("d", "d/m", ["d/m"], [1.5, 2.5])
    with pytest.raises(RuntimeError, match="conflicts with path used for checkpoint state"):
        tf.train.update_checkpoint_state(folder, os.path.join(folder, "checkpoint"))
    (tmp_path / "checkpoint").write_text("no state")
    assert tf.train.get_checkpoint_state(folder) is None
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(ValueError, match="Invalid checkpoint state loaded from"):
        tf.train.get_checkpoint_state(folder)
    times = tf.train.get_checkpoint_mtimes(paths + ["none"])
    assert len(times) == 2 and abs(times[0] - os.stat(paths[0] + ".index").st_mtime) < 1e-3
    tf.train.remove_checkpoint(paths[0])
    assert not tf.train.checkpoint_exists(paths[0]) and tf.train.checkpoint_exists(paths[1])
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("m-1")]


def test_golden_states_are_read(files):
    for name, newest in (("retention_manager", "ckpt-2"), ("tf221", "ckpt-2")):
        assert tf.train.latest_checkpoint(str(files / name)) == str(files / name / newest)
        assert "_CHECKPOINTABLE_OBJECT_GRAPH" in dict(tf.train.list_variables(str(files / name)))


def test_new_checkpoints_are_given_as_they_come(tmp_path):
    folder = str(tmp_path)
    assert list(tf.train.checkpoints_iterator(folder, timeout=0)) == []

    def save(step):
        prefix = os.path.join(folder, "m-%d" % step)
        _save(prefix, ["v"], [""], [np.float32(step)])
        tf.train.update_checkpoint_state(folder, prefix)

    save(1)
    found = []
    for prefix in tf.train.checkpoints_iterator(folder, timeout=0, timeout_fn=lambda: len(found) == 2):
        found.append(os.path.basename(prefix))
        save(2)
    assert found == ["m-1", "m-2"]


def test_scripts_find_them_under_tensorflows_paths(tmp_path, files):
    script = tmp_path / "script.py"
    script.write_text("""
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.training import checkpoint_management, checkpoint_utils
from tensorflow.python.tools.inspect_checkpoint import print_tensors_in_checkpoint_file
prefix = %r
assert pywrap_tensorflow.NewCheckpointReader(prefix).has_tensor("v")
assert checkpoint_management.checkpoint_exists(prefix) and checkpoint_utils.load_variable(prefix, "v") == 1.0
print_tensors_in_checkpoint_file(prefix, "v", all_tensors=False)
""" % str(files / "ckpt_min" / "scalar"))
    done = subprocess.run([sys.executable, "-m", "muster._run", str(script)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "tensor_name:  v\n1.0\n" in done.stdout
