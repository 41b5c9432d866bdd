"""What cuDNN, cuFFT and cuBLAS do for kernels, on the emulated card's strict ones, against the kernels for the CPU: layouts,
groups and dilations that only GPUs have, matrices of several blocks, and what is done where a library is missing.
"""
import card
from test_large_shapes import PROGRAM

CONVOLUTIONS = """
def convolutions(name, space, x, w, strides, dilations, padding, tolerance, layouts=("last", "first")):
    # Forward and both gradients, in both layouts, against the CPU's of channels that come last.
    forward, backward_x, backward_w = {
        2: (ops.Conv2D, ops.Conv2DBackpropInput, ops.Conv2DBackpropFilter),
        3: (ops.Conv3D, ops.Conv3DBackpropInputV2, ops.Conv3DBackpropFilterV2)}[space]
    def attrs(layout):
        formats = {2: {"last": "NHWC", "first": "NCHW"}, 3: {"last": "NDHWC", "first": "NCDHW"}}
        def place(sizes):
            return [1, *sizes, 1] if layout == "last" else [1, 1, *sizes]
        own = {"strides": place(strides), "dilations": place(dilations), "data_format": formats[space][layout]}
        if isinstance(padding, str):
            return {**own, "padding": padding}
        pairs = [[0, 0], *padding, [0, 0]] if layout == "last" else [[0, 0], [0, 0], *padding]
        return {**own, "padding": "EXPLICIT", "explicit_paddings": sum(pairs, [])}
    def image(layout):
        return x.shape if layout == "last" else second(x).shape
    y = run("/cpu:0", lambda x, w: [forward(input=x, filter=w, **attrs("last"))], [x, w])[0]
    dy = normal(*y.shape).astype(x.dtype)
    def build(layout):
        return lambda x, w, dy: [
            forward(input=x, filter=w, **attrs(layout)),
            backward_x(input_sizes=on_host(image(layout)), filter=w, out_backprop=dy, **attrs(layout)),
            backward_w(input=x, filter_sizes=on_host(w.shape), out_backprop=dy, **attrs(layout))]
    wanted = run("/cpu:0", build("last"), [x, w, dy])
    for layout in layouts:
        feeds = [x, w, dy] if layout == "last" else [second(x), w, second(dy)]
        got = run("/gpu:0", build(layout), feeds)
        if layout == "first":
            got = [np.moveaxis(got[0], 1, -1), np.moveaxis(got[1], 1, -1), got[2]]
        for ours, want in zip(got, wanted):
            scale = max(1, abs(want.astype(np.float64)).max(initial=0))
            np.testing.assert_allclose(ours.astype(np.float64), want.astype(np.float64), tolerance, tolerance * scale,
                                       err_msg="%s %s" % (name, layout))
"""

IN_TWO_DIMENSIONS = """
for dtype, tolerance in (np.float32, 1e-5), (np.float16, 5e-3):
    for padding in "SAME", "VALID":
        convolutions("3x3", 2, normal(2, 9, 8, 5, dtype=dtype), normal(3, 3, 5, 6, dtype=dtype), [2, 2], [1, 1], padding, tolerance)
convolutions("1x1", 2, normal(2, 6, 7, 8), normal(1, 1, 8, 16), [1, 1], [1, 1], "VALID", 1e-5)
convolutions("dilated", 2, normal(1, 11, 12, 3), normal(3, 2, 3, 4), [1, 1], [2, 3], "SAME", 1e-5)
convolutions("explicit", 2, normal(2, 7, 8, 3), normal(3, 3, 3, 4), [2, 1], [1, 1], [[0, 3], [2, 1]], 1e-5)
"""


def _check(program, **more):
    card.run(PROGRAM + CONVOLUTIONS + program, **more)


def test_convolutions():
    _check(IN_TWO_DIMENSIONS + """
convolutions("volumes", 3, normal(2, 4, 5, 6, 3), normal(2, 3, 2, 3, 4), [1, 2, 1], [1, 1, 1], "SAME", 1e-5)
two, w = normal(2, 1, 5, 5, 3), normal(3, 3, 3, 4)  # the second of them begins between the addresses that cuDNN takes
def of_second(x, w):
    return [ops.Conv2D(input=x[1], filter=w, strides=[1, 1, 1, 1], padding="SAME")]
check("a part", of_second, [two, w])
convolutions("volumes", 3, normal(1, 4, 5, 6, 3), normal(3, 3, 3, 3, 4), [1, 1, 1], [1, 1, 1], "VALID", 1e-5)
""")


