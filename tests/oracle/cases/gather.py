"""Gathers and scatters that have no state."""

import numpy as np

import compare
import element_types as et
from cases import cases

EXACT = compare.EXACT


@cases("Gather", tolerance=EXACT, gradient=True)
def gather(g):
    kind = g.types["Tparams"]
    g.normal([g.values(4, 3, dtype=kind), [3, 0, 3]])
    g.normal([g.values(5, dtype=kind), [[1, 2], [4, 0]]], "matrix of indices")
    g.normal([g.values(4, 3, dtype=kind), 2], "scalar")
    g.empty([g.values(4, 3, dtype=kind), np.zeros(0)])
    g.edge([g.special(15, dtype=kind), np.arange(15)[::-1]], "special values")
    g.error([g.values(4, 3, dtype=kind), [4]], "beyond")
    g.error([g.values(4, 3, dtype=kind), [-1]], "negative")
    g.error([g.values(0, 3, dtype=kind), [0]], "of nothing")
    g.error([g.values(dtype=kind), [0]], "of a scalar")


@cases("GatherV2", tolerance=EXACT, gradient=True)
def gather_v2(g):
    kind = g.types["Tparams"]
    g.normal([g.values(4, 3, dtype=kind), [3, 0, 3], 0])
    g.normal([g.values(4, 3, dtype=kind), [[2, 0], [1, 1]], 1], "columns")
    g.normal([g.values(2, 4, 3, dtype=kind), 2, -2], "scalar")
    g.normal([g.values(2, 4, 3, dtype=kind), [[1, 3], [0, 0]], 1], "batch", batch_dims=1, gradient=False)
    g.empty([g.values(4, 3, dtype=kind), np.zeros(0), 0])
    g.empty([g.values(4, 0, dtype=kind), [1, 2], 0], "rows of nothing")
    g.edge([g.special(15, dtype=kind), np.arange(15)[::-1], 0], "special values")
    g.error([g.values(4, 3, dtype=kind), [4], 0], "beyond")
    g.error([g.values(4, 3, dtype=kind), [-1], 0], "negative")
    g.error([g.values(4, 3, dtype=kind), [0], 2], "axis")
    g.error([g.values(4, 3, dtype=kind), [0], [0, 1]], "axis no scalar")
    g.error([g.values(4, 3, dtype=kind), [0], 0], "batch", batch_dims=1)


@cases("GatherNd", tolerance=EXACT, gradient=True)
def gather_nd(g):
    kind = g.types["Tparams"]
    g.normal([g.values(4, 3, dtype=kind), [[3, 0], [1, 2]]])
    g.normal([g.values(4, 3, dtype=kind), [[3], [1], [3]]], "rows")
    g.normal([g.values(2, 3, 2, dtype=kind), [[[1, 2]], [[0, 0]]]], "three axes")
    g.empty([g.values(4, 3, dtype=kind), np.zeros((0, 2))])
    g.edge([g.values(4, 3, dtype=kind), np.zeros((2, 0))], "no coordinates")
    g.error([g.values(4, 3, dtype=kind), [[4, 0]]], "beyond")
    g.error([g.values(4, 3, dtype=kind), [[-1, 0]]], "negative")
    g.error([g.values(4, 3, dtype=kind), [[0, 0, 0]]], "too many coordinates")
    g.error([g.values(0, 3, dtype=kind), [[0, 0]]], "of nothing")


@cases("ScatterNd", tolerance=compare.SUM, gradient=True)
def scatter_nd(g):
    kind = g.types["T"]
    tolerance = EXACT if kind in (et.STRING, et.BOOL) else None
    g.normal([[[3], [1]], g.values(2, 3, dtype=kind), [5, 3]], tolerance=tolerance)
    g.normal([[[3, 0], [1, 2], [0, 0]], g.values(3, dtype=kind), [4, 3]], "elements", tolerance=tolerance)
    if kind not in (et.STRING, et.BOOL):
        g.normal([[[1], [1], [0]], g.values(3, 2, dtype=kind), [2, 2]], "twice")
    g.empty([np.zeros((0, 1)), g.values(0, 3, dtype=kind), [4, 3]])
    g.edge([[[0]], g.special(1, 5, dtype=kind), [1, 5]], "special values", tolerance=EXACT)
    g.error([[[5]], g.values(1, 3, dtype=kind), [5, 3]], "beyond")
    g.error([[[-1]], g.values(1, 3, dtype=kind), [5, 3]], "negative")
    g.error([[[1]], g.values(1, 2, dtype=kind), [5, 3]], "rows")
    g.error([[[1]], g.values(1, 3, dtype=kind), [[5, 3]]], "shape of rank 2")
    g.error([[[0]], g.values(1, 3, dtype=kind), [0, 3]], "into nothing")


@cases("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "ScatterNdNonAliasingAdd", tolerance=compare.SUM,
       gradient=True)
def tensor_scatter(g):
    kind = g.types["T"]
    g.normal([g.values(5, 3, dtype=kind), [[3], [1]], g.values(2, 3, dtype=kind)])
    g.normal([g.values(4, 3, dtype=kind), [[3, 0], [1, 2]], g.values(2, dtype=kind)], "elements")
    g.empty([g.values(4, 3, dtype=kind), np.zeros((0, 1)), g.values(0, 3, dtype=kind)])
    g.edge([g.values(1, 3, dtype=kind), [[0]], g.values(1, 3, dtype=kind)], "one row")
    g.error([g.values(4, 3, dtype=kind), [[4]], g.values(1, 3, dtype=kind)], "beyond")
    g.error([g.values(4, 3, dtype=kind), [[-1]], g.values(1, 3, dtype=kind)], "negative")
    g.error([g.values(4, 3, dtype=kind), [[1]], g.values(1, 2, dtype=kind)], "rows")
