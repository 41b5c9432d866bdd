"""Rows of different lengths: counting in them, ranges, gathering, filling up."""

import numpy as np

import compare
import element_types as et

from . import cases

EXACT = compare.EXACT


@cases("SparseBincount", tolerance=compare.SUM)
def sparse_bincount(g):
    weight = g.types["T"]
    none = g.values(0, dtype=weight)
    indices = [[0, 0], [0, 1], [1, 0]]
    g.normal([indices, [1, 2, 2], [2, 2], 4, none])
    g.normal([indices, [1, 2, 2], [2, 2], 4, g.values(3, dtype=weight)], "weights")
    g.normal([indices, [1, 1, 7], [2, 2], 3, none], "whether it occurs", binary_output=True)
    g.normal([[[0], [2]], [1, 1], [3], 3, none], "a vector")
    g.empty([np.zeros((0, 2)), np.zeros(0), [2, 2], 3, none])
    g.edge([indices, [1, -2, 2], [2, 2], 4, none], "negative in a row")
    g.error([[[0], [2]], [1, -1], [3], 3, none], "negative")
    g.error([[[0, 0], [2, 0]], [1, 1], [2, 2], 3, none], "outside")
    g.error([indices, [1, 2, 2], [2, 2], -4, none], "negative size")
    g.error([indices, [1, 2], [2, 2], 4, none], "counts")


@cases("RaggedBincount", tolerance=compare.SUM)
def ragged_bincount(g):
    weight = g.types["T"]
    none = g.values(0, dtype=weight)
    g.normal([[0, 2, 3], [1, 2, 2], 4, none])
    g.normal([[0, 2, 3], [1, 2, 2], 4, g.values(3, dtype=weight)], "weights")
    g.empty([[0], np.zeros(0), 4, none])
    g.edge([[0, 0, 3, 3], [1, 9, 1], 4, none], "empty rows, a large number", binary_output=True)
    g.error([[0, 2, 3], [1, -2, 2], 4, none], "negative")
    g.error([[1, 2, 3], [1, 2, 2], 4, none], "begins with 1")
    g.error([[0, 2, 9], [1, 2, 2], 4, none], "ends too far")
    g.error([np.zeros(0), [1, 2, 2], 4, none], "no splits")
    g.error([[0, 2, 3], [1, 2, 2], -4, none], "negative size")


@cases("DenseCountSparseOutput", tolerance=compare.SUM)
def dense_count(g):
    weight = g.types["output_type"]
    none = g.values(0, dtype=weight)
    g.normal([[1, 2, 2], none], binary_output=False)
    g.normal([[[1, 2], [2, 2]], g.values(2, 2, dtype=weight)], "rows", binary_output=False)
    g.normal([[[1, 5], [2, 2]], none], "lengths", binary_output=True, minlength=1, maxlength=4)
    g.empty([np.zeros((2, 0)), none], binary_output=False, minlength=3)
    g.edge([np.zeros(0), none], "nothing", binary_output=False)
    g.error([[1, -2], none], "negative", binary_output=False)
    g.error([3, none], "scalar", binary_output=False)
    g.error([[1, 2], g.values(1, dtype=weight)], "weights", binary_output=False)


@cases("SparseCountSparseOutput", tolerance=compare.SUM)
def sparse_count(g):
    weight = g.types["output_type"]
    none = g.values(0, dtype=weight)
    indices = [[0, 0], [0, 1], [1, 0]]
    g.normal([indices, [1, 2, 2], [2, 2], none], binary_output=False)
    g.normal([indices, [1, 2, 2], [3, 2], g.values(3, dtype=weight)], "weights", binary_output=False)
    g.empty([np.zeros((0, 2)), np.zeros(0), [2, 2], none], binary_output=False)
    g.edge([[[0], [1]], [1, 1], [2], none], "a vector", binary_output=True)
    g.error([indices, [1, -2, 2], [2, 2], none], "negative", binary_output=False)
    g.error([[[0, 0], [5, 0]], [1, 2], [2, 2], none], "outside", binary_output=False)
    g.error([indices, [1, 2], [2, 2], none], "counts", binary_output=False)


