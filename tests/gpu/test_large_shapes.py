"""Kernels of nn, pooling, linalg and image on the emulated card, against those for the CPU: shapes that the cases of the
oracle are too small for (sums in several parts, rows longer than what registers hold or one sort takes) and layouts that
there are on GPUs only.
"""
import card

PROGRAM = """
import numpy as np
import muster as tf

ops = tf.raw_ops
random = np.random.RandomState(0)

def normal(*shape, dtype=np.float32):
    return random.randn(*shape).astype(dtype)

def on_host(values):
    with tf.device("/cpu:0"):
        return tf.constant(np.array(values, np.int32))

def run(device, build, feeds):
    with tf.Graph().as_default():
        with tf.device(device):
            inputs = [tf.placeholder(feed.dtype, feed.shape) for feed in feeds]
            outputs = build(*inputs)
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=False)) as session:
            return session.run(list(outputs), dict(zip(inputs, feeds)))

def check(name, build, feeds, tolerance=1e-5, reference=None):
    # reference: (function, feeds) for the CPU
    wanted = run("/cpu:0", *(reference or (build, feeds)))
    for got, want in zip(run("/gpu:0", build, feeds), wanted):
        assert got.shape == want.shape, (name, got.shape, want.shape)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), tolerance,
                                   tolerance * max(1, np.nanmax(np.where(np.isfinite(want), abs(want), 0), initial=0)), err_msg=name)

def second(array):  # channels, from last to second
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))

def to_second(tensors):
    return [tf.transpose(t, [0, t.shape.ndims - 1, *range(1, t.shape.ndims - 1)]) for t in tensors]
"""


def _check(program):
    card.run(PROGRAM + program)


def test_sums_over_many_rows():
    _check("""
for shape in [(5000, 10), (20000, 1), (2000, 64), (777, 300), (2, 1030), (50, 4, 5, 12)]:
    for dtype, tolerance in (np.float32, 1e-5), (np.float16, 2e-3), (np.float64, 1e-12):
        check("BiasAddGrad %s" % (shape,), lambda dy: [ops.BiasAddGrad(out_backprop=dy)], [normal(*shape, dtype=dtype)], tolerance)
for shape in [(8, 3, 100, 70), (64, 16, 7, 7), (3, 4, 1, 1)]:
    check("BiasAddGrad %s" % (shape,), lambda dy: [ops.BiasAddGrad(out_backprop=dy, data_format="NCHW")], [normal(*shape)])
""")


def test_batch_normalization():
    _check("""
for shape in [(2, 60, 61, 3), (10, 40, 41, 16), (6, 30, 31, 260)]:
    for offset, tolerance in (0, 1e-5), (1000, 2e-4):
        n = shape[-1]
        x, dy = normal(*shape) + np.float32(offset), normal(*shape)
        vectors = [abs(normal(n)) + np.float32(0.5), normal(n), x.mean((0, 1, 2)), x.var((0, 1, 2))]
        for training in True, False:
            def forward(data_format):
                return lambda x, scale, bias, mean, variance: ops.FusedBatchNormV3(
                    x=x, scale=scale, offset=bias, mean=mean, variance=variance, is_training=training, data_format=data_format)[:5]
            def backward(data_format):
                return lambda dy, x, scale, mean, variance: ops.FusedBatchNormGradV3(
                    y_backprop=dy, x=x, scale=scale, reserve_space_1=mean, reserve_space_2=variance,
                    reserve_space_3=tf.zeros([0]), is_training=training, data_format=data_format)[:3]
            gradient = [vectors[0], vectors[2], vectors[3]]
            for layout, move in ("NHWC", lambda a: a), ("NCHW", second):
                check("forward %s %s" % (shape, layout), forward(layout), [move(x)] + vectors, tolerance)
                check("backward %s %s" % (shape, layout), backward(layout), [move(dy), move(x)] + gradient, 10 * tolerance)
""")


