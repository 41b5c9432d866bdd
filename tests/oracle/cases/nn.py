"""Neural network ops."""

import numpy as np

import compare
import element_types as et
from cases import cases

SUM = compare.SUM
EXACT = compare.EXACT


def _strides(height, width=None):
    return [1, height, width or height, 1]


# --- Convolutions. ---
CONVOLUTIONS = [
    dict(note="", x=(2, 5, 6, 3), f=(3, 2, 3, 4), y=(2, 5, 6, 4), strides=_strides(1), padding="SAME"),
    dict(note="valid", x=(2, 5, 6, 3), f=(3, 2, 3, 4), y=(2, 3, 5, 4), strides=_strides(1), padding="VALID"),
    dict(note="strides", x=(1, 7, 8, 2), f=(3, 3, 2, 5), y=(1, 4, 4, 5), strides=_strides(2), padding="SAME"),
    dict(note="one by one", x=(2, 3, 3, 4), f=(1, 1, 4, 3), y=(2, 3, 3, 3), strides=_strides(1), padding="VALID"),
    dict(note="dilated", x=(1, 7, 7, 2), f=(3, 3, 2, 2), y=(1, 3, 3, 2), strides=_strides(1), padding="VALID",
         dilations=[1, 2, 2, 1]),
    dict(note="explicit", x=(1, 5, 5, 2), f=(3, 3, 2, 2), y=(1, 6, 4, 2), strides=_strides(1), padding="EXPLICIT",
         explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0]),
]


def _attrs(c):
    return {k: v for k, v in c.items() if k not in ("note", "x", "f", "y")}


@cases("Conv2D", tolerance=SUM, gradient=True)
def conv2d(g):
    for c in CONVOLUTIONS:
        if g.type == et.INT32 and c["note"] in ("dilated",):
            continue
        g.normal([g.values(*c["x"]), g.values(*c["f"])], c["note"], gradient=None if g.type != et.DOUBLE or c[
            "note"] != "dilated" else False, **_attrs(c))
    plain = dict(strides=_strides(1), padding="SAME")
    g.empty([g.values(0, 5, 5, 2), g.values(3, 3, 2, 4)], **plain)
    g.edge([g.values(1, 1, 1, 1), g.values(5, 5, 1, 1)], "filter larger than the image", **plain)
    g.edge([g.values(3, 17, 19, 5), g.values(4, 3, 5, 7)], "odd sizes", **plain)
    g.error([g.values(1, 5, 5, 2), g.values(3, 3, 3, 4)], "depths", **plain)
    g.error([g.values(5, 5, 2), g.values(3, 3, 2, 4)], "rank", **plain)
    g.edge([g.values(1, 2, 2, 2), g.values(3, 3, 2, 4)], "valid and too small", strides=_strides(1), padding="VALID")
    g.error([g.values(1, 5, 5, 2), g.values(3, 3, 2, 4)], "stride 0", strides=[1, 0, 1, 1], padding="SAME")
    g.error([g.values(1, 5, 5, 2), g.values(3, 3, 2, 4)], "strides over batches", strides=[2, 1, 1, 1], padding="SAME")


@cases("Conv2DBackpropInput", tolerance=SUM, gradient=True)
def conv2d_backprop_input(g):
    for c in CONVOLUTIONS:
        if g.type == et.INT32 and c["note"] == "dilated":
            continue
        g.normal([list(c["x"]), g.values(*c["f"]), g.values(*c["y"])], c["note"], gradient=c["note"] != "dilated", **_attrs(c))
    plain = dict(strides=_strides(1), padding="SAME")
    g.empty([[0, 5, 5, 2], g.values(3, 3, 2, 4), g.values(0, 5, 5, 4)], **plain)
    g.edge([[1, 1, 1, 1], g.values(5, 5, 1, 1), g.values(1, 1, 1, 1)], "filter larger than the image", **plain)
    g.error([[1, 5, 5, 2], g.values(3, 3, 2, 4), g.values(1, 4, 5, 4)], "size of the gradient", **plain)
    g.error([[1, 5, 5, 2], g.values(3, 3, 2, 4), g.values(1, 5, 5, 3)], "depth of the gradient", **plain)
    g.error([[1, 5, 5, 2, 1], g.values(3, 3, 2, 4), g.values(1, 5, 5, 4)], "sizes", **plain)
    g.error([[1, 5, -5, 2], g.values(3, 3, 2, 4), g.values(1, 5, 5, 4)], "negative size", **plain)


