"""Sparse tensors, given as indices, values and shape."""

import numpy as np

import compare
import element_types as et
from cases import cases

EXACT = compare.EXACT
INDICES = [[1, 2], [0, 1], [1, 0], [0, 1]]
SHAPE = [2, 3]


@cases("SparseReorder", tolerance=EXACT, gradient=True, gradient_of=[1],
       only=lambda types: types["T"] not in (et.VARIANT, et.RESOURCE))
def reorder(g):
    g.normal([INDICES, g.values(4), SHAPE])
    g.normal([[[3, 0, 1], [0, 9, 9], [3, 0, 0]], g.values(3), [4, 10, 10]], "three dims", sliced=False)
    g.empty([np.zeros((0, 2)), g.values(0), SHAPE])
    g.edge([[[0], [1]], g.values(2), [2]], "sorted already")
    g.error([INDICES, g.values(3), SHAPE], "counts")
    g.error([INDICES, g.values(4, 1), SHAPE], "rank of values")
    g.error([[1, 2], g.values(2), SHAPE], "rank of indices")


@cases("SparseReshape", tolerance=EXACT)
def reshape(g):
    g.normal([INDICES, SHAPE, [3, 2]])
    g.normal([INDICES, SHAPE, [6]], "flat")
    g.normal([INDICES, SHAPE, [1, -1, 2]], "one dim is inferred")
    g.empty([np.zeros((0, 2)), SHAPE, [6]])
    g.edge([np.zeros((0, 2)), [0, 3], [0, 7]], "no elements")
    g.error([INDICES, SHAPE, [4, 2]], "another number of elements")
    g.error([INDICES, SHAPE, [-1, -1]], "two unknown dims")
    g.error([INDICES, SHAPE, [-1, 4]], "not divisible")
    g.error([INDICES, SHAPE, [-2, 3]], "negative")
    g.error([INDICES, [SHAPE], [6]], "rank of the shape")


@cases("SparseFillEmptyRows", tolerance=EXACT, gradient=True, gradient_of=[1],
       only=lambda types: types["T"] not in (et.VARIANT, et.RESOURCE))
def fill_empty_rows(g):
    g.normal([[[0, 1], [2, 0], [2, 2]], g.values(3), [5, 3], g.values()])
    g.normal([[[2, 0], [0, 1], [2, 2]], g.values(3), [4, 3], g.values()], "rows not in order", sliced=False)
    g.empty([np.zeros((0, 2)), g.values(0), [3, 2], g.values()])
    g.edge([np.zeros((0, 2)), g.values(0), [0, 2], g.values()], "no rows")
    g.error([[[5, 1]], g.values(1), [5, 3], g.values()], "a row outside")
    g.error([[[0, 1]], g.values(2), [5, 3], g.values()], "counts")
    g.error([[[0, 1]], g.values(1), [5, 3], g.values(1)], "rank of the default")
    g.error([[[0, 1]], g.values(1), [0, 3], g.values()], "entries without rows")


@cases("SparseFillEmptyRowsGrad", tolerance=compare.SUM)
def fill_empty_rows_grad(g):
    g.normal([[0, 3, 2], g.values(6)])
    g.empty([np.zeros(0), g.values(0)])
    g.edge([np.zeros(0), g.values(3)], "all were filled in")
    g.error([[6], g.values(6)], "an index outside")
    g.error([[-1], g.values(6)], "a negative index")
    g.error([[[0]], g.values(6)], "rank")


@cases("SparseReduceSum", tolerance=compare.SUM, gradient=True)
def reduce_sum(g):
    for axes in ([0], [1], [0, 1], [-1], []):
        g.normal([INDICES[:3], g.values(3), SHAPE, axes], str(axes), sliced=False)
    g.normal([[[0, 0, 1], [1, 2, 0], [1, 2, 1]], g.values(3), [2, 3, 2], [1]], "three dims", keep_dims=True)
    g.empty([np.zeros((0, 2)), g.values(0), SHAPE, [0]])
    g.edge([[[0, 0]], g.values(1), [1, 1], [0, 0]], "an axis twice")
    g.error([INDICES, g.values(4), SHAPE, [2]], "axis")
    g.error([INDICES, g.values(4), SHAPE, [-3]], "negative axis")


