"""Matrix products, reductions, scans and segments."""

import numpy as np

import compare
import element_types as et
from cases import cases

SUM = compare.SUM
EXACT = compare.EXACT


@cases("MatMul", tolerance=SUM, gradient=True)
def mat_mul(g):
    g.normal([g.values(3, 4), g.values(4, 5)])
    g.normal([g.values(4, 3), g.values(4, 5)], "first transposed", transpose_a=True)
    g.normal([g.values(3, 4), g.values(5, 4)], "second transposed", transpose_b=True)
    g.normal([g.values(4, 3), g.values(5, 4)], "both transposed", transpose_a=True, transpose_b=True)
    g.normal([g.values(1, 70), g.values(70, 33)], "a row", sliced=False, gradient=False)
    g.empty([g.values(0, 4), g.values(4, 5)])
    g.empty([g.values(3, 0), g.values(0, 5)], "inner")
    g.edge([g.values(1, 1), g.values(1, 1)], "one")
    g.edge([g.values(67, 130), g.values(130, 71)], "larger than a block")
    if g.type in et.FLOATS:
        g.edge([[[np.nan, 1.0], [np.inf, 2.0]], [[1.0, 2.0], [3.0, 4.0]]], "special values")
    g.error([g.values(3, 4), g.values(5, 4)], "inner sizes")
    g.error([g.values(3), g.values(3, 4)], "a vector")
    g.error([g.values(2, 3, 4), g.values(4, 5)], "three axes")


@cases("BatchMatMul", "BatchMatMulV2", tolerance=SUM, gradient=True)
def batch_mat_mul(g):
    g.normal([g.values(2, 3, 4), g.values(2, 4, 5)])
    g.normal([g.values(2, 4, 3), g.values(2, 4, 5)], "first adjoint", adj_x=True)
    g.normal([g.values(2, 3, 4), g.values(2, 5, 4)], "second adjoint", adj_y=True)
    g.normal([g.values(3, 4), g.values(4, 5)], "matrices", gradient=False)
    if g.op == "BatchMatMulV2":
        g.normal([g.values(2, 1, 3, 4), g.values(5, 4, 2)], "broadcast")
    g.empty([g.values(0, 3, 4), g.values(0, 4, 5)])
    g.empty([g.values(2, 3, 0), g.values(2, 0, 5)], "inner")
    g.edge([g.values(3, 33, 65), g.values(3, 65, 34)], "larger than a block")
    g.error([g.values(2, 3, 4), g.values(2, 5, 4)], "inner sizes")
    g.error([g.values(2, 3, 4), g.values(3, 4, 5)], "batches")
    g.error([g.values(3), g.values(3)], "vectors")


@cases("SparseMatMul", tolerance=SUM)
def sparse_mat_mul(g):
    a, b = g.types["Ta"], g.types["Tb"]
    g.normal([g.values(3, 4, dtype=a), g.values(4, 5, dtype=b)])
    g.normal([g.values(4, 3, dtype=a), g.values(5, 4, dtype=b)], "transposed", transpose_a=True, transpose_b=True)
    g.empty([g.values(0, 4, dtype=a), g.values(4, 5, dtype=b)])
    g.edge([np.eye(4), g.values(4, 5, dtype=b)], "mostly zero", a_is_sparse=True)
    g.error([g.values(3, 4, dtype=a), g.values(5, 4, dtype=b)], "inner sizes")


def _reduction(g, values, special=True):
    kind = g.types.get("T", et.BOOL)
    g.normal([values(3, 4), [1]])
    g.normal([values(3, 4), [0]], "rows")
    g.normal([values(2, 3, 4), [0, -1]], "two axes", keep_dims=True)
    g.normal([values(2, 3, 4), [1]], "middle", gradient=False)
    g.normal([values(3, 4), 0], "scalar axis", gradient=False)
    g.normal([values(2, 3), [0, 1]], "all")
    g.edge([values(2, 3), np.zeros(0)], "no axis")
    g.edge([values(), np.zeros(0)], "scalar")
    g.edge([values(70, 33), [0]], "longer than a vector")
    g.edge([values(1, 300), [1]], "a long row")
    g.empty([values(0, 4), [1]])
    if not (g.op in ("Min", "Max") and kind not in et.FLOATS + et.INTEGERS) and not (
            g.op == "Mean" and kind in et.INTEGERS):
        g.empty([values(3, 0), [1]], "over nothing")
    if special:
        g.edge([g.special(1, dtype=kind), [0]], "one special value")
        if kind in et.FLOATS:
            g.edge([[[1.0, np.nan], [np.inf, 2.0], [-np.inf, np.inf], [-0.0, 0.0]], [1]], "special values")
    g.error([values(3, 4), [2]], "axis")
    g.error([values(3, 4), [-3]], "negative axis")
    g.error([values(3, 4), [0, 0]], "an axis twice")


