"""tf.distributions: Normal, Categorical and Bernoulli, which agents of reinforcement learning draw their actions from."""
import contextlib
import math

import numpy as np

from muster import dtypes
from muster.graph import tensor_shape, tensor_util
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.names import absent as _absent
from muster.nn import nn_ops
from muster.ops import array_ops, math_ops, random_ops

__getattr__ = _absent.explain(__name__)


class ReparameterizationType(object):
    def __init__(self, rep_type):
        self._rep_type = rep_type

    def __repr__(self):
        return "<Reparameterization Type: %s>" % self._rep_type


FULLY_REPARAMETERIZED = ReparameterizationType("FULLY_REPARAMETERIZED")
NOT_REPARAMETERIZED = ReparameterizationType("NOT_REPARAMETERIZED")


class Distribution(object):
    """What all have in common. Subclasses give _sample_n, _log_prob and the like."""

    def __init__(self, dtype, name, parameters, reparameterization_type=NOT_REPARAMETERIZED, allow_nan_stats=True):
        self._dtype, self._name, self._parameters = dtype, name, parameters
        self._reparameterization_type, self._allow_nan_stats = reparameterization_type, allow_nan_stats

    name = property(lambda self: self._name)
    dtype = property(lambda self: self._dtype)
    parameters = property(lambda self: dict(self._parameters))
    reparameterization_type = property(lambda self: self._reparameterization_type)
    allow_nan_stats = property(lambda self: self._allow_nan_stats)
    batch_shape = property(lambda self: self._batch_shape())
    event_shape = property(lambda self: tensor_shape.TensorShape([]))

    @contextlib.contextmanager
    def _scope(self, name):
        with name_scope(self._name), name_scope(name) as scope:
            yield scope

    def batch_shape_tensor(self, name="batch_shape_tensor"):
        with self._scope(name):
            if self.batch_shape.is_fully_defined():
                return convert_to_tensor(self.batch_shape.as_list(), dtype=dtypes.int32, name="batch_shape")
            return self._batch_shape_tensor()

    def sample(self, sample_shape=(), seed=None, name="sample"):
        with self._scope(name):
            shape = convert_to_tensor(sample_shape, dtype=dtypes.int32, name="sample_shape")
            known = tensor_util.constant_value(shape)
            if known is None:
                count = math_ops.reduce_prod(shape)
                shape = shape if shape.shape.ndims == 1 else array_ops.reshape(shape, [-1])
            else:
                count = int(np.prod(known))
                if known.ndim == 0:
                    shape = convert_to_tensor([count], dtype=dtypes.int32, name="sample_shape")
            samples = self._sample_n(count, seed)
            result = array_ops.reshape(samples, array_ops.concat([shape, array_ops.shape(samples)[1:]], 0))
            if known is not None and self.batch_shape.ndims is not None:
                result.set_shape(tensor_shape.TensorShape(known.reshape(-1).tolist()).concatenate(self.batch_shape))
            return result

    def _drawn_shape(self, count):
        return array_ops.concat([[count], self.batch_shape_tensor()], 0)

    def _value(self, value):
        return convert_to_tensor(value, name="value", dtype=self._value_dtype())

    def _value_dtype(self):
        return self._dtype

    def log_prob(self, value, name="log_prob"):
        with self._scope(name):
            return self._log_prob(self._value(value))

    def prob(self, value, name="prob"):
        with self._scope(name):
            return math_ops.exp(self._log_prob(self._value(value)))

    def cdf(self, value, name="cdf"):
        with self._scope(name):
            return self._cdf(self._value(value))

    def entropy(self, name="entropy"):
        with self._scope(name):
            return self._entropy()

    def mean(self, name="mean"):
        with self._scope(name):
            return self._mean()

    def mode(self, name="mode"):
        with self._scope(name):
            return self._mode()

    def stddev(self, name="stddev"):
        with self._scope(name):
            return self._stddev()

    def variance(self, name="variance"):
        with self._scope(name):
            return self._variance()

    def _stddev(self):
        return math_ops.sqrt(self._variance())

    def _variance(self):
        return math_ops.square(self._stddev())

    def kl_divergence(self, other, name="kl_divergence"):
        with self._scope(name):
            return kl_divergence(self, other)

    def __getattr__(self, name):
        if name in ("_cdf", "_entropy", "_mean", "_mode", "_log_prob"):
            raise NotImplementedError("%s is not implemented: %s" % (name[1:], type(self).__name__))
        raise AttributeError(name)

    def __str__(self):
        return "tf.distributions.%s(\"%s\", batch_shape=%s, event_shape=(), dtype=%s)" % (
            type(self).__name__, self._name, self.batch_shape, self._dtype.name)

    __repr__ = __str__


