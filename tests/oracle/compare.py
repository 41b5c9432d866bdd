"""Compares what two systems made of one program. A tolerance is ("exact",), ("ulp", n) or ("relative", r):

ulp       |a - b| at most n units in the last place of b, or of the smallest normal number
relative  |a - b| at most r times the largest |b| of the tensor; r is meant for float and scaled to other precisions
          (1e-5 is 4 units in the last place of half and bfloat16)
"""

import re

import numpy as np

import element_types as et

EXACT = ("exact",)
ELEMENTWISE = ("ulp", 4)
SUM = ("relative", 1e-5)

# Of TensorFlow's status codes those that the build of a graph reports as ValueError.
_NAMES = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
          "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
          "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"]


def describe(result):
    if result[0] == "error":
        code = _NAMES[result[1]] if 0 <= result[1] < len(_NAMES) else "an exception"
        text = re.sub(r"^Graph execution error:.*?Node: '[^']*'", "", " ".join(result[2].split()))
        return f"{code} ({text.strip()[:120]})"
    if result[0] == "crash":
        return f"crash ({' '.join(result[1].split())[-160:]})"
    return "values"


def said(result):
    """What an error says, without where it happened, in the words of TensorFlow 1.15 for errors of shape rules."""
    text = re.sub(r"^Graph execution error:.*?Node: '[^']*'", "", result[2], flags=re.DOTALL)
    text = re.split(r"\n\t? ?\[\[", text)[0]
    text = re.sub(r"'\{\{node (\S+?)\}\} = (\w+).*?\]?\(.*?\)' with", r"'\1' (op: '\2') with", text)
    return " ".join(text.split())


def missing_kernel(result):
    """Whether a result says that the op, or its kernel for these types, does not exist."""
    return result[0] == "error" and any(
        text in result[2] for text in ("No OpKernel was registered", "Op type not registered", "No registered"))


def difference(expected, actual, tolerance, with_text=False):
    """None where the results agree, otherwise what is different. `with_text`: what errors say is compared too."""
    if expected[0] == "crash":
        return f"TensorFlow itself: {describe(expected)}"
    if expected[0] != actual[0]:
        return f"{describe(actual)}, TensorFlow: {describe(expected)}"
    if expected[0] == "error":
        if expected[1] != actual[1]:
            return f"{describe(actual)}, TensorFlow: {describe(expected)}"
        if missing_kernel(actual) != missing_kernel(expected):
            return f"{describe(actual)}, TensorFlow: {describe(expected)}"
        if with_text and said(expected) != said(actual):
            return f"says {said(actual)!r}, TensorFlow {said(expected)!r}"
        return None
    if len(expected[1]) != len(actual[1]):
        return f"{len(actual[1])} outputs, TensorFlow has {len(expected[1])}"
    for index, ((want_type, want), (got_type, got)) in enumerate(zip(expected[1], actual[1])):
        found = _tensor_difference(want_type, want, got_type, got, tolerance)
        if found:
            return f"output {index}: {found}"
    return None


def _tensor_difference(want_type, want, got_type, got, tolerance):
    if want_type != got_type:
        return f"type {et.NAMES.get(got_type, 'none')}, TensorFlow has {et.NAMES.get(want_type, 'none')}"
    if want is None or got is None:
        return None if want is None and got is None else "only one side has a value"
    if want.dtype != got.dtype:
        return f"array type {got.dtype}, TensorFlow has {want.dtype}"
    if want.shape != got.shape:
        return f"shape {list(got.shape)}, TensorFlow has {list(want.shape)}"
    if want_type not in et.EPSILON:
        wrong = np.asarray(want != got)
        return _report(want, got, wrong) if wrong.any() else None
    if tolerance == EXACT:
        wrong = ~((want == got) | ((want != want) & (got != got)))
        return _report(want, got, wrong) if np.any(wrong) else None
    a, b = et.numbers(want, want_type), et.numbers(got, want_type)
    wrong = np.asarray(_outside(a, b, want_type, tolerance))
    return _report(a, b, wrong) if wrong.any() else None


def _outside(want, got, dtype, tolerance):
    """Where `got` is not near `want`; NaN and Inf have to stand at the same places."""
    if dtype in et.COMPLEXES:
        # Which part of a complex result is NaN, or the sign of an infinite part, is not settled by any standard.
        finite = np.isfinite(want) & np.isfinite(got)
        other = np.isfinite(want) != np.isfinite(got)
    else:
        finite = np.isfinite(want) & np.isfinite(got)
        same = (want == got) | (np.isnan(want) & np.isnan(got))
        other = ~finite & ~same
    want, got = np.where(finite, want, 0), np.where(finite, got, 0)
    kind, amount = tolerance[0], tolerance[1]
    if kind == "ulp":
        bound = amount * et.EPSILON[dtype] * np.maximum(np.abs(want), et.SMALLEST[dtype])
    else:
        scale = np.max(np.abs(want)) if np.size(want) else 0.0
        # The short types are rounded once at the end of a sum that is made in float: a few units, not hundreds.
        relative = amount * et.EPSILON[dtype] / et.EPSILON[et.FLOAT]
        if dtype in (et.HALF, et.BFLOAT16):
            relative = amount / SUM[1] * 4 * et.EPSILON[dtype]
        bound = np.maximum(relative * scale, et.SMALLEST[dtype])
    return other | (np.abs(want - got) > bound)


def _report(want, got, wrong):
    want, got, wrong = np.atleast_1d(want), np.atleast_1d(got), np.atleast_1d(wrong)
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ, first at {list(at)}: {got[at]!r}, TensorFlow has {want[at]!r}"