@cases("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm", tolerance=SUM, gradient=True)
def reduction(g):
    kind = g.types["T"]
    narrow = {"low": 0.5, "high": 1.5} if g.op == "Prod" else {}
    if kind in (et.HALF, et.BFLOAT16) and g.op in ("Sum", "Mean"):
        narrow = {"low": 0.5, "high": 3}  # cancelling sums of short floats depend on their order
    if kind in et.UNSIGNED + (et.INT8,) and g.op in ("Mean", "EuclideanNorm"):
        narrow = {"low": 0, "high": 3}  # the order in which an overflowing mean is made is not settled

    def values(*shape):
        if g.op in ("Mean", "EuclideanNorm") and kind in et.INTEGERS and np.prod(shape) > 100:
            return np.ones(shape)
        return g.values(*shape, dtype=kind, **narrow)

    _reduction(g, values, special=g.op not in ("EuclideanNorm", "Mean") or kind not in et.INTEGERS)


@cases("All", "Any")
def logical_reduction(g):
    _reduction(g, lambda *s: g.values(*s, dtype=et.BOOL))


@cases("ArgMax", "ArgMin", tolerance=EXACT)
def arg(g):
    kind = g.types["T"]
    g.normal([g.values(3, 7, dtype=kind), 1])
    g.normal([g.values(5, 4, dtype=kind), 0], "rows")
    g.normal([g.values(2, 5, 3, dtype=kind), -2], "middle")
    g.empty([g.values(0, 4, dtype=kind), 1])
    g.edge([[2, 5, 5, 1], 0], "ties")
    g.edge([g.values(300, dtype=kind), 0], "a long row")
    g.error([g.values(3, 4, dtype=kind), 2], "axis")
    g.error([g.values(3, 0, dtype=kind), 1], "over nothing")
    g.error([g.values(3, 4, dtype=kind), [0, 1]], "axis no scalar")


@cases("Cumsum", "Cumprod", tolerance=SUM, gradient=True)
def scan(g):
    kind = g.types["T"]
    narrow = {"low": 0.5, "high": 2} if kind in et.FLOATS else {}
    g.normal([g.values(3, 4, dtype=kind, **narrow), 1])
    g.normal([g.values(3, 4, dtype=kind, **narrow), 0], "exclusive", exclusive=True)
    g.normal([g.values(3, 4, dtype=kind, **narrow), -1], "reverse", reverse=True)
    g.normal([g.values(2, 3, 2, dtype=kind, **narrow), 1], "both", reverse=True, exclusive=True)
    g.empty([g.values(0, 4, dtype=kind), 0])
    g.edge([g.special(1, dtype=kind), 0], "one")
    if kind in et.INTEGERS:
        g.edge([g.special(dtype=kind), 0], "overflow")
    g.error([g.values(3, 4, dtype=kind), 2], "axis")
    g.error([g.values(3, 4, dtype=kind), [0, 1]], "axis no scalar")


@cases("L2Loss", tolerance=SUM, gradient=True)
def l2_loss(g):
    g.normal([g.values(3, 4)])
    g.empty([g.values(0, 4)])
    g.edge([g.values()], "scalar")
    g.edge([g.values(40, 40)], "many")
    g.edge([[np.inf, np.nan]], "special values")
    g.type_error([g.values(3)])


@cases("Bincount", tolerance=SUM)
def bincount(g):
    kind = g.types["T"]
    g.normal([[1, 3, 1, 0], 4, g.values(4, dtype=kind, low=0, high=3)])
    g.normal([[1, 3, 9], 4, np.zeros(0)], "no weights")
    g.empty([np.zeros(0), 3, np.zeros(0)])
    g.edge([[5], 2, np.zeros(0)], "beyond")
    g.error([[1], -1, np.zeros(0)], "negative size")
    g.error([[-1], 3, np.zeros(0)], "negative value")


