"""TFRecord files: TensorFlow's bytes, its errors, and exchange with TensorFlow 2.21."""
import json
import os
import subprocess

import pytest

import golden_cases
import muster as tf

_FOLDER = golden_cases.folder("files") / "records"
_KINDS = {"plain": None, "gzip": "GZIP", "zlib": "ZLIB"}


@pytest.fixture(scope="module")
def records():
    return [bytes.fromhex(r) for r in json.loads((_FOLDER / "values.json").read_text())["records_hex"]]


@pytest.mark.parametrize("kind", sorted(_KINDS))
def test_golden_files_are_read_and_written(kind, records, tmp_path):
    path = _FOLDER / (kind + ".tfrecord")
    options = tf.python_io.TFRecordOptions(_KINDS[kind])
    assert list(tf.python_io.tf_record_iterator(str(path), options)) == records
    mine = tmp_path / kind
    with tf.python_io.TFRecordWriter(str(mine), options) as writer:
        for record in records:
            writer.write(record)
    assert mine.read_bytes() == path.read_bytes()


def test_empty_files(tmp_path):
    for name, options in (("empty", None), ("empty.gzip", "GZIP")):
        golden = _FOLDER / (name + ".tfrecord")
        assert list(tf.python_io.tf_record_iterator(golden, options)) == []
        tf.python_io.TFRecordWriter(tmp_path / name, options).close()
        assert (tmp_path / name).read_bytes() == golden.read_bytes()


def test_examples_are_protos():
    record, = tf.python_io.tf_record_iterator(_FOLDER / "example.tfrecord")
    features = tf.train.Example.FromString(record).features.feature
    assert list(features["i"].int64_list.value) == [1, -1, 2**40]
    assert list(features["f"].float_list.value) == [0.5, -2]
    assert list(features["b"].bytes_list.value) == [b"ab", b""]
    made = tf.train.Example(features=tf.train.Features(feature={
        "i": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, -1, 2**40])),
        "f": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, -2])),
        "b": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"ab", b""])), "none": tf.train.Feature()}))
    assert made == tf.train.Example.FromString(record)
    assert tf.train.SequenceExample(feature_lists=tf.train.FeatureLists(feature_list={"a": tf.train.FeatureList()}))


def test_what_goes_wrong_is_said(tmp_path):
    path = str(tmp_path / "a")
    writer = tf.io.TFRecordWriter(path)
    writer.write("text")
    writer.write(bytearray(b"abc"))
    with pytest.raises(TypeError):
        writer.write(3)
    writer.flush()
    assert list(tf.io.tf_record_iterator(path)) == [b"text", b"abc"]
    writer.close()
    writer.close()
    for call in (lambda: writer.write(b"x"), writer.flush):
        with pytest.raises(tf.errors.FailedPreconditionError, match="Writer is closed."):
            call()
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-1])
    read = tf.python_io.tf_record_iterator(str(tmp_path / "cut"))
    assert next(read) == b"text"
    with pytest.raises(tf.errors.DataLossError, match="truncated record at 20"):
        next(read)
    (tmp_path / "bad").write_bytes(data[:13] + b"?" + data[14:])
    with pytest.raises(tf.errors.DataLossError, match="corrupted record at 12"):
        list(tf.python_io.tf_record_iterator(str(tmp_path / "bad")))
    with pytest.raises(tf.errors.DataLossError, match="inflate.. failed with error -3: incorrect header check"):
        list(tf.python_io.tf_record_iterator(path, "GZIP"))
    missing = str(tmp_path / "none" / "b")
    for call in (tf.python_io.TFRecordWriter, tf.python_io.tf_record_iterator):
        with pytest.raises(tf.errors.NotFoundError, match="none/b; No such file or directory"):
            call(missing)
    with pytest.raises(ValueError, match='Not a valid compression_type: "BZ"'):
        tf.python_io.TFRecordWriter(path, "BZ")
    with pytest.raises(tf.errors.InvalidArgumentError, match="level 77"):
        tf.python_io.TFRecordWriter(path, tf.python_io.TFRecordOptions("ZLIB", compression_level=77))


_THEIRS = """
import sys
import tensorflow.compat.v1 as tf
for kind in ("", "GZIP", "ZLIB"):
    read = list(tf.python_io.tf_record_iterator(sys.argv[1] + "/mine" + kind, tf.python_io.TFRecordOptions(kind)))
    with tf.python_io.TFRecordWriter(sys.argv[1] + "/theirs" + kind, kind) as writer:
        for record in read: writer.write(record)
"""


def test_tensorflow_reads_ours_and_we_read_its(tf_python, records, tmp_path):
    records = records + [os.urandom(200000), b"x" * 1000000]
    for kind in ("", "GZIP", "ZLIB"):
        with tf.io.TFRecordWriter(str(tmp_path / ("mine" + kind)), kind) as writer:
            for i, record in enumerate(records):
                writer.write(record)
                if i % 2:
                    writer.flush()
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([tf_python, "-c", _THEIRS, str(tmp_path)], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0, done.stdout.decode()[-2000:]
    for kind in ("", "GZIP", "ZLIB"):
        assert list(tf.io.tf_record_iterator(str(tmp_path / ("theirs" + kind)), kind)) == records