@cases("Conv2DBackpropFilter", tolerance=SUM, gradient=True)
def conv2d_backprop_filter(g):
    for c in CONVOLUTIONS:
        g.normal([g.values(*c["x"]), list(c["f"]), g.values(*c["y"])], c["note"], gradient=c["note"] != "dilated", **_attrs(c))
    plain = dict(strides=_strides(1), padding="SAME")
    g.empty([g.values(0, 5, 5, 2), [3, 3, 2, 4], g.values(0, 5, 5, 4)], **plain)
    g.edge([g.values(1, 1, 1, 1), [5, 5, 1, 1], g.values(1, 1, 1, 1)], "filter larger than the image", **plain)
    g.edge([g.values(1, 2, 2, 1), [1, 1, 1, 0], g.values(1, 2, 2, 0)], "no outputs", **plain)
    g.error([g.values(1, 5, 5, 2), [3, 3, 2, 4], g.values(1, 4, 5, 4)], "size of the gradient", **plain)
    g.error([g.values(1, 5, 5, 2), [3, 3, 3, 4], g.values(1, 5, 5, 4)], "depth", **plain)
    g.error([g.values(1, 5, 5, 2), [3, 3, 2], g.values(1, 5, 5, 4)], "sizes", **plain)
    g.error([g.values(1, 5, 5, 2), [3, -3, 2, 4], g.values(1, 5, 5, 4)], "negative size", **plain)


DEPTHWISE = [
    dict(note="", x=(2, 5, 6, 3), f=(3, 2, 3, 2), y=(2, 5, 6, 6), strides=_strides(1), padding="SAME"),
    dict(note="valid", x=(2, 5, 6, 3), f=(3, 2, 3, 1), y=(2, 3, 5, 3), strides=_strides(1), padding="VALID"),
    dict(note="strides", x=(1, 7, 8, 2), f=(3, 3, 2, 2), y=(1, 4, 4, 4), strides=_strides(2), padding="SAME"),
]


@cases("DepthwiseConv2dNative", tolerance=SUM, gradient=True)
def depthwise(g):
    for c in DEPTHWISE:
        g.normal([g.values(*c["x"]), g.values(*c["f"])], c["note"], **_attrs(c))
    plain = dict(strides=_strides(1), padding="SAME")
    g.empty([g.values(0, 5, 5, 2), g.values(3, 3, 2, 4)], **plain)
    g.edge([g.values(1, 1, 1, 1), g.values(5, 5, 1, 1)], "filter larger than the image", **plain)
    g.error([g.values(1, 5, 5, 2), g.values(3, 3, 3, 4)], "depths", **plain)
    g.error([g.values(5, 5, 2), g.values(3, 3, 2, 4)], "rank", **plain)
    g.error([g.values(1, 5, 5, 2), g.values(3, 3, 2, 4)], "unequal strides", strides=[1, 1, 2, 1], padding="SAME")


@cases("DepthwiseConv2dNativeBackpropInput", tolerance=SUM)
def depthwise_input(g):
    for c in DEPTHWISE:
        g.normal([list(c["x"]), g.values(*c["f"]), g.values(*c["y"])], c["note"], **_attrs(c))
    plain = dict(strides=_strides(1), padding="SAME")
    g.empty([[0, 5, 5, 2], g.values(3, 3, 2, 2), g.values(0, 5, 5, 4)], **plain)
    g.edge([[1, 1, 1, 1], g.values(5, 5, 1, 1), g.values(1, 1, 1, 1)], "filter larger than the image", **plain)
    g.error([[1, 5, 5, 2], g.values(3, 3, 2, 2), g.values(1, 4, 5, 4)], "size of the gradient", **plain)
    g.error([[1, 5, 5], g.values(3, 3, 2, 2), g.values(1, 5, 5, 4)], "sizes", **plain)


@cases("DepthwiseConv2dNativeBackpropFilter", tolerance=SUM)
def depthwise_filter(g):
    for c in DEPTHWISE:
        g.normal([g.values(*c["x"]), list(c["f"]), g.values(*c["y"])], c["note"], **_attrs(c))
    plain = dict(strides=_strides(1), padding="SAME")
    g.empty([g.values(0, 5, 5, 2), [3, 3, 2, 2], g.values(0, 5, 5, 4)], **plain)
    g.edge([g.values(1, 1, 1, 1), [5, 5, 1, 1], g.values(1, 1, 1, 1)], "filter larger than the image", **plain)
    g.error([g.values(1, 5, 5, 2), [3, 3, 2, 2], g.values(1, 4, 5, 4)], "size of the gradient", **plain)
    g.error([g.values(1, 5, 5, 2), [3, 3, 2], g.values(1, 5, 5, 4)], "sizes", **plain)


# --- Bias. ---
@cases("BiasAdd", gradient=True)
def bias_add(g):
    g.normal([g.values(2, 3), g.values(3)])
    g.normal([g.values(2, 3, 4, 5), g.values(5)], "images")
    g.normal([g.values(2, 3, 4, 5), g.values(3)], "channels first", data_format="NCHW")
    g.empty([g.values(0, 3), g.values(3)])
    g.edge([g.special(2, 15), g.values(15)], "special values")
    g.error([g.values(2, 3), g.values(4)], "size")
    g.error([g.values(3), g.values(3)], "a vector")
    g.error([g.values(2, 3), g.values(1, 3)], "bias of rank 2")


@cases("BiasAddV1", gradient=True)
def bias_add_v1(g):
    g.normal([g.values(2, 3), g.values(3)])
    g.empty([g.values(0, 3), g.values(3)])
    g.edge([g.special(2, 15), g.values(15)], "special values")
    g.error([g.values(2, 3), g.values(4)], "size")


