"""tensorflow.examples.tutorials.mnist.input_data: files, batches, and what it says when files are missing or broken."""
import gzip
import struct

import numpy as np
import pytest

import muster as tf
from muster.examples.tutorials.mnist import input_data

_COUNTS = {"train": 40, "t10k": 12}


def _write(folder, compress=True, magic=None):
    made = {}
    for part, count in _COUNTS.items():
        images = np.random.RandomState(count).randint(0, 256, [count, 28, 28]).astype(np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        contents = {"images-idx3-ubyte": struct.pack(">IIII", magic or 2051, count, 28, 28) + images.tobytes(),
                    "labels-idx1-ubyte": struct.pack(">II", 2049, count) + labels.tobytes()}
        for name, data in contents.items():
            path = folder / ("%s-%s%s" % (part, name, ".gz" if compress else ""))
            path.write_bytes(gzip.compress(data) if compress else data)
        made[part] = images, labels
    return made


@pytest.mark.parametrize("compress", [True, False])
def test_sets(tmp_path, compress, capsys):
    made = _write(tmp_path, compress)
    sets = input_data.read_data_sets(str(tmp_path), validation_size=10)
    assert [s.num_examples for s in sets] == [30, 10, 12]
    assert sets._fields == ("train", "validation", "test")
    images, labels = made["train"]
    np.testing.assert_array_equal(sets.validation.images, np.multiply(images[:10].reshape(10, 784).astype(np.float32),
                                                                      1 / 255.))
    assert sets.train.images.dtype == np.float32
    np.testing.assert_array_equal(sets.train.labels, labels[10:])
    assert capsys.readouterr().out.count("Extracting ") == 4


def test_options(tmp_path):
    _write(tmp_path)
    sets = input_data.read_data_sets(str(tmp_path), one_hot=True, dtype=tf.uint8, reshape=False, validation_size=0)
    assert sets.train.images.shape == (40, 28, 28, 1) and sets.train.images.dtype == np.uint8
    assert sets.test.labels.dtype == np.float64 and sets.test.labels.shape == (12, 10)
    np.testing.assert_array_equal(sets.test.labels.argmax(1), np.arange(12) % 10)
    with pytest.raises(TypeError, match="Invalid image dtype"):
        input_data.read_data_sets(str(tmp_path), dtype=tf.int32, validation_size=0)
    with pytest.raises(ValueError, match="Validation size should be between 0 and 40"):
        input_data.read_data_sets(str(tmp_path), validation_size=41)


def test_batches(tmp_path):
    _write(tmp_path)
    np.random.seed(5)
    order = np.arange(40)
    np.random.shuffle(order)
    data = input_data.read_data_sets(str(tmp_path), validation_size=0, seed=5).train
    labels = (np.arange(40) % 10)[order]
    np.testing.assert_array_equal(data.next_batch(30)[1], labels[:30])
    assert data.epochs_completed == 0
    images, crossing = data.next_batch(30)
    assert images.shape == (30, 784) and data.epochs_completed == 1
    np.testing.assert_array_equal(crossing[:10], labels[30:])
    plain = input_data.read_data_sets(str(tmp_path), validation_size=0).train
    np.testing.assert_array_equal(plain.next_batch(7, shuffle=False)[1], np.arange(7))


def test_the_graphs_seed_decides_where_none_is_given(tmp_path):
    _write(tmp_path)
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        first, second = [input_data.read_data_sets(str(tmp_path), validation_size=0).train.next_batch(9)[1]
                         for _ in range(2)]
    np.testing.assert_array_equal(first, second)


def test_fake_data(tmp_path):
    sets = input_data.read_data_sets(str(tmp_path), fake_data=True, one_hot=True)
    assert sets.train is not sets.test and sets.train.num_examples == 10000
    images, labels = sets.train.next_batch(2, fake_data=True)
    assert images == [[1] * 784] * 2 and labels == [[1] + [0] * 9] * 2


def test_missing_files_say_where_to_put_them(tmp_path):
    with pytest.raises(IOError) as raised:
        input_data.read_data_sets(str(tmp_path / "none"))
    assert str(tmp_path / "none") in str(raised.value) and "train-images-idx3-ubyte.gz" in str(raised.value)


def test_broken_files(tmp_path):
    _write(tmp_path, magic=2052)
    with pytest.raises(ValueError, match="Invalid magic number 2052 in MNIST image file"):
        input_data.read_data_sets(str(tmp_path))
    _write(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(struct.pack(">IIII", 2051, 40, 28, 28) + b"few"))
    with pytest.raises(ValueError, match="where its header says"):
        input_data.read_data_sets(str(tmp_path))


def test_names_of_contrib_learn(tmp_path):
    datasets = tf.contrib.learn.datasets
    assert datasets.mnist.read_data_sets is input_data.read_data_sets
    assert datasets.load_dataset("mnist", test_with_fake_data=True).train.num_examples == 10000
    with pytest.raises(ValueError, match="Name of dataset is not found"):
        datasets.load_dataset("iris")
