"""Values of every type and size through feeds, fetches and the wire between tasks."""

import numpy as np

from interop_cases import OTHER, PS, WORKER, case

NUMBERS = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "complex64", "complex128", "bool"]


def _sample(name, shape):
    r = np.random.RandomState(len(name))
    if name == "bool":
        return r.rand(*shape) > 0.5
    if name.startswith("complex"):
        return np.asarray(r.randn(*shape) + 1j * r.randn(*shape)).astype(name)
    if name.startswith("float"):
        return np.asarray(r.randn(*shape)).astype(name)
    information = np.iinfo(name)
    return r.randint(information.min, information.max, size=shape, dtype=name)


def _through(tf, dtype):
    x = tf.placeholder(dtype)
    y = x
    for device in (PS, WORKER, PS, OTHER):
        with tf.device(device):
            y = tf.stack([y, y])[1]
    return x, y


@case
def every_type_of_number(tf, c):
    tensors = {name: _through(tf, getattr(tf, name)) for name in NUMBERS}
    with c.session() as s:
        for name, (x, y) in tensors.items():
            for shape in ((), (0,), (1,), (3, 5), (2, 0, 4), (1, 1, 1, 1, 2)):
                value = np.asarray(_sample(name, shape))
                direct, far = s.run([x, y], {x: value})
                for got in (direct, far):
                    got = np.asarray(got)
                    assert got.dtype == value.dtype and got.shape == value.shape, (name, got.dtype, got.shape)
                    np.testing.assert_array_equal(got, value)


@case
def extremes(tf, c):
    x, y = _through(tf, tf.float32)
    k, m = _through(tf, tf.int64)
    value = np.array([np.inf, -np.inf, np.nan, -0.0, np.finfo("f").tiny, np.finfo("f").max, 1e-45], "f")
    whole = np.array([np.iinfo("int64").min, -1, 0, np.iinfo("int64").max])
    with c.session() as s:
        got, counts = s.run([y, m], {x: value, k: whole})
        assert got.tobytes() == value.tobytes()
        np.testing.assert_array_equal(counts, whole)


@case(client="stock")
def bfloat16(tf, c):
    x, y = _through(tf, tf.bfloat16)
    value = np.arange(-4, 4, 0.5).astype(tf.bfloat16.as_numpy_dtype)
    with c.session() as s:
        for v in (value, value[:0], value[3], value.reshape(4, 4)):
            got = s.run(y, {x: v})
            assert got.dtype == value.dtype
            np.testing.assert_array_equal(np.asarray(got, "f"), np.asarray(v, "f"))


@case(client="stock")
def quantized_types(tf, c):
    for name, base in (("qint8", "int8"), ("quint8", "uint8"), ("qint16", "int16"), ("quint16", "uint16"),
                       ("qint32", "int32")):
        dtype = getattr(tf, name)
        x = tf.placeholder(dtype)
        with tf.device(PS):
            y = tf.identity(x)
        with tf.device(OTHER):
            z = tf.bitcast(y, getattr(tf, base))
        value = np.array([1, 2, 3], base).astype(dtype.as_numpy_dtype)
        with c.session() as s:
            got, numbers = s.run([y, z], {x: value})
            np.testing.assert_array_equal(numbers, [1, 2, 3])
            assert got.tobytes() == value.tobytes()


@case
def strings(tf, c):
    x, y = _through(tf, tf.string)
    long = bytes(range(256)) * 5000
    values = [b"", b"\x00", b"a\x00b\x00", b"\xff\xfe", "h\u00e9".encode("utf-8"), long]
    with c.session() as s:
        for value in values:
            assert s.run(y, {x: value}) == value
        np.testing.assert_array_equal(s.run(y, {x: np.array(values, object)}), np.array(values, object))
        assert s.run(y, {x: np.zeros([0, 3], object)}).shape == (0, 3)
        square = np.array([[b"a", b"bb"], [b"", b"\x00\x00"]], object)
        np.testing.assert_array_equal(s.run(y, {x: square}), square)
        many = np.array([b"x" * (i % 300) for i in range(10000)], object)
        np.testing.assert_array_equal(s.run(y, {x: many}), many)


@case
def unicode_text_is_fed_as_utf8(tf, c):
    x = tf.placeholder(tf.string)
    with tf.device(PS):
        y = tf.identity(x)
    with c.session() as s:
        assert s.run(y, {x: u"gr\u00fc\u00df"}) == u"gr\u00fc\u00df".encode("utf-8")


