"""Elementwise ops: one entry for all with one input, one for all with two."""

import numpy as np

import compare
import element_types as et
from cases import cases

# Where the function is defined and its derivative is not extreme.
RANGES = {
    "Sqrt": (0.1, 9), "Rsqrt": (0.1, 9), "Log": (0.1, 9), "Log1p": (-0.9, 5), "Acos": (-0.9, 0.9), "Asin": (-0.9, 0.9),
    "Atanh": (-0.9, 0.9), "Acosh": (1.1, 9), "Lgamma": (0.1, 9), "Digamma": (0.1, 9), "Reciprocal": (0.5, 3),
    "Inv": (0.5, 3),
}
# Functions that are approximations on both sides: more room, in units in the last place.
LOOSE = {"Lgamma": 64, "Digamma": 64, "Erf": 16, "Erfc": 64, "BesselI0e": 32, "BesselI1e": 32, "Tan": 16, "Sinh": 16,
         "Cosh": 16, "Asinh": 16, "Acosh": 64, "Atanh": 16, "Expm1": 16, "Log1p": 16, "Tanh": 16, "Sigmoid": 16, "Sin": 8,
         "Cos": 8, "Softplus": 16, "Elu": 16, "Selu": 16, "Igamma": 256, "Igammac": 256, "IgammaGradA": 16384, "Zeta": 256,
         "Polygamma": 256, "Pow": 16, "Xlogy": 8, "Xlog1py": 16, "Exp": 8}
UNARY = """Neg Abs Sign Square Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Tanh Sigmoid Sin Cos Tan Sinh Cosh Asin Acos
Atan Asinh Acosh Atanh Erf Erfc Lgamma Digamma BesselI0e BesselI1e Floor Ceil Round Rint Conj""".split()
UNARY_TESTS = "IsNan IsInf IsFinite LogicalNot Invert".split()
ACTIVATIONS = "Relu Relu6 Elu Selu Softplus Softsign LeakyRelu".split()
COPIES = "Identity StopGradient ZerosLike OnesLike Snapshot DeepCopy GuaranteeConst DebugGradientIdentity".split()


def _tolerance(g):
    if g.type in et.COMPLEXES:
        return ("relative", 1e-4) if g.op == "Log1p" else ("ulp", 64)  # complex functions are compositions; libraries choose different ones
    if g.op == "Digamma":  # it has roots, near which no digit is safe
        return ("relative", 1e-5)
    return ("ulp", LOOSE.get(g.op, 4))


def _unary(g, low=None, high=None):
    shape = (3, 5)
    tolerance = _tolerance(g)
    g.normal([g.values(*shape, low=low, high=high)], tolerance=tolerance)
    g.normal([g.values(2, 3, 1, 7, 2, low=low, high=high)], "five axes", tolerance=tolerance, gradient=False, sliced=False)
    g.normal([g.values(low=low, high=high)], "scalar", tolerance=tolerance, gradient=False if g.op in LOOSE else None)
    g.empty([g.values(0)], tolerance=tolerance)
    g.empty([g.values(2, 0, 3)], "three axes", tolerance=tolerance)
    g.edge([g.special()], "special values", tolerance=tolerance)
    g.type_error([g.values(3)])


@cases("Softplus", only=lambda types: types["T"] in (et.HALF, et.BFLOAT16), tolerance=("ulp", 1))
def softplus_of_small_types(g):
    """Rounded after every step, and linear or exponential where TensorFlow's own precision says."""
    g.edge([np.linspace(-12, 12, 385)], "rounded step by step")


@cases(*UNARY, *ACTIVATIONS, gradient=True)
def unary(g):
    _unary(g, *RANGES.get(g.op, (None, None)))


@cases(*UNARY_TESTS, *COPIES)
def unary_exact(g):
    _unary(g)


@cases("LeakyRelu", gradient=True)
def leaky_relu_alpha(g):
    g.normal([g.values(3, 5)], "alpha", alpha=0.01)


@cases("CheckNumerics", attrs={"message": "here"}, gradient=True)
def check_numerics(g):
    g.normal([g.values(3, 4)])
    g.empty([g.values(0, 4)])
    g.edge([g.values()], "scalar")
    g.edge([[-0.0, et.LARGEST[g.type]]], "largest")
    g.error([[1.0, np.nan]], "NaN")
    g.error([[1.0, np.inf]], "Inf")
    g.error([[np.nan, -np.inf]], "both")


