"""Averages of variables and tensors over steps: the variables that muster/train/optimizers/moving_average.h keeps them in."""
from muster import _muster
from muster.graph import convert, framework
from muster.graph.framework import GraphKeys
from muster.ops import math_ops
from muster.train.optimizer import create_slot, create_zeros_slot
from muster.variables import init_ops, variable_collections, variable_scopes, variables


def assign_moving_average(variable, value, decay, zero_debias=True, name=None):
    """variable -= (1 - decay) * (variable - value).

    A variable that starts at 0 is drawn to 0; zero_debias divides that out with the help of two more variables.
    """
    graph = framework.get_default_graph()
    node, changed = _muster.assign_moving_average(
        graph._building_scope(), variable, convert.operand(value), convert.operand(decay),
        _Debiasing() if zero_debias else None, "AssignMovingAvg" if name is None else name)
    changed = graph._tensor(changed)
    return variable._lazy_read(graph._operation(node), changed) if variable._is_resource else changed


def weighted_moving_average(value, decay, weight, truediv=True, collections=None, name=None):
    """The average of value * weight over the average of weight."""
    collections = [GraphKeys.GLOBAL_VARIABLES] if collections is None else collections
    with variable_scopes.variable_scope(name, "WeightedMovingAvg", [value, weight, decay]) as scope:
        weighted = variable_scopes.get_variable("value_x_weight", shape=value.get_shape(), dtype=value.dtype,
                                                initializer=init_ops.zeros_initializer(), trainable=False,
                                                collections=collections)
        weights = variable_scopes.get_variable("weight", shape=weight.get_shape(), dtype=weight.dtype,
                                               initializer=init_ops.zeros_initializer(), trainable=False,
                                               collections=collections)
        numerator = assign_moving_average(weighted, value * weight, decay, zero_debias=False)
        denominator = assign_moving_average(weights, weight, decay, zero_debias=False)
        divide = math_ops.truediv if truediv else math_ops.div
        return divide(numerator, denominator, name=scope.name)


def _unique_in_scope(name):
    """A name that no variable of the open scope has, unless the scope reuses its variables."""
    scope = variable_scopes.get_variable_scope()
    if scope.reuse:
        return name
    taken = {v.op.name for v in scope.global_variables()}
    full, at = scope.name + "/" + name, 0
    while full + ("_%d" % at if at else "") in taken:
        at += 1
    return name + ("_%d" % at if at else "")


class _Debiasing(object):
    """Makes the variables with which zero_debias corrects an average for its start at 0."""

    def _make_debiasing(self, scope, unbiased):
        with framework.get_default_graph()._in_scope(scope), variable_scopes.variable_scope(
                unbiased.name[:-len(":0")], values=[unbiased]), framework.colocate_with(unbiased):
            biased = variable_scopes.get_variable(
                _unique_in_scope("biased"), initializer=init_ops.zeros_initializer(), shape=unbiased.get_shape(),
                dtype=unbiased.dtype.base_dtype, trainable=False)
            local_step = variable_scopes.get_variable(
                _unique_in_scope("local_step"), initializer=init_ops.zeros_initializer(), shape=[],
                dtype=unbiased.dtype.base_dtype, trainable=False)
        return biased, local_step


class ExponentialMovingAverage(_Debiasing):
    """Keeps a shadow variable with the average of each variable or tensor given to apply()."""

    def __init__(self, decay, num_updates=None, zero_debias=False, name="ExponentialMovingAverage"):
        self._decay, self._num_updates, self._zero_debias, self._name = decay, num_updates, zero_debias, name
        self._averages = {}

    @property
    def name(self):
        return self._name

    def apply(self, var_list=None):
        var_list = list(variable_collections.trainable_variables() if var_list is None else var_list)
        graph = framework.get_default_graph()
        return graph._operation(_muster.apply_moving_averages(
            graph._building_scope(), self, var_list, [convert.operand(var) for var in var_list],
            convert.operand(self._decay), None if self._num_updates is None else convert.operand(self._num_updates),
            bool(self._zero_debias), self._name))

    def _get_or_make(self, scope, var):
        """(the average, whether it is new)."""
        is_new = var not in self._averages
        if is_new:
            with framework.get_default_graph()._in_scope(scope):
                self._averages[var] = self._make_average(var)
        return self._averages[var], is_new

    def _make_average(self, var):
        if isinstance(var, variables.Variable):
            average = create_slot(var, var.initialized_value(), self._name, colocate_with_primary=True)
            framework.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
            return average
        return create_zeros_slot(var, self._name,
                                 colocate_with_primary=var.op.type in ("Variable", "VariableV2", "VarHandleOp"))

    def average(self, var):
        return self._averages.get(var)

    def average_name(self, var):
        if var in self._averages:
            return self._averages[var].op.name
        return framework.get_default_graph().unique_name(var.op.name + "/" + self._name, mark_as_used=False)

    def variables_to_restore(self, moving_avg_variables=None):
        if moving_avg_variables is None:
            moving_avg_variables = variable_collections.trainable_variables() + variable_collections.moving_average_variables()
        averaged = list(dict.fromkeys(moving_avg_variables))
        names = {self.average_name(v): v for v in averaged}
        averaged_names = {v.name for v in averaged}
        for v in dict.fromkeys(variable_collections.global_variables()):
            if v.name not in averaged_names and v.op.name not in names:
                names[v.op.name] = v
        return names


__all__ = ["ExponentialMovingAverage"]
