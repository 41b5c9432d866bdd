"""Pipelines of tf.data that stock TensorFlow builds and reads: written to a file for test_datasets.py.

Run with TensorFlow's Python: dataset_programs.py FOLDER. Each pipeline becomes (name, GraphDef, readings), a reading
being the elements that one run of the initializer gives, or all of them for a one-shot iterator."""

import os
import pickle
import sys

PIPELINES = {
    "range": "D.range(2, 11, 3)",
    "range_down": "D.range(5, 0, -2)",
    "tensors": "D.from_tensors((tf.constant([1, 2]), tf.constant('a')))",
    "slices": "D.from_tensor_slices({'a': [[1, 2], [3, 4], [5, 6]], 'b': ['x', 'y', 'z']})",
    "repeat": "D.range(3).repeat(2)",
    "repeat_forever": "D.range(3).repeat().take(8)",
    "repeat_nothing": "D.range(0).repeat()",
    "repeat_no_times": "D.range(3).repeat(0)",
    "batch": "D.range(7).batch(3)",
    "batch_dropped": "D.range(7).batch(3, drop_remainder=True)",
    "batch_strings": "D.from_tensor_slices(['a', 'b', 'c']).batch(2)",
    "batch_unequal": "D.range(4).map(lambda x: tf.range(x + 1)).batch(2)",
    "padded": "D.range(5).map(lambda x: (tf.fill([x], x), tf.fill([x, 2], x)))"
              ".padded_batch(2, ([None], [None, 3]), (np.int64(-1), np.int64(7)))",
    "padded_strings": "D.from_tensor_slices(['a b', 'c', 'd e f']).map(lambda s: tf.string_split([s]).values)"
                      ".padded_batch(2, [None])",
    "padded_too_small": "D.range(5).map(lambda x: tf.fill([x], x)).padded_batch(2, [2])",
    "shuffle": "D.range(12).shuffle(5, seed=7)",
    "shuffle_repeat": "D.range(12).shuffle(5, seed=7).repeat(3)",
    "shuffle_same": "D.range(12).shuffle(5, seed=7, reshuffle_each_iteration=False).repeat(3)",
    "shuffle_all": "D.range(12).shuffle(100, seed=3)",
    "repeat_shuffle": "D.range(12).repeat(2).shuffle(5, seed=7)",
    "map": "D.range(5).map(lambda x: (x * 2, tf.as_string(x)))",
    "map_captures": "D.range(5).map(lambda x, y=tf.constant(10, tf.int64) * 2: x + y)",
    "map_loop": "D.range(5).map(lambda x: tf.while_loop(lambda i: i < 50, lambda i: i * 2, [x + 1]))",
    "map_fails": "D.range(5).map(lambda x: tf.floordiv(np.int64(6), x - 2))",
    "map_fails_after": "D.range(4).map(lambda x: tf.floordiv(np.int64(6), x - 2), num_parallel_calls=3)",
    "parallel_map": "D.range(20).map(lambda x: x * x, num_parallel_calls=4)",
    "parallel_map_empty": "D.range(0).map(lambda x: x * x, num_parallel_calls=4)",
    "filter": "D.range(10).filter(lambda x: tf.equal(x % 3, 0))",
    "flat_map": "D.range(5).flat_map(lambda x: D.range(x).map(lambda y: x * 10 + y))",
    "interleave": "D.range(6).interleave(lambda x: D.from_tensors(x).repeat(x), 2, 2)",
    "interleave_wide": "D.range(3).interleave(lambda x: D.range(x + 2), 7, 1)",
    "interleave_parallel": "D.range(7).interleave(lambda x: D.from_tensors(x).repeat(x + 1), 3, 2, "
                           "num_parallel_calls=2)",
    "skip": "D.range(5).skip(3)",
    "skip_all": "D.range(5).skip(-1)",
    "take_all": "D.range(5).take(-1)",
    "concatenate": "D.range(2).concatenate(D.range(5, 8))",
    "zip": "D.zip((D.range(4), D.from_tensor_slices(['a', 'b', 'c'])))",
    "shard": "D.range(10).shard(3, 1)",
    "cache": "D.range(4).shuffle(4, seed=5).cache().repeat(2)",
    "cache_file": "D.range(4).map(lambda x: (x, tf.as_string(x))).cache(folder + '/cached')",
    "prefetch": "D.range(6).map(lambda x: x + 1).prefetch(2).batch(2).prefetch(1)",
    "prefetch_given_up": "D.range(1000).prefetch(3).take(2).repeat(3)",
    "prefetch_auto": "D.range(6).prefetch(-1)",
    "lines": "tf.data.TextLineDataset([folder + '/a.txt', folder + '/b.txt'])",
    "lines_gzip": "tf.data.TextLineDataset(folder + '/a.txt.gz', compression_type='GZIP')",
    "lines_missing": "tf.data.TextLineDataset([folder + '/a.txt', folder + '/none', folder + '/b.txt'])",
    "records": "tf.data.TFRecordDataset([folder + '/a.rec'])",
    "records_zlib": "tf.data.TFRecordDataset(folder + '/z.rec', compression_type='ZLIB')",
    "records_parallel": "tf.data.TFRecordDataset([folder + '/a.rec', folder + '/b.rec'], num_parallel_reads=2)",
    "fixed": "tf.data.FixedLengthRecordDataset(folder + '/fixed', 3, header_bytes=2, footer_bytes=1)",
    "fixed_left_over": "tf.data.FixedLengthRecordDataset(folder + '/fixed', 4, header_bytes=2)",
    "training": "D.from_tensor_slices((np.arange(10), np.arange(10) % 3)).shuffle(10, seed=1).repeat(2)"
                ".map(lambda x, y: (tf.cast(x, tf.float32) / 10, y), num_parallel_calls=2).batch(4).prefetch(2)",
}
# Those that a one-shot iterator reads as well.
ONE_SHOT = ["range", "shuffle_repeat", "map", "parallel_map", "flat_map", "prefetch", "training", "lines"]
MOST = 60


