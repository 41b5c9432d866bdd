"""The base of optimizers: TF1's protocol over muster/train, which decides about nodes, names and order."""

from muster import _muster, dtypes
from muster.graph import convert, framework, gradients_impl, tensor_shape
from muster.graph.framework import GraphKeys, colocate_with, control_dependencies
from muster.graph.op_library import call
from muster.ops import array_ops, control_flow_ops, math_ops
from muster.variables import init_ops, partitioned_variable, variable_collections, variable_scopes, variables


# --- Slots. ---
def _create_slot_var(primary, val, scope, validate_shape, shape, dtype):
    if not callable(val):
        shape = None  # A value has a shape already.
    current = variable_scopes.get_variable_scope()
    partitioner = current.partitioner
    current.set_partitioner(None)
    slot = variable_scopes.get_variable(scope, initializer=val, trainable=False,
                                       use_resource=bool(getattr(primary, "_is_resource", False)), shape=shape,
                                       dtype=dtype, validate_shape=validate_shape)
    current.set_partitioner(partitioner)
    info = primary._get_save_slice_info() if isinstance(primary, variables.Variable) else None
    if info is not None:
        real_slot_name = slot.name[len(primary.op.name + "/"):-2]
        slot._set_save_slice_info(variables.Variable.SaveSliceInfo(
            info.full_name + "/" + real_slot_name, info.full_shape[:], info.var_offset[:], info.var_shape[:]))
    return slot


def _slot_prefix(primary):
    return primary._shared_name if isinstance(primary, variables.Variable) else primary.op.name


def create_slot(primary, val, name, colocate_with_primary=True):
    validate_shape = val.get_shape().is_fully_defined()
    with variable_scopes.variable_scope(None, _slot_prefix(primary) + "/" + name):
        if colocate_with_primary:
            with colocate_with(primary):
                return _create_slot_var(primary, val, "", validate_shape, None, None)
        return _create_slot_var(primary, val, "", validate_shape, None, None)


def create_slot_with_initializer(primary, initializer, shape, dtype, name, colocate_with_primary=True):
    validate_shape = shape.is_fully_defined()
    with variable_scopes.variable_scope(None, _slot_prefix(primary) + "/" + name):
        if colocate_with_primary:
            with colocate_with(primary):
                return _create_slot_var(primary, initializer, "", validate_shape, shape, dtype)
        return _create_slot_var(primary, initializer, "", validate_shape, shape, dtype)


def create_zeros_slot(primary, name, dtype=None, colocate_with_primary=True):
    dtype = primary.dtype.base_dtype if dtype is None else dtype
    shape = primary.get_shape()
    if shape.is_fully_defined():
        return create_slot_with_initializer(primary, init_ops.zeros_initializer(dtype), shape, dtype, name,
                                            colocate_with_primary=colocate_with_primary)
    if isinstance(primary, variables.Variable):
        slot_shape = array_ops.shape(primary.initialized_value())
    else:
        slot_shape = array_ops.shape(primary)
    return create_slot(primary, array_ops.zeros(slot_shape, dtype=dtype), name,
                       colocate_with_primary=colocate_with_primary)


def _var_key(var):
    return var