@cases("BiasAddGrad", tolerance=SUM, gradient=True)
def bias_add_grad(g):
    narrow = dict(low=0.5, high=3) if g.type in et.FLOATS else {}
    g.normal([g.values(4, 3, **narrow)])
    g.normal([g.values(2, 3, 4, 5, **narrow)], "images")
    g.normal([g.values(2, 3, 4, 5, **narrow)], "channels first", data_format="NCHW")
    g.empty([g.values(0, 3)])
    g.edge([g.values(100, 3, **narrow)], "many rows")
    g.error([g.values(3)], "a vector")


# --- Pooling. ---
POOLS = [
    dict(note="", x=(2, 4, 6, 3), y=(2, 2, 3, 3), ksize=_strides(2), strides=_strides(2), padding="VALID"),
    dict(note="overlapping", x=(1, 5, 5, 2), y=(1, 3, 3, 2), ksize=_strides(3), strides=_strides(2), padding="SAME"),
    dict(note="rows", x=(1, 5, 4, 2), y=(1, 5, 2, 2), ksize=_strides(1, 2), strides=_strides(1, 2), padding="VALID"),
]


def _pool(c):
    return {k: c[k] for k in ("ksize", "strides", "padding")}


@cases("MaxPool", "AvgPool", tolerance=SUM, gradient=True)
def pool(g):
    for c in POOLS:
        g.normal([g.values(*c["x"])], c["note"], **_pool(c))
    plain = _pool(POOLS[0])
    g.empty([g.values(0, 4, 4, 2)], **plain)
    g.edge([g.values(1, 9, 11, 3)], "odd sizes", **dict(_pool(POOLS[1])))
    g.edge([g.values(1, 1, 1, 2)], "too small", **plain)
    if g.type in et.FLOATS:
        g.edge([[[[[1.0], [np.inf]], [[-1.0], [2.0]]]]], "infinite", **plain)
        g.edge([np.full((1, 2, 2, 1), -np.inf)], "minus infinity", **plain)
        g.edge([[[[[np.nan], [1.0]], [[2.0], [3.0]]], [[[1.0], [2.0]], [[3.0], [np.nan]]]]], "NaN", **plain)
    g.error([g.values(4, 4, 2)], "rank", **plain)
    g.error([g.values(1, 4, 4, 2)], "stride 0", **dict(plain, strides=_strides(0)))
    g.error([g.values(1, 4, 4, 2)], "ksize 0", **dict(plain, ksize=_strides(0)))
    g.error([g.values(1, 4, 4, 2)], "three sizes", **dict(plain, ksize=[1, 2, 2]))
    if g.op == "MaxPool":
        g.error([g.values(1, 3, 3, 1)], "padding as wide as the window", ksize=_strides(2), strides=_strides(2),
                padding="EXPLICIT", explicit_paddings=[0, 0, 0, 1, 0, 2, 0, 0])


@cases("MaxPoolV2", tolerance=EXACT, gradient=True)
def max_pool_v2(g):
    c = POOLS[0]
    g.normal([g.values(*c["x"]), c["ksize"], c["strides"]], padding="VALID")
    g.empty([g.values(0, 4, 4, 2), c["ksize"], c["strides"]], padding="VALID")
    g.edge([g.values(1, 5, 5, 2), _strides(3), _strides(2)], "overlapping", padding="SAME")
    g.error([g.values(1, 4, 4, 2), [1, 2, 2], c["strides"]], "three sizes", padding="VALID")


def _max_pool(x, c):
    """The outputs of a pooling, so that its gradient sees what belongs together."""
    x = np.asarray(x)
    _, kh, kw, _ = c["ksize"]
    _, sh, sw, _ = c["strides"]
    y = np.empty(c["y"], x.dtype)
    top = max((c["y"][1] - 1) * sh + kh - x.shape[1], 0) // 2 if c["padding"] == "SAME" else 0
    left = max((c["y"][2] - 1) * sw + kw - x.shape[2], 0) // 2 if c["padding"] == "SAME" else 0
    for i in range(c["y"][1]):
        for j in range(c["y"][2]):
            rows = slice(max(i * sh - top, 0), i * sh - top + kh)
            columns = slice(max(j * sw - left, 0), j * sw - left + kw)
            y[:, i, j] = x[:, rows, columns].max(axis=(1, 2))
    return y


@cases("MaxPoolGrad", tolerance=SUM, gradient=True)
def max_pool_grad(g):
    for c in POOLS:
        x = g.values(*c["x"])
        g.normal([x, _max_pool(x, c), g.values(*c["y"])], c["note"], gradient=False, **_pool(c))
    plain = _pool(POOLS[0])
    g.empty([g.values(0, 4, 4, 2), g.values(0, 2, 2, 2), g.values(0, 2, 2, 2)], **plain)
    g.edge([np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1)), g.values(1, 1, 1, 1)], "ties", **plain)
    g.error([g.values(4, 4, 2), g.values(2, 2, 2), g.values(2, 2, 2)], "rank", **plain)
    g.error([g.values(1, 4, 4, 2), g.values(1, 2, 2, 2), g.values(1, 3, 3, 2)], "size of the gradient", **plain)