class Normal(Distribution):
    def __init__(self, loc, scale, validate_args=False, allow_nan_stats=True, name="Normal"):
        parameters = dict(loc=loc, scale=scale, name=name)
        with name_scope(name, values=[loc, scale]) as scope:
            like = next((v.dtype.base_dtype for v in (loc, scale) if hasattr(v, "get_shape")), None)
            self._loc = _identity(loc, "loc", like)
            self._scale = _identity(scale, "scale", like)
        super(Normal, self).__init__(self._scale.dtype, scope, parameters, FULLY_REPARAMETERIZED, allow_nan_stats)

    loc = property(lambda self: self._loc)
    scale = property(lambda self: self._scale)

    def _batch_shape(self):
        return array_ops.broadcast_static_shape(self._loc.shape, self._scale.shape)

    def _batch_shape_tensor(self):
        return array_ops.broadcast_dynamic_shape(array_ops.shape(self._loc), array_ops.shape(self._scale))

    def _sample_n(self, count, seed):
        noise = random_ops.random_normal(self._drawn_shape(count), mean=0., stddev=1., dtype=self._loc.dtype, seed=seed)
        return noise * self._scale + self._loc

    def _standardized(self, value):
        with name_scope("standardize", values=[value]):
            return (value - self._loc) / self._scale

    def _log_prob(self, value):
        exponent = -0.5 * math_ops.square(self._standardized(value))
        return exponent - (0.5 * math.log(2. * math.pi) + math_ops.log(self._scale))

    def _cdf(self, value):
        x = self._standardized(value) * (0.5 * math.sqrt(2.))
        return 0.5 * math_ops.erfc(-x)

    def _entropy(self):
        scale = self._scale * array_ops.ones_like(self._loc)
        return 0.5 * math.log(2. * math.pi * math.e) + math_ops.log(scale)

    def _mean(self):
        return self._loc * array_ops.ones_like(self._scale)

    _mode = _mean

    def _stddev(self):
        return self._scale * array_ops.ones_like(self._loc)


def _identity(value, name, dtype):
    if not hasattr(value, "get_shape"):
        value = convert_to_tensor(value, dtype=dtype, name=name + "/input")
    return array_ops.identity(value, name=name)


class _Discrete(Distribution):
    """Given by logits or by probabilities."""

    def _value_dtype(self):
        return None

    @staticmethod
    def _check(logits, probs):
        if (probs is None) == (logits is None):
            raise ValueError("Must pass probs or logits, but not both.")

    logits = property(lambda self: self._logits)
    probs = property(lambda self: self._probs)


class Categorical(_Discrete):
    def __init__(self, logits=None, probs=None, dtype=dtypes.int32, validate_args=False, allow_nan_stats=True,
                 name="Categorical"):
        self._check(logits, probs)
        parameters = dict(logits=logits, probs=probs, dtype=dtype, name=name)
        with name_scope(name, values=[logits, probs]) as scope:
            if probs is None:
                self._logits = convert_to_tensor(logits, name="logits")
                self._probs = nn_ops.softmax(self._logits, name="probs")
            else:
                self._probs = convert_to_tensor(probs, name="probs")
                with name_scope("logits"):
                    self._logits = math_ops.log(self._probs)
            ndims = self._logits.shape.ndims
            if ndims is None:
                self._batch_rank = array_ops.rank(self._logits, name="rank") - 1
            else:
                self._batch_rank = convert_to_tensor(ndims - 1, dtype=dtypes.int32, name="batch_rank")
            shape = array_ops.shape(self._logits, name="logits_shape")
            size = self._logits.shape[-1].value if ndims is not None else None
            if size is None:
                with name_scope("event_size"):
                    self._event_size = shape[self._batch_rank]
            else:
                self._event_size = convert_to_tensor(size, dtype=dtypes.int32, name="event_size")
            with name_scope("batch_shape"):
                self._batch_shape_value = shape[:-1]
        super(Categorical, self).__init__(dtypes.as_dtype(dtype), scope, parameters, allow_nan_stats=allow_nan_stats)

    event_size = property(lambda self: self._event_size)

    def _batch_shape(self):
        return self._logits.shape[:-1]

    def _batch_shape_tensor(self):
        return array_ops.identity(self._batch_shape_value)

    def _sample_n(self, count, seed):
        logits = self._logits
        if logits.shape.ndims != 2:
            logits = array_ops.reshape(logits, [-1, self._event_size])
        draws = random_ops.multinomial(logits, count, seed=seed, output_dtype=self._dtype)
        return array_ops.reshape(array_ops.transpose(draws, [1, 0]), self._drawn_shape(count))

    def _log_prob(self, value):
        logits = self._logits
        if not (value.shape.is_fully_defined() and logits.shape[:-1].is_fully_defined()
                and value.shape.as_list() == logits.shape[:-1].as_list()):
            logits = logits * array_ops.ones_like(value[..., None], dtype=logits.dtype)
            value = value * array_ops.ones(array_ops.shape(logits)[:-1], dtype=value.dtype)
        return -nn_ops.sparse_softmax_cross_entropy_with_logits(labels=value, logits=logits)

    def _entropy(self):
        return -math_ops.reduce_sum(nn_ops.log_softmax(self._logits) * self._probs, axis=-1)

    def _mode(self):
        return math_ops.cast(math_ops.argmax(self._logits, axis=-1), self._dtype)


