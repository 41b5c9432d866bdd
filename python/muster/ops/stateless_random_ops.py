"""tf.random.stateless_*: numbers that depend on the seed given and on nothing else."""
from muster import dtypes
from muster.graph import convert
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import math_ops, random_ops


def _static(result, shape):
    result.set_shape(convert.constant_value_as_shape(shape))
    return result


def _normal(op, default_name, shape, seed, mean, stddev, dtype, name):
    with name_scope(name, default_name, [shape, seed, mean, stddev]) as name:
        shape = random_ops.shape_tensor(shape)
        mean = convert_to_tensor(mean, dtype=dtype, name="mean")
        stddev = convert_to_tensor(stddev, dtype=dtype, name="stddev")
        noise = call(op, shape=shape, seed=seed, dtype=dtype)
        return _static(math_ops.add(noise * stddev, mean, name=name), shape)


def stateless_random_normal(shape, seed, mean=0.0, stddev=1.0, dtype=dtypes.float32, name=None):
    return _normal("StatelessRandomNormal", "stateless_random_normal", shape, seed, mean, stddev, dtype, name)


def stateless_truncated_normal(shape, seed, mean=0.0, stddev=1.0, dtype=dtypes.float32, name=None):
    return _normal("StatelessTruncatedNormal", "stateless_truncated_normal", shape, seed, mean, stddev, dtype, name)


def stateless_random_uniform(shape, seed, minval=0, maxval=None, dtype=dtypes.float32, name=None):
    dtype = dtypes.as_dtype(dtype)
    if dtype not in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        raise ValueError("Invalid dtype %r" % dtype)
    if maxval is None:
        if dtype.is_integer:
            raise ValueError("Must specify maxval for integer dtype %r" % dtype)
        maxval = 1
    with name_scope(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as name:
        shape = random_ops.shape_tensor(shape)
        minval = convert_to_tensor(minval, dtype=dtype, name="min")
        maxval = convert_to_tensor(maxval, dtype=dtype, name="max")
        if dtype.is_integer:
            result = call("StatelessRandomUniformInt", name=name, shape=shape, seed=seed, minval=minval, maxval=maxval)
        else:
            noise = call("StatelessRandomUniform", shape=shape, seed=seed, dtype=dtype)
            result = math_ops.add(noise * (maxval - minval), minval, name=name)
        return _static(result, shape)