def test_relu_behind_a_normalization_is_computed_with_it():
    """The normalized values are fetched as well in one of two runs: nothing is joined there. All bits are equal."""
    _check("""
def train(x, side, scale, offset, joined, layout, with_side):
    normalized, mean, variance = tf.nn.fused_batch_norm(x, scale, offset, data_format=layout)
    relu = tf.nn.relu(side + normalized if with_side else normalized)
    loss = tf.reduce_sum(tf.square(tf.cast(relu, tf.float32)) * 0.01)
    results = [relu, mean, variance, *tf.gradients(loss, [x, side, scale, offset] if with_side else [x, scale, offset])]
    return results if joined else [*results, normalized]

for dtype in tf.float32, tf.half, tf.bfloat16:
    for shape, layout in ((4, 30, 31, 24), "NHWC"), ((5, 9, 7, 5), "NHWC"), ((4, 6, 9, 10), "NCHW"):
        channels = shape[1] if layout == "NCHW" else shape[3]
        feeds = [normal(*shape), normal(*shape), normal(channels), normal(channels)]
        for with_side in False, True:
            def build(joined):
                return lambda x, side, scale, offset: [tf.cast(y, tf.float32) for y in train(
                    tf.cast(x, dtype), tf.cast(side, dtype), scale, offset, joined, layout, with_side)]
            apart = run("/gpu:0", build(False), feeds)
            for i, (got, want) in enumerate(zip(run("/gpu:0", build(True), feeds), apart)):
                assert np.array_equal(got, want), (dtype, shape, with_side, i)
            if dtype == tf.float32:
                check("%s %s" % (shape, with_side), build(True), feeds, 1e-4)
""")


def test_gradients_of_biases_through_relu():
    _check("""
def gradients(rank, layout, has_two_readers):
    def build(x, bias, weights):
        if rank == 2:
            y = tf.nn.relu(x + bias)
        else:
            y = tf.nn.relu(tf.nn.bias_add(x, bias, data_format=layout))
        loss = tf.reduce_sum(y * weights)
        if has_two_readers:
            loss += tf.reduce_sum(tf.square(y))
        return tf.gradients(loss, [x, bias])
    return build

for dtype, tolerance in (np.float32, 1e-5), (np.float16, 5e-3), (np.float64, 1e-12):
    for shape, layout in ((300, 24), None), ((7, 10), None), ((6, 20, 21, 8), "NHWC"), ((3, 9, 5, 3), "NHWC"), ((4, 6, 9, 10), "NCHW"):
        if layout == "NCHW" and dtype == np.float64:
            continue
        channels = shape[1] if layout == "NCHW" else shape[-1]
        feeds = [normal(*shape, dtype=dtype), normal(channels, dtype=dtype), normal(*shape, dtype=dtype)]
        if layout == "NCHW":  # which the CPU has no kernel of
            feeds_last = [np.moveaxis(feeds[0], 1, -1), feeds[1], np.moveaxis(feeds[2], 1, -1)]
            def last(x, bias, weights):
                dx, db = gradients(4, "NHWC", False)(x, bias, weights)
                return [to_second([dx])[0], db]
            check("NCHW", gradients(4, "NCHW", False), feeds, tolerance, reference=(last, feeds_last))
            continue
        for has_two_readers in False, True:
            check("%s %s" % (shape, dtype), gradients(len(shape), layout, has_two_readers), feeds, tolerance)
""")


def test_gradients_of_mean_losses():
    """Their factor is part of the cross entropy."""
    _check("""
def losses(weights):
    def build(logits, classes, probabilities):
        results = []
        for loss in (tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits),
                     tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.stop_gradient(probabilities), logits=logits)):
            results += [loss, tf.gradients(tf.reduce_mean(loss), logits)[0], tf.gradients(tf.reduce_sum(loss * weights), logits)[0]]
        return results
    return build

for rows, classes in (5, 7), (40, 600):
    check("mean", losses(np.linspace(1, 2, rows, dtype=np.float32)),
          [normal(rows, classes), random.randint(0, classes, rows), abs(normal(rows, classes)) / classes])
""")


