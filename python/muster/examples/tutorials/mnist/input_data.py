"""MNIST from IDX files (gzipped or not). Nothing is ever downloaded: where files are missing, it says where to put them."""
import collections
import gzip
import os

import numpy as np

from muster import dtypes
from muster.graph import framework

Dataset = collections.namedtuple("Dataset", ["data", "target"])
Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])
SOURCE_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}


def maybe_download(filename, work_directory, source_url=None):
    """The path of a file of the set, with or without .gz."""
    for name in (filename, filename[:-3] if filename.endswith(".gz") else filename):
        path = os.path.join(work_directory, name)
        if os.path.exists(path):
            return path
    raise IOError("MNIST file %s is not in %s. Put the four files %s there (gzipped or not); Muster does not download "
                  "them." % (filename, work_directory, ", ".join(sorted(_FILES.values()))))


def _read_idx(f, magic, what):
    """The array in an open IDX file. A truncated or foreign file is an error that names it."""
    name = getattr(f, "name", "<file>")
    with f if not str(name).endswith(".gz") else gzip.GzipFile(fileobj=f) as stream:
        data = stream.read()
    if len(data) < 8:
        raise ValueError("%s is too short for an IDX file of %s" % (name, what))
    header = np.frombuffer(data[:4], ">i4")[0]
    if header != magic:
        raise ValueError("Invalid magic number %d in MNIST %s file: %s" % (header, what, name))
    rank = magic & 0xFF
    dims = np.frombuffer(data[4:4 + 4 * rank], ">i4")
    count = int(np.prod(dims, dtype=np.int64))
    body = data[4 + 4 * rank:]
    if len(body) < count or (dims < 0).any():
        raise ValueError("%s holds %d bytes of %s where its header says %s" % (name, len(body), what, dims.tolist()))
    return np.frombuffer(body, np.uint8, count).reshape(dims)


def extract_images(f):
    print("Extracting", f.name)
    images = _read_idx(f, 2051, "image")
    return images.reshape(images.shape + (1,))


def dense_to_one_hot(labels_dense, num_classes):
    one_hot = np.zeros((labels_dense.shape[0], num_classes))
    one_hot[np.arange(labels_dense.shape[0]), labels_dense.ravel()] = 1
    return one_hot


def extract_labels(f, one_hot=False, num_classes=10):
    print("Extracting", f.name)
    labels = _read_idx(f, 2049, "label")
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


class DataSet(object):
    """Images and labels, handed out in batches; each epoch is shuffled anew."""

    def __init__(self, images, labels, fake_data=False, one_hot=False, dtype=dtypes.float32, reshape=True, seed=None):
        dtype = dtypes.as_dtype(dtype).base_dtype
        if dtype not in (dtypes.uint8, dtypes.float32):
            raise TypeError("Invalid image dtype %r, expected uint8 or float32" % dtype)
        # TensorFlow seeds numpy's global generator: with the graph's seed where it is given none, from the system
        # where there is none either.
        graph_seed, op_seed = framework.get_seed(seed)
        np.random.seed(graph_seed if seed is None else op_seed)
        self.one_hot = one_hot
        if fake_data:
            self._num_examples = 10000
        else:
            assert images.shape[0] == labels.shape[0], "images.shape: %s labels.shape: %s" % (images.shape, labels.shape)
            self._num_examples = images.shape[0]
            if reshape:
                assert images.shape[3] == 1
                images = images.reshape(images.shape[0], images.shape[1] * images.shape[2])
            if dtype == dtypes.float32:
                images = np.multiply(images.astype(np.float32), 1.0 / 255.0)
        self._fake = fake_data
        self._images, self._labels = images, labels
        self._epochs_completed = 0
        self._index_in_epoch = 0

    images = property(lambda self: self._images)
    labels = property(lambda self: self._labels)
    num_examples = property(lambda self: self._num_examples)
    epochs_completed = property(lambda self: self._epochs_completed)

    def next_batch(self, batch_size, fake_data=False, shuffle=True):
        if fake_data or self._fake:
            fake_label = [1] + [0] * 9 if self.one_hot else 0
            return [[1] * 784 for _ in range(batch_size)], [fake_label for _ in range(batch_size)]
        start = self._index_in_epoch
        if self._epochs_completed == 0 and start == 0 and shuffle:
            self._shuffle()
        if start + batch_size <= self._num_examples:
            self._index_in_epoch += batch_size
            return self._images[start:start + batch_size], self._labels[start:start + batch_size]
        self._epochs_completed += 1
        rest_images, rest_labels = self._images[start:], self._labels[start:]
        if shuffle:
            self._shuffle()
        missing = batch_size - len(rest_images)
        self._index_in_epoch = missing
        return (np.concatenate((rest_images, self._images[:missing]), axis=0),
                np.concatenate((rest_labels, self._labels[:missing]), axis=0))

    def _shuffle(self):
        order = np.arange(self._num_examples)
        np.random.shuffle(order)
        self._images, self._labels = self._images[order], self._labels[order]


def read_data_sets(train_dir, fake_data=False, one_hot=False, dtype=dtypes.float32, reshape=True, validation_size=5000,
                   seed=None, source_url=SOURCE_URL):
    options = dict(dtype=dtype, reshape=reshape, seed=seed)
    if fake_data:
        return Datasets(*[DataSet([], [], fake_data=True, one_hot=one_hot, dtype=dtype, seed=seed) for _ in range(3)])
    loaded = {}
    for part in ("train_images", "train_labels", "test_images", "test_labels"):
        with open(maybe_download(_FILES[part], train_dir, source_url), "rb") as f:
            loaded[part] = extract_images(f) if part.endswith("images") else extract_labels(f, one_hot=one_hot)
    images, labels = loaded["train_images"], loaded["train_labels"]
    if not 0 <= validation_size <= len(images):
        raise ValueError("Validation size should be between 0 and {}. Received: {}.".format(len(images),
                                                                                          validation_size))
    return Datasets(
        train=DataSet(images[validation_size:], labels[validation_size:], **options),
        validation=DataSet(images[:validation_size], labels[:validation_size], **options),
        test=DataSet(loaded["test_images"], loaded["test_labels"], **options))


def load_mnist(train_dir="MNIST-data"):
    return read_data_sets(train_dir)


def load_dataset(name, size="small", test_with_fake_data=False):
    """tf.contrib.learn.datasets.load_dataset: MNIST is the only one of its sets here."""
    if name != "mnist":
        raise ValueError("Name of dataset is not found: %s" % name)
    return read_data_sets("MNIST-data", fake_data=True) if test_with_fake_data else load_mnist()
