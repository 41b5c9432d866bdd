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


@cases("MaxPool3D", "AvgPool3D", only=plain)
def windows_3d(g):
    right = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")
    for ksize in ([0, 2, 2, 2, 1], [1, 2, 2, 2, 0], [1, BIG, 2, 2, 1]):
        g.error([g.values(1, 4, 4, 4, 2)], f"ksize {ksize}", **dict(right, ksize=ksize))


@cases("Dilation2D", only=plain)
def dilation(g):
    right = dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
    for name in ("strides", "rates"):
        g.refused([g.values(1, 4, 5, 2), g.values(2, 3, 2)], f"{name} that are too large", **dict(right, **{name: [1, BIG, 1, 1]}))


@cases("ExtractImagePatches", only=plain)
def patches(g):
    right = dict(ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
    for name in ("ksizes", "strides", "rates"):
        g.refused([g.values(1, 4, 4, 2)], f"{name} that are too large", **dict(right, **{name: [1, BIG, 1, 1]}))
    g.error([g.values(1, 4, 4, 2)], "no stride", shaped=True, text=True, **dict(right, strides=[1, 0, 1, 1]))