@cases("Real", "Imag", "Angle", "ComplexAbs")
def complex_parts(g):
    source = g.types["T"]
    values = g.values(3, 4, dtype=source)
    wide = {} if "Tout" not in g.types else {"Tout": et.DOUBLE if source == et.COMPLEX128 else et.FLOAT}
    g.normal([values], tolerance=("ulp", 8), gradient=False, **wide)
    g.empty([g.values(0, 3, dtype=source)], **wide)
    g.edge([g.special(dtype=source)], tolerance=("ulp", 8), **wide)
    g.type_error([values], **wide)


@cases("Complex")
def make_complex(g):
    source = g.types["T"]
    wide = {"Tout": et.COMPLEX128 if source == et.DOUBLE else et.COMPLEX64}
    g.normal([g.values(3, 4, dtype=source), g.values(4, dtype=source)], **wide)
    g.empty([g.values(0, 4, dtype=source), g.values(4, dtype=source)], **wide)
    g.edge([g.special(dtype=source), g.values(dtype=source)], **wide)
    g.error([g.values(3, dtype=source), g.values(2, dtype=source)], **wide)


# --- Two inputs. ---
ARITHMETIC = """Add AddV2 Sub Mul Div RealDiv Maximum Minimum SquaredDifference DivNoNan MulNoNan Xdivy Xlogy Xlog1py Atan2
Pow FloorDiv FloorMod Mod TruncateDiv TruncateMod""".split()
COMPARISONS = "Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr ApproximateEqual".split()
BITS = "BitwiseAnd BitwiseOr BitwiseXor".split()
DIVISIONS = {"Div", "RealDiv", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod", "DivNoNan", "Xdivy", "Atan2"}
GRADS_OF_OUTPUT = """SqrtGrad RsqrtGrad TanhGrad SigmoidGrad ReciprocalGrad InvGrad""".split()
GRADS_OF_INPUT = "ReluGrad Relu6Grad EluGrad SeluGrad SoftplusGrad SoftsignGrad LeakyReluGrad".split()


def _right(g, *shape):
    """A right operand that no division fails on."""
    if g.op in ("Pow", "Xlogy", "Xlog1py"):
        return g.values(*shape, low=0.5 if g.type in et.FLOATS + et.COMPLEXES else 0, high=3)
    if g.op in DIVISIONS:
        return g.values(*shape, low=1, high=5)
    return g.values(*shape)


def _left(g, *shape):
    return g.values(*shape, low=0.5, high=3) if g.op == "Pow" and g.type in et.FLOATS else g.values(*shape)


def _broadcasts(g, left, right, tolerance, gradient=None):
    same = dict(tolerance=tolerance, gradient=gradient)
    g.normal([left(3, 4), right(3, 4)], **same)
    if g.op == "ApproximateEqual":
        return
    quiet = dict(tolerance=tolerance, gradient=False, sliced=False)
    if g.op == "Atan2":  # TensorFlow 1.15 does not sum its gradient over broadcast axes
        same["gradient"] = False
    g.normal([left(3, 4), right(4)], "row", **same)
    g.normal([left(3, 1), right(1, 4)], "outer", **same)
    g.normal([left(), right(2, 3)], "scalar left", **quiet)
    g.normal([left(2, 3), right()], "scalar right", **quiet)
    g.normal([left(), right()], "scalars", **quiet)
    g.normal([left(2, 1, 3, 1, 2), right(4, 1, 5, 1)], "five axes", **quiet)
    g.edge([left(1, 90, 1), right(80, 1, 7)], "huge broadcast", tolerance=tolerance)


def _binary(g, left, right, tolerance, gradient=None):
    _broadcasts(g, left, right, tolerance, gradient)
    if g.op == "ApproximateEqual":
        g.empty([left(0), right(0)], tolerance=tolerance)
    else:
        g.empty([left(0, 4), right(4)], tolerance=tolerance)
        g.empty([left(3, 0), right(3, 1)], "broadcast", tolerance=tolerance)
    g.error([left(3, 4), right(3, 5)], "shapes")


@cases(*ARITHMETIC, gradient=True)
def binary(g):
    tolerance = _tolerance(g)
    _binary(g, lambda *s: _left(g, *s), lambda *s: _right(g, *s), tolerance)
    if g.type not in et.INTEGERS:
        special = g.special()
        count = len(special)
        g.edge([special[:, None] if g.type not in et.COMPLEXES else g.values(count, 1), special[None, :]
                if g.op not in DIVISIONS or g.type not in et.COMPLEXES else _right(g, 1, count)],
               "special values", tolerance=tolerance)
        return
    special = g.special()
    if g.op in DIVISIONS:
        # The smallest integer divided by -1 overflows, which traps on some processors.
        divisors = np.array([1, 2, 3, 100], special.dtype)
        g.edge([special[:, None], divisors[None, :]], "special values", tolerance=tolerance)
        if g.type in et.SIGNED:
            g.edge([g.values(7)[:, None], [[-1, -2, -3, 5]]], "signs", tolerance=tolerance)
        if g.op not in ("DivNoNan", "Xdivy", "Atan2"):
            g.edge([g.values(4), [1, 0, 2, 3]], "division by zero")
    elif g.op == "Pow":
        g.edge([special[:, None], [[0, 1, 2, 3]]], "special values")
        if g.type in et.SIGNED:
            g.edge([[2, 3], [1, -1]], "negative power")
    else:
        g.edge([special[:, None], special[None, :]], "special values", tolerance=tolerance)


@cases(*COMPARISONS)
def comparison(g):
    _binary(g, g.values, g.values, compare.EXACT)
    special = g.special()
    if g.op != "ApproximateEqual":
        g.edge([special[:, None], special[None, :]], "special values")
    else:
        g.edge([special, special[::-1]], "special values")


@cases("Equal", "NotEqual")
def unequal_shapes(g):
    g.normal([g.values(3), g.values(2)], "shapes allowed to differ", incompatible_shape_error=False, sliced=False)


@cases(*BITS)
def bits(g):
    _binary(g, g.values, g.values, compare.EXACT)
    g.edge([g.special()[:, None], g.special()[None, :]], "special values")


@cases("LeftShift", "RightShift")
def shifts(g):
    width = 8 * np.dtype(et.CARRIERS[g.type]).itemsize
    _binary(g, g.values, lambda *s: g.values(*s, low=0, high=4), compare.EXACT)
    g.edge([g.special()[:, None], [[0, 1, width - 1]]], "special values")


@cases("NextAfter")
def next_after(g):
    _binary(g, g.values, g.values, compare.EXACT)
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan])
    g.edge([special[:, None], special[None, :]], "special values", tolerance=compare.EXACT)