def test_convolutions_in_groups():
    _check("""
x, w = normal(2, 6, 5, 6), normal(3, 3, 2, 9)
dy = normal(2, 6, 5, 9)
attrs = {"strides": [1, 1, 1, 1], "padding": "SAME"}
got = run("/gpu:0", lambda x, w, dy: [
    ops.Conv2D(input=x, filter=w, **attrs),
    ops.Conv2DBackpropInput(input_sizes=on_host(x.shape.as_list()), filter=w, out_backprop=dy, **attrs),
    ops.Conv2DBackpropFilter(input=x, filter_sizes=on_host(w.shape.as_list()), out_backprop=dy, **attrs)], [x, w, dy])
for g in range(3):
    part = x[..., 2 * g:2 * g + 2], w[..., 3 * g:3 * g + 3], dy[..., 3 * g:3 * g + 3]
    want = run("/cpu:0", lambda x, w, dy: [
        ops.Conv2D(input=x, filter=w, **attrs),
        ops.Conv2DBackpropInput(input_sizes=on_host(x.shape.as_list()), filter=w, out_backprop=dy, **attrs),
        ops.Conv2DBackpropFilter(input=x, filter_sizes=on_host(w.shape.as_list()), out_backprop=dy, **attrs)], part)
    for ours, wanted in zip((got[0][..., 3 * g:3 * g + 3], got[1][..., 2 * g:2 * g + 2], got[2][..., 3 * g:3 * g + 3]), want):
        np.testing.assert_allclose(ours, wanted, 1e-4, 1e-4)
""")


def test_convolutions_without_cudnn_are_matrix_products():
    _check(IN_TWO_DIMENSIONS + """
try:
    run("/gpu:0", lambda x, w: [ops.Conv3D(input=x, filter=w, strides=[1] * 5, padding="SAME")], [normal(1, 2, 2, 2, 1), normal(1, 1, 1, 1, 1)])
    raise AssertionError("it is not refused")
except tf.errors.OpError as error:
    assert "Conv3D on a GPU: cudnnCreate failed" in str(error), error
""", MUSTER_EMULATED_CUDNN="0")


def test_a_plan_is_chosen_once_and_replayed():
    # The first plan works where none is timed, and the only one that always gives the same result.
    for more in {}, {"TF_CUDNN_USE_AUTOTUNE": "0"}, {"TF_DETERMINISTIC_OPS": "1"}, {"TF_CUDNN_WORKSPACE_LIMIT_IN_MB": "0"}:
        _check("""
x, w = normal(2, 8, 8, 4), normal(3, 3, 4, 4)
attrs = {"strides": [1, 1, 1, 1], "padding": "SAME"}
def build(x, w):
    for _ in range(4):
        x = ops.Conv2D(input=x, filter=w, **attrs)
    return x
want = run("/cpu:0", lambda x, w: [build(x, w)], [x, w])[0]
with tf.Graph().as_default():
    with tf.device("/gpu:0"):
        images, filters = tf.placeholder(tf.float32, x.shape), tf.placeholder(tf.float32, w.shape)
        result = build(images, filters)
    with tf.Session() as session:
        for _ in range(6):
            np.testing.assert_allclose(session.run(result, {images: x, filters: w}), want, 1e-4, 1e-4)
""", **more)


def test_products_take_the_place_of_slower_plans():
    # cuDNN is given the padded images: one call more than products have. They are timed in the second step.
    slow = {"MUSTER_EMULATED_CUDNN_CALLS": "40"}
    for more, is_replaced in (slow, True), ({}, False), ({**slow, "TF_DETERMINISTIC_OPS": "1"}, False):
        _check("""
from muster import _muster
x, w, dy = normal(2, 8, 8, 4), normal(3, 3, 4, 6), normal(2, 4, 4, 6)
def build(x, dy):
    return [ops.Conv2DBackpropFilter(input=x, filter_sizes=on_host(w.shape), out_backprop=dy, strides=[1, 2, 2, 1], padding="SAME")]
want = run("/cpu:0", build, [x, dy])[0]
with tf.Graph().as_default():
    with tf.device("/gpu:0"):
        images, gradients = tf.placeholder(tf.float32, x.shape), tf.placeholder(tf.float32, dy.shape)
        result = build(images, gradients)[0]
    with tf.Session() as session:
        calls = [0]
        for _ in range(4):
            np.testing.assert_allclose(session.run(result, {images: x, gradients: dy}), want, 1e-4, 1e-4)
            calls.append(sum(report["calls"] for report in _muster.gpu_reports()))
steps = np.diff(calls)
assert (steps[-1] < steps[0]) == %s, steps
""" % is_replaced, **more)


