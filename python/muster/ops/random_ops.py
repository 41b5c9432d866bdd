"""Random tensors. Seeds follow TensorFlow's rule, which counts the nodes of the graph (framework.get_seed)."""
import numpy as np

from muster import dtypes
from muster.graph import convert, framework, tensor_shape
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, control_flow_ops, math_ops


def shape_tensor(shape):
    """A shape argument as a tensor; an empty list means a scalar."""
    dtype = None
    if isinstance(shape, (tuple, list)):
        if not shape:
            dtype = dtypes.int32
        else:
            shape = [d.value if isinstance(d, tensor_shape.Dimension) else d for d in shape]
    return convert_to_tensor(shape, dtype=dtype, name="shape")


def _with_static_shape(tensor, shape):
    if tensor._output.shape is None or None in tensor._output.shape:
        tensor.set_shape(convert.constant_value_as_shape(shape))
    return tensor


def _scaled(op, default_name, shape, mean, stddev, dtype, seed, name):
    with name_scope(name, default_name, [shape, mean, stddev]) as name:
        shape = shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        seed1, seed2 = framework.get_seed(seed)
        noise = call(op, shape=shape, dtype=dtype, seed=seed1, seed2=seed2)
        return _with_static_shape(math_ops.add(noise * stddev, mean, name=name), shape)


def random_normal(shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, seed=None, name=None):
    return _scaled("RandomStandardNormal", "random_normal", shape, mean, stddev, dtype, seed, name)


def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=dtypes.float32, seed=None, name=None):
    return _scaled("TruncatedNormal", "truncated_normal", shape, mean, stddev, dtype, seed, name)


def parameterized_truncated_normal(shape, means=0.0, stddevs=1.0, minvals=-2.0, maxvals=2.0, dtype=dtypes.float32,
                                   seed=None, name=None):
    with name_scope(name, "parameterized_truncated_normal", [shape, means, stddevs, minvals, maxvals]):
        shape = shape_tensor(shape)
        means = convert_to_tensor(means, dtype=dtype, name="means")
        stddevs = convert_to_tensor(stddevs, dtype=dtype, name="stddevs")
        minvals = convert_to_tensor(minvals, dtype=dtype, name="minvals")
        maxvals = convert_to_tensor(maxvals, dtype=dtype, name="maxvals")
        seed1, seed2 = framework.get_seed(seed)
        return call("ParameterizedTruncatedNormal", shape=shape, means=means, stdevs=stddevs, minvals=minvals,
                    maxvals=maxvals, seed=seed1, seed2=seed2)


def random_uniform(shape, minval=0, maxval=None, dtype=dtypes.float32, seed=None, name=None):
    dtype = dtypes.as_dtype(dtype)
    if dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        raise ValueError("Invalid dtype %r" % dtype)
    if maxval is None:
        if dtype.is_integer:
            raise ValueError("Must specify maxval for integer dtype %r" % dtype)
        maxval = 1
    with name_scope(name, "random_uniform", [shape, minval, maxval]) as name:
        shape = shape_tensor(shape)
        minval = convert_to_tensor(minval, dtype=dtype, name="min")
        maxval = convert_to_tensor(maxval, dtype=dtype, name="max")
        seed1, seed2 = framework.get_seed(seed)
        if dtype.is_integer:
            result = call("RandomUniformInt", name=name, shape=shape, minval=minval, maxval=maxval, seed=seed1,
                          seed2=seed2)
        else:
            noise = call("RandomUniform", shape=shape, dtype=dtype, seed=seed1, seed2=seed2)
            result = math_ops.add(noise * (maxval - minval), minval, name=name)
        return _with_static_shape(result, shape)


def random_shuffle(value, seed=None, name=None):
    seed1, seed2 = framework.get_seed(seed)
    return call("RandomShuffle", name=name, value=value, seed=seed1, seed2=seed2)


def random_crop(value, size, seed=None, name=None):
    with name_scope(name, "random_crop", [value, size]) as name:
        value = convert_to_tensor(value, name="value")
        size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
        shape = array_ops.shape(value)
        fits = control_flow_ops.Assert(math_ops.reduce_all(shape >= size),
                                       ["Need value.shape >= size, got ", shape, size], summarize=1000)
        shape = control_flow_ops.with_dependencies([fits], shape)
        limit = shape - size + 1
        offset = random_uniform(array_ops.shape(shape), dtype=size.dtype, maxval=size.dtype.max, seed=seed) % limit
        return array_ops.slice(value, offset, size, name=name)


def multinomial(logits, num_samples, seed=None, name=None, output_dtype=None):
    with name_scope(name, "multinomial", [logits]):
        return _multinomial(logits, num_samples, output_dtype, seed)


def categorical(logits, num_samples, dtype=None, seed=None, name=None):
    with name_scope(name, "categorical", [logits]):
        return _multinomial(logits, num_samples, dtype, seed)


def _multinomial(logits, num_samples, dtype, seed):
    logits = convert_to_tensor(logits, name="logits")
    seed1, seed2 = framework.get_seed(seed)
    return call("Multinomial", logits=logits, num_samples=num_samples, seed=seed1, seed2=seed2,
                output_dtype=dtypes.int64 if dtype is None else dtype)


def random_gamma(shape, alpha, beta=None, dtype=dtypes.float32, seed=None, name=None):
    with name_scope(name, "random_gamma", [shape, alpha, beta]):
        shape = convert_to_tensor(shape, name="shape", dtype=dtypes.int32)
        alpha = convert_to_tensor(alpha, name="alpha", dtype=dtype)
        beta = convert_to_tensor(1 if beta is None else beta, name="beta", dtype=dtype)
        broadcast_shape = array_ops.broadcast_dynamic_shape(array_ops.shape(alpha), array_ops.shape(beta))
        alpha_broadcast = array_ops.broadcast_to(alpha, broadcast_shape)
        seed1, seed2 = framework.get_seed(seed)
        gamma = call("RandomGamma", shape=shape, alpha=alpha_broadcast, seed=seed1, seed2=seed2)
        return math_ops.maximum(np.finfo(alpha.dtype.as_numpy_dtype).tiny, gamma / beta)


def random_poisson(lam, shape, dtype=dtypes.float32, seed=None, name=None):
    with name_scope(name, "random_poisson", [lam, shape]):
        shape = convert_to_tensor(shape, name="shape", dtype=dtypes.int32)
        seed1, seed2 = framework.get_seed(seed)
        return call("RandomPoissonV2", shape=shape, rate=lam, dtype=dtype, seed=seed1, seed2=seed2)


__all__ = ["random_normal", "truncated_normal", "random_uniform", "random_shuffle", "random_crop", "multinomial",
           "random_gamma", "random_poisson"]
