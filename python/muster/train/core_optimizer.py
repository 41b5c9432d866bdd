"""The base of the optimizers that muster/train/optimizers defines: arguments for their slots, formulas and nodes there."""
from muster import _muster
from muster.graph import convert, framework, gradients_impl
from muster.train.optimizer import Optimizer


def tensor_of(parameter):
    """What a hyperparameter became in _prepare, kept by the core so that subclasses may read and replace it."""
    def read(self):
        tensor = self._core.get_tensor(parameter)
        return None if tensor is None else framework.get_default_graph()._tensor(tensor)

    def write(self, tensor):
        if tensor is not None:
            self._core.set_tensor(parameter, tensor._output)

    return property(read, write)


class CoreOptimizer(Optimizer):
    """An optimizer of the C++ core.

    `_kind` is its name there. `_tensors` and `_settings` map its parameters to the attributes that hold their values: those
    that become tensors whenever gradients are applied, and those that decide about slots and ops when the core is made."""

    _kind = None
    _tensors = {}
    _settings = {}

    def _make_core(self):
        settings = {parameter: getattr(self, attribute) for parameter, attribute in self._settings.items()}
        return _muster.optimizer_core(self._kind, self._name, bool(self._use_locking), settings)

    def _check_settings(self):
        """Refuses what the core does not take."""
        self._make_core()

    @property
    def _core(self):
        core = self.__dict__.get("_made_core")
        if core is None:
            core = self._made_core = self._make_core()
        return core

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if key != "_made_core"}

    def _create_slots(self, var_list):
        self._core.create_slots(framework.get_default_graph()._building_scope(), self, list(var_list))

    def _make_shared(self, name, parameter, beside):
        """Called by the core for a scalar that starts at the value of a parameter."""
        return self._create_non_slot_variable(initial_value=getattr(self, self._tensors[parameter]), name=name,
                                              colocate_with=beside)

    def _get_beta_accumulators(self):
        """Of AdamOptimizer, which has it in TensorFlow."""
        graph = framework.get_default_graph()
        return self._get_non_slot_variable("beta1_power", graph), self._get_non_slot_variable("beta2_power", graph)

    def _prepare(self):
        values = {parameter: convert.operand(self._call_if_callable(getattr(self, attribute)))
                  for parameter, attribute in self._tensors.items()}
        self._core.prepare(framework.get_default_graph()._building_scope(), values)

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

    def _apply_sparse_duplicate_indices(self, grad, var):
        if self._core.sums_duplicates:
            return super(CoreOptimizer, self)._apply_sparse_duplicate_indices(grad, var)
        return self._apply(grad, var, duplicates=True)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        if self._core.sums_duplicates:
            return super(CoreOptimizer, self)._resource_apply_sparse_duplicate_indices(grad, handle, indices)
        return self._apply(framework.IndexedSlices(grad, indices), handle, duplicates=True)

    def _finish(self, update_ops, name_scope):
        graph = framework.get_default_graph()
        nodes = [getattr(op, "op", op)._node for op in update_ops]
        return graph._operation(self._core.finish(graph._building_scope(), self, nodes, name_scope))