def test_products_with_a_bias_are_one_call():
    # The calls that the parts would need where they are faster, or where cublasLt is missing.
    slow = {"MUSTER_EMULATED_CUBLASLT_CALLS": "5"}
    for more, is_one in ({}, True), ({"TF_DETERMINISTIC_OPS": "1"}, True), (slow, False), ({"MUSTER_EMULATED_CUBLASLT": "0"}, False):
        _check("""
from muster import _muster
def calls():
    return sum(report["calls"] for report in _muster.gpu_reports())

def build(has_relu, attrs, fetches_product):
    def made(a, b, bias):
        product = tf.matmul(a, b, **attrs)
        y = tf.nn.bias_add(product, bias)
        return [tf.nn.relu(y) if has_relu else y] + ([product] if fetches_product else [])
    return made

for dtype, tolerance in (np.float32, 1e-5), (np.float16, 5e-3):
    for shape_a, shape_b, attrs in ((5, 150), (150, 8), {}), ((150, 5), (9, 150), {"transpose_a": True, "transpose_b": True}):
        for has_relu in False, True:
            bias = normal(shape_b[0] if attrs else shape_b[1], dtype=dtype)  # longer rows than small products have
            feeds = [normal(*shape_a, dtype=dtype), normal(*shape_b, dtype=dtype), bias]
            name = "%s %s %s" % (dtype, attrs, has_relu)
            check(name, build(has_relu, attrs, False), feeds, tolerance)
            check(name + " apart", build(has_relu, attrs, True), feeds, tolerance)

feeds = [normal(5, 150), normal(150, 8), normal(8)]
with tf.Graph().as_default():
    with tf.device("/gpu:0"):
        inputs = [tf.placeholder(tf.float32, feed.shape) for feed in feeds]
        result, relu = build(False, {}, False)(*inputs)[0], build(True, {}, False)(*inputs)[0]
    with tf.Session() as session:
        for _ in range(5):
            before = calls()
            got = session.run(result, dict(zip(inputs, feeds)))
            np.testing.assert_allclose(got, feeds[0] @ feeds[1] + feeds[2], 1e-5, 1e-4)
            made = calls() - before
        feeds[0][2, 3] = np.nan
        assert np.isnan(session.run(relu, dict(zip(inputs, feeds)))[2]).all(), "a NaN is gone"
feeds_and_fetch = 4
assert made == feeds_and_fetch + (1 if IS_ONE else 2), made
""".replace("IS_ONE", str(is_one)), **more)


def test_small_products():
    _check("""
def build(transpose_a, transpose_b):
    def made(a, b, bias):
        product = tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
        return [product, tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, name="again") + bias,
                tf.nn.relu(tf.matmul(-a, b, transpose_a=transpose_a, transpose_b=transpose_b) + bias)]
    return made

for m, n, k in (1, 1, 1), (16, 16, 128), (17, 33, 40), (100, 10, 127), (3, 200, 2):
    for transpose_a in False, True:
        for transpose_b in False, True:
            feeds = [normal(k, m) if transpose_a else normal(m, k), normal(n, k) if transpose_b else normal(k, n), normal(n)]
            check("%s" % ((m, n, k, transpose_a, transpose_b),), build(transpose_a, transpose_b), feeds, 1e-5)
""")
    _check("""
def gradients(x, w, bias, scale):
    loss = tf.reduce_sum(tf.square(tf.matmul(x, w) + bias) * scale)
    return tf.gradients(loss, [w, bias, x])

for rows, inputs, outputs in (100, 100, 10), (7, 3, 40), (128, 20, 17), (129, 20, 17):
    check("gradients %d" % rows, gradients, [normal(rows, inputs), normal(inputs, outputs), normal(outputs), normal(rows, outputs)], 1e-4)
""")


def test_depthwise_convolutions():
    _check("""
for dtype, tolerance in (np.float32, 1e-5), (np.float16, 5e-3):
    for shape, window, multiplier, stride, padding in [
            ((2, 9, 8, 5), (3, 3), 1, 2, "SAME"), ((3, 40, 30, 40), (3, 2), 2, 1, "VALID"), ((2, 9, 8, 24), (3, 2), 1, 2, "SAME")]:
        x, w = normal(*shape, dtype=dtype), normal(*window, shape[3], multiplier, dtype=dtype)
        def build(layout, x_shape):
            attrs = {"padding": padding, "data_format": layout}
            attrs["strides"] = [1, stride, stride, 1] if layout == "NHWC" else [1, 1, stride, stride]
            return lambda x, w, dy: [
                ops.DepthwiseConv2dNative(input=x, filter=w, **attrs),
                ops.DepthwiseConv2dNativeBackpropInput(input_sizes=on_host(x_shape), filter=w, out_backprop=dy, **attrs),
                ops.DepthwiseConv2dNativeBackpropFilter(input=x, filter_sizes=on_host(w.shape.as_list()), out_backprop=dy, **attrs)]
        y = run("/cpu:0", lambda x, w: [ops.DepthwiseConv2dNative(input=x, filter=w, strides=[1, stride, stride, 1], padding=padding)], [x, w])[0]
        dy = normal(*y.shape, dtype=dtype)
        check("NHWC", build("NHWC", shape), [x, w, dy], tolerance)
        on_cpu = build("NHWC", shape)
        def as_nchw(x, w, dy):
            y, dx, dw = on_cpu(x, w, dy)
            return [*to_second([y, dx]), dw]
        check("NCHW", build("NCHW", second(x).shape), [second(x), w, second(dy)], tolerance, reference=(as_nchw, [x, w, dy]))
""")


