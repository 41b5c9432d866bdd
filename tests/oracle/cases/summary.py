"""Summaries, whose outputs are messages: those without a PNG file have one form."""

import numpy as np

import compare
import element_types as et
from cases import cases

EXACT = compare.EXACT


@cases("ScalarSummary", tolerance=EXACT)
def scalar(g):
    g.normal([b"tag", g.values()])
    g.normal([[b"a", b"b", b"a"], g.values(3)], "several")
    g.empty([np.zeros(0, object), g.values(0)])
    g.edge([[b"t"] * 8, g.special(8)], "special values")
    g.error([[b"a", b"b"], g.values(3)], "shapes")


@cases("HistogramSummary", tolerance=EXACT)
def histogram(g):
    g.normal([b"tag", g.values(5, 7)])
    g.empty([b"tag", g.values(0)])
    g.edge([b"tag", g.special(4) if g.type in et.INTEGERS else [0.0, -0.0, 1e-3, -88.0, et.LARGEST[g.type]]], "special values")
    g.error([[b"a"], g.values(3)], "a tag that is a vector")
    if g.type in et.FLOATS:
        g.error([b"tag", [1.0, np.nan]], "no number")
        g.error([b"tag", [1.0, np.inf]], "infinite")


_SUMMARY = b"\x0a\x08\x0a\x01a\x15\x00\x00\x80\x3f"


@cases("MergeSummary", tolerance=EXACT)
def merge(g):
    g.normal([_SUMMARY, [b"", _SUMMARY.replace(b"a", b"b")]], N=2)
    g.empty([np.zeros(0, object)], N=1)
    g.edge([b"", b""], "nothing in them", N=2)
    g.error([_SUMMARY, _SUMMARY], "the same tag", N=2)
    g.error([b"\xff\xff\xff"], "no summary", N=1)


@cases("AudioSummaryV2", tolerance=EXACT)
def audio(g):
    g.normal([b"tag", g.values(4, 9), 8000.0])
    g.normal([b"tag", g.values(2, 3, 2), 44100.5], "two channels", max_outputs=1)
    g.empty([b"tag", g.values(0, 9), 8000.0])
    g.edge([b"tag", g.special(1, 15), 0.2], "special values")
    g.error([b"tag", g.values(9), 8000.0], "a vector")
    g.error([b"tag", g.values(1, 9), 0.0], "no rate")


@cases("ImageSummary", tolerance=EXACT)
def image(g):
    g.empty([b"tag", g.values(0, 2, 2, 1)])
    g.error([b"tag", g.values(1, 2, 2, 2)], "two channels")
    g.error([b"tag", g.values(1, 0, 2, 3)], "no rows")
    g.error([[b"tag"], g.values(1, 2, 2, 3)], "a tag that is a vector")