@cases("Igamma", "Igammac", "Zeta", "Polygamma", "IgammaGradA")
def special_functions(g):
    first = 1.5 if g.op == "Zeta" else 0.5
    left = (lambda *s: np.round(g.values(*s, low=1, high=4))) if g.op == "Polygamma" else (
        lambda *s: g.values(*s, low=first, high=4))
    _binary(g, left, lambda *s: g.values(*s, low=0.5, high=4), _tolerance(g))
    g.edge([[np.nan, 1.0, 2.0], [1.0, np.nan, 3.0]], "special values", tolerance=_tolerance(g))


@cases(*GRADS_OF_OUTPUT, gradient=True)
def gradient_of_output(g):
    tolerance = ("ulp", 32 if g.type in et.COMPLEXES else 8)
    g.normal([g.values(3, 4, low=0.3, high=0.9), g.values(3, 4)], tolerance=tolerance)
    g.empty([g.values(0, 4), g.values(0, 4)], tolerance=tolerance)
    g.edge([g.values(low=0.3, high=0.9), g.values()], "scalars", tolerance=tolerance)
    if g.type in et.FLOATS:
        g.edge([[0.0, 1.0, np.nan, 0.5], [1.0, np.inf, 1.0, -0.0]], "special values", tolerance=tolerance)
    g.type_error([g.values(3), g.values(3)])


@cases(*GRADS_OF_INPUT, gradient=True)
def gradient_of_input(g):
    tolerance = ("ulp", 16)
    g.normal([g.values(3, 4), g.values(3, 4)], tolerance=tolerance)
    g.empty([g.values(0, 4), g.values(0, 4)])
    g.edge([g.values(), g.values()], "scalars", tolerance=tolerance)
    if g.type in et.FLOATS:
        g.edge([[1.0, 2.0, 3.0, 4.0, 5.0], [0.0, -0.0, 1.0, 6.0, -1.0]], "special values", tolerance=tolerance)
    g.error([g.values(3, 4), g.values(2, 4)], "shapes")


