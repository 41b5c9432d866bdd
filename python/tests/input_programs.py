"""Input pipelines that run on TensorFlow and on Muster: python input_programs.py FOLDER prints what they read as JSON."""
import json
import os
import sys

import numpy as np


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def _short(keys):
    """Keys of records without the folder."""
    return [os.path.basename(key) for key in keys.tolist()]


def _drain(tf, fetches, convert=lambda value: value):
    """Everything that a pipeline gives until it ends."""
    found = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        try:
            while True:
                found.append(_plain(convert(sess.run(fetches))))
        except tf.errors.OutOfRangeError:
            found.append("end")
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=10)
    return found


# --- Programs. Each gets tf and a folder of its own. ---
def cifar(tf, folder):
    """Records of fixed length, decoded, shuffled and batched; what is left over at the end is lost."""
    random = np.random.RandomState(0)
    names = []
    for i in range(3):
        names.append(os.path.join(folder, "data_batch_%d.bin" % i))
        with open(names[-1], "wb") as f:
            f.write(random.randint(0, 256, [20, 1 + 48]).astype(np.uint8).tobytes())
    files = tf.train.string_input_producer(names, num_epochs=2)
    key, value = tf.FixedLengthRecordReader(record_bytes=49).read(files)
    record = tf.decode_raw(value, tf.uint8)
    label = tf.cast(tf.strided_slice(record, [0], [1]), tf.int32)
    image = tf.transpose(tf.reshape(tf.strided_slice(record, [1], [49]), [3, 4, 4]), [1, 2, 0])
    label.set_shape([1])
    batch = tf.train.shuffle_batch([image, label, key], batch_size=8, num_threads=3, capacity=60, min_after_dequeue=20)
    batches = _drain(tf, batch, lambda values: [values[0].shape, values[1].shape, _short(values[2])])
    keys = [key for b in batches[:-1] for key in b[2]]
    return {"shapes": [str(t.get_shape()) for t in batch], "batches": len(batches), "each": [b[:2] for b in batches[:-1]],
            "twice at most": max(keys.count(key) for key in keys), "names": sorted({key.split(":")[0] for key in keys})}


def _records(tf, folder, compression):
    names = []
    for i in range(2):
        names.append(os.path.join(folder, "records%d" % i))
        options = tf.python_io.TFRecordOptions(compression) if compression else None
        with tf.python_io.TFRecordWriter(names[-1], options=options) as writer:
            for j in range(7):
                feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[j, i])),
                           "n": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"%d %d" % (i, j)]))}
                if j % 2:
                    feature["odd"] = tf.train.Feature(int64_list=tf.train.Int64List(value=range(j)))
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return names


def _examples(tf, folder, compression, smaller):
    names = _records(tf, folder, compression)
    options = tf.python_io.TFRecordOptions(compression) if compression else None
    files = tf.train.string_input_producer(names, num_epochs=2, shuffle=False)
    key, value = tf.TFRecordReader(options=options).read(files)
    parsed = tf.parse_single_example(value, {
        "x": tf.FixedLenFeature([2], tf.float32), "n": tf.FixedLenFeature([], tf.string),
        "odd": tf.FixedLenSequenceFeature([], tf.int64, allow_missing=True), "no": tf.FixedLenFeature([], tf.int64, -1)})
    batch = tf.train.batch(dict(parsed, key=key), batch_size=5, dynamic_pad=True, allow_smaller_final_batch=smaller)
    shapes = {name: str(tensor.get_shape()) for name, tensor in batch.items()}
    return [shapes, _drain(tf, batch, lambda values: dict(values, key=_short(values["key"])))]


def examples(tf, folder):
    return _examples(tf, folder, 0, False)


def examples_zlib(tf, folder):
    return _examples(tf, folder, 1, True)


def examples_gzip(tf, folder):
    return _examples(tf, folder, 2, True)


def parse_after_batch(tf, folder):
    names = _records(tf, folder, 0)
    files = tf.train.string_input_producer(names, num_epochs=1, shuffle=False)
    _, values = tf.TFRecordReader().read_up_to(files, 4)
    batch = tf.train.batch([values], batch_size=6, enqueue_many=True, shapes=[[]], allow_smaller_final_batch=True)
    parsed = tf.parse_example(batch, {"x": tf.FixedLenFeature([2], tf.float32), "odd": tf.VarLenFeature(tf.int64)})
    return _drain(tf, [parsed["x"], parsed["odd"].indices, parsed["odd"].values, parsed["odd"].dense_shape])


