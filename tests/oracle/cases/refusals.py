"""What malformed calls are answered with, word for word: scalars where a vector is wanted and the other way round, numbers
that do not fit an int32, windows and strides that make no sense. Each is run with and without static shapes, so that the
shape rule and the kernel are both asked."""

import numpy as np

import element_types as et
from cases import cases

BIG = 2**31


def plain(types):
    """One typing is enough: what is refused does not depend on the type of the data."""
    return types.get("T", et.FLOAT) == et.FLOAT and all(
        t in (et.FLOAT, et.INT32, et.INT64) for t in types.values()) and et.INT64 not in (
            types.get("Tshape"), types.get("Tmultiples"), types.get("Tidx"), types.get("Tperm"), types.get("index_type"),
            types.get("Index"), types.get("Tpaddings"))


@cases("Reshape", "Tile", "BroadcastTo", only=plain)
def shapes_in_vectors(g):
    x = g.values(2, 3)
    g.refused([x, [[3, 2]]], "a matrix")
    if g.op != "Reshape":
        g.refused([x, 3], "a scalar")


@cases("Reshape", only=plain)
def reshape(g):
    g.error([g.values(2, 3), 3], "a scalar", shaped=True, text=True)
    g.error([g.values(2, 3), [7]], "another size", text=True)


@cases("Reshape", only=lambda types: types == {"T": et.FLOAT, "Tshape": et.INT64})
def reshape_huge(g):
    g.error([g.values(2, 3), [2**62, 4]], "too many elements", text=True)


@cases("Fill", only=plain)
def fill(g):
    # Without shapes the kernel is asked, which says what 1.15's does.
    g.error([[[2, 3]], 1.0], "dims are a matrix", shaped=True, text=True)
    g.error([[2, 3], [1.0, 2.0]], "a vector of values", shaped=True, text=True)


@cases("RandomUniform", "TruncatedNormal", only=lambda types: types == {"T": et.INT32, "dtype": et.FLOAT})
def random_shapes(g):
    g.refused([2], "a scalar")
    g.refused([[[2, 3]]], "a matrix")


@cases("Slice", only=plain)
def slice_(g):
    g.error([g.values(0, 3), [0, 1], [1, 2]], "nothing to take rows from", text=True)
    g.error([g.values(2, 0), [0, 1], [1, 2]], "nothing to take columns from", text=True)
    g.refused([g.values(2, 3), 0, [1, 2]], "begin is a scalar")


@cases("StridedSlice", only=plain)
def strided_slice(g):
    x = g.values(2, 3)
    for at, name in enumerate(("begin", "end", "strides"), 1):
        inputs = [x, [0, 1], [1, 2], [1, 1]]
        inputs[at] = 1
        g.error(inputs, f"{name} is a scalar", shaped=True, text=True)


@cases("Pad", "MirrorPad", only=plain, shaped=True)
def pad(g):
    more = {"mode": "REFLECT"} if g.op == "MirrorPad" else {}
    g.error([g.values(2, 3), [[1, 1, 1], [0, 1, 1]]], "three columns", text=True, **more)


@cases("Pack", "Unpack", only=plain)
def axis_attribute(g):
    more = {"N": 1} if g.op == "Pack" else {"num": 2}
    for axis in (BIG, -BIG - 1, 5):
        g.refused([g.values(2, 3)], f"axis {axis}", axis=axis, **more)


@cases("Squeeze", only=plain)
def squeeze(g):
    for dim in (BIG, -BIG - 1, 5):
        g.refused([g.values(1, 3)], f"dimension {dim}", squeeze_dims=[dim])


@cases("GatherV2", only=lambda types: types == {"Tparams": et.FLOAT, "Tindices": et.INT32, "Taxis": et.INT32})
def gather(g):
    for rank in (1, 2, 3):
        for batch_dims in (-3, 1, 2, 3, BIG):
            params, indices = g.values(*(2, 3, 2)[:rank], dtype=et.FLOAT), np.zeros((2, 3, 2)[:rank - 1], int)
            if batch_dims == 1 and rank == 3 or batch_dims == 1 and rank == 2 or batch_dims == 2 and rank == 3:
                continue  # makes sense
            g.error([params, indices, 0], f"rank {rank} with batch_dims {batch_dims}", text=True, batch_dims=batch_dims)