@cases("SparseTensorDenseMatMul", tolerance=compare.SUM, gradient=True)
def matmul(g):
    a, values = [[0, 1], [1, 0], [1, 2]], g.values(3)
    g.normal([a, values, SHAPE, g.values(3, 4)])
    g.normal([a, values, SHAPE, g.values(2, 4)], "adjoint a", adjoint_a=True)
    g.normal([a, values, SHAPE, g.values(4, 3)], "adjoint b", adjoint_b=True)
    g.normal([a, values, SHAPE, g.values(4, 2)], "adjoint both", adjoint_a=True, adjoint_b=True)
    g.empty([np.zeros((0, 2)), g.values(0), SHAPE, g.values(3, 4)])
    g.edge([np.zeros((0, 2)), g.values(0), [0, 3], g.values(3, 0)], "no elements")
    g.error([a, values, SHAPE, g.values(2, 4)], "inner dims")
    g.error([[[0, 3]], g.values(1), SHAPE, g.values(3, 4)], "a column outside")
    g.error([[[2, 0]], g.values(1), SHAPE, g.values(3, 4)], "a row outside")
    g.error([a, values, SHAPE, g.values(3)], "rank of b")
    g.error([a, g.values(2), SHAPE, g.values(3, 4)], "counts")


SETS = dict(only=lambda types: types["T"] not in (et.VARIANT, et.RESOURCE), tolerance=EXACT)
FIRST = ([[0, 0], [0, 1], [2, 0], [2, 1]], [3, 2])
SECOND = ([[0, 0], [1, 0], [2, 0]], [3, 1])


def _few(g, *shape):
    """Values of which some are equal."""
    if g.type == et.STRING:
        return np.array([b"a", b"b", b""], object)[np.arange(int(np.prod(shape))) % 3].reshape(shape)
    return np.array([5, 2, 7, 2])[np.arange(int(np.prod(shape))) % 4].reshape(shape)


@cases("DenseToDenseSetOperation", attrs=dict(set_operation="intersection"), **SETS)
def sets_of_dense(g):
    for kind in ("a-b", "b-a", "intersection", "union", "Union"):
        g.normal([_few(g, 3, 4), _few(g, 3, 2)], kind, set_operation=kind)
    g.empty([_few(g, 3, 0), _few(g, 3, 0)])
    g.edge([_few(g, 2, 2, 3), _few(g, 2, 2, 1)], "three dims", set_operation="a-b")
    g.edge([_few(g, 3, 0), _few(g, 3, 2)], "one side is empty", set_operation="union")
    g.error([_few(g, 3), _few(g, 3)], "rank")
    g.error([_few(g, 3, 2), _few(g, 2, 2)], "groups")
    g.error([_few(g, 3, 2), _few(g, 3, 2)], "operation", set_operation="xor")


@cases("DenseToSparseSetOperation", attrs=dict(set_operation="intersection"), **SETS)
def sets_of_both(g):
    for kind in ("a-b", "b-a", "intersection", "union"):
        g.normal([_few(g, 3, 4), FIRST[0], _few(g, 4), FIRST[1]], kind, set_operation=kind)
    g.empty([_few(g, 3, 0), np.zeros((0, 2)), _few(g, 0), [3, 1]], "nothing")
    g.edge([_few(g, 3, 1), np.zeros((0, 2)), _few(g, 0), [3, 1]], "one side is empty", set_operation="union")
    g.error([_few(g, 3, 4), [[0, 1], [0, 0]], _few(g, 2), [3, 2]], "order")
    g.error([_few(g, 2, 4), FIRST[0], _few(g, 4), FIRST[1]], "groups")


@cases("SparseToSparseSetOperation", attrs=dict(set_operation="intersection"), **SETS)
def sets_of_sparse(g):
    for kind in ("a-b", "b-a", "intersection", "union"):
        g.normal([FIRST[0], _few(g, 4), FIRST[1], SECOND[0], _few(g, 3), SECOND[1]], kind, set_operation=kind)
    g.empty([np.zeros((0, 2)), _few(g, 0), [3, 1], np.zeros((0, 2)), _few(g, 0), [3, 1]])
    g.edge([FIRST[0], _few(g, 4), FIRST[1], np.zeros((0, 2)), _few(g, 0), [3, 9]], "one side is empty")
    g.error([FIRST[0], _few(g, 4), FIRST[1], SECOND[0], _few(g, 3), [4, 1]], "groups")


