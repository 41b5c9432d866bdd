"""Pipelines of tf.data, and what they yield: run on Muster and on TensorFlow, compared by test_data.py."""
import collections
import json
import os
import sys

import numpy as np

PROGRAMS = []
Pair = collections.namedtuple("Pair", ["left", "right"])


def program(function):
    PROGRAMS.append(function)
    return function


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [str(value.shape)] + [_plain(item) for item in value.reshape(-1).tolist()]
    return [str(value.dtype), value.tolist()]


def _kinds(tf, value):
    """Types and shapes of an element's tensors, nested as it is."""
    if isinstance(value, dict):
        return {key: _kinds(tf, item) for key, item in sorted(value.items())}
    if isinstance(value, tuple):
        return [_kinds(tf, item) for item in value]
    if isinstance(value, tf.SparseTensor):
        return ["sparse", value.dtype.name, value.get_shape().ndims]
    return [value.dtype.name, None if value.shape.ndims is None else value.shape.as_list()]


def drain(tf, session, fetches, limit=60):
    got = []
    while len(got) < limit:
        try:
            got.append(_plain(session.run(fetches)))
        except tf.errors.OutOfRangeError:
            return got + ["end"]
        except tf.errors.OpError as error:
            return got + [type(error).__name__]
    return got


def _read(tf, function, folder, kind):
    with tf.Graph().as_default():
        dataset = function(tf, folder)
        passes = 1 if kind == "one_shot" else 2
        if kind == "one_shot":
            iterator = tf.data.make_one_shot_iterator(dataset)
        else:
            iterator = tf.data.make_initializable_iterator(dataset)
        following = iterator.get_next()
        got = [_kinds(tf, following)]
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.tables_initializer()])
            for _ in range(passes):
                if kind != "one_shot":
                    session.run(iterator.initializer)
                got.append(drain(tf, session, following))
        return got


def run_one(tf, function, folder):
    answers = {"initializable": _read(tf, function, folder, "initializable")}
    if not getattr(function, "keeps_state", False):
        answers["one_shot"] = _read(tf, function, folder, "one_shot")
    return answers


def run(tf, folder):
    return {function.__name__: run_one(tf, function, folder) for function in PROGRAMS}


def keeps_state(function):
    """Captures what a one-shot iterator cannot have."""
    function.keeps_state = True
    return function


@program
def numbers(tf, folder):
    return tf.data.Dataset.range(2, 20, 5)


@program
def downwards(tf, folder):
    return tf.data.Dataset.range(5, 0, -2)


@program
def slices_of_structures(tf, folder):
    return tf.data.Dataset.from_tensor_slices(({"b": [1, 2, 3], "a": np.eye(3, dtype=np.float32)}, ["x", "y", "z"]))


@program
def one_element(tf, folder):
    return tf.data.Dataset.from_tensors((np.arange(6).reshape(2, 3), True)).repeat(2)


@program
def named_tuples(tf, folder):
    dataset = tf.data.Dataset.from_tensor_slices(Pair([1, 2], [3.0, 4.0]))
    return dataset.map(lambda pair: Pair(pair.right * 2.0, pair.left + 1))


@program
def maps(tf, folder):
    return tf.data.Dataset.range(5).map(lambda x: (x, x * x)).map(lambda x, y: {"sum": x + y, "both": (x, y)})


@program
def maps_in_parallel(tf, folder):
    return tf.data.Dataset.range(20).map(lambda x: x * 3, num_parallel_calls=4).map(lambda x: (x, x + 1),
                                                                                    num_parallel_calls=2)


@program
def lists_that_functions_return(tf, folder):
    return tf.data.Dataset.range(3).map(lambda x: [x, tf.cast(x, tf.float32)])


@program
def captures(tf, folder):
    offset = tf.constant(10, tf.int64)
    factor = tf.constant([2, 3], tf.int64)
    return tf.data.Dataset.range(3).map(lambda x: x * factor + offset)


@program
@keeps_state
def captured_variables(tf, folder):
    a = tf.get_variable("a", initializer=np.int64(5))
    b = tf.get_variable("b", initializer=np.int64(7), use_resource=True)
    return tf.data.Dataset.range(3).map(lambda x: (x + a, x * b))


@program
@keeps_state
def captured_table(tf, folder):
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], np.array([1, 2], np.int64)), -1)
    return tf.data.Dataset.from_tensor_slices(["b", "c", "a"]).map(table.lookup)


@program
def conditions_inside(tf, folder):
    def body(x):
        y = tf.cond(x > 2, lambda: x * 10, lambda: x - 1)
        return tf.while_loop(lambda i, s: i < y, lambda i, s: (i + 1, s + i), [tf.constant(0, tf.int64), x])[1]

    return tf.data.Dataset.range(5).map(body)


@program
def filters(tf, folder):
    return tf.data.Dataset.range(20).filter(lambda x: tf.equal(x % 3, 1)).map(lambda x: x + 1)


@program
def flat_maps(tf, folder):
    return tf.data.Dataset.range(4).flat_map(lambda x: tf.data.Dataset.range(x).map(lambda y: x * 10 + y))


