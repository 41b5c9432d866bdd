"""Ops that shape, cut, join and move data."""

import numpy as np

import compare
import element_types as et
from cases import UNKNOWN, Typed, cases

EXACT = compare.EXACT


@cases("Const", tolerance=EXACT)
def const(g):
    def value(array):
        return {"value": (g.type, et.carrier(array, g.type))}

    g.normal([], **value(g.values(2, 3)))
    g.normal([], "scalar", **value(g.values()))
    g.empty([], **value(g.values(0, 3)))
    g.edge([], "special values", **value(g.special()))
    other = et.INT32 if g.type != et.INT32 else et.FLOAT
    g.error([], "value of another type", value=(other, np.zeros(2, et.CARRIERS[other])))


@cases("Placeholder", "PlaceholderV2", tolerance=EXACT)
def placeholder(g):
    def fed(values):
        def nodes(b, case):
            name = b.node(g.op, name="op", dtype=g.type, shape=UNKNOWN)
            b.feeds.append((name, g.type, et.carrier(values, g.type)))
            return [([f"{name}:0"], [])]
        return nodes

    g.normal([], nodes=fed(g.values(2, 3)))
    g.empty([], nodes=fed(g.values(0, 3)))
    g.edge([], nodes=fed(g.special()))
    g.error([], "not fed", shape=[2, 3])


@cases("PlaceholderWithDefault", tolerance=EXACT, gradient=True)
def placeholder_with_default(g):
    g.normal([g.values(2, 3)], shape=[2, 3])
    g.empty([g.values(0, 3)], shape=[-1, 3])
    g.edge([g.special()], "special values", shape=UNKNOWN)
    g.type_error([g.values(2)], shape=[2])


@cases("IdentityN", tolerance=EXACT)
def identity_n(g):
    both = {"T": [et.FLOAT, et.INT32]}
    g.normal([g.values(2, 3, dtype=et.FLOAT), g.values(3, dtype=et.INT32)], **both)
    g.empty([g.values(0), g.values(0, 2)], **both)
    g.edge([g.special(dtype=et.FLOAT), g.special(dtype=et.INT32)], **both)
    g.error([Typed(et.STRING, [b"x"]), g.values(3)], **both)


@cases("NoOp", "ControlTrigger")
def no_op(g):
    g.normal([])
    g.empty([], "again")
    g.edge([], "after another", nodes=lambda b, case: [([], [b.node(g.op, ["^" + b.node("NoOp")])])])
    g.error([Typed(et.FLOAT, [1.0])], "an input")


@cases("PreventGradient", tolerance=EXACT, gradient=True)
def prevent_gradient(g):
    g.normal([g.values(2, 3)])
    g.empty([g.values(0, 3)])
    g.edge([g.special()])
    g.type_error([g.values(2)])


@cases("Fill", tolerance=EXACT, gradient=True)
def fill(g):
    value = g.values(dtype=g.types["T"])
    g.normal([[2, 3], value])
    g.normal([np.zeros(0), value], "scalar")
    g.empty([[2, 0], value])
    g.edge([[3], g.special(dtype=g.types["T"])[0]], "special value")
    g.error([[-1, 2], value], "negative size")
    g.error([[[1, 2]], value], "dims of rank 2")
    g.error([[2], [value, value]], "vector value")
    if g.types["index_type"] == et.INT64:
        g.error([[1 << 40, 1 << 40], value], "overflowing size")


@cases("Shape", "Rank", "Size", tolerance=EXACT)
def shape_of(g):
    g.normal([g.values(2, 3, dtype=g.types["T"])])
    g.empty([g.values(2, 0, 3, dtype=g.types["T"])])
    g.edge([g.values(dtype=g.types["T"])], "scalar")
    g.type_error([g.values(2, dtype=g.types["T"])])


@cases("ShapeN", tolerance=EXACT)
def shape_n(g):
    kind = g.types["T"]
    g.normal([g.values(2, 3, dtype=kind), g.values(dtype=kind)], N=2)
    g.empty([g.values(0, dtype=kind)], N=1)
    g.edge([g.values(1, 1, 1, 1, 1, 1, 1, dtype=kind)], N=1)
    g.type_error([g.values(2, dtype=kind)], N=1)


@cases("Reshape", tolerance=EXACT, gradient=True)
def reshape(g):
    x = g.values(2, 6, dtype=g.types["T"])
    g.normal([x, [3, 4]])
    g.normal([x, [-1, 2]], "unknown size")
    g.empty([g.values(0, 3, dtype=g.types["T"]), [3, 0]])
    g.empty([g.values(0, 3, dtype=g.types["T"]), [0, -1]], "unknown size")
    g.edge([g.values(1, dtype=g.types["T"]), np.zeros(0)], "to a scalar")
    g.error([x, [5, 2]], "count")
    g.error([x, [-1, 5]], "no multiple")
    g.error([x, [-1, -1]], "two unknown")
    g.error([x, [-3, 4]], "negative")
    g.error([x, [[3, 4]]], "shape of rank 2")
    g.edge([g.values(0, 3, dtype=g.types["T"]), [-1, 0]], "unknown times zero")


@cases("ExpandDims", tolerance=EXACT, gradient=True)
def expand_dims(g):
    x = g.values(2, 3, dtype=g.types["T"])
    g.normal([x, 1])
    g.normal([x, -1], "last")
    g.empty([g.values(0, 3, dtype=g.types["T"]), 0])
    g.edge([g.values(dtype=g.types["T"]), 0], "scalar")
    g.edge([x, [1]], "axis in a vector")
    g.error([x, 3], "axis")
    g.error([x, -4], "negative axis")
    g.error([x, [0, 1]], "two axes")