class Optimizer(object):
    """Subclasses override _apply_dense, _apply_sparse and their resource twins."""

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, use_locking, name):
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking = use_locking
        self._name = name
        self._slots = {}
        self._non_slot_dict = {}

    def get_name(self):
        return self._name

    def minimize(self, loss, global_step=None, var_list=None, gate_gradients=GATE_OP, aggregation_method=None,
                 colocate_gradients_with_ops=False, name=None, grad_loss=None):
        grads_and_vars = self.compute_gradients(loss, var_list=var_list, gate_gradients=gate_gradients,
                                                aggregation_method=aggregation_method,
                                                colocate_gradients_with_ops=colocate_gradients_with_ops,
                                                grad_loss=grad_loss)
        if not any(g is not None for g, _ in grads_and_vars):
            raise ValueError("No gradients provided for any variable, check your graph for ops that do not support "
                             "gradients, between variables %s and loss %s." % ([str(v) for _, v in grads_and_vars], loss))
        return self.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def compute_gradients(self, loss, var_list=None, gate_gradients=GATE_OP, aggregation_method=None,
                          colocate_gradients_with_ops=False, grad_loss=None):
        if gate_gradients not in (Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH):
            raise ValueError("gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
                             "Optimizer.GATE_GRAPH.  Not %s" % gate_gradients)
        self._assert_valid_dtypes([loss])
        if grad_loss is not None:
            self._assert_valid_dtypes([grad_loss])
        if var_list is None:
            var_list = variable_collections.trainable_variables() + framework.get_collection(
                GraphKeys.TRAINABLE_RESOURCE_VARIABLES)
        else:
            flat = []
            for v in var_list if isinstance(var_list, (list, tuple)) else [var_list]:
                flat.extend(list(v) if isinstance(v, partitioned_variable.PartitionedVariable) else [v])
            var_list = flat
        if not var_list:
            raise ValueError("No variables to optimize.")
        for v in var_list:
            if v.op.type != "VarHandleOp" and not isinstance(v, (variables.Variable, framework.Tensor)):
                raise NotImplementedError("Trying to optimize unsupported type ", v)
        grads = gradients_impl.gradients(loss, var_list, grad_ys=grad_loss,
                                         gate_gradients=(gate_gradients == Optimizer.GATE_OP),
                                         aggregation_method=aggregation_method,
                                         colocate_gradients_with_ops=colocate_gradients_with_ops)
        if gate_gradients == Optimizer.GATE_GRAPH:
            grads = control_flow_ops.tuple(grads)
        grads_and_vars = list(zip(grads, var_list))
        self._assert_valid_dtypes([v for g, v in grads_and_vars if g is not None and v.dtype != dtypes.resource])
        return grads_and_vars

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = tuple(grads_and_vars)
        if not grads_and_vars:
            raise ValueError("No variables provided.")
        converted = []
        for g, v in grads_and_vars:
            if g is not None:
                try:
                    g = convert.convert_to_tensor_or_indexed_slices(g)
                except TypeError:
                    raise TypeError("Gradient must be convertible to a Tensor or IndexedSlices, or None: %s" % g)
                if not isinstance(g, (framework.Tensor, framework.IndexedSlices)):
                    raise TypeError("Gradient must be a Tensor, IndexedSlices, or None: %s" % g)
            converted.append((g, v))
        var_list = [v for g, v in converted if g is not None]
        if not var_list:
            raise ValueError("No gradients provided for any variable: %s." % ([str(v) for _, v in converted],))
        graph = framework.get_default_graph()
        given = [g for g, _ in converted if g is not None]
        node = _muster.apply_gradients(graph._building_scope(), self, given,
                                       [gradients_impl._from_python(g) for g in given], var_list, global_step,
                                       name or "")
        apply_updates = graph._operation(node)
        train_op = framework.get_collection_ref(GraphKeys.TRAIN_OP)
        if apply_updates not in train_op:
            train_op.append(apply_updates)
        return apply_updates

    # --- Called by the C++ core. ---
    def _called(self, scope, method, *arguments):
        """A method of the protocol, run where the core is building."""
        with framework.get_default_graph()._in_scope(scope):
            return getattr(self, method)(*arguments)

    def _finished(self, update_ops, name):
        done = self._finish(update_ops, name)
        return getattr(done, "op", done)._node

    def _make_slot(self, var, initial, ones, slot_name, op_name):
        if initial is None:
            return self._zeros_slot(var, slot_name, op_name)
        if isinstance(initial, _muster.Output):
            return self._get_or_make_slot(var, framework.get_default_graph()._tensor(initial), slot_name, op_name)
        dtype, shape = var.dtype.base_dtype, var.get_shape()
        if not shape.is_fully_defined():
            if ones:
                initializer = array_ops.ones_like(var)
            else:
                shape, initializer = tensor_shape.unknown_shape(), lambda: math_ops.cast(
                    array_ops.fill(array_ops.shape(var), initial), dtype)
        elif ones:
            initializer = init_ops.ones_initializer(dtype=dtype)
        else:
            initializer = init_ops.constant_initializer(initial, dtype=dtype)
        return self._get_or_make_slot_with_initializer(var, initializer, shape, dtype, slot_name, op_name)

    def _update_op(self, g, v):
        if isinstance(v, framework.Tensor):
            raise NotImplementedError("Trying to update a Tensor ", v)
        constraint = getattr(v, "constraint", None)
        if isinstance(g, framework.IndexedSlices):
            if constraint is not None:
                raise RuntimeError("Cannot use a constraint function on a sparse variable.")
            if v._is_resource:
                return self._resource_apply_sparse_duplicate_indices(g.values, v, g.indices)
            return self._apply_sparse_duplicate_indices(g, v)
        update_op = self._resource_apply_dense(g, v) if v._is_resource else self._apply_dense(g, v)
        if constraint is None:
            return update_op
        with control_dependencies([update_op]):
            return v.assign(constraint(v))

    # --- Slots and other state. ---
    def get_slot(self, var, name):
        return self._slots.get(name, {}).get(_var_key(var))

    def get_slot_names(self):
        return sorted(self._slots.keys())

    def variables(self):
        graph = framework.get_default_graph()
        found = [v for v in self._non_slot_dict.values() if v.graph is graph]
        for slots in self._slots.values():
            found.extend(v for v in slots.values() if v.graph is graph)
        return sorted(found, key=lambda v: v.name)

    def _create_non_slot_variable(self, initial_value, name, colocate_with):
        key = (name, framework.get_default_graph())
        v = self._non_slot_dict.get(key)
        if v is None:
            with framework.colocate_with(colocate_with):
                v = variables.Variable(initial_value, name=name, trainable=False,
                                       use_resource=bool(getattr(colocate_with, "_is_resource", False)))
            self._non_slot_dict[key] = v
        return v

    def _get_non_slot_variable(self, name, graph=None):
        return self._non_slot_dict.get((name, graph or framework.get_default_graph()))

    def _slot_dict(self, slot_name):
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var, val, slot_name, op_name):
        named = self._slot_dict(slot_name)
        if _var_key(var) not in named:
            named[_var_key(var)] = create_slot(var, val, op_name)
        return named[_var_key(var)]

    def _get_or_make_slot_with_initializer(self, var, initializer, shape, dtype, slot_name, op_name):
        named = self._slot_dict(slot_name)
        if _var_key(var) not in named:
            named[_var_key(var)] = create_slot_with_initializer(var, initializer, shape, dtype, op_name)
        return named[_var_key(var)]

    def _zeros_slot(self, var, slot_name, op_name):
        named = self._slot_dict(slot_name)
        if _var_key(var) not in named:
            named[_var_key(var)] = create_zeros_slot(var, op_name)
        return named[_var_key(var)]

    def _call_if_callable(self, param):
        return param() if callable(param) else param

    def _assert_valid_dtypes(self, tensors):
        valid = self._valid_dtypes()
        for t in tensors:
            if t.dtype.base_dtype not in valid:
                raise ValueError("Invalid type %r for %s, expected: %s." % (t.dtype.base_dtype, t.name,
                                                                           [v for v in valid]))

    def _valid_dtypes(self):
        return [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]

    # --- To be overridden. ---
    def _create_slots(self, var_list):
        pass

    def _prepare(self):
        pass

    def _apply_dense(self, grad, var):
        raise NotImplementedError()

    def _resource_apply_dense(self, grad, handle):
        raise NotImplementedError()

    @staticmethod
    def _deduplicate(values, indices):
        """Rows of repeated indices are summed."""
        graph = framework.get_default_graph()
        summed, unique = _muster.sum_duplicates(graph._building_scope(), values._output, indices._output)
        return graph._tensor(summed), graph._tensor(unique)

    def _apply_sparse_duplicate_indices(self, grad, var):
        summed, unique_indices = self._deduplicate(grad.values, grad.indices)
        return self._apply_sparse(framework.IndexedSlices(summed, unique_indices, grad.dense_shape), var)

    def _apply_sparse(self, grad, var):
        raise NotImplementedError()

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        summed, unique_indices = self._deduplicate(grad, indices)
        return self._resource_apply_sparse(summed, handle, unique_indices)

    def _resource_apply_sparse(self, grad, handle, indices):
        raise NotImplementedError()

    def _resource_scatter_add(self, x, i, v):
        with control_dependencies([call("ResourceScatterAdd", resource=x.handle, indices=i, updates=v,
                                        dtype=x.dtype)]):
            return x.value()

    def _finish(self, update_ops, name_scope):
        return control_flow_ops.group(*update_ops, name=name_scope)