@cases("RaggedCountSparseOutput", tolerance=compare.SUM)
def ragged_count(g):
    weight = g.types["output_type"]
    none = g.values(0, dtype=weight)
    g.normal([[0, 2, 3], [1, 2, 2], none], binary_output=False)
    g.normal([[0, 2, 3], [1, 2, 2], g.values(3, dtype=weight)], "weights", binary_output=False)
    g.empty([[0, 0], np.zeros(0), none], binary_output=False)
    g.edge([[0, 0, 3], [1, 1, 2], none], "an empty row", binary_output=True)
    g.error([[0, 2, 3], [1, -2, 2], none], "negative", binary_output=False)
    g.error([[0, 5], [1], none], "ends too far", binary_output=False)
    g.error([[0], [1], none], "no rows", binary_output=False)


@cases("RaggedRange", tolerance=("relative", 1e-6))
def ragged_range(g):
    g.normal([[0, 5, 8], [3, 3, 12], [1, -1, 2]])
    g.normal([0, [2, 3], 1], "broadcast")
    g.empty([np.zeros(0), np.zeros(0), np.zeros(0)])
    g.edge([[0, 4], [0, 2], [1, 1]], "empty rows")
    g.error([[0, 1], [3, 3], [1, 0]], "no step")
    g.error([[0, 1], [3, 3, 3], [1, 1]], "sizes")
    g.error([[[0]], [3], [1]], "rank")


@cases("RaggedGather", tolerance=EXACT)
def ragged_gather(g):
    one = dict(PARAMS_RAGGED_RANK=1, OUTPUT_RAGGED_RANK=1)
    kind = g.types["Tvalues"]
    values = g.values(4, dtype=kind)
    g.normal([[0, 2, 2, 4], values, [2, 0, 0]], **one)
    g.normal([[0, 2, 3], [0, 1, 1, 4], values, [[1], [0]]], "two levels", PARAMS_RAGGED_RANK=2, OUTPUT_RAGGED_RANK=3)
    g.empty([[0, 2, 2, 4], values, np.zeros(0)], **one)
    g.edge([[0, 2, 2, 4], values, 2], "a scalar", PARAMS_RAGGED_RANK=1, OUTPUT_RAGGED_RANK=0)
    g.error([[0, 2, 2, 4], values, [3]], "outside", **one)
    g.error([[0, 2, 1, 4], values, [0]], "splits", **one)
    g.error([[0, 2, 2, 5], values, [0]], "past values", **one)


