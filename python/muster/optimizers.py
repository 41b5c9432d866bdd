"""The optimizers of tf.train. Each names its slots and calls the Apply ops of the runtime, where the formulas are."""
from muster import array_ops, control_flow_ops, convert, framework, init_ops, math_ops, state_ops, tensor_shape
from muster.framework import control_dependencies
from muster.op_library import call
from muster.optimizer import Optimizer


class _TableOptimizer(Optimizer):
    """An optimizer whose updates are one op per variable.

    `_op` is the op's name behind Apply, `_slot_args` the slots in the op's order as (slot name, op argument),
    `_hyper` the hyperparameters as (op argument, attribute of self that holds the tensor)."""

    _op = None
    _slot_args = ()
    _hyper = ()
    _attrs = ()

    def _numbers(self, dtype):
        return {argument: math_ops.cast(getattr(self, tensor), dtype) for argument, tensor in self._hyper}

    def _arguments(self, var, grad_name, grad):
        dtype = grad.dtype.base_dtype if isinstance(grad, framework.Tensor) else var.dtype.base_dtype
        arguments = self._ordered(var, dtype)
        arguments[grad_name] = grad
        arguments["use_locking"] = self._use_locking
        for attr in self._attrs:
            arguments[attr] = getattr(self, "_" + attr)
        return arguments

    def _ordered(self, var, dtype):
        return self._numbers(dtype)

    def _slots_of(self, var, resource):
        slots = {}
        for slot_name, argument in self._slot_args:
            slot = self.get_slot(var, slot_name)
            slots[argument] = slot.handle if resource else slot
        return slots

    _grad_argument = "grad"

    def _op_name(self):
        return self._op

    def _apply_dense(self, grad, var):
        result = call("Apply" + self._op_name(), var=var, **self._slots_of(var, False),
                      **self._arguments(var, self._grad_argument, grad))
        return result.op

    def _resource_apply_dense(self, grad, var):
        return call("ResourceApply" + self._op_name(), var=var.handle, **self._slots_of(var, True),
                    **self._arguments(var, self._grad_argument, grad))

    def _apply_sparse(self, grad, var):
        result = call("SparseApply" + self._op_name(), var=var, indices=grad.indices, **self._slots_of(var, False),
                      **self._arguments(var, "grad", grad.values))
        return result.op

    def _resource_apply_sparse(self, grad, var, indices):
        return call("ResourceSparseApply" + self._op_name(), var=var.handle, indices=indices,
                    **self._slots_of(var, True), **self._arguments(var, "grad", grad))


class GradientDescentOptimizer(_TableOptimizer):
    _op = "GradientDescent"
    _hyper = (("alpha", "_learning_rate_tensor"),)
    _grad_argument = "delta"

    def __init__(self, learning_rate, use_locking=False, name="GradientDescent"):
        super(GradientDescentOptimizer, self).__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._learning_rate_tensor = None

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._call_if_callable(self._learning_rate),
                                                               name="learning_rate")

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return call("ResourceScatterAdd", resource=handle.handle, indices=indices,
                    updates=-grad * math_ops.cast(self._learning_rate_tensor, grad.dtype.base_dtype), dtype=handle.dtype)

    def _apply_sparse_duplicate_indices(self, grad, var):
        delta = framework.IndexedSlices(
            grad.values * math_ops.cast(self._learning_rate_tensor, var.dtype.base_dtype), grad.indices,
            grad.dense_shape)
        return var.scatter_sub(delta, use_locking=self._use_locking)


class MomentumOptimizer(_TableOptimizer):
    _op = "Momentum"
    _slot_args = (("momentum", "accum"),)
    _hyper = (("lr", "_learning_rate_tensor"), ("momentum", "_momentum_tensor"))
    _attrs = ("use_nesterov",)

    def __init__(self, learning_rate, momentum, use_locking=False, name="Momentum", use_nesterov=False):
        super(MomentumOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._momentum, self._use_nesterov = learning_rate, momentum, use_nesterov

    def _create_slots(self, var_list):
        for v in var_list:
            self._zeros_slot(v, "momentum", self._name)

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._call_if_callable(self._learning_rate),
                                                               name="learning_rate")
        self._momentum_tensor = convert.convert_to_tensor(self._call_if_callable(self._momentum), name="momentum")