@cases("Squeeze", tolerance=EXACT, gradient=True)
def squeeze(g):
    g.normal([g.values(1, 3, 1)])
    g.normal([g.values(1, 3, 1)], "one axis", squeeze_dims=[-1])
    g.empty([g.values(1, 0)])
    g.edge([g.values(1, 1)], "to a scalar")
    g.error([g.values(1, 3)], "size", squeeze_dims=[1])
    g.error([g.values(1, 3)], "axis", squeeze_dims=[2])


@cases("EnsureShape", tolerance=EXACT, gradient=True)
def ensure_shape(g):
    g.normal([g.values(2, 3)], shape=[-1, 3])
    g.empty([g.values(0, 3)], shape=[0, 3])
    g.edge([g.values()], "scalar", shape=UNKNOWN)
    g.error([g.values(2, 3)], shape=[2, 4])


@cases("Pack", tolerance=EXACT, gradient=True)
def pack(g):
    g.normal([g.values(2, 3), g.values(2, 3)], N=2, axis=1)
    g.normal([g.values(2, 3), g.values(2, 3), g.values(2, 3)], "last", N=3, axis=-1)
    g.empty([g.values(0, 3)] * 2, N=2, axis=1)
    g.edge([g.values(), g.values()], "scalars", N=2)
    g.edge([g.values(2)], "one", N=1)
    g.error([g.values(2, 3), g.values(3, 2)], "shapes", N=2)
    g.error([g.values(2, 3)] * 2, "axis", N=2, axis=3)


@cases("Unpack", tolerance=EXACT, gradient=True)
def unpack(g):
    g.normal([g.values(2, 3)], num=3, axis=1)
    g.normal([g.values(2, 3)], "first", num=2)
    g.empty([g.values(0, 3)], num=3, axis=1)
    g.edge([g.values(3)], "scalars", num=3)
    g.error([g.values(2, 3)], "count", num=4, axis=1)
    g.error([g.values(2, 3)], "axis", num=2, axis=2)
    g.error([g.values()], "scalar", num=1)


@cases("ParallelConcat", tolerance=EXACT, shaped=True)
def parallel_concat(g):
    g.normal([g.values(1, 3), g.values(1, 3)], N=2, shape=[2, 3], sliced=False)
    g.empty([g.values(1, 0), g.values(1, 0)], N=2, shape=[2, 0])
    g.edge([g.special(1, 15), g.values(1, 15)], "special values", N=2, shape=[2, 15])
    g.error([g.values(1, 3), g.values(1, 4)], "shapes", N=2, shape=[2, 3])


@cases("ConcatV2", "Concat", tolerance=EXACT, gradient=True)
def concat(g):
    def args(axis, *values, **more):
        return [axis, *values] if g.op == "Concat" else [*values, axis]

    kind = g.types["T"]
    a, b = g.values(2, 3, dtype=kind), g.values(2, 2, dtype=kind)
    g.normal(args(1, a, b), N=2)
    g.normal(args(0, a, a, a), "first", N=3)
    g.normal(args(-2, g.values(2, 3, 2, dtype=kind), g.values(2, 1, 2, dtype=kind)), "negative axis", N=2)
    g.empty(args(0, g.values(0, 3, dtype=kind), a), N=2)
    g.empty(args(0, g.values(0, 3, dtype=kind), g.values(0, 3, dtype=kind)), "all", N=2)
    g.edge(args(0, g.special(dtype=kind), g.special(dtype=kind)), "special values", N=2)
    g.edge(args([1], a, b), "axis a vector of one", N=2)
    g.error(args(0, a, b), "shapes", N=2)
    g.error(args([0, 1], a, b), "two axes", N=2)
    g.error(args(2, a, a), "axis", N=2)
    g.error(args(0, a, g.values(3, dtype=kind)), "ranks", N=2)
    g.error(args([0, 1], a, a), "axis no scalar", N=2)
    g.error(args(0, g.values(dtype=kind), g.values(dtype=kind)), "scalars", N=2)


@cases("ConcatOffset", tolerance=EXACT)
def concat_offset(g):
    g.normal([1, [2, 3], [2, 4]], N=2)
    g.empty([0, [0, 3], [2, 3]], N=2)
    g.edge([-1, [2, 3], [2, 4]], "negative axis", N=2)
    g.error([0, [2, 3], [2, 4]], "shapes", N=2)
    g.error([2, [2, 3], [2, 3]], "axis", N=2)
    g.error([0, [2, 3], [2, 3, 4]], "ranks", N=2)


@cases("Split", tolerance=EXACT, gradient=True)
def split(g):
    g.normal([1, g.values(2, 6)], num_split=3)
    g.normal([0, g.values(4, 3)], "first", num_split=2)
    g.normal([-1, g.values(2, 2, 6)], "last", num_split=2)
    g.empty([0, g.values(0, 3)], num_split=2)
    g.edge([0, g.special(30)], "special values", num_split=5)
    g.error([1, g.values(2, 5)], "no multiple", num_split=3)
    g.error([2, g.values(2, 6)], "axis", num_split=2)
    g.error([[0, 1], g.values(2, 6)], "axis no scalar", num_split=2)
    g.error([[0], g.values(2, 6)], "axis a vector of one", num_split=2)


@cases("SplitV", tolerance=EXACT, gradient=True)
def split_v(g):
    kind = g.types["T"]
    g.normal([g.values(2, 6, dtype=kind), [1, 3, 2], 1], num_split=3)
    g.normal([g.values(6, 2, dtype=kind), [1, -1], 0], "rest", num_split=2)
    g.empty([g.values(0, 3, dtype=kind), [0, 0], 0], num_split=2)
    g.edge([g.special(30, dtype=kind), [0, 30], 0], "an empty part", num_split=2)
    g.error([g.values(2, 6, dtype=kind), [1, 3], 1], "sum", num_split=2)
    g.error([g.values(2, 6, dtype=kind), [-1, -1], 1], "two unknown", num_split=2)
    g.error([g.values(2, 6, dtype=kind), [2, 4], 2], "axis", num_split=2)
    g.error([g.values(2, 6, dtype=kind), [7, -1], 1], "too large", num_split=2)