@program
def interleaves(tf, folder):
    return tf.data.Dataset.range(1, 6).interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(4), cycle_length=2,
                                                  block_length=3)


@program
def interleaves_in_parallel(tf, folder):
    return tf.data.Dataset.range(1, 6).interleave(lambda x: tf.data.Dataset.range(x), cycle_length=3, block_length=2,
                                                  num_parallel_calls=3)


@program
def batches(tf, folder):
    return tf.data.Dataset.range(7).map(lambda x: (x, tf.fill([2], x))).batch(3)


@program
def full_batches(tf, folder):
    return tf.data.Dataset.range(7).batch(3, drop_remainder=True).batch(1)


@program
def uneven_batches(tf, folder):
    return tf.data.Dataset.range(4).map(lambda x: tf.range(x)).batch(2)


@program
def padded_batches(tf, folder):
    dataset = tf.data.Dataset.range(5).map(lambda x: (tf.fill([x], x), tf.as_string(x)))
    return dataset.padded_batch(2, ([None], []), (np.int64(-1), "none"))


@program
def padded_to_a_size(tf, folder):
    dataset = tf.data.Dataset.range(4).map(lambda x: {"v": tf.fill([x, 2], 1.5)})
    return dataset.padded_batch(3, {"v": [5, None]}, drop_remainder=True)


@program
def padding_too_small(tf, folder):
    return tf.data.Dataset.range(4).map(lambda x: tf.fill([x], x)).padded_batch(2, [2])


@program
def shuffles(tf, folder):
    return tf.data.Dataset.range(12).shuffle(5, seed=3)


@program
def shuffles_alike(tf, folder):
    return tf.data.Dataset.range(6).shuffle(4, seed=9, reshuffle_each_iteration=False).map(lambda x: x).repeat(2)


@program
def repeats(tf, folder):
    return tf.data.Dataset.range(3).repeat(3).skip(1).take(7)


@program
def takes_of_endless(tf, folder):
    return tf.data.Dataset.range(3).repeat().take(8)


@program
def shards(tf, folder):
    return tf.data.Dataset.range(10).shard(3, 1)


@program
def zips(tf, folder):
    data = tf.data.Dataset
    return data.zip({"a": data.range(4), "b": (data.range(5, 8), data.from_tensor_slices(["p", "q", "r", "s"]))})


@program
def concatenations(tf, folder):
    data = tf.data.Dataset
    return data.from_tensors([1, 2]).concatenate(data.from_tensors([3, 4, 5]))


@program
def caches(tf, folder):
    return tf.data.Dataset.range(4).map(lambda x: x * 2).cache().repeat(2)


@program
@keeps_state
def caches_in_files(tf, folder):
    return tf.data.Dataset.range(4).map(lambda x: (x * 2, tf.as_string(x))).cache(os.path.join(folder, "cache")).repeat(2)


@program
def prefetches(tf, folder):
    return tf.data.Dataset.range(6).map(lambda x: x + 1).prefetch(2).batch(2).prefetch(1)


@program
def errors_of_functions(tf, folder):
    return tf.data.Dataset.range(4).map(lambda x: tf.check_numerics(1.0 / tf.cast(2 - x, tf.float32), "bad"))


@program
def applied(tf, folder):
    return tf.data.Dataset.range(5).apply(lambda dataset: dataset.map(lambda x: x + 1).batch(2)).apply(
        tf.data.experimental.unbatch())


@program
def maps_and_batches(tf, folder):
    return tf.data.Dataset.range(7).apply(tf.data.experimental.map_and_batch(lambda x: (x, x + 1), 3,
                                                                             num_parallel_batches=2))


@program
def numbered(tf, folder):
    return tf.data.Dataset.from_tensor_slices(["a", "b"]).apply(tf.data.experimental.enumerate_dataset(start=5))


@program
def parallel_interleaved(tf, folder):
    return tf.data.Dataset.range(1, 4).apply(tf.data.experimental.parallel_interleave(
        lambda x: tf.data.Dataset.from_tensors(x).repeat(3), cycle_length=2, block_length=2))


@program
@keeps_state
def generated(tf, folder):
    def numbers_of():
        for i in range(4):
            yield i, [float(i)] * i, "s%d" % i

    return tf.data.Dataset.from_generator(numbers_of, (tf.int32, tf.float32, tf.string), ([], [None], [])).repeat(2)


@program
@keeps_state
def generated_from_arguments(tf, folder):
    return tf.data.Dataset.from_generator(lambda n: ({"v": k} for k in range(n)), {"v": tf.int64}, {"v": []}, args=(3,))


@program
@keeps_state
def generator_that_fails(tf, folder):
    def fails():
        yield 1
        raise ValueError("no more")

    return tf.data.Dataset.from_generator(fails, tf.int32)


@program
@keeps_state
def python_functions(tf, folder):
    def body(x):
        y = tf.py_func(lambda v: v * 7, [x], tf.int64)
        y.set_shape([])
        return y

    return tf.data.Dataset.range(3).map(body)