class AdagradOptimizer(_TableOptimizer):
    _op = "Adagrad"
    _slot_args = (("accumulator", "accum"),)
    _hyper = (("lr", "_learning_rate_tensor"),)

    def __init__(self, learning_rate, initial_accumulator_value=0.1, use_locking=False, name="Adagrad"):
        if initial_accumulator_value <= 0.0:
            raise ValueError("initial_accumulator_value must be positive: %s" % initial_accumulator_value)
        super(AdagradOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._initial_accumulator_value = learning_rate, initial_accumulator_value

    def _create_slots(self, var_list):
        for v in var_list:
            _constant_slot(self, v, "accumulator", self._initial_accumulator_value)

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._call_if_callable(self._learning_rate),
                                                               name="learning_rate")


def _constant_slot(optimizer, v, slot_name, value):
    dtype = v.dtype.base_dtype
    if v.get_shape().is_fully_defined():
        optimizer._get_or_make_slot_with_initializer(
            v, init_ops.constant_initializer(value, dtype=dtype), v.get_shape(), dtype, slot_name, optimizer._name)
        return

    def init():
        filled = array_ops.fill(array_ops.shape(v), value)
        return math_ops.cast(filled, dtype)

    optimizer._get_or_make_slot_with_initializer(v, init, tensor_shape.unknown_shape(), dtype, slot_name,
                                                 optimizer._name)


class AdagradDAOptimizer(_TableOptimizer):
    _op = "AdagradDA"
    _slot_args = (("gradient_accumulator", "gradient_accumulator"),
                  ("gradient_squared_accumulator", "gradient_squared_accumulator"))

    def __init__(self, learning_rate, global_step, initial_gradient_squared_accumulator_value=0.1,
                 l1_regularization_strength=0.0, l2_regularization_strength=0.0, use_locking=False, name="AdagradDA"):
        if initial_gradient_squared_accumulator_value <= 0.0:
            raise ValueError("initial_gradient_squared_accumulator_value must be positive: %s"
                             % initial_gradient_squared_accumulator_value)
        super(AdagradDAOptimizer, self).__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_value = initial_gradient_squared_accumulator_value
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength
        self._global_step = global_step
        self._global_step_on_worker = None

    def _create_slots(self, var_list):
        for v in var_list:
            with framework.colocate_with(v):
                g_val = array_ops.constant(0.0, shape=v.get_shape(), dtype=v.dtype.base_dtype)
                gg_val = array_ops.constant(self._initial_value, shape=v.get_shape(), dtype=v.dtype.base_dtype)
            self._get_or_make_slot(v, g_val, "gradient_accumulator", self._name)
            self._get_or_make_slot(v, gg_val, "gradient_squared_accumulator", self._name)

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._learning_rate, name="learning_rate")
        with framework.colocate_with(self._learning_rate_tensor):
            self._global_step_on_worker = array_ops.identity(self._global_step) + 1

    def _ordered(self, var, dtype):
        global_step = array_ops.identity(self._global_step_on_worker)
        return {"lr": math_ops.cast(self._learning_rate_tensor, dtype), "l1": math_ops.cast(self._l1, dtype),
                "l2": math_ops.cast(self._l2, dtype), "global_step": global_step}


class AdadeltaOptimizer(_TableOptimizer):
    _op = "Adadelta"
    _slot_args = (("accum", "accum"), ("accum_update", "accum_update"))
    _hyper = (("lr", "_lr_t"), ("rho", "_rho_t"), ("epsilon", "_epsilon_t"))

    def __init__(self, learning_rate=0.001, rho=0.95, epsilon=1e-8, use_locking=False, name="Adadelta"):
        super(AdadeltaOptimizer, self).__init__(use_locking, name)
        self._lr, self._rho, self._epsilon = learning_rate, rho, epsilon

    def _create_slots(self, var_list):
        for v in var_list:
            self._zeros_slot(v, "accum", self._name)
            self._zeros_slot(v, "accum_update", self._name)

    def _prepare(self):
        self._lr_t = convert.convert_to_tensor(self._call_if_callable(self._lr), name="lr")
        self._rho_t = convert.convert_to_tensor(self._call_if_callable(self._rho), name="rho")
        self._epsilon_t = convert.convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")