@cases("Roll", only=lambda types: set(types.values()) == {et.FLOAT, et.INT32})
def roll(g):
    g.refused([g.values(2, 3), 1, [0]], "a shift for a vector of axes")
    g.refused([g.values(2, 3), [1, 1], [0]], "two shifts and one axis")


@cases("Unique", "UniqueWithCounts", only=lambda types: types.get("T") == et.INT32 and types.get("out_idx") == et.INT32)
def unique(g):
    g.refused([[[1, 2]]], "a matrix")


@cases("SplitV", only=lambda types: types == {"T": et.FLOAT, "Tlen": et.INT32})
def split_v(g):
    g.error([3.0, [1], 0], "a scalar", shaped=True, text=True, num_split=1)


@cases("MatrixDiagV2", only=plain)
def matrix_diag(g):
    g.refused([g.values(2, 3), [0, 1], 3, 3, [0.0]], "a vector to pad with")
    g.error([g.values(2, 3), [[0, 1]], 3, 3, 0.0], "a matrix of diagonals", shaped=True, text=True)


@cases("MatrixDiagPartV2", only=plain)
def matrix_diag_part(g):
    g.refused([g.values(3, 3), [[0, 1]], 0.0], "a matrix of diagonals")
    g.error([g.values(3, 3), [0, 1], [0.0]], "a vector to pad with", shaped=True, text=True)


@cases("ReverseSequence", only=lambda types: types == {"T": et.FLOAT, "Tlen": et.INT64})
def reverse_sequence(g):
    for dims in (dict(seq_dim=-1, batch_dim=0), dict(seq_dim=2, batch_dim=0), dict(seq_dim=0, batch_dim=2)):
        g.refused([g.values(2, 3), [1, 2]], str(dims), **dims)


@cases("EditDistance", only=lambda types: types == {"T": et.INT64})
def edit_distance(g):
    def sparse(indices=((0, 0),), values=(1,), shape=(1, 1)):
        return [list(indices), list(values), list(shape)]

    g.refused(sparse(np.zeros((0, 2))) + sparse(), "fewer places than values")
    g.refused(sparse() + sparse(shape=(1, 1, 1)), "a shape of another rank")
    g.error(sparse(shape=(-1, 1)) + sparse(), "a negative size", text=True)
    g.error(sparse(((7, 0),)) + sparse(), "a row outside", text=True)


@cases("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN",
       only=lambda types: types == {"T": et.FLOAT, "Tidx": et.INT32, "Tsegmentids": et.INT32})
def sparse_segment(g):
    g.error([g.values(3, 2), [0, 2, 1], [0, 0, BIG - 1]], "the last of all numbers", text=True)


@cases("ResourceGatherNd", only=lambda types: types == {"dtype": et.FLOAT, "Tindices": et.INT64})
def resource_gather_nd(g):
    g.error([np.zeros((4, 0)), [[0], [1]]], "rows without columns", text=True)


# --- Windows. ---
WINDOWS = {
    "Conv2D": [(1, 5, 5, 2), (3, 3, 2, 4)],
    "DepthwiseConv2dNative": [(1, 5, 5, 2), (3, 3, 2, 2)],
    "MaxPool": [(1, 4, 4, 2)],
    "AvgPool": [(1, 4, 4, 2)],
}


@cases(*WINDOWS, only=plain)
def windows(g):
    inputs = [g.values(*shape) for shape in WINDOWS[g.op]]
    right = dict(strides=[1, 2, 2, 1], padding="VALID")
    names = ["strides"]
    if "Pool" in g.op:
        right["ksize"] = [1, 2, 2, 1]
        names.append("ksize")
    elif g.op == "Conv2D":
        right["dilations"] = [1, 1, 1, 1]
        names.append("dilations")
    for name in names:
        for at in (0, 1, 2):
            wrong = list(right[name])
            wrong[at] = BIG
            g.refused(inputs, f"{name} {wrong}", **dict(right, **{name: wrong}))
    if "Pool" in g.op:
        for ksize in ([0, 2, 2, 1], [1, 0, 2, 1], [1, 2, -1, 1]):
            g.error(inputs, f"ksize {ksize}", text=True, **dict(right, ksize=ksize))
    if g.op == "Conv2D":
        g.error(inputs, "dilations of batches", text=True, **dict(right, dilations=[2, 1, 1, 1]))