@cases("MaxPoolGradV2", tolerance=SUM)
def max_pool_grad_v2(g):
    c = POOLS[0]
    x = g.values(*c["x"])
    g.normal([x, _max_pool(x, c), g.values(*c["y"]), c["ksize"], c["strides"]], padding="VALID")
    g.empty([g.values(0, 4, 4, 2), g.values(0, 2, 2, 2), g.values(0, 2, 2, 2), c["ksize"], c["strides"]], padding="VALID")
    g.edge([np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1)), g.values(1, 1, 1, 1), c["ksize"], c["strides"]], "ties",
           padding="VALID")
    g.error([g.values(4, 4, 2), g.values(2, 2, 2), g.values(2, 2, 2), c["ksize"], c["strides"]], "rank", padding="VALID")


@cases("MaxPoolGradGrad", tolerance=SUM)
def max_pool_grad_grad(g):
    for c in POOLS:
        x = g.values(*c["x"])
        g.normal([x, _max_pool(x, c), g.values(*c["x"])], c["note"], **_pool(c))
    plain = _pool(POOLS[0])
    g.empty([g.values(0, 4, 4, 2), g.values(0, 2, 2, 2), g.values(0, 4, 4, 2)], **plain)
    g.edge([np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1)), g.values(1, 2, 2, 1)], "ties", **plain)
    g.error([g.values(4, 4, 2), g.values(2, 2, 2), g.values(4, 4, 2)], "rank", **plain)


@cases("MaxPoolGradGradV2", tolerance=SUM)
def max_pool_grad_grad_v2(g):
    c = POOLS[0]
    x, window = g.values(*c["x"]), [c["ksize"], c["strides"]]
    g.normal([x, _max_pool(x, c), g.values(*c["x"]), *window], padding="VALID")
    g.empty([g.values(0, 4, 4, 2), g.values(0, 2, 2, 2), g.values(0, 4, 4, 2), *window], padding="VALID")
    g.edge([np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1)), g.values(1, 2, 2, 1), *window], "ties", padding="VALID")
    g.error([g.values(4, 4, 2), g.values(2, 2, 2), g.values(4, 4, 2), *window], "rank", padding="VALID")


@cases("MaxPoolGradWithArgmax", tolerance=SUM)
def max_pool_grad_with_argmax(g):
    plain = _pool(POOLS[0])
    kind = g.types["T"]
    g.normal([g.values(1, 4, 4, 1, dtype=kind), g.values(1, 2, 2, 1, dtype=kind), [[[[0], [3]], [[9], [15]]]]], **plain)
    g.empty([g.values(0, 4, 4, 1, dtype=kind), g.values(0, 2, 2, 1, dtype=kind), np.zeros((0, 2, 2, 1))], **plain)
    g.edge([g.values(1, 2, 2, 1, dtype=kind), g.values(1, 1, 1, 1, dtype=kind), [[[[3]]]]], "one", **plain)
    g.error([g.values(4, 4, 1, dtype=kind), g.values(2, 2, 1, dtype=kind), [[[0], [3]], [[9], [15]]]], "rank", **plain)


@cases("MaxPoolWithArgmax", tolerance=SUM)
def max_pool_with_argmax(g):
    for c in POOLS:
        g.normal([g.values(*c["x"])], c["note"], **_pool(c))
    plain = _pool(POOLS[0])
    g.empty([g.values(0, 4, 4, 2)], **plain)
    g.edge([np.ones((1, 4, 4, 1))], "ties", **plain)
    g.error([g.values(4, 4, 2)], "rank", **plain)
    g.error([g.values(1, 4, 4, 2)], "stride 0", **dict(plain, strides=_strides(0)))


@cases("AvgPoolGrad", tolerance=SUM, gradient=True)
def avg_pool_grad(g):
    for c in POOLS:
        g.normal([list(c["x"]), g.values(*c["y"])], c["note"], **_pool(c))
    plain = _pool(POOLS[0])
    g.empty([[0, 4, 4, 2], g.values(0, 2, 2, 2)], **plain)
    g.edge([[1, 2, 2, 1], g.values(1, 1, 1, 1)], "one", **plain)
    g.error([[4, 4, 2], g.values(2, 2, 2, 1)], "shape", **plain)
    g.error([[1, 4, 4, 2], g.values(2, 2, 2)], "rank", **plain)


# --- Normalization. ---
LRN = dict(depth_radius=2, bias=1.0, alpha=0.5, beta=0.75)


@cases("LRN", tolerance=("relative", 3e-5), gradient=True)
def lrn(g):
    g.normal([g.values(2, 3, 3, 7)], **LRN)
    g.empty([g.values(0, 3, 3, 4)], **LRN)
    g.edge([g.values(1, 1, 1, 1)], "one", **LRN)
    g.edge([g.values(1, 2, 2, 20)], "defaults")
    g.error([g.values(3, 3, 4)], "rank", **LRN)


@cases("LRNGrad", tolerance=("relative", 1e-4))
def lrn_grad(g):
    g.normal([g.values(1, 2, 2, 5), g.values(1, 2, 2, 5), g.values(1, 2, 2, 5)], **LRN)
    g.empty([g.values(0, 2, 2, 5), g.values(0, 2, 2, 5), g.values(0, 2, 2, 5)], **LRN)
    g.edge([g.values(1, 1, 1, 1), g.values(1, 1, 1, 1), g.values(1, 1, 1, 1)], "one", **LRN)
    g.error([g.values(1, 2, 2, 4), g.values(1, 2, 2, 5), g.values(1, 2, 2, 5)], "shapes", **LRN)