@cases("Slice", tolerance=EXACT, gradient=True)
def slice_(g):
    kind = g.types["T"]
    x = g.values(3, 4, 5, dtype=kind)
    g.normal([x, [1, 0, 2], [2, 3, 2]])
    g.normal([x, [0, 1, 0], [-1, 2, -1]], "to the end")
    g.normal([x, [1, 0, 0], [2, -1, -1]], "rows")
    g.empty([x, [1, 1, 1], [0, 2, 2]])
    g.edge([g.special(30, dtype=kind), [3], [20]], "special values")
    g.edge([g.values(dtype=kind), np.zeros(0), np.zeros(0)], "scalar")
    g.error([x, [1, 0, 0], [3, 1, 1]], "size")
    g.error([x, [-1, 0, 0], [1, 1, 1]], "begin")
    g.error([x, [0, 0], [1, 1]], "rank")
    g.error([x, [0, 0, 0], [-2, 1, 1]], "negative size")


MASKS = [
    dict(note="plain", begin=[0, 1, 1], end=[3, 4, 4], strides=[1, 1, 2]),
    dict(note="negative strides", begin=[-1, -1, 4], end=[-4, 0, 0], strides=[-1, -2, -1]),
    dict(note="begin and end masks", begin=[1, 1, 1], end=[2, 2, 2], strides=[1, 1, 1], begin_mask=5, end_mask=3),
    dict(note="shrink", begin=[1, -1, 0], end=[2, 0, 5], strides=[1, 1, 1], shrink_axis_mask=3),
    dict(note="ellipsis", begin=[0, 1], end=[0, 3], strides=[1, 1], ellipsis_mask=1),
    dict(note="new axis", begin=[0, 1, 0], end=[0, 2, 2], strides=[1, 1, 1], new_axis_mask=1),
    dict(note="beyond", begin=[1, -9, 3], end=[99, 99, -99], strides=[1, 1, -1]),
]


@cases("StridedSlice", tolerance=EXACT, gradient=True)
def strided_slice(g):
    kind = g.types["T"]
    x = g.values(3, 4, 5, dtype=kind)
    for m in MASKS:
        masks = {k: v for k, v in m.items() if k.endswith("_mask")}
        g.normal([x, m["begin"], m["end"], m["strides"]], m["note"], **masks)
    g.empty([x, [2, 0, 0], [1, 4, 5], [1, 1, 1]])
    g.empty([g.values(0, 4, dtype=kind), [0], [5], [1]], "of nothing")
    g.edge([g.special(30, dtype=kind), [29], [0], [-3]], "special values")
    g.error([x, [0, 0, 0], [1, 1, 1], [1, 0, 1]], "stride 0")
    g.error([x, [3], [4], [1]], "shrink", shrink_axis_mask=1)
    g.error([x, [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]], "rank")
    g.error([x, [0, 0], [1, 1], [1, 1]], "two ellipses", ellipsis_mask=3)
    g.error([x, [0, 0], [1], [1, 1]], "lengths")
    g.error([x, [[0]], [[1]], [[1]]], "begin of rank 2")


@cases("StridedSliceGrad", tolerance=EXACT, gradient=True)
def strided_slice_grad(g):
    kind = g.types["T"]
    for m, shape in zip(MASKS[:4], [(3, 3, 2), (3, 2, 4), (3, 3, 2), (5,)]):
        masks = {k: v for k, v in m.items() if k.endswith("_mask")}
        g.normal([[3, 4, 5], m["begin"], m["end"], m["strides"], g.values(*shape, dtype=kind)], m["note"], **masks)
    g.empty([[3, 4], [1, 0], [1, 4], [1, 1], g.values(0, 4, dtype=kind)])
    g.edge([[30], [0], [30], [2], g.special(15, dtype=kind)], "special values")
    g.error([[3, 4], [0, 0], [2, 2], [1, 1], g.values(2, 3, dtype=kind)], "shape of the gradient")
    g.error([[3, 4], [0, 0], [2, 2], [1, 0], g.values(2, 2, dtype=kind)], "stride 0")


@cases("Transpose", "ConjugateTranspose", tolerance=EXACT, gradient=True)
def transpose(g):
    kind = g.types["T"]
    g.normal([g.values(3, 4, dtype=kind), [1, 0]])
    g.normal([g.values(2, 3, 4, dtype=kind), [2, 0, 1]], "three axes")
    g.normal([g.values(2, 3, 4, dtype=kind), [0, 2, 1]], "batch")
    g.normal([g.values(2, 3, 1, 2, 3, dtype=kind), [4, 2, 0, 3, 1]], "five axes", gradient=False, sliced=False)
    g.normal([g.values(2, 3, dtype=kind), [0, 1]], "same order", gradient=False)
    g.empty([g.values(0, 4, dtype=kind), [1, 0]])
    if g.op == "Transpose":  # TensorFlow dies of the other on a scalar
        g.edge([g.values(dtype=kind), np.zeros(0)], "scalar")
    g.edge([g.special(6, 5, dtype=kind), [1, 0]], "special values")
    g.error([g.values(3, 4, dtype=kind), [0, 0]], "no permutation")
    g.error([g.values(3, 4, dtype=kind), [0, 2]], "axis")
    g.error([g.values(3, 4, dtype=kind), [0]], "rank")
    g.error([g.values(3, 4, dtype=kind), [-3, 0]], "negative axis")


@cases("InvertPermutation", tolerance=EXACT)
def invert_permutation(g):
    g.normal([[2, 0, 3, 1]])
    g.empty([np.zeros(0)])
    g.edge([[0]], "one")
    g.error([[0, 0, 1]], "twice")
    g.error([[0, 3, 1]], "beyond")
    g.error([[[0, 1]]], "rank 2")
    g.error([[0, -1]], "negative")