@cases("Conv2DBackpropFilter", only=plain)
def backprop_filter(g):
    g.error([g.values(1, 5, 5, 2), [3, 3, 2, 4], g.values(1, 5, 5, 4)], "channels first", strides=[1, 1, 1, 1], padding="SAME",
            data_format="NCHW", text=True)


BACKPROP_OF_INPUT = ("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput")


@cases("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", *BACKPROP_OF_INPUT, only=plain)
def sizes_of_gradients(g):
    depth = 4 if g.op.startswith("Depthwise") else 2

    def error(note, image=(1, 5, 5, 2), filter=(3, 3, 2, 2), dy=(1, 5, 5, depth), **settings):
        inputs = [list(image), g.values(*filter)] if g.op in BACKPROP_OF_INPUT else [g.values(*image), list(filter)]
        g.error(inputs + [g.values(*dy)], note, **dict(dict(strides=[1, 1, 1, 1], padding="SAME", text=True), **settings))

    error("another batch", dy=(3, 5, 5, depth))
    error("another depth", dy=(1, 5, 5, 3))
    error("another height", dy=(1, 4, 5, depth))
    error("another width", dy=(1, 5, 6, depth))
    error("another depth of the filter", filter=(3, 3, 3, 2))
    error("strides over batches", strides=[2, 1, 1, 1])
    error("strides over channels", strides=[1, 1, 1, 2])


@cases("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", only=plain)
def gradients_3d(g):

    def error(note, volume=(1, 4, 4, 4, 2), filter=(2, 2, 2, 2, 3), dy=(1, 3, 3, 3, 3), **settings):
        of_input = g.op == "Conv3DBackpropInputV2"
        inputs = [list(volume), g.values(*filter)] if of_input else [g.values(*volume), list(filter)]
        g.error(inputs + [g.values(*dy)], note, **dict(dict(strides=[1] * 5, padding="VALID", text=True), **settings))

    error("another batch", dy=(2, 3, 3, 3, 3))
    error("another depth", dy=(1, 3, 3, 3, 4))
    error("another depth of the volume", volume=(1, 4, 4, 4, 3))
    for axis in (1, 2, 3):
        error(f"another size of axis {axis}", dy=tuple(4 if i == axis else n for i, n in enumerate((1, 3, 3, 3, 3))))
        error(f"no stride of axis {axis}", strides=[0 if i == axis else 1 for i in range(5)])
        error(f"dilated axis {axis}", dilations=[2 if i == axis else 1 for i in range(5)])
    error("an empty axis of the filter", filter=(2, 0, 2, 2, 3))
    error("a volume of four axes", volume=(4, 4, 4, 2))
    error("a filter of four axes", filter=(2, 2, 2, 3))
    error("a gradient of four axes", dy=(3, 3, 3, 3))
    error("strides over batches", strides=[2, 1, 1, 1, 1])
    error("dilated batches", dilations=[2, 1, 1, 1, 1])
    error("channels first", data_format="NCDHW")
    error("channels first and six strides", data_format="NCDHW", strides=[1] * 6)
    of_input = g.op == "Conv3DBackpropInputV2"
    inputs = [[1, 4, 4, 4, 2], g.values(0, 2, 2, 2, 3)] if of_input else [g.values(1, 4, 4, 4, 2), [0, 2, 2, 2, 3]]
    g.edge(inputs + [g.values(1, 5, 3, 3, 3)], "a filter without cells", strides=[1] * 5, padding="VALID")
    if not of_input:  # TensorFlow's gradient of the input is memory that it has not written
        g.edge([g.values(1, 4, 4, 4, 2), [2, 2, 2, 2, 0], g.values(1, 3, 3, 3, 0)], "a filter without output", strides=[1] * 5,
               padding="VALID")


@cases("Conv3D", only=plain)
def filters_3d(g):
    g.error([g.values(1, 4, 4, 4, 2), g.values(2, 0, 2, 2, 3)], "an empty filter", strides=[1] * 5, padding="VALID", text=True)


POOL_3D = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")