def _batch_norm(g, shape, kind, mean=True):
    channels = shape[-1]
    statistics = [g.values(channels, dtype=et.FLOAT), g.values(channels, dtype=et.FLOAT, low=0.5, high=2)] if mean else [
        np.zeros(0), np.zeros(0)]
    return [g.values(*shape, dtype=kind), g.values(channels, dtype=et.FLOAT, low=0.5, high=2),
            g.values(channels, dtype=et.FLOAT), *statistics]


@cases("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", tolerance=("relative", 3e-5), gradient=True,
       fetch=[0, 1, 2])
def fused_batch_norm(g):
    kind = g.types["T"]
    g.normal(_batch_norm(g, (3, 4, 5, 2), kind, mean=False), "training", is_training=True, epsilon=0.001)
    g.normal(_batch_norm(g, (3, 4, 5, 2), kind), "inference", is_training=False, epsilon=0.001)
    g.empty(_batch_norm(g, (0, 4, 5, 2), kind), is_training=False)
    g.edge(_batch_norm(g, (1, 1, 1, 3), kind), "one value", is_training=False)
    g.error(_batch_norm(g, (4, 5, 2), kind), "rank", is_training=False)
    wrong = _batch_norm(g, (3, 4, 5, 2), kind)
    g.error([wrong[0], [1.0, 2.0, 3.0], *wrong[2:]], "scale", is_training=False)
    g.error([*wrong[:3], [1.0], [1.0]], "statistics", is_training=False)


@cases("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", tolerance=("relative", 1e-4), fetch=[0, 1, 2],
       gradient=True)
def fused_batch_norm_grad(g):
    kind = g.types["T"]

    def args(*shape):
        channels = shape[-1]
        more = [np.zeros(0)] if g.op.endswith("V3") else []
        return [g.values(*shape, dtype=kind), g.values(*shape, dtype=kind), g.values(channels, dtype=et.FLOAT, low=0.5),
                g.values(channels, dtype=et.FLOAT), g.values(channels, dtype=et.FLOAT, low=0.5, high=2), *more]

    g.normal(args(3, 4, 5, 2), "inference", is_training=False, epsilon=0.001)
    g.normal(args(3, 4, 5, 2), "training", is_training=True, epsilon=0.001)
    g.empty(args(0, 4, 5, 2), is_training=False)
    g.edge(args(1, 1, 2, 1), "two values", is_training=True)
    g.error(args(4, 5, 2), "rank", is_training=True)


# --- Softmax and losses. ---
@cases("Softmax", "LogSoftmax", tolerance=SUM, gradient=True)
def softmax(g):
    g.normal([g.values(3, 5)])
    g.normal([g.values(2, 3, 4)], "three axes", gradient=False)
    g.normal([g.values(4)], "a vector", gradient=False)
    g.empty([g.values(0, 5)])
    g.edge([[[1000.0, 0.0, -1000.0], [-50.0, -50.0, -50.0]]], "large")
    g.edge([[[np.inf, 0.0], [np.nan, 1.0]]], "special values")
    g.edge([g.values(3, 1)], "one class")
    g.error([g.values()], "scalar")


@cases("SoftmaxCrossEntropyWithLogits", tolerance=SUM, gradient=True, gradient_of=[0])
def softmax_cross_entropy(g):
    labels = np.array([[0.25, 0.5, 0.25, 0, 0], [0, 0, 0, 0, 1], [0.125, 0.125, 0.25, 0.25, 0.25]])
    g.normal([g.values(3, 5), labels])
    g.normal([g.values(3, 5), g.values(3, 5, low=0, high=0.4)], "labels that are not a distribution", gradient=False)
    g.normal([g.values(3, 5), g.values(1, 5, low=0, high=0.4)], "broadcast labels", gradient=False)
    g.empty([g.values(0, 5), g.values(0, 5)])
    g.edge([[[1000.0, 0.0, -1000.0]], [[0.0, 0.5, 0.5]]], "large")
    g.error([g.values(3, 5), g.values(3, 4)], "shapes")
    g.error([g.values(5), g.values(5)], "vectors")


@cases("SparseSoftmaxCrossEntropyWithLogits", tolerance=SUM, gradient=True, gradient_of=[0])
def sparse_softmax_cross_entropy(g):
    kind = g.types["T"]
    g.normal([g.values(3, 5, dtype=kind), [4, 0, 2]])
    g.empty([g.values(0, 5, dtype=kind), np.zeros(0)])
    g.edge([[[1000.0, 0.0, -1000.0]], [2]], "large")
    g.error([g.values(3, 5, dtype=kind), [4, 5, 2]], "label")
    g.error([g.values(3, 5, dtype=kind), [4, -1, 2]], "negative label")
    g.error([g.values(3, 5, dtype=kind), [4, 0]], "count")
    g.error([g.values(3, 5, dtype=kind), [[4], [0], [1]]], "rank")
    g.error([g.values(3, 0, dtype=kind), [0, 0, 0]], "no classes")


