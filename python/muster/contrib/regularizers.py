"""tf.contrib.layers' regularizers."""
import numbers

from muster.graph import framework
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import GraphKeys, name_scope
from muster.nn import nn_ops
from muster.ops import math_ops


def _checked(scale):
    if isinstance(scale, numbers.Integral) and not isinstance(scale, bool):
        raise ValueError("scale cannot be an integer: %s" % (scale,))
    if isinstance(scale, numbers.Real):
        if scale < 0.:
            raise ValueError("Setting a scale less than 0 on a regularizer: %g" % scale)
        return scale == 0.
    return False


def _regularizer(name_, penalty):
    def make(scale, scope=None):
        if _checked(scale):
            return lambda weights, name=None: None

        def function(weights, name=None):
            with name_scope(scope, name_, [weights]) as name:
                factor = convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
                return math_ops.multiply(factor, penalty(weights), name=name)

        return function

    make.__name__ = name_
    return make


l1_regularizer = _regularizer("l1_regularizer", lambda weights: math_ops.reduce_sum(math_ops.abs(weights)))
l2_regularizer = _regularizer("l2_regularizer", nn_ops.l2_loss)


def sum_regularizer(regularizer_list, scope=None):
    regularizer_list = [regularizer for regularizer in regularizer_list if regularizer is not None]
    if not regularizer_list:
        return None

    def function(weights):
        with name_scope(scope, "sum_regularizer", [weights]) as name:
            parts = [part for part in (regularizer(weights) for regularizer in regularizer_list) if part is not None]
            return math_ops.add_n(parts, name=name) if parts else None

    return function


def l1_l2_regularizer(scale_l1=1.0, scale_l2=1.0, scope=None):
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope=scope or "l1_l2_regularizer")


def apply_regularization(regularizer, weights_list=None):
    if not weights_list:
        weights_list = framework.get_collection(GraphKeys.WEIGHTS)
    if not weights_list:
        raise ValueError("No weights to regularize.")
    with name_scope("get_regularization_penalty", values=weights_list) as scope:
        penalties = [penalty if penalty is not None else constant(0.0)
                     for penalty in (regularizer(weights) for weights in weights_list)]
        total = math_ops.add_n(penalties, name=scope)
        framework.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
        return total