@cases("MaxPool3D", "AvgPool3D", only=plain)
def windows_3d(g):
    x = g.values(1, 4, 4, 4, 2)
    for ksize in ([0, 2, 2, 2, 1], [1, 0, 2, 2, 1], [1, 2, 2, 2, -1], [1, BIG, 2, 2, 1]):
        g.error([x], f"ksize {ksize}", text=True, **dict(POOL_3D, ksize=ksize))
    g.error([x], "a window that is too large", text=True, **dict(POOL_3D, ksize=[1, 9, 2, 2, 1]))
    g.error([x], "strides over batches", text=True, **dict(POOL_3D, strides=[2, 2, 2, 2, 1]))
    g.error([x], "channels first", text=True, **dict(POOL_3D, data_format="NCDHW"))
    g.error([g.values(4, 4, 4, 2)], "four axes", text=True, **POOL_3D)


@cases("MaxPool3DGrad", only=plain)
def max_gradients_3d(g):
    inputs = [(1, 4, 4, 4, 2), (1, 2, 2, 2, 2), (1, 2, 2, 2, 2)]
    for at, name in enumerate(("volume", "maxima", "gradient")):
        for other in ((2, 2, 2, 2), (1, 3, 2, 2, 2)):
            changed = [g.values(*(other if i == at else shape)) for i, shape in enumerate(inputs)]
            g.error(changed, f"{name} {other}", text=True, **POOL_3D)
    for ksize in ([1, 0, 2, 2, 1], [1, -1, 2, 2, 1], [0, 2, 2, 2, 1]):
        g.error([g.values(*shape) for shape in inputs], f"ksize {ksize}", text=True, **dict(POOL_3D, ksize=ksize))
    for name, value in (("strides", [1, 0, 2, 2, 1]), ("data_format", "NCDHW")):
        g.error([g.values(*shape) for shape in inputs], f"{name} {value}", text=True, **dict(POOL_3D, **{name: value}))


@cases("AvgPool3DGrad", only=plain)
def mean_gradients_3d(g):
    dy = g.values(1, 2, 2, 2, 2)
    for sizes in ([2, 4, 4, 4, 2], [1, 4, 4, 4, 3], [1, -1, 4, 4, 2], [4, 4, 4, 2], [1, 1, 4, 4, 2]):
        g.error([sizes, dy], f"sizes {sizes}", text=True, **POOL_3D)
    g.error([[1, 4, 4, 4, 2], g.values(2, 2, 2, 2)], "a gradient of four axes", text=True, **POOL_3D)
    g.error([[1, 4, 4, 4, 2], dy], "no stride", text=True, **dict(POOL_3D, strides=[1, 2, 0, 2, 1]))
    g.error([[1, 4, 4, 4, 2], dy], "no window", text=True, **dict(POOL_3D, ksize=[0, 2, 0, 2, 1]))
    g.edge([[1, 8, 4, 4, 2], dy], "a gradient of another size", **POOL_3D)


@cases("MaxPool", "AvgPool", only=plain)
def too_large_windows(g):
    # What is negative is cut towards zero.
    for window in (9, 10):
        g.error([g.values(1, 4, 4, 2)], f"a window of {window}", ksize=[1, window, 2, 1], strides=[1, 2, 2, 1], padding="VALID",
                text=True)


