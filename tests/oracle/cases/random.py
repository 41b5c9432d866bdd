"""Random ops: TensorFlow's own numbers, exactly where they are integers or uniform."""

import numpy as np

import compare
import element_types as et
from cases import cases

SEEDS = dict(seed=87654321, seed2=42)
NORMAL = ("relative", 2e-6)


@cases("RandomUniform", "RandomStandardNormal", "TruncatedNormal", attrs=SEEDS, tolerance=NORMAL)
def by_shape(g):
    exact = dict(tolerance=compare.EXACT) if g.op == "RandomUniform" else {}
    g.normal([[3, 5]], **exact)
    g.normal([[1000]], "many", sliced=False, **exact)
    g.normal([[7]], "other seeds", seed=3, seed2=0, sliced=False, **exact)
    g.empty([[0, 3]])
    g.edge([np.zeros(0)], "scalar", **exact)
    g.error([[-1]], "negative size")
    g.error([[[2, 3]]], "shape of rank 2")


@cases("RandomUniformInt", attrs=SEEDS, tolerance=compare.EXACT)
def uniform_int(g):
    g.normal([[3, 5], -5, 100])
    g.normal([[1000], 0, 7], "many", sliced=False)
    g.empty([[0], 0, 3])
    info = np.iinfo(et.CARRIERS[g.types["Tout"]])
    g.edge([[20], info.min, info.max], "the whole range")
    g.edge([np.zeros(0), 2, 3], "one value")
    g.error([[3], 5, 5], "no range")
    g.error([[3], [1, 2], 5], "vector")


@cases("RandomShuffle", attrs=SEEDS, tolerance=compare.EXACT)
def shuffle(g):
    g.normal([g.values(7, 2)])
    g.normal([g.values(12)], "a vector")
    g.empty([g.values(0, 3)])
    g.edge([g.values()], "scalar")
    g.edge([g.values(1, 3)], "one row")
    g.type_error([g.values(3)])


@cases("Multinomial", attrs=SEEDS, tolerance=compare.EXACT)
def multinomial(g):
    kind = g.types["T"]
    g.normal([g.values(2, 4, dtype=kind), 6])
    g.empty([g.values(2, 4, dtype=kind), 0])
    g.edge([[[0, 0, 0]] if kind in et.INTEGERS else [[-np.inf, 0.0, -np.inf]], 5], "special values")
    g.error([g.values(4, dtype=kind), 3], "rank")
    g.error([g.values(2, 4, dtype=kind), -1], "negative count")
    g.error([g.values(2, 0, dtype=kind), 3], "no classes")
    g.error([g.values(2, 4, dtype=kind), [1, 2]], "count no scalar")


@cases("RandomGamma", attrs=SEEDS, tolerance=("relative", 1e-5))
def gamma(g):
    g.normal([[3, 4], [0.5, 1.0, 2.5]])
    g.empty([[0], [1.0]])
    g.edge([[5], 0.1], "scalar alpha")
    g.error([[[1]], [1.0]], "shape of rank 2")


@cases("RandomPoisson", "RandomPoissonV2", attrs=SEEDS, tolerance=compare.EXACT)
def poisson(g):
    g.normal([[5], [0.5, 4.0, 20.0]])
    g.empty([[0], [1.0]])
    g.edge([[5], 3.0], "scalar rate")
    g.error([[[1]], [1.0]], "shape of rank 2")


@cases("ParameterizedTruncatedNormal", attrs=SEEDS, tolerance=("relative", 1e-5))
def parameterized(g):
    g.normal([[20], 0.0, 1.0, -1.0, 2.0])
    g.normal([[3, 4], [0.0, 1.0, 2.0], [1.0, 2.0, 0.5], [-1.0, 0.0, 1.0], [1.0, 5.0, 9.0]], "rows")
    g.empty([[3, 0], 0.0, 1.0, -1.0, 1.0])
    g.edge([[10], 0.0, 1.0, 5.0, 8.0], "in the tail")
    g.error([[10], 0.0, 1.0, 2.0, 1.0], "bounds")
    g.error([[10], 0.0, -1.0, -1.0, 1.0], "negative deviation")


SAMPLER = dict(num_true=2, num_sampled=5, unique=True, range_max=20, **SEEDS)


@cases("LogUniformCandidateSampler", "UniformCandidateSampler", "LearnedUnigramCandidateSampler",
       "ThreadUnsafeUnigramCandidateSampler", tolerance=("relative", 1e-5), attrs=SAMPLER)
def sampler(g):
    g.normal([[[1, 5], [0, 19]]])
    g.normal([[[1, 5], [0, 19]]], "with repetition", unique=False, sliced=False)
    g.empty([np.zeros((0, 2))])
    g.edge([[[3, 3]]], "all classes", num_sampled=20)
    g.error([[[1], [2]]], "number of true classes")
    g.error([[1, 2]], "rank")
    g.error([[[1, 5]]], "more than there are", num_sampled=21)


