"""Learning rates that change with the global step: arguments for the schedules of muster/train/optimizers/decay.h."""
from muster import _muster
from muster.graph import convert, framework


def _decay(kind, arguments, flag, name):
    graph = framework.get_default_graph()
    operands = [convert.operand(value) for value in arguments]
    return graph._tensor(_muster.decay(graph._building_scope(), kind, operands, bool(flag), name or ""))


def exponential_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    return _decay("exponential", [learning_rate, global_step, decay_steps, decay_rate], staircase, name)


def natural_exp_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    return _decay("natural_exp", [learning_rate, global_step, decay_steps, decay_rate], staircase, name)


def inverse_time_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False, name=None):
    return _decay("inverse_time", [learning_rate, global_step, decay_steps, decay_rate], staircase, name)


def polynomial_decay(learning_rate, global_step, decay_steps, end_learning_rate=0.0001, power=1.0, cycle=False,
                     name=None):
    return _decay("polynomial", [learning_rate, global_step, decay_steps, end_learning_rate, power], cycle, name)


def piecewise_constant(x, boundaries, values, name=None):
    graph = framework.get_default_graph()
    return graph._tensor(_muster.piecewise_constant(
        graph._building_scope(), convert.operand(x), [convert.operand(b) for b in boundaries],
        [convert.operand(v) for v in values], name or ""))


def cosine_decay(learning_rate, global_step, decay_steps, alpha=0.0, name=None):
    return _decay("cosine", [learning_rate, global_step, decay_steps, alpha], False, name)


def cosine_decay_restarts(learning_rate, global_step, first_decay_steps, t_mul=2.0, m_mul=1.0, alpha=0.0, name=None):
    return _decay("cosine_restarts", [learning_rate, global_step, first_decay_steps, t_mul, m_mul, alpha], False, name)


def linear_cosine_decay(learning_rate, global_step, decay_steps, num_periods=0.5, alpha=0.0, beta=0.001, name=None):
    return _decay("linear_cosine", [learning_rate, global_step, decay_steps, num_periods, alpha, beta], False, name)


def noisy_linear_cosine_decay(learning_rate, global_step, decay_steps, initial_variance=1.0, variance_decay=0.55,
                              num_periods=0.5, alpha=0.0, beta=0.001, name=None):
    return _decay("noisy_linear_cosine", [learning_rate, global_step, decay_steps, initial_variance, variance_decay,
                                          num_periods, alpha, beta], False, name)


piecewise_constant_decay = piecewise_constant

__all__ = ["exponential_decay", "natural_exp_decay", "inverse_time_decay", "polynomial_decay", "piecewise_constant",
           "piecewise_constant_decay", "cosine_decay", "cosine_decay_restarts", "linear_cosine_decay",
           "noisy_linear_cosine_decay"]