@cases("Tile", tolerance=EXACT, gradient=True)
def tile(g):
    kind = g.types["T"]
    g.normal([g.values(2, 3, dtype=kind), [2, 3]])
    g.normal([g.values(2, 1, 3, dtype=kind), [1, 4, 1]], "middle")
    g.empty([g.values(2, 3, dtype=kind), [2, 0]], "multiple 0")
    g.empty([g.values(0, 3, dtype=kind), [2, 2]])
    g.edge([g.values(dtype=kind), np.zeros(0)], "scalar")
    g.edge([g.special(15, dtype=kind), [300]], "special values")
    g.error([g.values(2, 3, dtype=kind), [2]], "length")
    g.error([g.values(2, 3, dtype=kind), [2, -1]], "negative")
    g.error([g.values(2, 3, dtype=kind), [[2, 1]]], "rank")


@cases("Pad", "PadV2", tolerance=EXACT, gradient=True)
def pad(g):
    kind = g.types["T"]
    more = [g.values(dtype=kind)] if g.op == "PadV2" else []
    g.normal([g.values(2, 3, dtype=kind), [[1, 0], [2, 1]], *more])
    g.normal([g.values(2, 3, 2, dtype=kind), [[0, 0], [0, 2], [1, 0]], *more], "three axes")
    g.empty([g.values(0, 3, dtype=kind), [[0, 0], [1, 1]], *more])
    g.empty([g.values(0, 3, dtype=kind), [[1, 1], [0, 0]], *more], "filled")
    g.edge([g.special(15, dtype=kind), [[1, 2]], *more], "special values")
    g.edge([g.values(dtype=kind), np.zeros((0, 2)), *more], "scalar")
    g.error([g.values(2, 3, dtype=kind), [[1, 0]], *more], "rows")
    g.error([g.values(2, 3, dtype=kind), [[1, 0], [-1, 1]], *more], "negative")
    g.error([g.values(2, 3, dtype=kind), [1, 0], *more], "rank")


@cases("MirrorPad", tolerance=EXACT, gradient=True)
def mirror_pad(g):
    kind = g.types["T"]
    for mode in ("REFLECT", "SYMMETRIC"):
        g.normal([g.values(3, 4, dtype=kind), [[1, 2], [2, 1]]], mode, mode=mode)
        g.edge([g.special(15, dtype=kind), [[3, 5]]], f"{mode} special values", mode=mode)
    g.empty([g.values(0, 3, dtype=kind), [[0, 0], [1, 1]]], mode="SYMMETRIC")
    g.error([g.values(3, 4, dtype=kind), [[3, 0], [0, 0]]], "too much", mode="REFLECT")
    g.error([g.values(3, 4, dtype=kind), [[4, 0], [0, 0]]], "too much, symmetric", mode="SYMMETRIC")
    g.error([g.values(3, 4, dtype=kind), [[-1, 0], [0, 0]]], "negative", mode="SYMMETRIC")


@cases("MirrorPadGrad", tolerance=compare.SUM)
def mirror_pad_grad(g):
    kind = g.types["T"]
    for mode in ("REFLECT", "SYMMETRIC"):
        g.normal([g.values(6, 7, dtype=kind), [[1, 2], [2, 1]]], mode, mode=mode)
    g.empty([g.values(0, 5, dtype=kind), [[0, 0], [1, 1]]], mode="SYMMETRIC")
    g.edge([g.values(5, dtype=kind), [[0, 0]]], "nothing padded", mode="REFLECT")
    g.error([g.values(3, 4, dtype=kind), [[2, 2], [0, 0]]], "too much", mode="REFLECT")


@cases("BroadcastTo", tolerance=EXACT, gradient=True)
def broadcast_to(g):
    kind = g.types["T"]
    g.normal([g.values(3, 1, dtype=kind), [2, 3, 4]])
    g.empty([g.values(1, 3, dtype=kind), [0, 3]])
    g.edge([g.values(dtype=kind), [3, 2]], "scalar")
    g.edge([g.special(15, dtype=kind), [200, 15]], "special values")
    g.error([g.values(3, 2, dtype=kind), [3, 4]], "shapes")
    g.error([g.values(3, 2, dtype=kind), [2]], "rank")
    g.error([g.values(3, dtype=kind), [-1, 3]], "negative")


@cases("BroadcastArgs", tolerance=EXACT)
def broadcast_args(g):
    g.normal([[2, 1, 3], [4, 1]])
    g.empty([np.zeros(0), [2, 3]])
    g.edge([[0, 1], [1, 5]], "size 0")
    g.error([[2, 3], [3, 3]])


@cases("BroadcastGradientArgs", tolerance=EXACT)
def broadcast_gradient_args(g):
    g.normal([[2, 1, 3], [4, 1]])
    g.normal([[2, 3], [2, 3]], "same")
    g.empty([np.zeros(0), [2, 3]])
    g.edge([[1, 1], [1]], "ones")
    g.error([[2, 3], [3, 3]])
    g.error([[[2, 3]], [3, 3]], "rank")


@cases("ReverseV2", tolerance=EXACT, gradient=True)
def reverse_v2(g):
    kind = g.types["T"]
    g.normal([g.values(3, 4, dtype=kind), [1]])
    g.normal([g.values(2, 3, 4, dtype=kind), [0, -1]], "two axes")
    g.empty([g.values(0, 3, dtype=kind), [0]])
    g.edge([g.values(3, 4, dtype=kind), np.zeros(0)], "no axis")
    g.error([g.values(3, 4, dtype=kind), [2]], "axis")
    g.error([g.values(3, 4, dtype=kind), [1, -1]], "twice")


@cases("Reverse", tolerance=EXACT, gradient=True)
def reverse(g):
    g.normal([g.values(3, 4), [False, True]])
    g.empty([g.values(3, 0), [True, True]])
    g.edge([g.special(5, 3), [True, False]], "special values")
    g.error([g.values(3, 4), [True]], "length")


