"""Learning rates that change with the global step."""
import math

from muster import control_flow_ops, convert, dtypes, framework, math_ops, random_ops
from muster.convert import convert_to_tensor
from muster.math_ops import cast


def _checked(global_step, function):
    if global_step is None:
        raise ValueError("global_step is required for %s." % function)
    return global_step


def _progress(step, decay_steps, staircase):
    done = step / decay_steps
    return math_ops.floor(done) if staircase else done


def _exponential(learning_rate, global_step, decay_steps, decay_rate, staircase, name):
    with framework.name_scope(name or "ExponentialDecay") as name:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        decay_steps = cast(decay_steps, rate.dtype)
        decay_rate = cast(decay_rate, rate.dtype)
        done = _progress(cast(global_step, rate.dtype), decay_steps, staircase)
        return math_ops.multiply(rate, math_ops.pow(decay_rate, done), name=name)


def exponential_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    return _exponential(learning_rate, _checked(global_step, "exponential_decay"), decay_steps, decay_rate, staircase,
                        name)


def natural_exp_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    rate = math_ops.exp(math_ops.negative(decay_rate))
    return _exponential(learning_rate, _checked(global_step, "natural_exp_decay"), decay_steps, rate, staircase, name)


def inverse_time_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    _checked(global_step, "inverse_time_decay")
    with framework.name_scope(name or "InverseTimeDecay") as name:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        decay_steps = cast(decay_steps, rate.dtype)
        decay_rate = cast(decay_rate, rate.dtype)
        done = _progress(cast(global_step, rate.dtype), decay_steps, staircase)
        one = cast(convert.constant(1), rate.dtype)
        return math_ops.divide(rate, math_ops.add(one, math_ops.multiply(decay_rate, done)), name=name)


def polynomial_decay(learning_rate, global_step, decay_steps, end_learning_rate=0.0001, power=1.0, cycle=False,
                     name=None):
    _checked(global_step, "polynomial_decay")
    with framework.name_scope(name or "PolynomialDecay") as name:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        end_rate = cast(end_learning_rate, rate.dtype)
        power = cast(power, rate.dtype)
        step = cast(global_step, rate.dtype)
        steps = cast(decay_steps, rate.dtype)
        if cycle:
            # The end of the cycle that the step is in; step 0 is in the first.
            cycles = control_flow_ops.cond(math_ops.equal(step, 0), lambda: 1.0,
                                           lambda: math_ops.ceil(step / decay_steps))
            steps = math_ops.multiply(steps, cycles)
        else:
            step = math_ops.minimum(step, decay_steps)
        done = math_ops.divide(step, steps)
        return math_ops.add(math_ops.multiply(rate - end_rate, math_ops.pow(1 - done, power)), end_rate, name=name)


def piecewise_constant(x, boundaries, values, name=None):
    boundaries = convert.convert_n_to_tensor(boundaries)
    values = convert.convert_n_to_tensor(values)
    x = convert_to_tensor(x)
    for i, b in enumerate(boundaries):
        if b.dtype.base_dtype == x.dtype.base_dtype:
            continue
        # Only Python's integers may be widened; other conversions could change which side of a boundary x is on.
        if b.dtype.base_dtype != dtypes.int32 or x.dtype.base_dtype != dtypes.int64:
            raise ValueError("Boundaries (%s) must have the same dtype as x (%s)."
                             % (b.dtype.base_dtype, x.dtype.base_dtype))
        boundaries[i] = cast(b, x.dtype.base_dtype)
    for v in values[1:]:
        if v.dtype.base_dtype != values[0].dtype.base_dtype:
            raise ValueError("Values must have elements all with the same dtype (%s vs %s)."
                             % (values[0].dtype.base_dtype, v.dtype.base_dtype))
    if len(boundaries) != len(values) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    with framework.name_scope(name or "PiecewiseConstant"):
        choices = [(x <= boundaries[0], lambda: values[0]), (x > boundaries[-1], lambda: values[-1])]
        for low, high, v in zip(boundaries[:-1], boundaries[1:], values[1:-1]):
            choices.append(((x > low) & (x <= high), lambda v=v: v))
        return control_flow_ops.case(choices, default=lambda: values[0], exclusive=True)