def lines_of_csv(tf, folder):
    name = os.path.join(folder, "table.csv")
    with open(name, "wb") as f:
        f.write(b"a,b,c\r\n1,2.5,x\n,3,\"y, \"\"z\"\"\"\n7,,\n")
    files = tf.train.string_input_producer([name, name], num_epochs=1, shuffle=False)
    key, line = tf.TextLineReader(skip_header_lines=1).read(files)
    columns = tf.decode_csv(line, [[-1], [0.5], [""]])
    return _drain(tf, tf.train.batch([key] + columns, 2), lambda values: [_short(values[0])] + values[1:])


def whole_files(tf, folder):
    for i in range(3):
        with open(os.path.join(folder, "part%d.txt" % i), "wb") as f:
            f.write(b"text " * i)
    names = tf.train.match_filenames_once(os.path.join(folder, "part*.txt"))
    key, value = tf.WholeFileReader().read(tf.train.string_input_producer(names, num_epochs=1, shuffle=False))
    return _drain(tf, [key, value], lambda values: [os.path.basename(values[0]), values[1]])


def pictures(tf, folder):
    """PNG files of several sizes, resized to one."""
    with tf.Session() as sess:
        for i in range(4):
            image = (np.arange((i + 2) * (i + 3) * 3) % 251).reshape(i + 2, i + 3, 3).astype(np.uint8)
            sess.run(tf.write_file(os.path.join(folder, "%d.png" % i), tf.image.encode_png(image)))
    files = tf.train.string_input_producer([os.path.join(folder, "%d.png" % i) for i in range(4)], 1, shuffle=False)
    image = tf.image.decode_png(tf.WholeFileReader().read(files)[1], channels=3)
    image = tf.image.resize_images(image, [3, 3])
    image.set_shape([3, 3, 3])
    return _drain(tf, tf.train.batch([image], 2))


def slices(tf, folder):
    parts = tf.train.slice_input_producer([tf.range(6), tf.constant(list("abcdef"))], num_epochs=2, seed=7)
    return _drain(tf, tf.train.batch(parts, 4))


def ranges(tf, folder):
    return _drain(tf, tf.train.range_input_producer(5, num_epochs=3, shuffle=False).dequeue())


def padded(tf, folder):
    length = tf.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
    return _drain(tf, tf.train.batch([tf.range(length), length], 3, dynamic_pad=True))


def kept(tf, folder):
    number = tf.train.range_input_producer(10, num_epochs=1, shuffle=False).dequeue()
    return _drain(tf, tf.train.maybe_batch([number], tf.equal(number % 3, 0), 2))


def kept_of_many(tf, folder):
    numbers = tf.train.range_input_producer(10, num_epochs=1, shuffle=False).dequeue_many(5)
    return _drain(tf, tf.train.maybe_batch([numbers, numbers * 2], tf.equal(numbers % 2, 0), 2, enqueue_many=True,
                                           allow_smaller_final_batch=True))


def joined(tf, folder):
    number = tf.train.range_input_producer(9, num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.batch_join([{"n": number}, {"n": number + 100}], 3)
    read = _drain(tf, batch)
    return sorted(n % 100 for b in read[:-1] for n in b["n"])


def shuffled_join(tf, folder):
    number = tf.train.range_input_producer(12, num_epochs=1, shuffle=False).dequeue()
    read = _drain(tf, tf.train.shuffle_batch_join([[number], [number]], 4, 20, 3))
    return sorted(n for b in read[:-1] for n in b)


def vocabulary(tf, folder):
    """Words to ids through a file, unknown ones into buckets, and back."""
    name = os.path.join(folder, "words.txt")
    with open(name, "w") as f:
        f.write("the\nquick\nfox\n")
    lookup = tf.lookup if hasattr(tf.lookup, "index_table_from_file") else _lookup_ops()
    table = lookup.index_table_from_file(name, num_oov_buckets=5)
    ids = table.lookup(tf.constant(["fox", "unknown", "the", ""]))
    words = lookup.index_to_string_table_from_file(name, default_value="?").lookup(ids)
    counts = lookup.MutableHashTable(tf.string, tf.int64, 0)
    key = tf.constant(["a", "b", "c"])
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        found = [sess.run([ids, words, table.size()])]
        sess.run(counts.insert(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)))
        sess.run(counts.insert(tf.constant(["b"]), tf.constant([7], tf.int64)))
        found.append(sess.run([counts.lookup(key), counts.size()]))
        sess.run(counts.remove(tf.constant(["a"])))
        found.append([sess.run(counts.lookup(key)), sorted(sess.run(counts.export())[0].tolist())])
    return _plain(found)