def test_long_rows():
    _check("""
for size in 1, 33, 257, 513, 4097, 9000:
    for dtype, tolerance in (np.float32, 1e-5), (np.float16, 2e-3):
        logits = 3 * normal(7, size, dtype=dtype)
        labels = (abs(normal(7, size)) / size).astype(dtype)
        check("rows of %d" % size, lambda x, p, c: [
            ops.Softmax(logits=x), ops.LogSoftmax(logits=x), *ops.SoftmaxCrossEntropyWithLogits(features=x, labels=p),
            *ops.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=c)], [logits, labels, random.randint(0, size, 7)], tolerance)
for dtype in np.float32, np.float16, np.float64, np.int8, np.uint16, np.int64:
    for width in 100, 1024, 1025, 5000:
        x = (random.randint(-100, 100, (3, width)) * (width // 100)).astype(dtype)
        if np.dtype(dtype).kind == "f":
            x[0, 3:7] = np.nan, np.inf, -np.inf, -0.0
        for k in 1, width // 2, width:
            check("top %d of %d" % (k, width), lambda x: ops.TopKV2(input=x, k=on_host(k)), [x], 0)
""")


def test_pooling_of_both_layouts():
    _check("""
windows = [(2, 2, 2, 2), (3, 3, 2, 2), (3, 2, 1, 3), (2, 2, 3, 3)]
many_cells = (17, 16, 3, 2)
for shape, window in [(shape, window) for shape in ((2, 9, 7, 4), (1, 6, 6, 3)) for window in windows] + [((1, 20, 21, 4), many_cells)]:
    for height, width, down, right in [window]:
        for padding in "SAME", "VALID":
            x = np.round(normal(*shape) * 2) / 2  # with equal maxima
            last = {"ksize": [1, height, width, 1], "strides": [1, down, right, 1], "padding": padding}
            first = {"ksize": [1, 1, height, width], "strides": [1, 1, down, right], "padding": padding, "data_format": "NCHW"}
            def pool(attrs):
                return lambda x: [ops.MaxPool(input=x, **attrs), ops.AvgPool(value=x, **attrs)]
            def grads(attrs, sizes):
                return lambda x, y, dy: [ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=dy, **attrs),
                                         ops.AvgPoolGrad(orig_input_shape=on_host(sizes), grad=dy, **attrs)]
            name = "%s %s" % (shape, last)
            check(name, pool(last), [x])
            check(name, pool(first), [second(x)], reference=(lambda x: to_second(pool(last)(x)), [x]))
            y = run("/cpu:0", pool(last), [x])[0]
            dy = normal(*y.shape)
            on_cpu = grads(last, shape)
            check(name, on_cpu, [x, y, dy])
            check(name, grads(first, (shape[0], shape[3], *shape[1:3])), [second(x), second(y), second(dy)],
                  reference=(lambda *args: to_second(on_cpu(*args)), [x, y, dy]))
""")


def test_einsum_and_resizing():
    _check("""
for equation, *shapes in [("abc,cde->abde", (2, 3, 4), (4, 5, 6)), ("BTNH,BFNH->BNFT", (2, 3, 4, 5), (2, 6, 4, 5)),
                          ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)), ("iij,jk->ik", (3, 3, 4), (4, 5)),
                          ("ij->", (300, 400)), ("ij->i", (3, 200)), ("i->ii", (3,)), ("ijk->kj", (3, 4, 5))]:
    check(equation, lambda *operands: [ops.Einsum(inputs=list(operands), equation=equation)], [normal(*s) for s in shapes], 2e-3)
for height, width, to_height, to_width in (16, 16, 130, 77), (100, 90, 13, 7), (3, 7, 10, 2), (1, 1, 4, 3):
    for corners, half in (False, False), (True, False), (False, True):
        attrs = {"align_corners": corners, "half_pixel_centers": half}
        sizes = to_height, to_width
        check("resize to %s" % (sizes,), lambda x, dy: [
            ops.ResizeBilinear(images=x, size=on_host(sizes), **attrs), ops.ResizeBilinearGrad(grads=dy, original_image=x, **attrs),
            ops.ResizeNearestNeighbor(images=x, size=on_host(sizes), **attrs),
            ops.ResizeNearestNeighborGrad(grads=dy, size=on_host((height, width)), **attrs)],
              [normal(2, height, width, 3), normal(2, *sizes, 3)], 1e-4)
""")
