"""tf.contrib.layers' initializers: variance scaling under other argument names."""
from muster import dtypes
from muster.variables import init_ops


def variance_scaling_initializer(factor=2.0, mode="FAN_IN", uniform=False, seed=None, dtype=dtypes.float32):
    if not dtypes.as_dtype(dtype).is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError("Unknown mode %s [FAN_IN, FAN_OUT, FAN_AVG]" % mode)
    return init_ops.VarianceScaling(scale=factor, mode=mode.lower(),
                                    distribution="uniform" if uniform else "truncated_normal", seed=seed, dtype=dtype)


def xavier_initializer(uniform=True, seed=None, dtype=dtypes.float32):
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)