@cases("RaggedTensorToTensor", tolerance=EXACT)
def ragged_to_tensor(g):
    kind = g.types["T"]
    values, zero = g.values(5, dtype=kind), g.values(dtype=kind)
    splits = dict(num_row_partition_tensors=1, row_partition_types=[b"ROW_SPLITS"])
    ids = dict(num_row_partition_tensors=2, row_partition_types=[b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"])
    g.normal([[-1, -1], values, zero, [0, 2, 2, 5]], **splits)
    g.normal([[4, 2], values, zero, [0, 2, 2, 5]], "cut and filled up", **splits)
    g.normal([-1, values, zero, 3, [0, 0, 2, 2, 2]], "row ids", **ids)
    g.normal([-1, g.values(3, 2, dtype=kind), g.values(2, dtype=kind), [0, 1, 3]], "inner dims", **splits)
    g.empty([[-1, -1], g.values(0, dtype=kind), zero, [0]], **splits)
    g.edge([[-1, -1], g.values(0, dtype=kind), zero, [0, 0, 0]], "empty rows", **splits)
    g.error([[-1, -1, -1], values, zero, [0, 2, 2, 5]], "rank", **splits)
    g.error([[-1, -1], values, g.values(3, dtype=kind), [0, 2, 2, 5]], "default value", **splits)


@cases("RandomIndexShuffle", tolerance=EXACT)
def random_index_shuffle(g):
    g.normal([[0, 1, 2, 3], [1, 2, 3], 3])
    g.normal([[5, 0, 100], [7, 8, 9], 1 << 20], "more rounds", rounds=8)
    g.normal([3, [[1, 2, 3], [4, 5, 6]], 99], "seeds")
    g.empty([[0], [1, 2, 3], 0], "a single number")
    g.edge([3, [1, 2, 3], 99], "a scalar")
    g.error([3, [1, 2], 99], "seed")
    g.error([[[3]], [1, 2, 3], 99], "rank")


@cases("InplaceUpdate", "InplaceAdd", "InplaceSub", tolerance=EXACT, attrs={"T": et.FLOAT})
def inplace(g):
    g.normal([g.values(4, 2, dtype=et.FLOAT), [2, 0], g.values(2, 2, dtype=et.FLOAT)])
    g.empty([g.values(4, 2, dtype=et.FLOAT), np.zeros(0), g.values(0, 2, dtype=et.FLOAT)])
    g.edge([g.values(4, dtype=et.FLOAT), [1, 1], g.values(2, dtype=et.FLOAT)], "twice")

    def seen_by_others(b, case):
        """The input is read after the change; what was fed to the node that made it is not changed."""
        fed = b.feed(g.values(4, 2, dtype=et.FLOAT), et.FLOAT)
        made = b.node("DeepCopy", [fed], T=et.FLOAT)
        rows, v = b.const([2, 0], et.INT32), b.feed(g.values(2, 2, dtype=et.FLOAT), et.FLOAT)
        first = b.node(g.op, [made, rows, v], T=et.FLOAT)
        second = b.node(g.op, [first, rows, v, "^" + first], T=et.FLOAT)
        read = [b.node("Identity", [t, "^" + second], T=et.FLOAT) for t in (fed, made, first)]
        return [([name + ":0" for name in read + [second]], [])]

    g.edge([], "seen by others", nodes=seen_by_others)
    g.error([g.values(4, 2, dtype=et.FLOAT), [[0]], g.values(1, 2, dtype=et.FLOAT)], "rank")
    g.error([g.values(4, 2, dtype=et.FLOAT), [0, 1], g.values(1, 2, dtype=et.FLOAT)], "counts")
    g.error([g.values(4, 2, dtype=et.FLOAT), [0], g.values(1, 3, dtype=et.FLOAT)], "widths")


@cases("TensorStridedSliceUpdate", tolerance=EXACT)
def tensor_strided_slice_update(g):
    kind = g.types["T"]
    g.normal([g.values(4, 3, dtype=kind), [1, 0], [3, 2], [1, 1], g.values(2, 2, dtype=kind)])
    g.normal([g.values(4, 3, dtype=kind), [0, 2], [4, 0], [2, -1], g.values(2, 2, dtype=kind)], "steps")
    g.empty([g.values(4, 3, dtype=kind), [1, 0], [1, 2], [1, 1], g.values(0, 2, dtype=kind)])
    g.edge([g.values(4, 3, dtype=kind), [1, 0], [3, 2], [1, 1], g.values(dtype=kind)], "broadcast")
    g.error([g.values(4, 3, dtype=kind), [1, 0], [3, 2], [1, 1], g.values(3, 2, dtype=kind)], "sizes")
    g.error([g.values(4, 3, dtype=kind), [1, 0], [3, 2], [0, 1], g.values(2, 2, dtype=kind)], "no step")


def _long_splits(types):
    return types["Tsplits"] == et.INT64  # with the others TensorFlow crashes


@cases("UnicodeDecodeWithOffsets", tolerance=EXACT, only=_long_splits)
@cases("UnicodeDecode", tolerance=EXACT)
def unicode_decode(g):
    texts = [b"", "a\u00e9\u4e2d\U0001f604".encode(), b"a\xffb\xe4\xb8", b"a\x01\n"]
    g.normal([texts], input_encoding=b"UTF-8")
    g.normal([texts], "ignoring", input_encoding=b"UTF-8", errors=b"ignore", replace_control_characters=True)
    g.normal([["\U0001f604a".encode("utf-16-be"), b"\xd8\x00\x00a", b"\x00"]], "UTF-16", input_encoding=b"UTF-16-BE")
    g.normal([["\U0001f604".encode("utf-32-le")]], "UTF-32", input_encoding=b"UTF-32-LE")
    g.normal([[b"\xe9\x80"]], "one byte", input_encoding=b"ISO-8859-1")
    g.empty([np.zeros(0, object)], input_encoding=b"UTF-8")
    g.edge([[b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x9f", b"\xed\xa0\x80"]], "broken", input_encoding=b"UTF-8",
           replacement_char=63)
    g.error([[b"a\xff"]], "strict", input_encoding=b"UTF-8", errors=b"strict")
    g.error([[b"a"]], "encoding", input_encoding=b"no such thing")
    g.error([[b"a"]], "replacement", input_encoding=b"UTF-8", replacement_char=0x110000)


@cases("UnicodeEncode", tolerance=EXACT)
def unicode_encode(g):
    points = [97, 233, 0x1F604, 0x4E2D, 0xD800, 0x110000]
    for encoding in (b"UTF-8", b"UTF-16-BE", b"UTF-32-BE"):
        g.normal([points, [0, 2, 2, 6]], encoding.decode(), output_encoding=encoding)
    g.empty([np.zeros(0), [0]], output_encoding=b"UTF-8")
    g.edge([points, [0, 6]], "ignoring", output_encoding=b"UTF-8", errors=b"ignore")
    g.error([points, [0, 6]], "strict", output_encoding=b"UTF-8", errors=b"strict")
    g.error([[97, 98], [0, 1]], "too few", output_encoding=b"UTF-8")
    g.error([[97, 98], [0, 2, 1, 2]], "order", output_encoding=b"UTF-8")


@cases("UnicodeTranscode", tolerance=EXACT)
def unicode_transcode(g):
    texts = ["a\u00e9\U0001f604".encode(), b"a\xffb", b"\xef\xbb\xbfa"]
    for encoding in (b"UTF-8", b"UTF-16-BE", b"UTF-32-BE"):
        g.normal([texts], encoding.decode(), input_encoding=b"UTF-8", output_encoding=encoding)
    g.normal([["\ufeffab".encode("utf-16-le")]], "by mark", input_encoding=b"UTF-16", output_encoding=b"UTF-8")
    g.empty([np.zeros((0, 2), object)], input_encoding=b"UTF-8", output_encoding=b"UTF-8")
    g.edge([[[b"a\x01b\x7f\n"]]], "controls", input_encoding=b"UTF-8", output_encoding=b"UTF-8",
           replace_control_characters=True)
    g.error([[b"a\xff"]], "strict", input_encoding=b"UTF-8", output_encoding=b"UTF-8", errors=b"strict")


@cases("Fingerprint", tolerance=EXACT)
def fingerprint(g):
    kind = dict(T=et.INT32)
    g.normal([np.arange(6).reshape(2, 3), b"farmhash64"], **kind)
    g.normal([[b"a", b"", b"muster"], b"farmhash64"], "strings", T=et.STRING)
    g.normal([[[b"a", b"b"], [b"", b""]], b"farmhash64"], "rows of strings", T=et.STRING)
    g.empty([np.zeros((0, 2)), b"farmhash64"], **kind)
    g.edge([[7], b"farmhash64"], "one number", **kind)
    g.error([3, b"farmhash64"], "scalar", **kind)
    g.error([[3], b"md5"], "method", **kind)