def cosine_decay(learning_rate, global_step, decay_steps, alpha=0.0, name=None):
    _checked(global_step, "cosine_decay")
    with framework.name_scope(name or "CosineDecay"):
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        decay_steps = cast(decay_steps, rate.dtype)
        step = math_ops.minimum(cast(global_step, rate.dtype), decay_steps)
        done = step / decay_steps
        decayed = 0.5 * (1.0 + math_ops.cos(convert.constant(math.pi) * done))
        return math_ops.multiply(rate, (1 - alpha) * decayed + alpha)


def cosine_decay_restarts(learning_rate, global_step, first_decay_steps, t_mul=2.0, m_mul=1.0, alpha=0.0, name=None):
    _checked(global_step, "cosine_decay_restarts")
    with framework.name_scope(name or "SGDRDecay") as name:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        first_decay_steps = cast(first_decay_steps, rate.dtype)
        alpha = cast(alpha, rate.dtype)
        t_mul = cast(t_mul, rate.dtype)
        m_mul = cast(m_mul, rate.dtype)
        done = cast(global_step, rate.dtype) / first_decay_steps

        def equal_periods():
            restarts = math_ops.floor(done)
            return restarts, done - restarts

        def growing_periods():
            restarts = math_ops.floor(math_ops.log(1.0 - done * (1.0 - t_mul)) / math_ops.log(t_mul))
            before = (1.0 - t_mul ** restarts) / (1.0 - t_mul)
            return restarts, (done - before) / t_mul ** restarts

        restarts, fraction = control_flow_ops.cond(math_ops.equal(t_mul, 1.0), equal_periods, growing_periods)
        decayed = 0.5 * m_mul ** restarts * (1.0 + math_ops.cos(convert.constant(math.pi) * fraction))
        return math_ops.multiply(rate, (1 - alpha) * decayed + alpha, name=name)


def _cosine_times(linear, step, decay_steps, num_periods, alpha, beta):
    done = step / decay_steps
    fraction = 2.0 * num_periods * done
    decayed = 0.5 * (1.0 + math_ops.cos(convert.constant(math.pi) * fraction))
    return (alpha + linear) * decayed + beta


def linear_cosine_decay(learning_rate, global_step, decay_steps, num_periods=0.5, alpha=0.0, beta=0.001, name=None):
    _checked(global_step, "linear_cosine_decay")
    with framework.name_scope(name or "LinearCosineDecay") as name:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        decay_steps, num_periods, alpha, beta = (
            cast(value, rate.dtype) for value in (decay_steps, num_periods, alpha, beta))
        step = math_ops.minimum(cast(global_step, rate.dtype), decay_steps)
        linear = (decay_steps - step) / decay_steps
        return math_ops.multiply(rate, _cosine_times(linear, step, decay_steps, num_periods, alpha, beta), name=name)


def noisy_linear_cosine_decay(learning_rate, global_step, decay_steps, initial_variance=1.0, variance_decay=0.55,
                              num_periods=0.5, alpha=0.0, beta=0.001, name=None):
    _checked(global_step, "noisy_linear_cosine_decay")
    with framework.name_scope(name or "NoisyLinearCosineDecay") as name:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        decay_steps, initial_variance, variance_decay, num_periods, alpha, beta = (
            cast(value, rate.dtype)
            for value in (decay_steps, initial_variance, variance_decay, num_periods, alpha, beta))
        step = math_ops.minimum(cast(global_step, rate.dtype), decay_steps)
        linear = (decay_steps - step) / decay_steps
        deviation = math_ops.sqrt(initial_variance / math_ops.pow(1.0 + step, variance_decay))
        linear = linear + random_ops.random_normal(linear.get_shape(), stddev=deviation)
        return math_ops.multiply(rate, _cosine_times(linear, step, decay_steps, num_periods, alpha, beta), name=name)


piecewise_constant_decay = piecewise_constant

__all__ = ["exponential_decay", "natural_exp_decay", "inverse_time_decay", "polynomial_decay", "piecewise_constant",
           "piecewise_constant_decay", "cosine_decay", "cosine_decay_restarts", "linear_cosine_decay",
           "noisy_linear_cosine_decay"]
