"""The optimizers of tf.train: arguments and their checks. Slots, formulas and nodes are those of muster/train."""
from muster import _absent, _muster, convert, framework, gradients_impl
from muster.optimizer import Optimizer

__getattr__ = _absent.explain(__name__)


def _tensor(name):
    """What a hyperparameter became in _prepare, kept by the core so that subclasses may read and replace it."""
    def read(self):
        tensor = self._core.get_tensor(name)
        return None if tensor is None else framework.get_default_graph()._tensor(tensor)

    def write(self, tensor):
        if tensor is not None:
            self._core.set_tensor(name, tensor._output)

    return property(read, write)


class _CoreOptimizer(Optimizer):
    """An optimizer of the C++ core.

    `_kind` is its name there, `_numbers` the attributes that hold its hyperparameters, in the core's order."""

    _kind = None
    _numbers = ()

    def _structure(self):
        """What decides about its slots and ops."""
        return {}

    @property
    def _core(self):
        core = self.__dict__.get("_made_core")
        if core is None:
            core = self._made_core = _muster.optimizer_core(self._kind, self._name, bool(self._use_locking),
                                                            self._structure())
        return core

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if key != "_made_core"}

    def _create_slots(self, var_list):
        self._core.create_slots(framework.get_default_graph()._building_scope(), self, list(var_list))

    def _prepare(self):
        values = [self._call_if_callable(getattr(self, number)) for number in self._numbers]
        for name, value in zip(self._core.hyperparameters, values):
            self._core.set_tensor(name, convert.convert_to_tensor(value, name=name)._output)

    def _apply(self, grad, var, duplicates=False):
        graph = framework.get_default_graph()
        return graph._operation(self._core.apply(graph._building_scope(), self, gradients_impl._from_python(grad), var,
                                                 duplicates))

    def _apply_dense(self, grad, var):
        return self._apply(grad, var)

    def _resource_apply_dense(self, grad, handle):
        return self._apply(grad, handle)

    def _apply_sparse(self, grad, var):
        return self._apply(grad, var)

    def _resource_apply_sparse(self, grad, handle, indices):
        return self._apply(framework.IndexedSlices(grad, indices), handle)

    def _finish(self, update_ops, name_scope):
        graph = framework.get_default_graph()
        nodes = [getattr(op, "op", op)._node for op in update_ops]
        return graph._operation(self._core.finish(graph._building_scope(), self, nodes, name_scope))


class GradientDescentOptimizer(_CoreOptimizer):
    _kind = "GradientDescent"
    _numbers = ("_learning_rate",)
    _learning_rate_tensor = _tensor("learning_rate")

    def __init__(self, learning_rate, use_locking=False, name="GradientDescent"):
        super(GradientDescentOptimizer, self).__init__(use_locking, name)
        self._learning_rate = learning_rate

    def _apply_sparse_duplicate_indices(self, grad, var):
        return self._apply(grad, var, duplicates=True)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return self._apply(framework.IndexedSlices(grad, indices), handle, duplicates=True)