class AdamOptimizer(_TableOptimizer):
    _op = "Adam"
    _slot_args = (("m", "m"), ("v", "v"))

    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, use_locking=False, name="Adam"):
        super(AdamOptimizer, self).__init__(use_locking, name)
        self._lr, self._beta1, self._beta2, self._epsilon = learning_rate, beta1, beta2, epsilon

    def _get_beta_accumulators(self):
        graph = framework.get_default_graph()
        return self._get_non_slot_variable("beta1_power", graph), self._get_non_slot_variable("beta2_power", graph)

    def _create_slots(self, var_list):
        first_var = min(var_list, key=lambda x: x.name)
        self._create_non_slot_variable(initial_value=self._beta1, name="beta1_power", colocate_with=first_var)
        self._create_non_slot_variable(initial_value=self._beta2, name="beta2_power", colocate_with=first_var)
        for v in var_list:
            self._zeros_slot(v, "m", self._name)
            self._zeros_slot(v, "v", self._name)

    def _prepare(self):
        self._lr_t = convert.convert_to_tensor(self._call_if_callable(self._lr), name="learning_rate")
        self._beta1_t = convert.convert_to_tensor(self._call_if_callable(self._beta1), name="beta1")
        self._beta2_t = convert.convert_to_tensor(self._call_if_callable(self._beta2), name="beta2")
        self._epsilon_t = convert.convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")

    def _ordered(self, var, dtype):
        beta1_power, beta2_power = self._get_beta_accumulators()
        return {"beta1_power": math_ops.cast(beta1_power, dtype), "beta2_power": math_ops.cast(beta2_power, dtype),
                "lr": math_ops.cast(self._lr_t, dtype), "beta1": math_ops.cast(self._beta1_t, dtype),
                "beta2": math_ops.cast(self._beta2_t, dtype), "epsilon": math_ops.cast(self._epsilon_t, dtype)}

    def _apply_sparse_shared(self, grad, var, indices, scatter_add):
        beta1_power, beta2_power = self._get_beta_accumulators()
        dtype = var.dtype.base_dtype
        beta1_power = math_ops.cast(beta1_power, dtype)
        beta2_power = math_ops.cast(beta2_power, dtype)
        lr_t = math_ops.cast(self._lr_t, dtype)
        beta1_t = math_ops.cast(self._beta1_t, dtype)
        beta2_t = math_ops.cast(self._beta2_t, dtype)
        epsilon_t = math_ops.cast(self._epsilon_t, dtype)
        lr = (lr_t * math_ops.sqrt(1 - beta2_power) / (1 - beta1_power))
        m = self.get_slot(var, "m")
        m_scaled_g_values = grad * (1 - beta1_t)
        m_t = state_ops.assign(m, m * beta1_t, use_locking=self._use_locking)
        with control_dependencies([m_t]):
            m_t = scatter_add(m, indices, m_scaled_g_values)
        v = self.get_slot(var, "v")
        v_scaled_g_values = (grad * grad) * (1 - beta2_t)
        v_t = state_ops.assign(v, v * beta2_t, use_locking=self._use_locking)
        with control_dependencies([v_t]):
            v_t = scatter_add(v, indices, v_scaled_g_values)
        v_sqrt = math_ops.sqrt(v_t)
        var_update = state_ops.assign_sub(var, lr * m_t / (v_sqrt + epsilon_t), use_locking=self._use_locking)
        return control_flow_ops.group(*[var_update, m_t, v_t])

    def _apply_sparse(self, grad, var):
        return self._apply_sparse_shared(
            grad.values, var, grad.indices,
            lambda x, i, v: state_ops.scatter_add(x, i, v, use_locking=self._use_locking))

    def _resource_apply_sparse(self, grad, var, indices):
        return self._apply_sparse_shared(grad, var, indices, self._resource_scatter_add)

    def _finish(self, update_ops, name_scope):
        with control_dependencies(update_ops):
            beta1_power, beta2_power = self._get_beta_accumulators()
            with framework.colocate_with(beta1_power):
                update_beta1 = beta1_power.assign(beta1_power * self._beta1_t, use_locking=self._use_locking)
                update_beta2 = beta2_power.assign(beta2_power * self._beta2_t, use_locking=self._use_locking)
        return control_flow_ops.group(*update_ops + [update_beta1, update_beta2], name=name_scope)