@cases("ReverseSequence", tolerance=EXACT, gradient=True)
def reverse_sequence(g):
    kind = g.types["T"]
    g.normal([g.values(3, 5, dtype=kind), [2, 5, 0]], seq_dim=1, batch_dim=0)
    g.normal([g.values(4, 3, 2, dtype=kind), [1, 4, 2]], "first", seq_dim=0, batch_dim=1)
    g.empty([g.values(0, 5, dtype=kind), np.zeros(0)], seq_dim=1)
    g.edge([g.special(3, 5, dtype=kind), [5, 5, 5]], "special values", seq_dim=1)
    g.error([g.values(3, 5, dtype=kind), [2, 6, 0]], "too long", seq_dim=1)
    g.error([g.values(3, 5, dtype=kind), [2, 5]], "count", seq_dim=1)
    g.error([g.values(3, 5, dtype=kind), [2, 5, -1]], "negative", seq_dim=1)
    g.error([g.values(3, 5, dtype=kind), [2, 5, 1]], "same axis", seq_dim=0, batch_dim=0)


@cases("Roll", tolerance=EXACT, gradient=True)
def roll(g):
    kind = g.types["T"]
    g.normal([g.values(3, 4, dtype=kind), [1, -2], [0, 1]])
    g.normal([g.values(5, dtype=kind), 7, 0], "scalar shift")
    g.empty([g.values(0, 3, dtype=kind), [1], [0]])
    g.edge([g.special(15, dtype=kind), [-31], [0]], "special values")
    g.error([g.values(3, 4, dtype=kind), [1], [2]], "axis")
    g.error([g.values(3, 4, dtype=kind), [1, 2], [0]], "lengths")


@cases("Range")
def range_(g):
    tolerance = compare.SUM if g.type in et.FLOATS else EXACT
    g.normal([0, 10, 3], tolerance=tolerance)
    if g.type not in et.UNSIGNED:
        g.normal([10, 0, -3], "down", tolerance=tolerance)
    g.empty([5, 5, 1], tolerance=tolerance)
    g.edge([5, 6, 1], "one", tolerance=tolerance)
    if g.type in et.FLOATS:
        g.edge([0, 1, 0.25], "fractions", tolerance=tolerance)
    g.error([0, 10, 0], "delta 0")
    g.error([10, 0, 1], "direction")
    g.error([[0, 1], 10, 1], "no scalar")


@cases("LinSpace", tolerance=compare.SUM)
def lin_space(g):
    g.normal([1, 3, 5])
    g.empty([1, 1, 2], "same ends")
    g.edge([1, 3, 1], "one")
    g.edge([3, -1, 9], "down")
    g.error([1, 3, 0], "count 0")
    g.error([[1, 2], 3, 4], "no scalar")


@cases("OneHot", tolerance=EXACT)
def one_hot(g):
    kind = g.types["T"]
    on, off = g.special(dtype=kind)[-1], g.special(dtype=kind)[0]
    g.normal([[0, 2, 1], 3, on, off])
    g.normal([[[0, 2], [1, 5]], 3, on, off], "axis 1", axis=1)
    g.normal([[0, 2, 1], 4, on, off], "axis 0", axis=0)
    g.empty([np.zeros(0), 3, on, off])
    g.empty([[1, 2], 0, on, off], "depth 0")
    g.edge([1, 3, on, off], "scalar")
    if g.types["TI"] in et.SIGNED:
        g.edge([[-1, 0, 7], 3, on, off], "out of range")
    g.error([[0, 2, 1], -1, on, off], "negative depth")
    g.error([[0, 2, 1], 3, on, off], "axis", axis=2)
    g.error([[0, 2, 1], [3, 4], on, off], "depth no scalar")
    g.error([[0, 2, 1], 3, [on, on], off], "vector value")


@cases("Where", tolerance=EXACT)
def where(g):
    x = g.values(3, 4, low=0, high=2) if g.type in et.FLOATS + et.COMPLEXES + et.INTEGERS else g.values(3, 4)
    g.normal([np.where(g.values(3, 4, dtype=et.BOOL), x, 0)])
    g.normal([g.values(2, 2, 3, dtype=et.BOOL).astype(int)], "three axes")
    g.empty([g.values(0, 4)])
    g.empty([np.zeros((2, 2))], "nothing found")
    g.edge([g.special()], "special values")
    g.edge([np.ones(())], "scalar")
    g.type_error([g.values(3)])


@cases("Select", tolerance=EXACT, gradient=True)
def select(g):
    g.normal([g.values(3, 4, dtype=et.BOOL), g.values(3, 4), g.values(3, 4)])
    g.normal([g.values(3, dtype=et.BOOL), g.values(3, 4), g.values(3, 4)], "rows")
    g.normal([True, g.values(3, 4), g.values(3, 4)], "scalar")
    g.empty([g.values(0, 4, dtype=et.BOOL), g.values(0, 4), g.values(0, 4)])
    g.edge([g.values(15, dtype=et.BOOL), g.special(15), g.special(15)[::-1]], "special values")
    g.error([g.values(3, 4, dtype=et.BOOL), g.values(3, 4), g.values(4, 3)], "shapes")
    g.error([g.values(2, dtype=et.BOOL), g.values(3, 4), g.values(3, 4)], "rows")
    g.error([g.values(3, 4, dtype=et.BOOL), g.values(3), g.values(3)], "rank of the condition")