class MomentumOptimizer(_CoreOptimizer):
    _kind = "Momentum"
    _numbers = ("_learning_rate", "_momentum")
    _learning_rate_tensor = _tensor("learning_rate")
    _momentum_tensor = _tensor("momentum")

    def __init__(self, learning_rate, momentum, use_locking=False, name="Momentum", use_nesterov=False):
        super(MomentumOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._momentum, self._use_nesterov = learning_rate, momentum, use_nesterov

    def _structure(self):
        return {"use_nesterov": bool(self._use_nesterov)}


class AdagradOptimizer(_CoreOptimizer):
    _kind = "Adagrad"
    _numbers = ("_learning_rate",)
    _learning_rate_tensor = _tensor("learning_rate")

    def __init__(self, learning_rate, initial_accumulator_value=0.1, use_locking=False, name="Adagrad"):
        if initial_accumulator_value <= 0.0:
            raise ValueError("initial_accumulator_value must be positive: %s" % initial_accumulator_value)
        super(AdagradOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._initial_accumulator_value = learning_rate, initial_accumulator_value

    def _structure(self):
        return {"initial_value": self._initial_accumulator_value}


class AdagradDAOptimizer(_CoreOptimizer):
    _kind = "AdagradDA"
    _numbers = ("_learning_rate",)
    _learning_rate_tensor = _tensor("learning_rate")

    def __init__(self, learning_rate, global_step, initial_gradient_squared_accumulator_value=0.1,
                 l1_regularization_strength=0.0, l2_regularization_strength=0.0, use_locking=False, name="AdagradDA"):
        if initial_gradient_squared_accumulator_value <= 0.0:
            raise ValueError("initial_gradient_squared_accumulator_value must be positive: %s"
                             % initial_gradient_squared_accumulator_value)
        super(AdagradDAOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._global_step = learning_rate, global_step
        self._initial_gradient_squared_accumulator_value = initial_gradient_squared_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _structure(self):
        return {"initial_value": self._initial_gradient_squared_accumulator_value,
                "l1": convert.operand(self._l1_regularization_strength),
                "l2": convert.operand(self._l2_regularization_strength)}

    def _prepare(self):
        super(AdagradDAOptimizer, self)._prepare()
        self._core.prepare_step(framework.get_default_graph()._building_scope(), convert.operand(self._global_step))


class AdadeltaOptimizer(_CoreOptimizer):
    _kind = "Adadelta"
    _numbers = ("_lr", "_rho", "_epsilon")
    _lr_t, _rho_t, _epsilon_t = _tensor("lr"), _tensor("rho"), _tensor("epsilon")

    def __init__(self, learning_rate=0.001, rho=0.95, epsilon=1e-8, use_locking=False, name="Adadelta"):
        super(AdadeltaOptimizer, self).__init__(use_locking, name)
        self._lr, self._rho, self._epsilon = learning_rate, rho, epsilon


class AdamOptimizer(_CoreOptimizer):
    _kind = "Adam"
    _numbers = ("_lr", "_beta1", "_beta2", "_epsilon")
    _lr_t, _epsilon_t = _tensor("learning_rate"), _tensor("epsilon")
    _beta1_t, _beta2_t = _tensor("beta1"), _tensor("beta2")

    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, use_locking=False, name="Adam"):
        super(AdamOptimizer, self).__init__(use_locking, name)
        self._lr, self._beta1, self._beta2, self._epsilon = learning_rate, beta1, beta2, epsilon

    def _make_shared(self, name, beside):
        initial = {"beta1_power": self._beta1, "beta2_power": self._beta2}[name]
        return self._create_non_slot_variable(initial_value=initial, name=name, colocate_with=beside)

    def _get_beta_accumulators(self):
        graph = framework.get_default_graph()
        return self._get_non_slot_variable("beta1_power", graph), self._get_non_slot_variable("beta2_power", graph)


class RMSPropOptimizer(_CoreOptimizer):
    _kind = "RMSProp"
    _numbers = ("_learning_rate", "_decay", "_momentum", "_epsilon")
    _learning_rate_tensor, _decay_tensor = _tensor("learning_rate"), _tensor("decay")
    _momentum_tensor, _epsilon_tensor = _tensor("momentum"), _tensor("epsilon")

    def __init__(self, learning_rate, decay=0.9, momentum=0.0, epsilon=1e-10, use_locking=False, centered=False,
                 name="RMSProp"):
        super(RMSPropOptimizer, self).__init__(use_locking, name)
        self._learning_rate, self._decay, self._momentum = learning_rate, decay, momentum
        self._epsilon, self._centered = epsilon, centered

    def _structure(self):
        return {"centered": bool(self._centered)}


class FtrlOptimizer(_CoreOptimizer):
    _kind = "Ftrl"
    _numbers = ("_learning_rate", "_l1_regularization_strength", "_l2_regularization_strength",
                "_l2_shrinkage_regularization_strength", "_learning_rate_power")
    _learning_rate_tensor, _learning_rate_power_tensor = _tensor("learning_rate"), _tensor("learning_rate_power")
    _l1_regularization_strength_tensor = _tensor("l1_regularization_strength")
    _l2_regularization_strength_tensor = _tensor("l2_regularization_strength")
    _l2_shrinkage_regularization_strength_tensor = _tensor("l2_shrinkage_regularization_strength")

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
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._accum_name, self._linear_name = accum_name, linear_name

    def _structure(self):
        return {"initial_value": self._initial_accumulator_value,
                "l2_shrinkage": self._l2_shrinkage_regularization_strength,
                "accum_name": self._accum_name, "linear_name": self._linear_name}


class _Proximal(_CoreOptimizer):
    _numbers = ("_learning_rate", "_l1_regularization_strength", "_l2_regularization_strength")
    _learning_rate_tensor = _tensor("learning_rate")
    _l1_regularization_strength_tensor = _tensor("l1_regularization_strength")
    _l2_regularization_strength_tensor = _tensor("l2_regularization_strength")

    def __init__(self, learning_rate, l1_regularization_strength, l2_regularization_strength, use_locking, name):
        super(_Proximal, self).__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength


class ProximalGradientDescentOptimizer(_Proximal):
    _kind = "ProximalGradientDescent"

    def __init__(self, learning_rate, l1_regularization_strength=0.0, l2_regularization_strength=0.0,
                 use_locking=False, name="ProximalGradientDescent"):
        super(ProximalGradientDescentOptimizer, self).__init__(
            learning_rate, l1_regularization_strength, l2_regularization_strength, use_locking, name)


class ProximalAdagradOptimizer(_Proximal):
    _kind = "ProximalAdagrad"

    def __init__(self, learning_rate, initial_accumulator_value=0.1, l1_regularization_strength=0.0,
                 l2_regularization_strength=0.0, use_locking=False, name="ProximalAdagrad"):
        if initial_accumulator_value <= 0.0:
            raise ValueError("initial_accumulator_value must be positive: %s" % initial_accumulator_value)
        super(ProximalAdagradOptimizer, self).__init__(learning_rate, l1_regularization_strength,
                                                       l2_regularization_strength, use_locking, name)
        self._initial_accumulator_value = initial_accumulator_value

    def _structure(self):
        return {"initial_value": self._initial_accumulator_value}


__all__ = ["GradientDescentOptimizer", "MomentumOptimizer", "AdagradOptimizer", "AdagradDAOptimizer",
           "AdadeltaOptimizer", "AdamOptimizer", "RMSPropOptimizer", "FtrlOptimizer",
           "ProximalGradientDescentOptimizer", "ProximalAdagradOptimizer"]
