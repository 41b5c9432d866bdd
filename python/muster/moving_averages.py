"""Averages of variables and tensors over steps, in which older values count less and less."""
from muster import control_flow_ops, convert, dtypes, framework, init_ops, math_ops, state_ops, variable_scopes, variables
from muster.framework import GraphKeys, name_scope
from muster.optimizer import create_slot, create_zeros_slot


def assign_moving_average(variable, value, decay, zero_debias=True, name=None):
    """variable -= (1 - decay) * (variable - value).

    A variable that starts at 0 is drawn to 0; zero_debias divides that out with the help of two more variables.
    """
    with name_scope(name, "AssignMovingAvg", [variable, value, decay]) as scope:
        rate = convert.convert_to_tensor(1.0 - decay, name="decay")
        if rate.dtype != variable.dtype.base_dtype:
            rate = math_ops.cast(rate, variable.dtype.base_dtype)
        if zero_debias:
            return _zero_debias(variable, value, rate)
        return state_ops.assign_sub(variable, (variable - value) * rate, name=scope)


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


def _zero_debias(unbiased, value, rate):
    with variable_scopes.variable_scope(unbiased.name[:-len(":0")], values=[unbiased, value, rate]):
        with framework.colocate_with(unbiased):
            biased = variable_scopes.get_variable(
                _unique_in_scope("biased"), initializer=init_ops.zeros_initializer(), shape=unbiased.get_shape(),
                dtype=unbiased.dtype.base_dtype, trainable=False)
            local_step = variable_scopes.get_variable(
                _unique_in_scope("local_step"), initializer=init_ops.zeros_initializer(), shape=[],
                dtype=unbiased.dtype.base_dtype, trainable=False)
    update_biased = state_ops.assign_sub(biased, (biased - value) * rate)
    update_local_step = local_step.assign_add(1)
    factor = 1 - math_ops.pow(1.0 - rate, update_local_step)
    return state_ops.assign(unbiased, update_biased / factor,
                            name=framework.get_default_graph().get_name_scope() + "/")


class ExponentialMovingAverage(object):
    """Keeps a shadow variable with the average of each variable or tensor given to apply()."""

    def __init__(self, decay, num_updates=None, zero_debias=False, name="ExponentialMovingAverage"):
        self._decay, self._num_updates, self._zero_debias, self._name = decay, num_updates, zero_debias, name
        self._averages = {}

    @property
    def name(self):
        return self._name

    def apply(self, var_list=None):
        var_list = variables.trainable_variables() if var_list is None else var_list
        debiased = set()
        for var in var_list:
            if var.dtype.base_dtype not in (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64):
                raise TypeError("The variables must be half, float, or double: %s" % var.name)
            if var in self._averages:
                continue
            with framework.control_dependencies(None):
                average = self._make_average(var)
            if self._zero_debias and not isinstance(var, variables.Variable):
                debiased.add(average)
            self._averages[var] = average
        with name_scope(self._name) as scope:
            decay = convert.convert_to_tensor(self._decay, name="decay")
            if self._num_updates is not None:
                num_updates = math_ops.cast(self._num_updates, dtypes.float32, name="num_updates")
                decay = math_ops.minimum(decay, (1.0 + num_updates) / (10.0 + num_updates))
            updates = [assign_moving_average(self._averages[var], var, decay,
                                             zero_debias=self._averages[var] in debiased) for var in var_list]
            return control_flow_ops.group(*updates, name=scope)

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
            moving_avg_variables = variables.trainable_variables() + variables.moving_average_variables()
        averaged = list(dict.fromkeys(moving_avg_variables))
        names = {self.average_name(v): v for v in averaged}
        averaged_names = {v.name for v in averaged}
        for v in dict.fromkeys(variables.global_variables()):
            if v.name not in averaged_names and v.op.name not in names:
                names[v.op.name] = v
        return names


__all__ = ["ExponentialMovingAverage"]