def test_fourier_transforms():
    _check("""
x = normal(3, 6, 10) + 1j * normal(3, 6, 10)
for dtype, tolerance in (np.complex64, 1e-4), (np.complex128, 1e-10):
    z = x.astype(dtype)
    for op in ops.FFT, ops.IFFT, ops.FFT2D, ops.IFFT2D, ops.FFT3D, ops.IFFT3D:
        got, want = run("/gpu:0", lambda z: [op(input=z)], [z])[0], run("/cpu:0", lambda z: [op(input=z)], [z])[0]
        np.testing.assert_allclose(got, want, tolerance, tolerance * abs(want).max())
    for forward, backward, lengths in (ops.RFFT, ops.IRFFT, [7]), (ops.RFFT2D, ops.IRFFT2D, [5, 8]), (ops.RFFT3D, ops.IRFFT3D, [2, 6, 9]):
        real = z.real.copy()
        types = {"Treal": real.dtype, "Tcomplex": z.dtype}
        for op, given, attrs in (forward, real, {"Tcomplex": z.dtype}), (backward, z, {"Treal": real.dtype}):
            def build(z):
                return [op(input=z, fft_length=on_host(lengths), **attrs)]
            got, want = run("/gpu:0", build, [given])[0], run("/cpu:0", build, [given])[0]
            assert got.shape == want.shape
            if op is forward or len(lengths) == 1:
                np.testing.assert_allclose(got, want, tolerance, tolerance * abs(want).max())
""")


def test_matrices_of_several_blocks():
    _check("""
def compare(name, build, feeds, tolerance):
    for got, want in zip(run("/gpu:0", build, feeds), run("/cpu:0", build, feeds)):
        scale = abs(want[np.isfinite(want)]).max(initial=1)
        np.testing.assert_allclose(got, want, tolerance, tolerance * scale, err_msg=name)
for n, columns in (3, 2), (64, 1), (65, 33), (150, 7):
    for dtype, tolerance in (np.float32, 1e-3), (np.complex64, 1e-3):
        a = normal(2, n, n) + (1j * normal(2, n, n) if np.dtype(dtype).kind == "c" else 0)
        a = (a + 3 * np.eye(n) * np.sqrt(n)).astype(dtype)
        b = normal(2, n, columns).astype(dtype)
        square = (a @ np.conj(np.swapaxes(a, 1, 2)) / n).astype(dtype)
        compare("of one %d" % n, lambda a, b: [
            ops.MatrixInverse(input=a), ops.MatrixInverse(input=a, adjoint=True), ops.MatrixSolve(matrix=a, rhs=b),
            ops.MatrixSolve(matrix=a, rhs=b, adjoint=True)], [a, b], tolerance)
        compare("determinants %d" % n, lambda a: ops.LogMatrixDeterminant(input=a)[:2], [a], tolerance)
        compare("cholesky %d" % n, lambda a: [ops.Cholesky(input=a)], [square], tolerance)
        for lower in True, False:
            for adjoint in True, False:
                compare("triangle %d" % n, lambda a, b: [ops.MatrixTriangularSolve(matrix=a, rhs=b, lower=lower, adjoint=adjoint)],
                        [np.linalg.cholesky(square).astype(dtype) if lower else np.conj(np.swapaxes(np.linalg.cholesky(square), 1, 2)).astype(dtype), b],
                        tolerance)
singular = np.zeros((2, 70, 70), np.float32) + np.eye(70, dtype=np.float32)
singular[1, 69, 69] = 0
for build, text in (lambda a: [ops.MatrixInverse(input=a)], "Input is not invertible."), (
        lambda a: [ops.MatrixSolve(matrix=a, rhs=a)], "Input matrix is not invertible."):
    try:
        run("/gpu:0", build, [singular])
        raise AssertionError("it is not refused")
    except tf.errors.InvalidArgumentError as error:
        assert text in str(error), error
""")