class RMSPropOptimizer(_TableOptimizer):
    _hyper = (("lr", "_learning_rate_tensor"), ("rho", "_decay_tensor"), ("momentum", "_momentum_tensor"),
              ("epsilon", "_epsilon_tensor"))

    def __init__(self, learning_rate, decay=0.9, momentum=0.0, epsilon=1e-10, use_locking=False, centered=False,
                 name="RMSProp"):
        super(RMSPropOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._decay, self._momentum = learning_rate, decay, momentum
        self._epsilon, self._centered = epsilon, centered

    def _op_name(self):
        return "CenteredRMSProp" if self._centered else "RMSProp"

    def _slots_of(self, var, resource):
        pairs = ([("mg", "mg")] if self._centered else []) + [("rms", "ms"), ("momentum", "mom")]
        slots = {argument: self.get_slot(var, name) for name, argument in pairs}
        return {argument: slot.handle if resource else slot for argument, slot in slots.items()}

    def _create_slots(self, var_list):
        for v in var_list:
            if v.get_shape().is_fully_defined():
                init_rms = init_ops.ones_initializer(dtype=v.dtype.base_dtype)
            else:
                init_rms = array_ops.ones_like(v)
            self._get_or_make_slot_with_initializer(v, init_rms, v.get_shape(), v.dtype.base_dtype, "rms", self._name)
            if self._centered:
                self._zeros_slot(v, "mg", self._name)
            self._zeros_slot(v, "momentum", self._name)

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._call_if_callable(self._learning_rate),
                                                               name="learning_rate")
        self._decay_tensor = convert.convert_to_tensor(self._call_if_callable(self._decay), name="decay")
        self._momentum_tensor = convert.convert_to_tensor(self._call_if_callable(self._momentum), name="momentum")
        self._epsilon_tensor = convert.convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")