@cases("MaxPool", "AvgPool", only=plain)
def windows_and_ranks(g):
    for name in ("ksize", "strides"):
        g.error([g.values(1, 4, 4)], f"three axes and five {name}", shaped=True, text=True,
                **dict(dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"), **{name: [1, 2, 2, 1, 1]}))


@cases("Dilation2D", only=plain)
def dilation(g):
    right = dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
    for name in ("strides", "rates"):
        g.refused([g.values(1, 4, 5, 2), g.values(2, 3, 2)], f"{name} that are too large", **dict(right, **{name: [1, BIG, 1, 1]}))
    g.edge([g.values(1, 4, 5, 2), g.values(2, 3, 2)], "cells at one place", **dict(right, rates=[1, 0, 1, 1], padding="SAME"))
    for strides in ([1, 0, -1, 1], [1, -1, 0, 2]):
        g.error([g.values(1, 4, 5, 2), g.values(2, 3, 2)], f"strides {strides}", shaped=True, text=True, **dict(right, strides=strides))
    g.refused([g.values(1, 4, 5, 2), g.values(2, 3, 3)], "another depth and no stride", **dict(right, strides=[1, 0, 1, 1]))
    g.error([g.values(1, 4, 5, 2), g.values(2, 3, 3)], "another depth and no rate", shaped=True, text=True, **dict(right, rates=[1, 0, 1, 1]))
    g.error([g.values(1, 1, 5, 2), g.values(3, 3, 2)], "a filter that is too large", shaped=True, text=True, **right)


@cases("ExtractImagePatches", only=plain)
def patches(g):
    right = dict(ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
    for name in ("ksizes", "strides", "rates"):
        g.refused([g.values(1, 4, 4, 2)], f"{name} that are too large", **dict(right, **{name: [1, BIG, 1, 1]}))
    g.error([g.values(1, 4, 4, 2)], "no stride", shaped=True, text=True, **dict(right, strides=[1, 0, 1, 1]))


def of_floats(types):
    return set(types.values()) <= {et.FLOAT, et.INT64} and types["T"] == et.FLOAT


def is_again(g):
    """Whether this is the same choice of types again, for another of the op's attributes."""
    return not g.label.startswith("T=")


# --- Poolings and their gradients. ---
IMAGE, POOLED = (1, 4, 4, 2), (1, 2, 2, 2)
POOL = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
POOL_GRADIENTS = {"MaxPoolGrad": POOLED, "MaxPoolGradV2": POOLED, "MaxPoolGradGrad": IMAGE, "MaxPoolGradGradV2": IMAGE}


@cases(*POOL_GRADIENTS, only=plain)
def gradients_of_maxima(g):
    def error(note, shapes=(), shaped=False, **settings):
        settings = dict(POOL, **settings)
        inputs = [g.values(*(shapes or (IMAGE, POOLED, POOL_GRADIENTS[g.op]))[i]) for i in range(3)]
        if g.op.endswith("V2"):
            inputs += [settings.pop("ksize"), settings.pop("strides")]
        g.error(inputs, note, shaped=shaped, text=True, **settings)

    error("a window over channels", ksize=[1, 2, 2, 0])
    error("a window over space and channels", ksize=[1, 2, 2, 2])
    error("a stride of channels", strides=[1, 2, 2, 0])
    error("no stride", strides=[1, 0, 2, 1])
    error("no window", ksize=[1, 0, 2, 1])
    error("five strides", strides=[1, 2, 2, 1, 1])
    error("a gradient of three axes", shapes=[IMAGE, POOLED, POOLED[1:]])
    if g.op == "MaxPoolGradGradV2":
        error("an image of another size", shapes=[(1, 5, 4, 2), POOLED, IMAGE], shaped=True)
        error("maxima of three axes", shapes=[IMAGE, POOLED[1:], IMAGE], shaped=True)
    if g.op == "MaxPoolGradGradV2":
        error("three strides", strides=[1, 2, 2], shaped=True)
    if g.op == "MaxPoolGrad":
        error("no paddings and maxima of three axes", shapes=[IMAGE, POOLED[1:], POOLED], padding="EXPLICIT")
    if g.op == "MaxPoolGradGrad":
        g.edge([g.values(*IMAGE), g.values(*POOLED), g.values(*IMAGE)], "windows without cells",
               **dict(POOL, ksize=[1, 0, 2, 1], padding="SAME"))


@cases("MaxPoolV2", only=plain)
def windows_of_inputs(g):
    def error(note, ksize=(1, 2, 2, 1), strides=(1, 2, 2, 1), **settings):
        g.error([g.values(*IMAGE), ksize, strides], note, text=True, **dict(dict(padding="VALID"), **settings))

    error("no window", ksize=[1, 0, 2, 1])
    error("a window of channels", ksize=[1, 2, 2, -1])
    error("no stride", strides=[1, 2, 0, 1])
    error("a stride", strides=2)
    error("channels first", data_format="NCHW")
    error("channels in blocks", data_format="NCHW_VECT_C", shaped=True)


@cases("MaxPoolWithArgmax", only=of_floats)
def places_of_maxima(g):
    if is_again(g):
        return
    for ksize in ([0, 2, 2, 1], [1, -1, 2, 1]):
        g.refused([g.values(*IMAGE)], f"ksize {ksize}", **dict(POOL, ksize=ksize))
    g.error([g.values(1, 4, 4)], "three axes", text=True, **POOL)


@cases("MaxPoolGradWithArgmax", only=of_floats)
def gradients_of_places(g):
    if is_again(g):
        return
    inputs = [g.values(*IMAGE), g.values(*POOLED), np.zeros(POOLED, int)]
    for name, value in (("ksize", [0, 2, 2, 1]), ("ksize", [1, -1, 2, 1]), ("strides", [1, 0, 2, 1])):
        g.error(inputs, f"{name} {value}", text=True, **dict(POOL, **{name: value}))
    # Fewer numbers than the image has channels.
    g.edge([g.values(3, 2, 2, 4), g.values(3, 2, 2, 2), np.tile(np.arange(0, 16, 2).reshape(2, 2, 2), (3, 1, 1, 1))],
           "windows over channels", ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID")


@cases("AvgPoolGrad", only=plain)
def gradients_of_means(g):
    def error(note, sizes=IMAGE, **settings):
        g.error([list(sizes), g.values(*POOLED)], note, text=True, **dict(POOL, **settings))

    error("a negative size", sizes=[1, -1, 4, 2])
    error("an image that is too small", sizes=[1, 4, 1, 2])
    error("a window over channels", ksize=[1, 2, 2, 0])
    error("a window over space and channels", ksize=[1, 2, 2, 2])
    error("no stride", strides=[1, 0, 2, 1])
    error("five strides", strides=[1, 2, 2, 1, 1])
    g.edge([[1, 8, 4, 2], g.values(*POOLED)], "a gradient of another size", **POOL)


@cases("MaxPool", only=plain)
def paddings_of_windows(g):
    settings = dict(ksize=[1, 3, 3, 1], strides=[1, 1, 1, 1], padding="EXPLICIT")
    g.refused([g.values(*IMAGE)], "a padding that is too large", explicit_paddings=[0, 0, BIG, 1, 1, 1, 0, 0], **settings)


@cases("MaxPool3DGradGrad", only=plain)
def second_gradients_3d(g):
    volume, pooled = (1, 4, 4, 4, 2), (1, 2, 2, 2, 2)

    def error(note, shapes=(volume, pooled, volume), shaped=False, **settings):
        g.error([g.values(*shape) for shape in shapes], note, shaped=shaped, text=True, **dict(POOL_3D, **settings))

    for shaped in (False, True):
        error("another volume", shapes=[(1, 5, 4, 4, 2), pooled, volume], shaped=shaped)
        error("maxima of four axes", shapes=[volume, pooled[1:], volume], shaped=shaped)
        error("a gradient of four axes", shapes=[volume, pooled, volume[1:]], shaped=shaped)
    error("a volume of four axes", shapes=[volume[1:], pooled, volume])
    error("nothing", shapes=[(0, 4, 4, 4, 2), pooled, volume])
    error("a window over channels", ksize=[1, 2, 2, 2, 3])
    error("no window", ksize=[1, 0, 2, 2, 1])
    error("no stride", strides=[1, 0, 2, 2, 1])
    error("six strides", strides=[1, 2, 2, 2, 1, 1])
    error("six sizes", ksize=[1, 2, 2, 2, 1, 1])
    error("channels first", data_format="NCDHW")


@cases("MaxPool3D", "MaxPool3DGrad", only=plain)
def six_numbers(g):
    if is_again(g):
        return
    shapes = [(1, 4, 4, 4, 2), (1, 2, 2, 2, 2), (1, 2, 2, 2, 2)]
    inputs = [g.values(*shape) for shape in shapes[:3 if g.op.endswith("Grad") else 1]]
    for name in ("ksize", "strides"):
        g.error(inputs, f"six {name}", text=True, **dict(POOL_3D, **{name: [1, 2, 2, 2, 1, 1]}))


# --- Convolutions. ---
@cases("Conv2D", only=plain)
def convolutions(g):
    def error(note, image=(1, 5, 5, 2), filter=(3, 3, 2, 4), **settings):
        g.error([g.values(*image), g.values(*filter)], note, text=True,
                **dict(dict(strides=[1, 1, 1, 1], padding="SAME"), **settings))

    first = dict(image=(1, 2, 5, 5), data_format="NCHW")
    error("an image of three axes", image=(5, 5, 2))
    error("a filter of three axes", filter=(3, 2, 4))
    error("a filter without depth", filter=(3, 3, 0, 4))
    error("channels first, strides of batches", strides=[2, 1, 1, 1], **first)
    error("channels first, dilated channels", dilations=[1, 2, 1, 1], **first)
    error("channels first, another depth", **dict(first, image=(1, 3, 5, 5)))


@cases("Conv2DBackpropInput", "Conv2DBackpropFilter", only=plain)
def gradients_of_convolutions(g):
    def error(note, image=(1, 5, 5, 2), filter=(3, 3, 2, 4), dy=(1, 5, 5, 4), **settings):
        of_input = g.op == "Conv2DBackpropInput"
        inputs = [list(image), g.values(*filter)] if of_input else [g.values(*image), list(filter)]
        g.error(inputs + [g.values(*dy)], note, text=True, **dict(dict(strides=[1, 1, 1, 1], padding="SAME"), **settings))

    error("an image of five axes", image=(1, 5, 5, 2, 1))
    error("a filter of three axes", filter=(3, 3, 2))
    error("a gradient of three axes", dy=(5, 5, 4))
    error("a filter without depth", filter=(3, 3, 0, 4))
    error("an image without depth", image=(1, 5, 5, 0))
    error("three groups", image=(1, 5, 5, 6))
    error("two groups", image=(1, 5, 5, 4))
    error("no dilation", dilations=[1, 0, 1, 1])
    error("channels first and five strides", data_format="NCHW", strides=[1, 1, 1, 1, 1])
    error("a padding that is too large", padding="EXPLICIT", explicit_paddings=[0, 0, BIG, 1, 1, 1, 0, 0])
    error("a stride that is too large", strides=[1, BIG, 1, 1])
    # What is looked at first.
    error("a negative stride and five dilations", strides=[1, 1, -1, 1], dilations=[1] * 5)
    error("no paddings and three dilations", padding="EXPLICIT", dilations=[1] * 3)
    error("no paddings and dilated batches", padding="EXPLICIT", dilations=[2, 1, 1, 1])
    if g.op == "Conv2DBackpropInput":
        error("a filter of two axes and a gradient of three", filter=(3, 3), dy=(1, 3, 3), shaped=True)


@cases("DepthwiseConv2dNative", only=plain)
def depthwise_convolutions(g):
    def error(note, image=(1, 5, 5, 2), filter=(3, 3, 2, 2), **settings):
        g.error([g.values(*image), g.values(*filter)], note, text=True,
                **dict(dict(strides=[1, 1, 1, 1], padding="SAME"), **settings))

    first = dict(image=(1, 2, 5, 5), data_format="NCHW")
    error("an image of three axes", image=(5, 5, 2))
    error("dilated batches", dilations=[2, 1, 1, 1])
    error("a negative dilation", dilations=[1, 1, 1, -1])
    error("three dilations", dilations=[1, 1, 1])
    error("a dilation that is too large", dilations=[1, BIG, 1, 1])
    error("a dilated filter", dilations=[1, 2, 2, 1])
    error("channels first, strides of channels", strides=[1, 2, 1, 1], **first)
    error("channels first, another depth", **dict(first, image=(1, 3, 5, 5)))
    error("a filter of three axes and three strides", filter=(3, 3, 2), strides=[1] * 3, shaped=True)


@cases("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter", only=plain)
def gradients_of_depthwise_convolutions(g):
    def error(note, image=(1, 5, 5, 2), filter=(3, 3, 2, 2), dy=(1, 5, 5, 4), **settings):
        inputs = [list(image), g.values(*filter)] if g.op in BACKPROP_OF_INPUT else [g.values(*image), list(filter)]
        g.error(inputs + [g.values(*dy)], note, text=True, **dict(dict(strides=[1, 1, 1, 1], padding="SAME"), **settings))

    if g.op in BACKPROP_OF_INPUT:
        error("a negative size", image=(1, -2, 5, 2))
        error("too many rows", image=(1, BIG - 1, 5, 2))
        error("a filter of three axes", filter=(3, 3, 2))
    else:
        error("a negative size", filter=(3, 3, -2, 2))
        error("an image of three axes", image=(5, 5, 2))
    error("a filter without depth", filter=(3, 3, 0, 2))
    error("no stride", strides=[1, 0, 1, 1])
    for dilations in ([1] * 3, [1, 0, 1, 1], [2, 1, 1, 1]):
        error(f"another depth and dilations {dilations}", image=(1, 5, 5, 3), dilations=dilations)
        error(f"a gradient of three axes and dilations {dilations}", dy=(1, 5, 5), dilations=dilations)
    error("no paddings and three dilations", padding="EXPLICIT", dilations=[1] * 3)
    error("a padding that is too large", padding="EXPLICIT", explicit_paddings=[0, 0, BIG, 1, 1, 1, 0, 0])
    inputs = [[1, 5, 5, 2], g.values(3, 3, 2, 2)] if g.op in BACKPROP_OF_INPUT else [g.values(1, 5, 5, 2), [3, 3, 2, 2]]
    g.edge(inputs + [g.values(1, 5, 5, 4)], "dilations that make no sense", strides=[1, 1, 1, 1], padding="SAME",
           dilations=[1, 1, 1, -1])


@cases("Conv3D", only=plain)
def convolutions_3d(g):
    def error(note, volume=(1, 4, 4, 4, 2), filter=(2, 2, 2, 2, 3), shaped=False, **settings):
        g.error([g.values(*volume), g.values(*filter)], note, shaped=shaped, text=True,
                **dict(dict(strides=[1] * 5, padding="VALID"), **settings))

    error("a filter without depth", filter=(2, 2, 2, 0, 3))
    error("a filter without depth, static", filter=(2, 2, 2, 0, 3), shaped=True)
    error("three groups", volume=(1, 4, 4, 4, 6))
    error("six strides", strides=[1] * 6)
    error("no dilations", dilations=[])
    error("dilated beyond the volume", dilations=[1, 1, 9, 1, 1])
    error("channels first and another depth", volume=(1, 3, 4, 4, 4), data_format="NCDHW")
    error("channels that make no groups", data_format="NCDHW", shaped=True)


@cases("Dilation2DBackpropInput", "Dilation2DBackpropFilter", only=plain)
def gradients_of_dilations(g):
    inputs = [g.values(1, 5, 5, 2), g.values(2, 2, 2), g.values(1, 4, 4, 2)]
    right = dict(strides=[1] * 4, rates=[1] * 4, padding="VALID")
    for name, value in (("strides", [1] * 5), ("rates", [1] * 5), ("rates", [1, 0, 1, 1])):
        g.error(inputs, f"{name} {value}", text=True, **dict(right, **{name: value}))
    g.edge(inputs[:2] + [g.values(1, 5, 5, 2)], "cells at one place", strides=[1] * 4, rates=[1, 0, 1, 1], padding="SAME")


# --- Normalization. ---
@cases("FusedBatchNormV3", only=of_floats)
def batch_norm(g):
    if is_again(g):
        return
    def error(note, image=(2, 3, 3, 2), vectors=((2,),) * 4, shaped=False, **settings):
        g.error([g.values(*image)] + [g.values(*shape) for shape in vectors], note, shaped=shaped, text=True, **settings)

    error("an image of three axes", image=(3, 3, 2))
    error("another depth of five axes", image=(2, 3, 3, 2, 1))
    error("a matrix of variances and fewer offsets", vectors=[(2,), (1,), (2,), (1, 2)])
    error("fewer means to average with", vectors=[(2,), (2,), (1,), (2,)], shaped=True, exponential_avg_factor=0.5)


@cases("FusedBatchNormGradV3", only=of_floats)
def batch_norm_gradient(g):
    if is_again(g):
        return
    def error(note, dy=(2, 3, 3, 2), image=(2, 3, 3, 2), vectors=((2,),) * 4):
        g.error([g.values(*dy), g.values(*image)] + [g.values(*shape) for shape in vectors], note, text=True)

    error("a gradient of three axes", dy=(3, 3, 2))
    error("a gradient of five axes", dy=(2, 3, 3, 2, 1))
    error("a matrix of means and another gradient", dy=(1, 3, 3, 2), vectors=[(2,), (1, 2), (2,), (2,)])
    error("a matrix of variances", vectors=[(2,), (2,), (1, 2), (2,)])


@cases("LRN", "LRNGrad", only=plain)
def response_normalization(g):
    inputs = [g.values(1, 2, 2, 6)] * (3 if g.op == "LRNGrad" else 1)
    for radius in (-1, BIG - 1):
        g.error(inputs, f"depth_radius {radius}", text=True, depth_radius=radius)
    if g.op == "LRNGrad":
        g.error([g.values(2, 2, 2, 6)] + inputs[1:], "another gradient", text=True)


@cases("BiasAdd", only=plain)
def bias(g):
    g.error([g.values(2, 4, 3, 3), g.values(3)], "channels first", text=True, data_format="NCHW")