@cases("HistogramFixedWidth", tolerance=EXACT)
def histogram(g):
    kind = g.types["T"]
    g.normal([[-1, 0, 2, 5, 15], [0, 5], 5]) if kind not in et.UNSIGNED else g.normal([[1, 0, 2, 5, 15], [0, 5], 5])
    g.empty([np.zeros(0), [0, 5], 3])
    g.edge([3, [0, 5], 5], "scalar")
    g.error([[1, 2], [5, 0], 5], "range")
    g.error([[1, 2], [0, 5], 0], "no bins")


# --- Segments. ---
@cases("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin", tolerance=SUM, gradient=True)
def segment(g):
    kind = g.types["T"]
    differentiable = g.op != "SegmentProd"
    g.normal([g.values(5, 3, dtype=kind), [0, 0, 1, 1, 1]], gradient=differentiable)
    g.normal([g.values(4, dtype=kind), [0, 2, 2, 5]], "gaps", gradient=False)
    g.empty([g.values(0, 3, dtype=kind), np.zeros(0)])
    g.edge([g.values(3, 2, 2, dtype=kind), [0, 1, 2]], "one each")
    g.edge([g.values(40, 9, dtype=kind, low=0, high=2), np.sort(np.arange(40) % 7)], "many")
    g.error([g.values(3, 2, dtype=kind), [1, 0, 2]], "not sorted")
    g.error([g.values(3, 2, dtype=kind), [0, 1]], "count")
    g.error([g.values(3, 2, dtype=kind), [[0, 1, 2]]], "rank")
    g.error([g.values(3, 2, dtype=kind), [-1, 0, 1]], "negative")


@cases("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin", tolerance=SUM,
       gradient=True)
def unsorted_segment(g):
    kind = g.types["T"]
    g.normal([g.values(5, 3, dtype=kind), [2, 0, 1, 0, 2], 4])
    g.normal([g.values(2, 3, dtype=kind), [[0, 1, 1], [2, 0, 0]], 3], "matrix")
    g.normal([g.values(4, 2, dtype=kind), [1, -1, 0, -1], 2], "dropped rows", gradient=False)
    g.empty([g.values(0, 3, dtype=kind), np.zeros(0), 2])
    g.empty([g.values(0, 3, dtype=kind), np.zeros(0), 0], "no segments")
    g.edge([g.values(dtype=kind), 1, 2], "scalar")
    g.error([g.values(3, 2, dtype=kind), [0, 5, 1], 2], "beyond")
    g.error([g.values(3, 2, dtype=kind), [0, 1], 2], "shapes")
    g.error([g.values(3, 2, dtype=kind), [0, 1, 0], -1], "negative count")
    g.error([g.values(3, 2, dtype=kind), [0, 1, 0], [2, 2]], "count no scalar")


SPARSE = ["SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"]