@cases("SelectV2", tolerance=EXACT, gradient=True)
def select_v2(g):
    g.normal([g.values(3, 4, dtype=et.BOOL), g.values(3, 4), g.values(3, 4)])
    g.normal([g.values(3, 1, dtype=et.BOOL), g.values(4), g.values()], "broadcast")
    g.normal([g.values(2, 1, 3, dtype=et.BOOL), g.values(4, 1), g.values(4, 3)], "three axes")
    g.empty([g.values(0, 4, dtype=et.BOOL), g.values(4), g.values(0, 4)])
    g.edge([g.values(15, dtype=et.BOOL), g.special(15), g.special(15)[::-1]], "special values")
    g.edge([g.values(200, 1, dtype=et.BOOL), g.special(15), g.values()], "huge broadcast")
    g.error([g.values(3, 4, dtype=et.BOOL), g.values(3, 4), g.values(3, 5)], "shapes")


@cases("Unique", "UniqueWithCounts", tolerance=EXACT)
def unique(g):
    kind = g.types["T"]
    g.normal([g.values(12, dtype=kind, low=0, high=4)] if kind not in et.FLOATS else [[1.0, 2.5, 1.0, -1.0, 2.5]])
    g.empty([g.values(0, dtype=kind)])
    finite = g.special(dtype=kind)
    if kind in et.FLOATS:  # no NaN; TensorFlow tells -0 from 0 in the short types by accident of its hash
        finite = finite[(finite == finite) & (finite != 0)]
    g.edge([np.concatenate([finite, finite])], "special values")
    g.error([g.values(2, 3, dtype=kind)], "rank 2")


@cases("UniqueV2", "UniqueWithCountsV2", tolerance=EXACT)
def unique_v2(g):
    kind = g.types["T"]
    x = np.array(g.values(6, 2, dtype=kind, low=0, high=2))
    g.normal([x, [0]])
    g.normal([x.reshape(-1), np.zeros(0)], "flat")
    g.empty([g.values(0, 2, dtype=kind), [0]])
    g.edge([x, [1]], "columns")
    g.error([x, [2]], "axis")
    g.error([x, [0, 1]], "two axes")


@cases("ListDiff", tolerance=EXACT)
def list_diff(g):
    kind = g.types["T"]
    g.normal([g.values(9, dtype=kind, low=0, high=6), g.values(3, dtype=kind, low=0, high=6)])
    g.empty([g.values(0, dtype=kind), g.values(3, dtype=kind)])
    g.edge([g.values(4, dtype=kind), g.values(0, dtype=kind)], "nothing to take out")
    g.error([g.values(2, 2, dtype=kind), g.values(2, dtype=kind)], "rank")


@cases("DynamicPartition", tolerance=EXACT, gradient=True)
def dynamic_partition(g):
    g.normal([g.values(4, 3), [0, 2, 0, 1]], num_partitions=3)
    g.normal([g.values(2, 3), [[0, 1, 1], [1, 0, 0]]], "matrix", num_partitions=2)
    g.empty([g.values(0, 3), np.zeros(0)], num_partitions=2)
    g.edge([g.values(), 1], "scalar", num_partitions=2)
    g.edge([g.special(15), np.arange(15) % 4], "special values", num_partitions=5)
    g.error([g.values(3), [0, 3, 1]], "partition", num_partitions=3)
    g.error([g.values(3), [0, -1, 1]], "negative", num_partitions=3)
    g.error([g.values(3), [0, 1]], "shapes", num_partitions=3)


@cases("DynamicStitch", "ParallelDynamicStitch", tolerance=EXACT, gradient=True)
def dynamic_stitch(g):
    g.normal([[0, 3], [2, 1], g.values(2, 3), g.values(2, 3)], N=2)
    g.normal([2, [1, 0], g.values(3), g.values(2, 3)], "scalar index", N=2)
    g.empty([np.zeros(0), g.values(0, 3)], N=1)
    g.edge([np.arange(15)[::-1], g.special(15)], "special values", N=1)
    g.error([[0, 1], g.values(3, 2)], "count", N=1)
    g.error([[0, -1], g.values(2, 2)], "negative", N=1)
    g.error([[0, 1], [2, 3], g.values(2, 2), g.values(2, 3)], "rows", N=2)


@cases("MatrixBandPart", "BatchMatrixBandPart", tolerance=EXACT)
def band_part(g):
    kind = g.types["T"]
    g.normal([g.values(4, 5, dtype=kind), 1, 2])
    g.normal([g.values(2, 4, 3, dtype=kind), -1, 0], "batch", sliced=False)
    g.empty([g.values(0, 3, dtype=kind), 0, 0])
    g.edge([g.special(3, 5, dtype=kind), 0, -1], "special values")
    g.error([g.values(3, dtype=kind), 0, 0], "rank")
    g.error([g.values(3, 3, dtype=kind), 5, 0], "lower")
    g.error([g.values(3, 3, dtype=kind), 0, 5], "upper")


@cases("MatrixDiag", "Diag", "BatchMatrixDiag", tolerance=EXACT, gradient=True)
def diag(g):
    g.normal([g.values(3)])
    g.normal([g.values(2, 3)], "two axes")
    g.empty([g.values(0)])
    g.edge([g.special(15)], "special values")
    g.error([g.values()], "scalar")


@cases("MatrixDiagPart", "DiagPart", "BatchMatrixDiagPart", tolerance=EXACT, gradient=True)
def diag_part(g):
    g.normal([g.values(3, 3)])
    g.normal([g.values(2, 3, 2, 3)], "four axes")
    g.empty([g.values(0, 0)])
    g.edge([g.special(3, 3)], "special values")
    g.error([g.values(3)], "vector")


@cases("MatrixSetDiag", "BatchMatrixSetDiag", tolerance=EXACT, gradient=True)
def set_diag(g):
    g.normal([g.values(3, 4), g.values(3)])
    g.normal([g.values(2, 4, 3), g.values(2, 3)], "batch")
    g.empty([g.values(0, 3), g.values(0)])
    g.edge([g.special(3, 3), g.special(3)], "special values")
    g.error([g.values(3, 4), g.values(4)], "length")
    g.error([g.values(3), g.values(3)], "rank")