def write_files(tf, folder):
    import gzip

    with open(folder + "/a.txt", "wb") as file:
        file.write(b"one\r\ntwo\n\nlast")
    with open(folder + "/b.txt", "wb") as file:
        file.write(b"more\n")
    with gzip.open(folder + "/a.txt.gz", "wb") as file:
        file.write(b"packed\nlines\n")
    with open(folder + "/fixed", "wb") as file:
        file.write(b"HHabcdefghiF")
    for name, compression in [("a", ""), ("b", ""), ("z", "ZLIB")]:
        with tf.python_io.TFRecordWriter(f"{folder}/{name}.rec", compression) as writer:
            for i in range(3):
                writer.write(f"{name}{i}".encode())


def read(tf, session, get_next):
    """Elements up to the end or MOST; an error stands for itself and reading goes on, as long as something comes."""
    elements = []
    for _ in range(MOST):
        try:
            elements.append(session.run(get_next))
        except tf.errors.OutOfRangeError:
            break
        except tf.errors.OpError as error:
            elements.append(type(error).__name__)
    return elements


def main(folder):
    import numpy as np
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    write_files(tf, folder)
    cases = []
    for name, text in PIPELINES.items():
        for one_shot in [False, True] if name in ONE_SHOT else [False]:
            with tf.Graph().as_default() as graph:
                D = tf.data.Dataset
                dataset = eval(text, {"tf": tf, "np": np, "D": D, "folder": folder})
                make = tf.data.make_one_shot_iterator if one_shot else tf.data.make_initializable_iterator
                iterator = make(dataset)
                outputs = [tf.identity(t) for t in tf.nest.flatten(iterator.get_next())]
                readings = []
                with tf.Session() as session:
                    for _ in range(1 if one_shot else 2):
                        if not one_shot:
                            session.run(iterator.initializer)
                        readings.append(read(tf, session, outputs))
                cases.append((name + "/one_shot" * one_shot, graph.as_graph_def().SerializeToString(),
                              None if one_shot else iterator.initializer.name, [t.name for t in outputs], readings))
    with tf.Graph().as_default() as graph:
        handles = [tf.data.make_one_shot_iterator(tf.data.Dataset.range(start, start + 50)).string_handle()
                   for start in (0, 100)]
        fed = tf.placeholder(tf.string, [])
        element = tf.data.Iterator.from_string_handle(fed, tf.int64, tf.TensorShape([])).get_next()
        cases.append(("feedable", graph.as_graph_def().SerializeToString(), [t.name for t in handles],
                      [fed.name, element.name], None))
    with open(os.path.join(folder, "cases"), "wb") as file:
        pickle.dump(cases, file)


if __name__ == "__main__":
    main(sys.argv[1])