@cases(*SPARSE, tolerance=SUM, gradient=True)
def sparse_segment(g):
    kind = g.types["T"]
    g.normal([g.values(4, 3, dtype=kind), [3, 1, 0, 1], [0, 0, 1, 2]])
    g.normal([g.values(4, 3, dtype=kind), [3, 1], [0, 2]], "gaps", gradient=False)
    g.empty([g.values(4, 3, dtype=kind), np.zeros(0), np.zeros(0)])
    g.edge([g.values(4, dtype=kind), [0] * 30, np.arange(30) // 11], "many")
    g.error([g.values(4, 3, dtype=kind), [4, 1], [0, 1]], "index")
    g.error([g.values(4, 3, dtype=kind), [0, 1], [1, 0]], "not sorted")
    g.error([g.values(4, 3, dtype=kind), [0, 1], [0]], "lengths")
    g.error([g.values(4, 3, dtype=kind), [-1, 1], [0, 1]], "negative index")


@cases(*[f"{op}WithNumSegments" for op in SPARSE], tolerance=SUM)
def sparse_segment_with_count(g):
    kind = g.types["T"]
    g.normal([g.values(4, 3, dtype=kind), [3, 1, 0, 1], [0, 0, 1, 2], 5])
    g.empty([g.values(4, 3, dtype=kind), np.zeros(0), np.zeros(0), 2])
    g.edge([g.values(4, dtype=kind), [0] * 30, np.arange(30) // 11, 3], "many")
    g.error([g.values(4, 3, dtype=kind), [4, 1], [0, 1], 2], "index")
    g.error([g.values(4, 3, dtype=kind), [0, 1], [0, 3], 2], "too few segments")
    g.error([g.values(4, 3, dtype=kind), [0, 1], [0, 1], -1], "negative count")


@cases("SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad", tolerance=SUM)
def sparse_segment_grad(g):
    kind = g.types["T"]
    g.normal([g.values(3, 2, dtype=kind), [3, 1, 0, 1], [0, 0, 1, 2], 4])
    g.empty([g.values(0, 2, dtype=kind), np.zeros(0), np.zeros(0), 0])
    g.edge([g.values(1, 2, dtype=kind), [2, 2], [0, 0], 3], "twice")
    g.error([g.values(3, 2, dtype=kind), [4, 1], [0, 1], 4], "index")
    g.error([g.values(1, 2, dtype=kind), [0, 1], [0, 1], 4], "segment")


@cases("Bucketize", tolerance=EXACT)
def bucketize(g):
    g.normal([g.values(3, 4)], boundaries=[-2.0, 0.0, 1.0, 2.5])
    g.empty([g.values(0, 2)], boundaries=[1.0])
    g.edge([g.special()], "special values", boundaries=[-1.0, 0.0, 1.0])
    g.edge([g.values(3)], "no boundaries", boundaries=[])
    g.error([g.values(3)], "order", boundaries=[2.0, 1.0])


@cases("Einsum", tolerance=("relative", 1e-4))
def einsum(g):
    for equation, shapes in (
        ("ij,jk->ik", ((3, 4), (4, 2))), ("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))), ("ijk->ki", ((2, 3, 4),)),
        ("ii->i", ((3, 3),)), ("ii->", ((3, 3),)), ("i->ii", ((3,),)), ("ab,cd->dacb", ((2, 3), (2, 2))),
        ("...ij,jk->...ik", ((2, 2, 3, 4), (4, 2))), ("i...,j...->ij...", ((2, 1, 3), (3, 4, 1))),
        ("iij,kj->ik", ((2, 2, 3), (4, 3))), ("abc,cd->b", ((2, 3, 4), (4, 2))), (",i->i", ((), (3,)))):
        g.normal([g.values(*shape) for shape in shapes], equation.replace(",", " "), sliced=False, equation=equation, N=len(shapes))
    g.empty([g.values(3, 0), g.values(0, 2)], equation="ij,jk->ik", N=2)
    g.edge([g.values(0, 4), g.values(4, 2)], "no rows", equation="ij,jk->ik", N=2)
    g.error([g.values(3, 4), g.values(3, 2)], "sizes", equation="ij,jk->ik", N=2)
    g.error([g.values(3, 4, 1), g.values(4, 2)], "rank", equation="ij,jk->ik", N=2)
    g.error([g.values(3, 4), g.values(4, 2)], "no arrow", equation="ij,jk", N=2)
    g.error([g.values(3, 4), g.values(4, 2)], "unknown label", equation="ij,jk->iz", N=2)


@cases("DenseBincount", tolerance=compare.SUM)
def dense_bincount(g):
    weight = g.types["T"]
    g.normal([[1, 2, 2, 5], 4, g.values(0, dtype=weight)])
    g.normal([[[1, 2], [2, 5]], 4, g.values(2, 2, dtype=weight)], "rows with weights")
    g.normal([[[1, 1], [2, 0]], 3, g.values(0, dtype=weight)], "whether it occurs", binary_output=True)
    g.empty([np.zeros(0), 3, g.values(0, dtype=weight)])
    g.edge([1, 3, g.values(0, dtype=weight)], "scalar")
    g.edge([[1], 0, g.values(0, dtype=weight)], "no bins")
    g.error([[1, -1], 4, g.values(0, dtype=weight)], "negative")
    g.error([[1, 2], -1, g.values(0, dtype=weight)], "negative size")
    g.error([[1, 2], 3, g.values(1, dtype=weight)], "weights")
    g.error([[[[1]]], 3, g.values(0, dtype=weight)], "rank")


@cases("SparseSegmentSumGradV2", "SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2", tolerance=compare.SUM)
def sparse_segment_grad_v2(g):
    g.normal([g.values(2, 3), [3, 0, 3], [0, 0, 1], 5])
    g.empty([g.values(0, 3), np.zeros(0), np.zeros(0), 5])
    g.edge([g.values(3), [4, 4, 4], [0, 2, 2], 5], "one row")
    g.error([g.values(2, 3), [3, 0, 5], [0, 0, 1], 5], "a row outside")
    g.error([g.values(2, 3), [3, 0, 3], [0, 0, 2], 5], "a segment outside")
    g.error([g.values(2, 3), [3, 0], [0, 0, 1], 5], "counts")