class Bernoulli(_Discrete):
    def __init__(self, logits=None, probs=None, dtype=dtypes.int32, validate_args=False, allow_nan_stats=True,
                 name="Bernoulli"):
        self._check(logits, probs)
        parameters = dict(logits=logits, probs=probs, dtype=dtype, name=name)
        with name_scope(name, values=[logits, probs]) as scope:
            if probs is None:
                self._logits = convert_to_tensor(logits, name="logits")
                self._probs = math_ops.sigmoid(self._logits, name="probs")
            else:
                self._probs = convert_to_tensor(probs, name="probs")
                with name_scope("logits"):
                    self._logits = math_ops.log(self._probs) - math_ops.log1p(-1. * self._probs)
        super(Bernoulli, self).__init__(dtypes.as_dtype(dtype), scope, parameters, allow_nan_stats=allow_nan_stats)

    def _batch_shape(self):
        return self._logits.shape

    def _batch_shape_tensor(self):
        return array_ops.shape(self._logits)

    def _sample_n(self, count, seed):
        uniform = random_ops.random_uniform(self._drawn_shape(count), dtype=self._probs.dtype, seed=seed)
        return math_ops.cast(math_ops.less(uniform, self._probs), self._dtype)

    def _log_prob(self, value):
        value = math_ops.cast(value, self._logits.dtype)
        logits = self._logits
        known = value.shape.is_fully_defined() and logits.shape.is_fully_defined()
        if not (known and value.shape.as_list() == logits.shape.as_list()):
            logits, value = array_ops.ones_like(value) * logits, array_ops.ones_like(logits) * value
        return -nn_ops.sigmoid_cross_entropy_with_logits(labels=value, logits=logits)

    def _entropy(self):
        return -self._logits * (math_ops.sigmoid(self._logits) - 1) + nn_ops.softplus(-self._logits)

    def _mean(self):
        return array_ops.identity(self._probs)

    def _variance(self):
        return self._mean() * (1. - self._probs)

    def _mode(self):
        return math_ops.cast(self._probs > 0.5, self._dtype)


def _kl_normal_normal(a, b):
    one, two, half = (convert_to_tensor(x, dtype=a.loc.dtype) for x in (1., 2., 0.5))
    a_squared, b_squared = math_ops.square(a.scale), math_ops.square(b.scale)
    ratio = a_squared / b_squared
    return (math_ops.squared_difference(a.loc, b.loc) / (two * b_squared) + half * (ratio - one - math_ops.log(ratio)))


def _kl_categorical_categorical(a, b):
    difference = nn_ops.log_softmax(a.logits) - nn_ops.log_softmax(b.logits)
    return math_ops.reduce_sum(nn_ops.softmax(a.logits) * difference, axis=-1)


def _kl_bernoulli_bernoulli(a, b):
    ones = nn_ops.softplus(-b.logits) - nn_ops.softplus(-a.logits)
    zeros = nn_ops.softplus(b.logits) - nn_ops.softplus(a.logits)
    return math_ops.sigmoid(a.logits) * ones + math_ops.sigmoid(-a.logits) * zeros


_DIVERGENCES = {(Normal, Normal): _kl_normal_normal, (Categorical, Categorical): _kl_categorical_categorical,
                (Bernoulli, Bernoulli): _kl_bernoulli_bernoulli}


class RegisterKL(object):
    """A decorator: the divergence of two kinds of distributions."""

    def __init__(self, dist_cls_a, dist_cls_b):
        self._key = (dist_cls_a, dist_cls_b)

    def __call__(self, kl_fn):
        if self._key in _DIVERGENCES:
            raise ValueError("KL(%s || %s) has already been registered to: %s" % (
                self._key[0].__name__, self._key[1].__name__, _DIVERGENCES[self._key]))
        _DIVERGENCES[self._key] = kl_fn
        return kl_fn


def kl_divergence(distribution_a, distribution_b, allow_nan_stats=True, name=None):
    """The Kullback-Leibler divergence of the first from the second."""
    for kind_a in type(distribution_a).__mro__:
        for kind_b in type(distribution_b).__mro__:
            function = _DIVERGENCES.get((kind_a, kind_b))
            if function is not None:
                with name_scope("KullbackLeibler"), name_scope(name, function.__name__.lstrip("_")):
                    return function(distribution_a, distribution_b)
    raise NotImplementedError("No KL(distribution_a || distribution_b) registered for distribution_a type %s and "
                              "distribution_b type %s" % (type(distribution_a).__name__, type(distribution_b).__name__))


__all__ = ["Bernoulli", "Categorical", "Distribution", "FULLY_REPARAMETERIZED", "NOT_REPARAMETERIZED", "Normal",
           "RegisterKL", "ReparameterizationType", "kl_divergence"]