@cases("SpaceToDepth", tolerance=EXACT, gradient=True)
def space_to_depth(g):
    g.normal([g.values(2, 4, 6, 3)], block_size=2)
    g.empty([g.values(0, 4, 4, 3)], block_size=2)
    g.edge([g.special(1, 6, 3, 2)], "special values", block_size=3)
    g.error([g.values(1, 3, 4, 2)], "height", block_size=2)
    g.error([g.values(4, 4, 2)], "rank", block_size=2)


@cases("DepthToSpace", tolerance=EXACT, gradient=True)
def depth_to_space(g):
    g.normal([g.values(2, 2, 3, 12)], block_size=2)
    g.empty([g.values(0, 2, 2, 4)], block_size=2)
    g.edge([g.special(1, 2, 1, 18)], "special values", block_size=3)
    g.error([g.values(1, 3, 4, 6)], "depth", block_size=2)
    g.error([g.values(4, 4, 4)], "rank", block_size=2)


@cases("SpaceToBatch", tolerance=EXACT)
def space_to_batch(g):
    kind = g.types["T"]
    g.normal([g.values(1, 4, 6, 2, dtype=kind), [[0, 0], [0, 0]]], block_size=2)
    g.normal([g.values(2, 3, 3, 1, dtype=kind), [[1, 0], [0, 1]]], "padded", block_size=2)
    g.empty([g.values(0, 4, 4, 2, dtype=kind), [[0, 0], [0, 0]]], block_size=2)
    g.edge([g.special(1, 2, 2, 3, dtype=kind), [[0, 0], [0, 0]]], "special values", block_size=2)
    g.error([g.values(1, 3, 4, 2, dtype=kind), [[0, 0], [0, 0]]], "size", block_size=2)


@cases("BatchToSpace", tolerance=EXACT)
def batch_to_space(g):
    kind = g.types["T"]
    g.normal([g.values(4, 2, 3, 2, dtype=kind), [[0, 0], [0, 0]]], block_size=2)
    g.normal([g.values(8, 2, 2, 1, dtype=kind), [[1, 0], [0, 1]]], "cropped", block_size=2)
    g.empty([g.values(0, 2, 2, 2, dtype=kind), [[0, 0], [0, 0]]], block_size=2)
    g.edge([g.special(4, 1, 1, 3, dtype=kind), [[0, 0], [0, 0]]], "special values", block_size=2)
    g.error([g.values(3, 2, 2, 2, dtype=kind), [[0, 0], [0, 0]]], "batch", block_size=2)


@cases("SpaceToBatchND", tolerance=EXACT, gradient=True, shaped=True)
def space_to_batch_nd(g):
    kind = g.types["T"]
    g.normal([g.values(1, 4, 6, 2, dtype=kind), [2, 3], [[0, 0], [0, 0]]])
    g.normal([g.values(2, 3, 3, dtype=kind), [2], [[1, 0]]], "padded")
    g.empty([g.values(0, 4, 4, dtype=kind), [2, 2], [[0, 0], [0, 0]]])
    g.edge([g.special(1, 4, dtype=kind), [2], [[0, 0]]], "special values")
    g.error([g.values(1, 3, 4, dtype=kind), [2], [[0, 0]]], "size")
    g.error([g.values(1, 3, 4, dtype=kind), [0], [[0, 0]]], "block 0")
    g.error([g.values(1, 4, dtype=kind), [2], [[-1, 1]]], "negative padding")


@cases("BatchToSpaceND", tolerance=EXACT, gradient=True, shaped=True)
def batch_to_space_nd(g):
    kind = g.types["T"]
    g.normal([g.values(6, 2, 3, 2, dtype=kind), [2, 3], [[0, 0], [0, 0]]])
    g.normal([g.values(4, 3, 3, dtype=kind), [2], [[1, 0]]], "cropped")
    g.empty([g.values(0, 4, 4, dtype=kind), [2, 2], [[0, 0], [0, 0]]])
    g.edge([g.special(2, 4, dtype=kind), [2], [[0, 0]]], "special values")
    g.error([g.values(3, 3, 4, dtype=kind), [2], [[0, 0]]], "batch")
    g.error([g.values(2, 3, 4, dtype=kind), [0], [[0, 0]]], "block 0")
    g.error([g.values(2, 4, dtype=kind), [2], [[-1, 1]]], "negative crop")


@cases("UnravelIndex", tolerance=EXACT)
def unravel_index(g):
    g.normal([[5, 0, 11], [3, 4]])
    g.empty([np.zeros(0), [3, 4]])
    g.edge([7, [3, 4]], "scalar")
    g.error([[12], [3, 4]], "beyond")


@cases("DataFormatDimMap", tolerance=EXACT)
def dim_map(g):
    g.normal([[0, 1, 2, 3]])
    g.empty([np.zeros(0)])
    g.edge([[-1, -4]], "negative")
    g.type_error([[4]])


@cases("DataFormatVecPermute", tolerance=EXACT)
def vec_permute(g):
    g.normal([[7, 4, 9, 3]])
    g.empty([[0, 0, 0, 0]], "zeros")
    g.edge([[[1, 2], [3, 4], [5, 6], [7, 8]]], "pairs")
    g.error([[1, 2, 3]], "length")


@cases("LowerBound", "UpperBound", tolerance=EXACT)
def bounds(g):
    kind = g.types["T"]
    rows = np.sort(g.values(2, 6, dtype=kind), axis=1)
    g.normal([rows, g.values(2, 3, dtype=kind)])
    g.empty([rows, g.values(2, 0, dtype=kind)])
    g.edge([rows, rows], "at the values")
    g.error([rows, g.values(3, 3, dtype=kind)], "rows")


@cases("TileGrad", tolerance=compare.SUM)
def tile_grad(g):
    g.normal([g.values(4, 6), [2, 3]])
    g.empty([g.values(0, 6), [1, 3]])
    g.edge([g.values(), np.zeros(0)], "scalar")
    g.error([g.values(4, 6), [2]], "length")