@cases("SetSize", **SETS)
def set_size(g):
    g.normal([FIRST[0], _few(g, 4), FIRST[1]])
    g.normal([[[0, 0], [0, 1], [0, 2], [0, 3]], _few(g, 4), [2, 4]], "repeated values")
    g.empty([np.zeros((0, 2)), _few(g, 0), [3, 1]])
    g.edge([np.zeros((0, 3)), _few(g, 0), [2, 0, 4]], "no sets")
    g.error([[[0, 1], [0, 0]], _few(g, 2), [3, 2]], "order")


@cases("EditDistance", tolerance=EXACT, only=lambda types: types["T"] not in (et.VARIANT, et.RESOURCE))
def edit_distance(g):
    first = [[[0, 0], [0, 1], [0, 2], [2, 0]], _few(g, 4), [3, 3]]
    second = [[[0, 0], [0, 1], [1, 0]], _few(g, 3), [3, 2]]
    for normalize in (True, False):
        g.normal(first + second, f"normalize {normalize}", normalize=normalize)
        g.normal(second + first, f"turned round {normalize}", normalize=normalize)
    g.empty([np.zeros((0, 2)), _few(g, 0), [3, 1]] * 2)
    g.edge([[[0, 1, 0], [1, 1, 0]], _few(g, 2), [2, 2, 1], [[0, 0, 0], [1, 1, 0]], _few(g, 2), [2, 2, 1]], "three dims")
    g.edge([[[0, 0], [0, 5]], _few(g, 2), [1, 2], [[0, 0], [0, -7]], _few(g, 2), [1, 1]], "outside the rows")
    g.edge([[[0, 0, 0], [0, 2, 0]], _few(g, 2), [2, 2, 1], [[1, 0, 0]], _few(g, 1), [2, 2, 1]], "a row beyond its dim")
    g.error([[[0, 0], [3, 5]], _few(g, 2), [1, 2]] + [[[0, 0]], _few(g, 1), [1, 1]], "rows beyond the shape")
    g.error([[[0, 0], [-1, 0]], _few(g, 2), [1, 2]] + [[[0, 0]], _few(g, 1), [1, 1]], "negative rows")
    g.error(first + [second[0], _few(g, 3), [3, 2, 1]], "ranks")
    g.error(first + [[0, 1], _few(g, 2), [3, 2]], "rank of indices")
    g.error(first + [second[0], _few(g, 2), [3, 2]], "counts")


@cases("SerializeSparse", "SerializeManySparse", tolerance=EXACT,
       only=lambda types: types.get("T") not in (et.VARIANT, et.RESOURCE) and types["out_type"] == et.STRING)
def serialize(g):
    g.normal([[[0, 0], [0, 3], [2, 1]], g.values(3), [3, 4]])
    g.empty([np.zeros((0, 2)), g.values(0), [2, 4]])
    g.edge([[[1, 0, 2]], g.values(1), [2, 1, 4]], "three dims")
    g.error([[0, 0], g.values(2), [3, 4]], "rank of indices")


@cases("RaggedTensorToSparse", tolerance=EXACT, only=lambda types: types.get("T") not in (et.VARIANT, et.RESOURCE))
def ragged_to_sparse(g):
    kind = g.types["T"]
    g.normal([[0, 2, 2, 5], g.values(5, dtype=kind)], RAGGED_RANK=1)
    g.normal([[0, 1, 1, 3], [0, 2, 2, 5], g.values(5, dtype=kind)], "two levels", RAGGED_RANK=2)
    g.normal([[0, 2, 3], g.values(3, 2, dtype=kind)], "values that are rows", RAGGED_RANK=1)
    g.empty([[0, 0, 0], g.values(0, dtype=kind)], RAGGED_RANK=1)
    g.edge([[0], g.values(0, dtype=kind)], "no rows", RAGGED_RANK=1)
    g.error([[1, 2], g.values(2, dtype=kind)], "begins with 1", RAGGED_RANK=1)
    g.error([[0, 3, 2], g.values(2, dtype=kind)], "decreasing", RAGGED_RANK=1)
    g.error([[0, 3], g.values(2, dtype=kind)], "beyond the values", RAGGED_RANK=1)
