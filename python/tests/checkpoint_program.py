"""python checkpoint_program.py LIBRARY save|load FOLDER: tensors of every type, slices and strings, through the raw ops.

LIBRARY is muster or tensorflow. `load` fails unless it reads exactly what `save` writes."""
import os
import sys

import numpy as np

if sys.argv[1] == "muster":
    import muster as tf
else:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()

PLAIN = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
         "complex64", "complex128"]
# Types that numpy does not have, and the integers that have their bits.
BY_BITS = {"bfloat16": "uint16", "qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16",
           "qint32": "int32"}
STRINGS = {"s/scalar": np.array(b"one", object), "s/vector": np.array([b"ab", b"", b"\x00\xff" * 200], object),
           "s/empty": np.zeros([0], object), "s/matrix": np.array([[b"a", b"bb"], [b"ccc", b""]], object)}


def values():
    """(name, array, name of the type) in the order in which they are saved."""
    rng = np.random.RandomState(3)
    for name in PLAIN + sorted(BY_BITS):
        numpy_type = np.dtype(BY_BITS.get(name, name))
        for shape in ((), (3, 5), (2, 0, 3), (1, 1, 2, 1, 3)):
            count = int(np.prod(shape)) * numpy_type.itemsize
            data = rng.randint(0, 2 if name == "bool" else 256, count).astype(np.uint8)
            array = np.frombuffer(data.tobytes(), numpy_type).reshape(shape)
            yield "%s/%s" % (name, "x".join(map(str, shape))), array, name
    for name in sorted(STRINGS):
        yield name, STRINGS[name], "string"


def to_tensor(array, name):
    if name in BY_BITS:
        return tf.bitcast(tf.constant(array), getattr(tf, name))
    return tf.constant(array, getattr(tf, name))


def from_tensor(tensor, name):
    return tf.bitcast(tensor, getattr(tf, BY_BITS[name])) if name in BY_BITS else tensor


def same(actual, expected):
    actual, expected = np.asarray(actual), np.asarray(expected)
    return actual.shape == expected.shape and (
        actual.tolist() == expected.tolist() if expected.dtype == object else actual.tobytes() == expected.tobytes())


GRID = np.arange(42, dtype=np.float64).reshape(6, 7)
TEXTS = np.array([[("%d" % i).encode() * i for i in range(6)]] * 2, object)
SLICES = [("grid", "6 7 0,2:0,7", GRID[:2]), ("grid", "6 7 2,4:3,4", GRID[2:, 3:]), ("grid", "6 7 2,4:0,3", GRID[2:, :3]),
          ("texts", "2 6 -:0,2", TEXTS[:, :2]), ("texts", "2 6 -:2,4", TEXTS[:, 2:]), ("whole", "6 7 0,6:-", GRID)]
READS = [("grid", "", GRID), ("grid", "6 7 1,3:2,3", GRID[1:4, 2:5]), ("grid", "6 7 -:6,1", GRID[:, 6:]),
         ("grid", "6 7 3,2:-", GRID[3:5]), ("texts", "", TEXTS), ("texts", "2 6 1,1:1,3", TEXTS[1:, 1:4]),
         ("whole", "6 7 1,2:-", GRID[1:3])]
if sys.argv[1] == "tensorflow":  # which writes slices of strings and then cannot read them
    READS = [read for read in READS if read[0] != "texts"]


def save(folder):
    cases = list(values())
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.SaveV2(
            prefix=os.path.join(folder, "all"), tensor_names=[c[0] for c in cases], shape_and_slices=[""] * len(cases),
            tensors=[to_tensor(array, name) for _, array, name in cases]))
        parts = []
        for k in range(2):
            chosen = SLICES[k::2]
            parts.append(os.path.join(folder, "temp", "part-%d" % k))
            session.run(tf.raw_ops.SaveV2(
                prefix=parts[k], tensor_names=[c[0] for c in chosen], shape_and_slices=[c[1] for c in chosen],
                tensors=[tf.constant(c[2]) for c in chosen]))
        session.run(tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=os.path.join(folder, "sliced")))
        v1 = [c for c in cases if c[2] in ("float32", "int64", "bool", "complex64", "string", "float16")]
        session.run(tf.raw_ops.Save(filename=os.path.join(folder, "v1"), tensor_names=[c[0] for c in v1],
                                    data=[to_tensor(array, name) for _, array, name in v1]))


def load(folder):
    cases = list(values())
    with tf.Graph().as_default(), tf.Session() as session:
        def restore(prefix, names, specs, types):
            return tf.raw_ops.RestoreV2(prefix=os.path.join(folder, prefix), tensor_names=names, shape_and_slices=specs,
                                        dtypes=[getattr(tf, t) for t in types])

        got = restore("all", [c[0] for c in cases], [""] * len(cases), [c[2] for c in cases])
        for (name, array, _), value in zip(cases, session.run([from_tensor(t, c[2]) for t, c in zip(got, cases)])):
            assert same(value, array), name
        got = session.run(restore("sliced", [r[0] for r in READS], [r[1] for r in READS],
                                  ["string" if r[0] == "texts" else "float64" for r in READS]))
        for (name, spec, array), value in zip(READS, got):
            assert same(value, array), (name, spec)
        v1 = [c for c in cases if c[2] in ("float32", "int64", "bool", "complex64", "string", "float16")]
        for (name, array, _), value in zip(v1, session.run(restore("v1", [c[0] for c in v1], [""] * len(v1),
                                                                   [c[2] for c in v1]))):
            assert same(value, array), "v1 " + name
    # Readers know all but the types that numpy has no name for.
    reader = tf.train.load_checkpoint(os.path.join(folder, "all"))
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    assert sorted(shapes) == sorted(c[0] for c in cases)
    for name, array, type_name in cases:
        assert list(shapes[name]) == list(array.shape) and types[name] == getattr(tf, type_name), name
        if type_name in PLAIN + ["string"]:
            assert same(reader.get_tensor(name), array), name
    sliced = tf.train.load_checkpoint(os.path.join(folder, "sliced"))
    assert sliced.get_variable_to_shape_map() == {"grid": [6, 7], "texts": [2, 6], "whole": [6, 7]}
    assert same(sliced.get_tensor("grid"), GRID)


if __name__ == "__main__":
    {"save": save, "load": load}[sys.argv[2]](sys.argv[3])