@cases("SparseToDense", tolerance=EXACT, gradient=True)
def sparse_to_dense(g):
    kind = g.types["T"]
    value = g.values(1, dtype=kind)[0]
    g.normal([[[0, 1], [2, 0]], [3, 2], g.values(2, dtype=kind), value])
    g.normal([[1, 3], [5], g.values(2, dtype=kind), value], "vector")
    g.normal([[1, 3], [5], value, value], "one value", gradient=False)
    g.normal([2, [5], value, value], "one index", gradient=False)
    g.empty([np.zeros((0, 2)), [0, 2], g.values(0, dtype=kind), value])
    g.edge([np.zeros((0, 2)), [2, 2], g.values(0, dtype=kind), value], "no values")
    g.edge([[0, 1, 2], [3], g.special(3, dtype=kind), value], "special values")
    g.edge([[[2], [0], [2]], [3], g.values(3, dtype=kind), value], "any order", validate_indices=False)
    g.error([[[2], [0]], [3], g.values(2, dtype=kind), value], "order")
    g.error([[[1], [1]], [3], g.values(2, dtype=kind), value], "twice")
    g.error([[3], [3], g.values(1, dtype=kind), value], "beyond")
    g.error([[-1], [3], g.values(1, dtype=kind), value], "negative", validate_indices=False)
    g.error([[1], [3, 3], g.values(1, dtype=kind), value], "depth")
    g.error([[1], [3], g.values(2, dtype=kind), value], "number of values")
    g.error([[1], [-3], g.values(1, dtype=kind), value], "negative size")
    g.error([[1], [3], g.values(1, dtype=kind), [value]], "default")


@cases("SerializeTensor", tolerance=EXACT)
def serialize_tensor(g):
    g.normal([g.values(2, 3)])
    g.empty([g.values(0, 2)])
    g.edge([g.special()], "special values")
    g.type_error([g.values(2)])


@cases("ParseTensor", tolerance=EXACT, attrs=dict(out_type=et.FLOAT))
def parse_tensor(g):
    two = b"\x08\x01\x12\x04\x12\x02\x08\x02"  # float, shape [2]
    g.normal([two + b"\x22\x08\x00\x00\x80\x3f\x00\x00\x00\x40"])
    g.empty([b"\x08\x01\x12\x04\x12\x02\x08\x00"])
    g.edge([two + b"\x2a\x04\x00\x00\x80\x3f"], "the last value repeats")
    g.error([b"\xff"], "no message")
    g.error([b""], "no type")
    g.error([[two]], "rank")
    g.error([two], "another type", out_type=et.INT32)


def _aligned(g, **attrs):
    return dict(attrs) if g.op.endswith("V3") else {}


@cases("MatrixDiagV2", "MatrixDiagV3", tolerance=EXACT, gradient=True)
def matrix_diag_band(g):
    zero = g.values(1)[0]
    g.normal([g.values(2, 3), 0, -1, -1, zero])
    g.normal([g.values(2, 3, 4), [-1, 1], -1, -1, zero], "a band", gradient=g.op.endswith("V3"))
    g.normal([g.values(2, 3), [1, 2], 3, 4, zero], "above", **_aligned(g, align="LEFT_RIGHT"),
             gradient=g.op.endswith("V3"))
    g.normal([g.values(3), -2, -1, 4, zero], "below")
    g.empty([g.values(0, 3), 0, -1, -1, zero])
    g.edge([g.special(4), 1, -1, -1, zero], "special values")
    g.error([g.values(3), 0, 2, 2, zero], "rows")
    g.error([g.values(3), 0, 4, 4, zero], "both")
    g.error([g.values(3, 3), [1, 0], -1, -1, zero], "order")
    g.error([g.values(2, 3), [-1, 1], -1, -1, zero], "number")
    g.error([zero, 0, -1, -1, zero], "rank")


@cases("MatrixDiagPartV2", "MatrixDiagPartV3", tolerance=EXACT, gradient=True)
def matrix_diag_part_band(g):
    zero = g.values(1)[0]
    g.normal([g.values(2, 3, 4), 0, zero])
    g.normal([g.values(2, 3, 4), [-1, 2], zero], "a band", gradient=g.op.endswith("V3"))
    g.normal([g.values(4, 3), [-3, -1], zero], "below", **_aligned(g, align="LEFT_RIGHT"), gradient=g.op.endswith("V3"))
    g.normal([g.values(3, 4), [0, 3], zero], "above", **_aligned(g, align="RIGHT_RIGHT"), gradient=g.op.endswith("V3"))
    g.empty([g.values(0, 3, 3), 0, zero])
    g.edge([g.special(4, 4), 1, zero], "special values")
    g.error([g.values(3, 3), 3, zero], "beyond")
    g.error([g.values(3, 3), [1, -1], zero], "order")
    g.error([g.values(3, 3), [0, 1, 2], zero], "three")
    g.error([g.values(3), 0, zero], "rank")


@cases("MatrixSetDiagV2", "MatrixSetDiagV3", tolerance=EXACT, gradient=True)
def matrix_set_diag_band(g):
    g.normal([g.values(2, 3, 4), g.values(2, 3), 0])
    g.normal([g.values(2, 3, 4), g.values(2, 3, 3), [-1, 1]], "a band", gradient=g.op.endswith("V3"))
    g.normal([g.values(4, 3), g.values(2, 3), [-2, -1]], "below", **_aligned(g, align="LEFT_RIGHT"),
             gradient=g.op.endswith("V3"))
    g.empty([g.values(0, 3, 3), g.values(0, 3), 0])
    g.edge([g.special(4, 4), g.special(3), 1], "special values")
    g.error([g.values(3, 3), g.values(2), 0], "length")
    g.error([g.values(3, 3), g.values(3), 3], "beyond")
    g.error([g.values(3), g.values(3), 0], "rank")