@cases("FixedUnigramCandidateSampler", tolerance=("relative", 1e-5),
       attrs=dict(SAMPLER, range_max=6, num_sampled=3, unigrams=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
def fixed_sampler(g):
    g.normal([[[1, 5], [0, 4]]])
    g.normal([[[1, 5], [0, 4]]], "distorted", distortion=0.75, unique=False, sliced=False)
    g.empty([np.zeros((0, 2))])
    g.edge([[[3, 3]]], "all classes", num_sampled=6)
    g.error([[[1], [2]]], "number of true classes")
    g.error([[[1, 5]]], "weights", range_max=7)


@cases("AllCandidateSampler", tolerance=("relative", 1e-5),
       attrs=dict(num_true=2, num_sampled=5, unique=True, **SEEDS))
def all_sampler(g):
    g.normal([[[1, 4], [0, 3]]])
    g.empty([np.zeros((0, 2))])
    g.edge([[[3, 3]]], "twice")
    g.error([[[1], [2]]], "number of true classes")


@cases("ComputeAccidentalHits", tolerance=compare.EXACT, attrs=dict(num_true=2, **SEEDS))
def accidental_hits(g):
    g.normal([[[1, 5], [0, 19]], [5, 0, 7, 1]])
    g.empty([[[1, 5]], np.zeros(0)])
    g.edge([[[3, 3]], [3, 3]], "twice")
    g.error([[[1], [2]], [1]], "number of true classes")
    g.error([[1, 2], [1]], "rank")


@cases("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal", tolerance=NORMAL)
def stateless(g):
    exact = dict(tolerance=compare.EXACT) if g.op == "StatelessRandomUniform" else {}
    g.normal([[3, 5], [12, 34]], **exact)
    g.empty([[0], [1, 2]])
    g.edge([np.zeros(0), [0, -1]], "scalar", **exact)
    g.error([[2], [1, 2, 3]], "seed")
    g.error([[-1], [1, 2]], "negative size")


@cases("StatelessRandomUniformInt", tolerance=compare.EXACT)
def stateless_int(g):
    g.normal([[3, 5], [12, 34], -3, 9])
    g.empty([[0], [1, 2], 0, 3])
    g.edge([np.zeros(0), [0, -1], 2, 3], "one value")
    g.error([[2], [1, 2, 3], 0, 3], "seed")
    g.error([[2], [1, 2], 3, 3], "no range")


@cases("RandomGammaGrad", tolerance=("relative", 1e-3))
def gamma_grad(g):
    g.normal([[0.5, 1.0, 2.5], [0.3, 1.2, 2.0]])
    g.empty([np.zeros(0), np.zeros(0)])
    g.edge([1.5, [0.5, 3.0]], "broadcast")
    g.error([[1.0, 2.0], [1.0, 2.0, 3.0]], "shapes")


KEY, COUNTER = [2**63 + 12345], [2**64 - 1, 77]


@cases("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2", tolerance=NORMAL)
def from_key(g):
    exact = dict(tolerance=compare.EXACT) if g.op == "StatelessRandomUniformV2" else {}
    g.normal([[3, 5], KEY, COUNTER, 1], **exact)
    g.normal([[50], [1], [0, 0], 3], "the device chooses", sliced=False, **exact)
    g.empty([[0, 3], KEY, COUNTER, 1])
    g.edge([np.zeros(0), KEY, [1, 2, 3], 1], "more counter than needed", **exact)
    g.error([[3], [1, 2], COUNTER, 1], "two keys")
    g.error([[3], KEY, COUNTER, 9], "an unknown algorithm")


@cases("StatelessRandomUniformIntV2", tolerance=compare.EXACT)
def ints_from_key(g):
    g.normal([[3, 5], KEY, COUNTER, 1, -5, 100])
    g.empty([[0], KEY, COUNTER, 1, 0, 3])
    info = np.iinfo(et.CARRIERS[g.types["dtype"]])
    g.edge([[20], KEY, COUNTER, 1, info.min, info.max], "the whole range")
    g.error([[3], KEY, COUNTER, 1, 5, 5], "no range")
    g.error([[3], KEY, COUNTER, 1, [1, 2], 5], "vector")


@cases("StatelessRandomUniformFullIntV2", tolerance=compare.EXACT)
def any_ints_from_key(g):
    g.normal([[3, 5], KEY, COUNTER, 1])
    g.empty([[0], KEY, COUNTER, 1])
    g.edge([np.zeros(0), KEY, COUNTER, 3], "scalar")
    g.error([[-3], KEY, COUNTER, 1], "negative size")


@cases("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg", tolerance=compare.EXACT)
def keys(g):
    g.normal([[7, -9]])
    g.empty([[0, 0]])
    g.edge([[2**31 - 1, -2**31]], "extremes")
    g.error([[1, 2, 3]], "three numbers")
    g.error([5], "scalar")
