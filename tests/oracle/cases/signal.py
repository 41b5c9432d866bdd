"""Fourier transforms."""

import numpy as np

import element_types as et

from . import cases

# Single precision: TensorFlow sums in float, Muster in double.
NEAR = ("relative", 2e-4)
RANK = {"": 1, "2D": 2, "3D": 3}


def _rank(op):
    return RANK["2D" if op.endswith("2D") else "3D" if op.endswith("3D") else ""]


def _same_precision(types):
    return (types["Treal"] == et.DOUBLE) == (types["Tcomplex"] == et.COMPLEX128)


@cases("FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D", tolerance=NEAR)
def complex_transform(g):
    rank, kind = _rank(g.op), g.types["Tcomplex"]
    g.normal([g.values(*(4, 3, 5)[:rank], dtype=kind)])
    g.normal([g.values(2, *(8, 2, 6)[:rank], dtype=kind)], "batch")
    g.normal([g.values(*(37, 2, 7)[:rank], dtype=kind)], "large prime")
    g.empty([g.values(0, *(4, 4, 4)[:rank], dtype=kind)])
    g.edge([g.values(*(1, 1, 1)[:rank], dtype=kind)], "one value")
    g.error([g.values(*(2, 2)[:rank - 1], dtype=kind)], "rank")


@cases("RFFT", "RFFT2D", "RFFT3D", tolerance=NEAR, only=_same_precision)
def real_transform(g):
    rank, kind = _rank(g.op), g.types["Treal"]
    sizes = (4, 3, 5)[:rank]
    g.normal([g.values(*sizes, dtype=kind), sizes])
    g.normal([g.values(2, *(6, 4, 8)[:rank], dtype=kind), (5, 4, 7)[:rank]], "cropped")
    g.empty([g.values(0, *sizes, dtype=kind), sizes])
    g.edge([g.values(*(1, 1, 1)[:rank], dtype=kind), (1, 1, 1)[:rank]], "one value")
    g.error([g.values(*sizes, dtype=kind), (9, 9, 9)[:rank]], "too short")
    g.error([g.values(*sizes, dtype=kind), [2, 2, 2, 2]], "lengths")
    g.error([g.values(*sizes, dtype=kind), (-1, -1, -1)[:rank]], "negative length")


@cases("IRFFT", "IRFFT2D", "IRFFT3D", tolerance=NEAR, only=_same_precision)
def inverse_real_transform(g):
    rank, kind = _rank(g.op), g.types["Tcomplex"]
    sizes = (4, 3, 5)[:rank]
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    g.normal([g.values(*half, dtype=kind), sizes])
    g.normal([g.values(2, *half, dtype=kind), sizes], "batch")
    g.empty([g.values(0, *half, dtype=kind), sizes])
    g.edge([g.values(*(1, 1, 1)[:rank], dtype=kind), (1, 1, 1)[:rank]], "one value")
    g.error([g.values(*half, dtype=kind), (9, 9, 9)[:rank]], "too short")
    g.error([g.values(*half, dtype=kind), [2, 2, 2, 2]], "lengths")
    g.error([np.zeros(half[1:] if rank > 1 else ()), sizes], "rank")