class FtrlOptimizer(_TableOptimizer):
    _slot_args = (("accum", "accum"), ("linear", "linear"))

    def __init__(self, learning_rate, learning_rate_power=-0.5, initial_accumulator_value=0.1,
                 l1_regularization_strength=0.0, l2_regularization_strength=0.0, use_locking=False, name="Ftrl",
                 accum_name=None, linear_name=None, l2_shrinkage_regularization_strength=0.0):
        super(FtrlOptimizer, self).__init__(use_locking, name)
        if initial_accumulator_value < 0.0:
            raise ValueError("initial_accumulator_value %f needs to be positive or zero" % initial_accumulator_value)
        if learning_rate_power > 0.0:
            raise ValueError("learning_rate_power %f needs to be negative or zero" % learning_rate_power)
        for what, value in (("l1", l1_regularization_strength), ("l2", l2_regularization_strength),
                            ("l2_shrinkage", l2_shrinkage_regularization_strength)):
            if value < 0.0:
                raise ValueError("%s_regularization_strength %f needs to be positive or zero" % (what, value))
        self._learning_rate, self._learning_rate_power = learning_rate, learning_rate_power
        self._initial_accumulator_value = initial_accumulator_value
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength
        self._l2_shrinkage = l2_shrinkage_regularization_strength
        self._accum_name, self._linear_name = accum_name, linear_name

    def _op_name(self):
        return "FtrlV2" if self._l2_shrinkage > 0.0 else "Ftrl"

    def _create_slots(self, var_list):
        for v in var_list:
            with framework.colocate_with(v):
                val = array_ops.constant(self._initial_accumulator_value, dtype=v.dtype.base_dtype,
                                         shape=v.get_shape())
                self._get_or_make_slot(v, val, "accum", self._accum_name or self._name)
        for v in var_list:
            self._zeros_slot(v, "linear", self._linear_name or self._name)

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._learning_rate, name="learning_rate")
        self._l1_t = convert.convert_to_tensor(self._l1, name="l1_regularization_strength")
        self._l2_t = convert.convert_to_tensor(self._adjusted_l2(), name="l2_regularization_strength")
        self._l2_shrinkage_t = convert.convert_to_tensor(self._l2_shrinkage,
                                                         name="l2_shrinkage_regularization_strength")
        self._learning_rate_power_t = convert.convert_to_tensor(self._learning_rate_power, name="learning_rate_power")

    def _adjusted_l2(self):
        return self._l2

    def _ordered(self, var, dtype):
        numbers = {"lr": math_ops.cast(self._learning_rate_tensor, dtype), "l1": math_ops.cast(self._l1_t, dtype),
                   "l2": math_ops.cast(self._l2_t, dtype)}
        if self._l2_shrinkage > 0.0:
            numbers["l2_shrinkage"] = math_ops.cast(self._l2_shrinkage_t, dtype)
        numbers["lr_power"] = math_ops.cast(self._learning_rate_power_t, dtype)
        return numbers


class ProximalGradientDescentOptimizer(_TableOptimizer):
    _op = "ProximalGradientDescent"
    _hyper = (("alpha", "_learning_rate_tensor"), ("l1", "_l1_t"), ("l2", "_l2_t"))
    _grad_argument = "delta"

    def __init__(self, learning_rate, l1_regularization_strength=0.0, l2_regularization_strength=0.0,
                 use_locking=False, name="ProximalGradientDescent"):
        super(ProximalGradientDescentOptimizer, self).__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._learning_rate, name="learning_rate")
        self._l1_t = convert.convert_to_tensor(self._l1, name="l1_regularization_strength")
        self._l2_t = convert.convert_to_tensor(self._l2, name="l2_regularization_strength")


class ProximalAdagradOptimizer(_TableOptimizer):
    _op = "ProximalAdagrad"
    _slot_args = (("accumulator", "accum"),)
    _hyper = (("lr", "_learning_rate_tensor"), ("l1", "_l1_t"), ("l2", "_l2_t"))

    def __init__(self, learning_rate, initial_accumulator_value=0.1, l1_regularization_strength=0.0,
                 l2_regularization_strength=0.0, use_locking=False, name="ProximalAdagrad"):
        if initial_accumulator_value <= 0.0:
            raise ValueError("initial_accumulator_value must be positive: %s" % initial_accumulator_value)
        super(ProximalAdagradOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._initial_accumulator_value = learning_rate, initial_accumulator_value
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength

    def _create_slots(self, var_list):
        for v in var_list:
            with framework.colocate_with(v):
                val = array_ops.constant(self._initial_accumulator_value, shape=v.get_shape(),
                                         dtype=v.dtype.base_dtype)
            self._get_or_make_slot(v, val, "accumulator", self._name)

    def _prepare(self):
        self._learning_rate_tensor = convert.convert_to_tensor(self._learning_rate, name="learning_rate")
        self._l1_t = convert.convert_to_tensor(self._l1, name="l1_regularization_strength")
        self._l2_t = convert.convert_to_tensor(self._l2, name="l2_regularization_strength")


__all__ = ["GradientDescentOptimizer", "MomentumOptimizer", "AdagradOptimizer", "AdagradDAOptimizer",
           "AdadeltaOptimizer", "AdamOptimizer", "RMSPropOptimizer", "FtrlOptimizer",
           "ProximalGradientDescentOptimizer", "ProximalAdagradOptimizer"]
