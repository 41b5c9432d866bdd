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