def _sequence(tf, context, **lists):
    """A serialized SequenceExample."""
    def feature(values):
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    return tf.train.SequenceExample(
        context=tf.train.Features(feature={key: feature(values) for key, values in context.items()}),
        feature_lists=tf.train.FeatureLists(feature_list={
            key: tf.train.FeatureList(feature=[feature(step) for step in steps]) for key, steps in lists.items()})
    ).SerializeToString()


def _attempt(tf, fetches):
    """Their values, or the code of the error."""
    with tf.Session() as sess:
        try:
            return _plain([list(f) if isinstance(f, tuple) else f for f in sess.run(fetches)])
        except tf.errors.OpError as e:
            return type(e).__name__


def sequences(tf, folder):
    """Batches of SequenceExamples of several lengths."""
    steps = {"f": tf.FixedLenSequenceFeature([2], tf.float32), "v": tf.VarLenFeature(tf.int64),
             "w": tf.FixedLenSequenceFeature([], tf.string, allow_missing=True)}
    context = {"n": tf.FixedLenFeature([], tf.int64, 3), "c": tf.VarLenFeature(tf.string),
               "r": tf.FixedLenFeature([2], tf.float32)}
    full = _sequence(tf, {"n": [7], "c": [b"x", b"y"], "r": [1., 2.]}, f=[[1., 2.], [3., 4.], [5., 6.]],
                     v=[[1], [], [2, 3]], w=[[b"a"], [b"b"]])
    other = _sequence(tf, {"r": [.5, .25]}, f=[[9., 8.]], v=[[4, 5, 6]])
    none = _sequence(tf, {"r": [0., 1.]}, f=[])
    batches = [[full, other, none], [none, none], [other], [full, b"\x07bad"], [_sequence(tf, {}, f=[])],
               [_sequence(tf, {"r": [1., 2.]})], [_sequence(tf, {"r": [1., 2.]}, f=[[1.]])],
               [_sequence(tf, {"r": [1., 2.]}, f=[[1]])]]
    found = {}
    for i, batch in enumerate(batches):
        parsed, lists, lengths = tf.io.parse_sequence_example(tf.constant(batch, tf.string, [len(batch)]), context, steps)
        tensors = [part[key] for part in (parsed, lists, lengths) for key in sorted(part)]
        found["values %d" % i] = _attempt(tf, tensors)
        found["shapes %d" % i] = [str(t.get_shape()) for t in tensors if not isinstance(t, tf.SparseTensor)]
    return found


def pictures_of_any_kind(tf, folder):
    """DecodeImage, which TensorFlow 2 emits, for every format and type."""
    image = np.random.RandomState(3).randint(0, 256, [5, 6, 3]).astype(np.uint8)
    gif = (b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x10\x20\x30\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00"
           b"\x02\x02D\x01\x00;")
    bmp = (b"BM\x3a\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00"
           b"\x01\x00\x18\x00" + b"\x00" * 24 + b"\x01\x02\x03\x00")
    with tf.Session() as sess:
        files = sess.run([tf.image.encode_png(image), tf.image.encode_png(image.astype(np.uint16) * 200)]) + [gif, bmp]
    found = {}
    for i, contents in enumerate(files + [b"", b"nothing"]):
        for channels in (0, 1, 3, 4):
            for dtype in (tf.uint8, tf.uint16, tf.float32):
                for expand in (True, False):
                    decoded = tf.raw_ops.DecodeImage(contents=contents, channels=channels, dtype=dtype,
                                                     expand_animations=expand)
                    found["%d %d %s %s" % (i, channels, dtype.name, expand)] = [
                        str(decoded.get_shape()), _attempt(tf, [decoded])]
    return found


def _lookup_ops():
    from tensorflow.python.ops import lookup_ops

    return lookup_ops


PROGRAMS = [cifar, examples, examples_zlib, examples_gzip, parse_after_batch, lines_of_csv, whole_files, pictures, sequences,
            pictures_of_any_kind, slices,
            ranges, padded, kept, kept_of_many, joined, shuffled_join, vocabulary]


def run(tf, folder):
    """{program: what it reads}, as plain values."""
    found = {}
    for program in PROGRAMS:
        own = os.path.join(folder, program.__name__)
        os.makedirs(own)
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            found[program.__name__] = json.loads(json.dumps(_plain(program(tf, own))))
    return found


if __name__ == "__main__":
    import tensorflow.compat.v1 as tensorflow

    tensorflow.disable_v2_behavior()
    print(json.dumps(run(tensorflow, sys.argv[1])))