# --- Ranking. ---
@cases("InTopK", tolerance=EXACT)
def in_top_k(g):
    g.normal([g.values(3, 5, dtype=et.FLOAT), [4, 0, 2]], k=2)
    g.empty([g.values(0, 5, dtype=et.FLOAT), np.zeros(0)], k=2)
    g.edge([[[1.0, 1.0, 0.0], [np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0]], [1, 2, 0]], "ties and NaN", k=1)
    g.edge([g.values(2, 3, dtype=et.FLOAT), [3, -1]], "target out of range", k=1)
    g.error([g.values(3, 5, dtype=et.FLOAT), [4, 0]], "count", k=2)
    g.error([g.values(5, dtype=et.FLOAT), [4]], "rank", k=2)


@cases("InTopKV2", tolerance=EXACT)
def in_top_k_v2(g):
    g.normal([g.values(3, 5, dtype=et.FLOAT), [4, 0, 2], 2])
    g.empty([g.values(0, 5, dtype=et.FLOAT), np.zeros(0), 2])
    g.edge([[[1.0, 1.0, 0.0], [np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0]], [1, 2, 0], 1], "ties and NaN")
    g.error([g.values(3, 5, dtype=et.FLOAT), [4, 0], 2], "count")
    g.error([g.values(3, 5, dtype=et.FLOAT), [4, 0, 1], [2, 2]], "k no scalar")


@cases("TopKV2", tolerance=EXACT, gradient=True)
def top_k_v2(g):
    kind = g.types["T"]
    g.normal([g.values(3, 7, dtype=kind), 3])
    g.normal([g.values(9, dtype=kind), 9], "all", gradient=False)
    g.normal([g.values(2, 2, 5, dtype=kind), 1], "one", gradient=False)
    g.empty([g.values(0, 5, dtype=kind), 2])
    g.empty([g.values(3, 5, dtype=kind), 0], "k 0")
    g.edge([[2, 5, 5, 1, 5], 4], "ties")
    g.error([g.values(3, 5, dtype=kind), 6], "k")
    g.error([g.values(3, 5, dtype=kind), -1], "negative k")
    g.error([g.values(dtype=kind), 1], "scalar")
    g.error([g.values(3, 5, dtype=kind), [1, 2]], "k no scalar")


@cases("TopK", tolerance=EXACT)
def top_k(g):
    g.normal([g.values(3, 7)], k=3)
    g.empty([g.values(0, 5)], k=2)
    g.edge([[2, 5, 5, 1, 5]], "ties", k=4)
    g.error([g.values(3, 5)], "k", k=6)


@cases("NthElement", tolerance=EXACT)
def nth_element(g):
    g.normal([g.values(3, 7), 3])
    g.normal([g.values(3, 7), 2], "from the top", reverse=True)
    g.empty([g.values(0, 5), 2])
    g.edge([[2, 5, 5, 1, 5], 2], "ties")
    g.error([g.values(3, 5), 5], "n")
    g.error([g.values(3, 5), -1], "negative n")
    g.error([g.values(3, 5), [1]], "n no scalar")
    g.error([g.values(), 0], "scalar")