@case
def big_tensors(tf, c):
    x = tf.placeholder(tf.float32, [None])
    with tf.device(PS):
        y = x + 1.0
    with tf.device(WORKER):
        z = tf.reduce_max(y)
    value = np.zeros([16 * 1024 * 1024], "f")  # 64 MB
    value[-1] = 7.0
    with c.session() as s:
        got, top = s.run([y, z], {x: value})
        assert top == 8.0 and got.shape == value.shape and got[0] == 1.0 and got[-1] == 8.0


@case
def sizes_around_those_of_buffers(tf, c):
    x = tf.placeholder(tf.uint8, [None])
    with tf.device(PS):
        y = tf.reverse(x, [0])
    with tf.device(OTHER):
        z = tf.reverse(y, [0])
    r = np.random.RandomState(0)
    with c.session() as s:
        for size in (1, 7, 15, 16, 17, 63, 64, 1023, 1024, 1025, 4095, 4096, 4097, 16384, 65535, 65536, 65537, 1 << 20):
            value = r.randint(0, 256, size).astype("uint8")
            np.testing.assert_array_equal(s.run(z, {x: value}), value)


@case
def constants_of_every_type(tf, c):
    for name in NUMBERS:
        value = np.asarray(_sample(name, (2, 3)))
        with tf.device(PS):
            k = tf.constant(value)
            same = tf.fill([4], k[0, 0])
        with tf.device(WORKER):
            r = tf.reshape(k, [3, 2])
        with c.session() as s:
            got, first = s.run([r, same])
            np.testing.assert_array_equal(got, value.reshape(3, 2))
            np.testing.assert_array_equal(first, np.full([4], value[0, 0]))


@case
def several_outputs_of_one_node(tf, c):
    with tf.device(PS):
        parts = tf.split(tf.range(12), 4)
        values, indices = tf.nn.top_k([1.0, 5.0, 3.0], 2)
    with tf.device(WORKER):
        merged = tf.concat(list(reversed(parts)), 0)
        twice = values * 2.0
    with c.session() as s:
        got, two, where = s.run([merged, twice, indices])
        np.testing.assert_array_equal(got, [9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2])
        np.testing.assert_array_equal(two, [10, 6])
        np.testing.assert_array_equal(where, [1, 2])


@case
def casts_between_tasks(tf, c):
    x = tf.placeholder(tf.float32, [3])
    with tf.device(PS):
        i = tf.cast(x, tf.int32)
    with tf.device(WORKER):
        b = tf.cast(i, tf.bool)
    with tf.device(OTHER):
        t = tf.as_string(i)
    with c.session() as s:
        i_, b_, t_ = s.run([i, b, t], {x: [0.0, 1.5, -2.7]})
        np.testing.assert_array_equal(i_, [0, 1, -2])
        np.testing.assert_array_equal(b_, [False, True, True])
        np.testing.assert_array_equal(t_, np.array([b"0", b"1", b"-2"], object))


@case
def feeds_of_python_values(tf, c):
    f, i, b = tf.placeholder(tf.float32), tf.placeholder(tf.int32), tf.placeholder(tf.bool)
    with c.session() as s:
        assert s.run(f + 0.5, {f: 1}) == 1.5
        assert s.run(tf.reduce_sum(i), {i: [[1, 2], [3, 4]]}) == 10
        assert s.run(tf.logical_not(b), {b: True}) == False  # noqa: E712
        np.testing.assert_array_equal(s.run(f * 2.0, {f: np.arange(6.).reshape(2, 3)[:, ::2]}), [[0, 4], [6, 10]])


@case
def sparse_feeds_and_fetches(tf, c):
    sp = tf.sparse_placeholder(tf.float32)
    with tf.device(PS):
        out = tf.SparseTensor(sp.indices, sp.values * 2.0, sp.dense_shape)
    with c.session() as s:
        got = s.run(out, {sp: tf.SparseTensorValue([[0, 1], [2, 0]], [1.0, 2.0], [3, 2])})
        np.testing.assert_array_equal(got.values, [2, 4])
        np.testing.assert_array_equal(got.indices, [[0, 1], [2, 0]])
        slices = tf.IndexedSlices(got.values * tf.constant(1.0), tf.constant([0, 1]))
        assert list(s.run(slices).values) == [2.0, 4.0]