@cases("AddN", gradient=True)
def add_n(g):
    g.normal([g.values(3, 4)] * 3, N=3, tolerance=("ulp", 8))
    g.normal([g.values(3, 4)], "one", N=1, sliced=False, gradient=False)
    g.normal([g.values(3, 4) for _ in range(11)], "eleven", N=11, sliced=False, tolerance=compare.SUM, gradient=False)
    g.empty([g.values(0, 4)] * 2, N=2)
    g.edge([g.special(), g.special()], "special values", N=2)
    g.error([g.values(3, 4), g.values(3, 5)], "shapes", N=2)


@cases("AccumulateNV2")
def accumulate_n(g):
    g.normal([g.values(3, 4)] * 3, N=3, shape=[3, 4], tolerance=compare.SUM)
    g.empty([g.values(0, 4)] * 2, N=2, shape=[0, 4])
    g.edge([g.values(3)], "one", N=1, shape=[3])
    g.error([g.values(3, 4), g.values(3, 5)], "shapes", N=2, shape=[3, 4])


@cases("ClipByValue")
def clip(g):
    g.normal([g.values(3, 4), -1 if g.type not in et.UNSIGNED else 1, 2])
    g.normal([g.values(3, 4), g.values(3, 4, low=0, high=1), g.values(3, 4, low=2, high=4)], "tensors")
    g.empty([g.values(0, 4), 1, 2])
    g.edge([g.special(), 1, 2], "special values")
    g.error([g.values(3, 4), [1, 2], [3, 4]], "shapes")


# --- Casts. ---
@cases("Cast")
def cast(g):
    source, target = g.types["SrcT"], g.types["DstT"]
    low = 0 if source not in et.SIGNED and target in et.UNSIGNED else None
    targets = [t for t in et.USABLE if t != et.STRING] if g.label.startswith("SrcT") else [target]
    for to in targets:
        floor = 0 if to in et.UNSIGNED and source in et.FLOATS + et.COMPLEXES else low
        note = f"to {et.NAMES[to]}"
        g.normal([g.values(3, 4, low=floor, dtype=source)], note, DstT=to, sliced=to == target)
        g.empty([g.values(0, 4, dtype=source)], note, DstT=to)
        if source in et.INTEGERS + (et.BOOL,):
            g.edge([g.special(dtype=source)], f"{note} special values", DstT=to)
        elif to in et.FLOATS + et.COMPLEXES + (et.BOOL,) and source in et.FLOATS:
            g.edge([g.special(dtype=source)], f"{note} special values", DstT=to)
        else:
            g.edge([g.values(dtype=source, low=floor)], f"{note} scalar", DstT=to)
    g.error([g.values(3, dtype=source)], "to string", DstT=et.STRING)


@cases("Cast", gradient=True, only=lambda types: types["SrcT"] in (et.FLOAT, et.DOUBLE))
def cast_gradient(g):
    if g.types["DstT"] in et.FLOATS:
        g.normal([g.values(3, 4)], "differentiated")


@cases("Bitcast")
def bitcast(g):
    source, target = g.types["T"], g.types["type"]
    from_size = np.dtype(et.CARRIERS[source]).itemsize
    to_size = np.dtype(et.CARRIERS[target]).itemsize
    last = max(1, to_size // from_size)
    shape = (3, last) if last > 1 else (3,)
    g.normal([g.values(*shape)])
    g.empty([g.values(0, *shape[1:])])
    g.edge([g.special(2, *shape)], "special values")
    if last > 1:
        g.error([g.values(3, last + 1)], "last axis")
    else:
        g.type_error([g.values(*shape)])


@cases("Betainc", tolerance=("relative", 1e-5))
def betainc(g):
    g.normal([[0.5, 2.0, 3.0, 10.0], [0.5, 1.0, 4.0, 2.0], [0.1, 0.5, 0.75, 0.9]], gradient=True)
    g.normal([2.0, 3.0, [0.2, 0.4]], "scalars")
    g.empty([g.values(0), g.values(0), g.values(0)])
    g.edge([[1.0, 1.0, 0.5, 0.0, -1.0, 1.0], [2.0, 2.0, 0.5, 1.0, 1.0, 1.0], [0.0, 1.0, np.nan, 0.5, 0.5, 1.5]], "the rim")
    g.edge([[50.0, 3.0], [0.5, 70.0], [0.9, 0.01]], "lopsided")
    g.error([[0.5, 2.0, 3.0], [0.5, 1.0], 0.5], "shapes")