@cases("ExtractImagePatches", tolerance=EXACT, gradient=True)
def extract_image_patches(g):
    plain = dict(ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
    g.normal([g.values(2, 4, 5, 3)], **plain)
    g.normal([g.values(1, 5, 4, 2)], "padded", **dict(plain, ksizes=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME"))
    g.normal([g.values(1, 6, 5, 1)], "rates", **dict(plain, rates=[1, 2, 3, 1]))
    g.empty([g.values(0, 4, 4, 2)], **plain)
    g.edge([g.special(1, 3, 4, 2)], "special values", **plain)
    g.error([g.values(4, 4, 2)], "rank", **plain)
    g.error([g.values(1, 4, 4, 2)], "stride 0", **dict(plain, strides=[1, 0, 1, 1]))
    g.error([g.values(1, 4, 4, 2)], "ksize 0", **dict(plain, ksizes=[1, 0, 2, 1]))
    g.error([g.values(1, 4, 4, 2)], "batch", **dict(plain, ksizes=[2, 2, 2, 1]))


VOLUMES = [
    dict(note="", x=(2, 3, 4, 5, 2), f=(2, 2, 3, 2, 3), y=(2, 3, 4, 5, 3), strides=[1] * 5, padding="SAME"),
    dict(note="valid", x=(1, 4, 5, 4, 1), f=(2, 3, 1, 1, 2), y=(1, 3, 3, 4, 2), strides=[1] * 5, padding="VALID"),
    dict(note="strides", x=(1, 5, 4, 3, 2), f=(3, 3, 3, 2, 2), y=(1, 3, 2, 2, 2), strides=[1, 2, 2, 2, 1], padding="SAME"),
]


def _volume(c):
    return dict(strides=c["strides"], padding=c["padding"])


@cases("Conv3D", tolerance=SUM, gradient=True)
def conv3d(g):
    for c in VOLUMES:
        g.normal([g.values(*c["x"]), g.values(*c["f"])], c["note"], **_volume(c))
    plain = _volume(VOLUMES[0])
    g.empty([g.values(0, 3, 4, 5, 2), g.values(2, 2, 3, 2, 3)], **plain)
    g.edge([g.values(1, 1, 1, 1, 1), g.values(3, 3, 3, 1, 1)], "filter larger than the volume", **plain)
    g.error([g.values(3, 4, 5, 2), g.values(2, 2, 3, 2, 3)], "rank", **plain)
    g.error([g.values(1, 3, 4, 5, 3), g.values(2, 2, 3, 2, 3)], "depths", **plain)


@cases("Conv3DBackpropInputV2", tolerance=SUM, gradient=True)
def conv3d_backprop_input(g):
    for c in VOLUMES:
        g.normal([list(c["x"]), g.values(*c["f"]), g.values(*c["y"])], c["note"], **_volume(c))
    plain = _volume(VOLUMES[0])
    g.empty([[0, 3, 4, 5, 2], g.values(2, 2, 3, 2, 3), g.values(0, 3, 4, 5, 3)], **plain)
    g.edge([[1, 1, 1, 1, 1], g.values(3, 3, 3, 1, 1), g.values(1, 1, 1, 1, 1)], "filter larger than the volume", **plain)
    g.error([[1, 3, 4, 5, 2], g.values(2, 2, 3, 2, 3), g.values(1, 3, 4, 4, 3)], "size of the gradient", **plain)


@cases("Conv3DBackpropFilterV2", tolerance=SUM, gradient=True)
def conv3d_backprop_filter(g):
    for c in VOLUMES:
        g.normal([g.values(*c["x"]), list(c["f"]), g.values(*c["y"])], c["note"], **_volume(c))
    plain = _volume(VOLUMES[0])
    g.empty([g.values(0, 3, 4, 5, 2), [2, 2, 3, 2, 3], g.values(0, 3, 4, 5, 3)], **plain)
    g.edge([g.values(1, 1, 1, 1, 1), [3, 3, 3, 1, 1], g.values(1, 1, 1, 1, 1)], "filter larger than the volume", **plain)
    g.error([g.values(1, 3, 4, 5, 2), [2, 2, 3, 2, 3], g.values(1, 3, 4, 4, 3)], "size of the gradient", **plain)


POOLS_3D = [
    dict(note="", x=(2, 4, 4, 4, 2), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID"),
    dict(note="overlapping", x=(1, 3, 5, 4, 3), ksize=[1, 2, 3, 2, 1], strides=[1, 1, 2, 1, 1], padding="SAME"),
]


def _pool_3d(c):
    return dict(ksize=c["ksize"], strides=c["strides"], padding=c["padding"])


@cases("MaxPool3D", "AvgPool3D", tolerance=SUM, gradient=True)
def pool_3d(g):
    for c in POOLS_3D:
        g.normal([g.values(*c["x"])], c["note"], **_pool_3d(c))
    plain = _pool_3d(POOLS_3D[0])
    g.empty([g.values(0, 4, 4, 4, 2)], **plain)
    g.edge([g.values(1, 5, 7, 3, 1)], "odd sizes", **plain)
    g.error([g.values(4, 4, 4, 2)], "rank", **plain)


@cases("AvgPool3DGrad", tolerance=SUM, gradient=True)
def avg_pool_3d_grad(g):
    g.normal([[2, 4, 4, 4, 2], g.values(2, 2, 2, 2, 2)], **_pool_3d(POOLS_3D[0]))
    g.normal([[1, 3, 5, 4, 3], g.values(1, 3, 3, 4, 3)], "overlapping", **_pool_3d(POOLS_3D[1]))
    g.empty([[0, 4, 4, 4, 2], g.values(0, 2, 2, 2, 2)], **_pool_3d(POOLS_3D[0]))
    g.edge([[1, 2, 2, 2, 1], g.values(1, 1, 1, 1, 1)], "one window", **_pool_3d(POOLS_3D[0]))
    g.error([[4, 4, 4, 2], g.values(1, 2, 2, 2, 2)], "sizes", **_pool_3d(POOLS_3D[0]))


@cases("MaxPool3DGrad", tolerance=SUM)
def max_pool_3d_grad(g):
    x = np.arange(64).reshape(1, 4, 4, 4, 1) % 23
    y = x.reshape(1, 2, 2, 2, 2, 2, 2, 1).max(axis=(2, 4, 6))
    plain = _pool_3d(POOLS_3D[0])
    g.normal([x, y, g.values(1, 2, 2, 2, 1)], **plain)
    g.edge([np.ones((1, 2, 2, 2, 1)), np.ones((1, 1, 1, 1, 1)), np.ones((1, 1, 1, 1, 1))], "equal values", **plain)
    g.empty([g.values(0, 4, 4, 4, 2), g.values(0, 2, 2, 2, 2), g.values(0, 2, 2, 2, 2)], **plain)
    g.error([x[0], y, g.values(1, 2, 2, 2, 1)], "rank", **plain)


@cases("MaxPool3DGradGrad", tolerance=SUM)
def max_pool_3d_grad_grad(g):
    x = np.arange(64).reshape(1, 4, 4, 4, 1) % 23
    y = x.reshape(1, 2, 2, 2, 2, 2, 2, 1).max(axis=(2, 4, 6))
    plain = _pool_3d(POOLS_3D[0])
    g.normal([x, y, g.values(1, 4, 4, 4, 1)], **plain)
    g.edge([np.ones((1, 2, 2, 2, 1)), np.ones((1, 1, 1, 1, 1)), np.arange(8).reshape(1, 2, 2, 2, 1)], "equal values", **plain)
    g.empty([g.values(0, 4, 4, 4, 2), g.values(0, 2, 2, 2, 2), g.values(0, 4, 4, 4, 2)], **plain)
    g.error([x[0], y, g.values(1, 4, 4, 4, 1)], "rank", **plain)


# TensorFlow takes logarithms of doubles in single precision.
@cases("CTCLoss", tolerance=("relative", 1e-4), gradient=True, gradient_of=[0], only=lambda types: types["T"] == et.FLOAT)
def ctc_loss(g):
    labels = [[[0, 0], [0, 1], [1, 0], [2, 0], [2, 1]], [1, 2, 0, 2, 2], [5, 4, 3]]
    g.normal([g.values(5, 3, 4)] + labels)
    for name in ("preprocess_collapse_repeated", "ignore_longer_outputs_than_inputs"):
        g.normal([g.values(5, 3, 4)] + labels, name, sliced=False, **{name: True})
    g.normal([g.values(5, 3, 4)] + labels, "repeated labels stay", sliced=False, ctc_merge_repeated=False)
    g.error([g.values(2, 2, 3), np.zeros((0, 2)), np.zeros(0), [2, 1]], "no labels")
    g.edge([g.values(2, 2, 3), [[0, 0], [1, 0]], [1, 1], [2, 1]], "one label each")
    g.edge([g.values(2, 2, 3), [[0, 0], [1, 0]], [1, 1], [2, 0]], "no time", ignore_longer_outputs_than_inputs=True)
    g.edge([g.values(2, 1, 3), [[0, 0], [0, 1]], [1, 1], [2]], "no path", fetch=[0])
    g.error([g.values(2, 1, 3), [[0, 0], [0, 1], [0, 2]], [1, 0, 1], [2]], "not enough time")
    g.error([g.values(2, 1, 3), [[0, 0], [0, 1]], [2, 1], [2]], "a label after a blank")
    g.error([g.values(2, 1, 3), [[0, 0]], [-1], [2]], "a negative label")
    g.error([g.values(2, 1, 3), [[3, 0]], [1], [2]], "a sequence outside")
    g.error([g.values(2, 1, 3), [[0, 0]], [1], [3]], "longer than the input")
    g.error([g.values(2, 3), [[0, 0]], [1], [3]], "rank")


@cases("CTCGreedyDecoder", tolerance=SUM)
def ctc_greedy(g):
    for merge in (True, False):
        g.normal([g.values(6, 3, 3), [6, 4, 2]], f"merge {merge}", merge_repeated=merge)
    g.empty([g.values(2, 2, 3), [0, 0]])
    g.edge([g.values(4, 1, 3), [4]], "another blank", blank_index=0)
    g.error([g.values(4, 1, 3), [5]], "longer than the input")
    g.error([g.values(4, 2, 3), [4]], "lengths")


@cases("Dilation2D", tolerance=compare.SUM, gradient=True, attrs=dict(rates=[1, 1, 1, 1]))
def dilation2d(g):
    image, weights = g.values(2, 4, 5, 2), g.values(2, 3, 2)
    g.normal([image, weights], strides=[1, 1, 1, 1], padding=b"VALID")
    g.normal([image, weights], "same", strides=[1, 2, 2, 1], padding=b"SAME")
    g.normal([image, weights], "rates", strides=[1, 1, 1, 1], rates=[1, 2, 2, 1], padding=b"VALID", gradient=False)
    g.empty([image[:0], weights], strides=[1, 1, 1, 1], padding=b"VALID")
    g.edge([g.values(1, 1, 1, 1), g.values(1, 1, 1)], "one", strides=[1, 1, 1, 1], padding=b"VALID")
    g.error([image, g.values(2, 3, 1)], "depth", strides=[1, 1, 1, 1], padding=b"VALID")
    g.error([image, weights], "no stride", strides=[1, 0, 1, 1], padding=b"VALID")
    g.error([image, weights], "stride of a batch", strides=[2, 1, 1, 1], padding=b"VALID")


@cases("Dilation2DBackpropInput", "Dilation2DBackpropFilter", tolerance=compare.SUM,
       attrs=dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding=b"VALID"))
def dilation2d_backprop(g):
    image, weights = g.values(2, 4, 5, 2), g.values(2, 3, 2)
    g.normal([image, weights, g.values(2, 3, 3, 2)])
    g.empty([image[:0], weights, g.values(0, 3, 3, 2)])
    g.edge([g.values(1, 1, 1, 1), g.values(1, 1, 1), g.values(1, 1, 1, 1)], "one")
    g.error([image, weights, g.values(2, 3, 4, 2)], "size")
    g.error([image, weights, g.values(3, 3, 2)], "rank")