def _write(folder):
    os.makedirs(folder, exist_ok=True)
    for i in range(3):
        with open(os.path.join(folder, "lines%d.txt" % i), "wb") as file:
            file.write(b"".join(b"%d,%d.5\r\n" % (i, j) if j % 2 else b"%d,%d.5\n" % (i, j) for j in range(i + 2)))
        with open(os.path.join(folder, "bytes%d.bin" % i), "wb") as file:
            file.write(b"HH" + bytes(range(10 * i, 10 * i + 9)) + b"F")
    return [os.path.join(folder, "lines%d.txt" % i) for i in range(3)]


def _table(tf):
    return tf.SparseTensor([[0, 0], [0, 2], [2, 1], [3, 0], [3, 3]], [b"a", b"b", b"c", b"d", b"e"], [4, 5])


@program
def sparse_rows(tf, folder):
    return tf.data.Dataset.from_tensor_slices({"s": _table(tf), "i": [0, 1, 2, 3]})


@program
def sparse_batches(tf, folder):
    """Batches of sparse tensors of several shapes, taken apart again and counted."""
    def row(i):
        return tf.SparseTensor(tf.expand_dims(tf.range(i), 1), tf.range(i) * 10, [i + 1])

    dataset = tf.data.Dataset.range(5).map(lambda i: (row(i), i)).batch(2)
    return dataset.map(lambda s, i: (s, tf.sparse_tensor_to_dense(s), i)).prefetch(1)


@program
def sparse_batches_of_batches(tf, folder):
    return tf.data.Dataset.from_tensors(_table(tf)).repeat(4).batch(2).batch(2)


@program
def sparse_values(tf, folder):
    value = tf.SparseTensorValue(np.array([[1, 0]]), np.array([2.5]), np.array([2, 2]))
    return tf.data.Dataset.from_tensors((value, 3)).concatenate(tf.data.Dataset.from_tensors((value, 4)))


@program
def examples_with_lists(tf, folder):
    """What recommenders read: features of any length, parsed by the batch or one by one, sparse in the model."""
    def example(i):
        return tf.train.Example(features=tf.train.Features(feature={
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i))),
            "y": tf.train.Feature(float_list=tf.train.FloatList(value=[i / 2]))})).SerializeToString()

    features = {"ids": tf.VarLenFeature(tf.int64), "y": tf.FixedLenFeature([], tf.float32)}
    records = tf.data.Dataset.from_tensor_slices([example(i) for i in (2, 0, 3, 1, 4)])
    by_batch = records.batch(2).map(lambda r: tf.parse_example(r, features)).filter(lambda e: e["y"][0] > 0.5)
    one_by_one = records.map(lambda r: tf.parse_single_example(r, features), num_parallel_calls=2).batch(2)
    return by_batch.concatenate(one_by_one)


@program
def lines(tf, folder):
    return tf.data.TextLineDataset(_write(folder)).skip(1).map(lambda line: tf.decode_csv(line, [[0], [0.0]]))


@program
def lines_of_parallel_files(tf, folder):
    return tf.data.TextLineDataset(_write(folder), num_parallel_reads=2)


@program
def fixed_records(tf, folder):
    _write(folder)
    files = [os.path.join(folder, "bytes%d.bin" % i) for i in range(2)]
    return tf.data.FixedLengthRecordDataset(files, 3, 2, 1).map(lambda r: tf.decode_raw(r, tf.uint8))


@program
def listed_files(tf, folder):
    _write(folder)
    return tf.data.Dataset.list_files(os.path.join(folder, "lines*.txt"), shuffle=False).flat_map(
        lambda name: tf.data.TextLineDataset(name).take(1))


@program
def records(tf, folder):
    names = []
    for i, kind in enumerate(("", "GZIP")):
        names.append(os.path.join(folder, "records%s" % kind))
        options = tf.python_io.TFRecordOptions(
            tf.python_io.TFRecordCompressionType.GZIP if kind else tf.python_io.TFRecordCompressionType.NONE)
        with tf.python_io.TFRecordWriter(names[-1], options=options) as writer:
            for j in range(3):
                features = {"x": tf.train.Feature(int64_list=tf.train.Int64List(value=[10 * i + j])),
                            "y": tf.train.Feature(float_list=tf.train.FloatList(value=[j, 0.5]))}
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    plain, packed = tf.data.TFRecordDataset(names[0]), tf.data.TFRecordDataset(names[1], compression_type="GZIP")

    def parse(serialized):
        return tf.parse_single_example(serialized, {"x": tf.FixedLenFeature([], tf.int64),
                                                    "y": tf.FixedLenFeature([2], tf.float32)})

    return plain.concatenate(packed).map(parse).batch(4)


@program
def missing_file(tf, folder):
    return tf.data.TFRecordDataset(os.path.join(folder, "nowhere"))


if __name__ == "__main__":
    import tensorflow.compat.v1 as tensorflow

    tensorflow.disable_v2_behavior()
    json.dump(run(tensorflow, sys.argv[1]), sys.stdout)
