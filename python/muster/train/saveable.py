"""What a Saver saves: variables, slices of them, and objects that scripts describe themselves."""
from muster import _muster, dtypes
from muster.graph import convert, framework, tensor_shape
from muster.variables import partitioned_variable, resource_variable, variables


class SaveSpec(object):
    """One tensor of a checkpoint. `tensor` may be a function that makes it; then dtype and device are given."""

    def __init__(self, tensor, slice_spec, name, dtype=None, device=None):
        self._tensor = tensor
        self.slice_spec, self.name = slice_spec, name
        if callable(tensor):
            if dtype is None or device is None:
                raise AssertionError("When passing a callable `tensor` to a SaveSpec, an explicit dtype and device must "
                                     "be provided.")
            self.dtype, self.device = dtype, device
        else:
            self.dtype = tensor.dtype
            self.device = tensor.device if device is None else device

    @property
    def tensor(self):
        return self._tensor() if callable(self._tensor) else self._tensor


class SaveableObject(object):
    """Something that is saved and restored as one; scripts derive from it and write restore()."""

    def __init__(self, op, specs, name):
        self.op, self.specs, self.name = op, specs, name

    @property
    def device(self):
        return self.specs[0].device

    def restore(self, restored_tensors, restored_shapes):
        """Gives the op that puts the tensors, one per spec, back."""
        raise ValueError("Calling an abstract method.")


class _NativeSaveable(SaveableObject):
    """A saveable that C++ knows; `_native` is its."""

    def restore(self, restored_tensors, restored_shapes):
        graph = framework.get_default_graph()
        shapes = None if restored_shapes is None else [
            s._output if isinstance(s, framework.Tensor) else tensor_shape.as_shape(s).as_list() for s in restored_shapes]
        node = self._native.restore(graph._scope, [t._output for t in restored_tensors], shapes)
        return graph._operation(node)


class VariableSaveable(_NativeSaveable):
    """A reference variable, or the tensor that is its reference."""

    _is_native = True

    def __init__(self, var, slice_spec, name):
        is_variable = isinstance(var, variables.Variable)
        reference = var._ref() if is_variable else var
        self._native = _muster.reference_saveable(name, reference._output, slice_spec,
                                                  var.value()._output if is_variable else None)
        spec = SaveSpec(var, slice_spec, name, dtype=var.dtype)
        super(VariableSaveable, self).__init__(var, [spec], name)


ReferenceVariableSaveable = VariableSaveable


class ResourceVariableSaveable(_NativeSaveable):
    """A variable behind a handle, or a tensor read from it."""

    _is_native = True

    def __init__(self, var, slice_spec, name):
        if isinstance(var, framework.Tensor):
            self.handle_op, tensor = var.op.inputs[0], var
            self._native = _muster.resource_saveable(name, self.handle_op._output, slice_spec, var._output)
        elif isinstance(var, resource_variable.ResourceVariable):
            self.handle_op, tensor = var.handle, var.value
            self._native = _muster.resource_saveable(name, self.handle_op._output, slice_spec)
        else:
            raise ValueError("Saveable is neither a resource variable nor a read operation. Got: %r" % (var,))
        spec = SaveSpec(tensor, slice_spec, name, dtype=var.dtype, device=var.device)
        super(ResourceVariableSaveable, self).__init__(var, [spec], name)


def _comes_from_variable(tensor):
    return isinstance(tensor, framework.Tensor) and _muster.comes_from_variable(tensor._output)


def _tensor_of(var):
    """What stands for a whole variable: its reference, or what reads it."""
    if isinstance(var, resource_variable.ResourceVariable):
        return var._graph_element
    return convert.convert_to_tensor(var, as_ref=True)


def op_list_to_dict(op_list, convert_variable_to_tensor=True):
    """{name in the checkpoint: tensor, list of slices or SaveableObject}."""
    if not isinstance(op_list, (list, tuple, set)):
        raise TypeError("Variables to save should be passed in a dict or a list: %s" % (op_list,))
    found = {}
    for var in sorted(op_list, key=lambda item: item.name):
        if isinstance(var, SaveableObject):
            found[var.name] = var
        elif isinstance(var, partitioned_variable.PartitionedVariable):
            if var.name in found:
                raise ValueError("At least two variables have the same name: %s" % var.name)
            found[var.name] = var
        elif isinstance(var, variables.Variable) and var._get_save_slice_info() is not None:
            name = var._get_save_slice_info().full_name
            if name in found and not isinstance(found[name], list):
                raise ValueError("Mixing slices and non-slices with the same name: %s" % name)
            found.setdefault(name, []).append(var)
        else:
            if convert_variable_to_tensor:
                var = _tensor_of(var)
                if not _comes_from_variable(var):
                    raise TypeError("Variable to save is not a Variable: %s" % var)
            name = var.op.inputs[0].op.name if var.op.type == "ReadVariableOp" else var.op.name
            if name in found:
                raise ValueError("At least two variables have the same name: %s" % name)
            found[name] = var
    return found


def _slices(name, parts):
    full_name = None
    for part in parts:
        if not isinstance(part, variables.Variable):
            raise ValueError("Slices must all be Variables: %s" % part)
        info = part._get_save_slice_info()
        if info is None:
            raise ValueError("Slices must all be slices: %s" % part)
        if full_name is None:
            full_name = info.full_name
        elif full_name != info.full_name:
            raise ValueError("Slices must all be from the same tensor: %s != %s" % (full_name, info.full_name))
        kind = ResourceVariableSaveable if isinstance(part, resource_variable.ResourceVariable) else VariableSaveable
        yield kind(part, info.spec, name)


def saveable_objects_for_op(op, name):
    """The SaveableObjects that save `op` under `name`."""
    if not isinstance(name, str):
        raise TypeError("names_to_saveables must be a dict mapping string names to trackable operations. Name is not a "
                        "string: %s" % (name,))
    if isinstance(op, SaveableObject):
        yield op
    elif isinstance(op, (list, tuple, partitioned_variable.PartitionedVariable)):
        for saveable in _slices(name, list(op)):
            yield saveable
    else:
        tensor = _tensor_of(op)
        if not _comes_from_variable(tensor):
            raise TypeError("names_to_saveables must be a dict mapping string names to Tensors/Variables. Not a "
                            "variable: %s" % tensor)
        kind = ResourceVariableSaveable if tensor.op.type == "ReadVariableOp" else VariableSaveable
        yield kind(tensor, "", name)


def validate_and_slice_inputs(names_to_saveables):
    """All SaveableObjects of a dict, by name. None may be there twice."""
    saveables, seen = [], set()
    for name, op in sorted(names_to_saveables.items(), key=lambda item: item[0]):
        for saveable in saveable_objects_for_op(op, name):
            if saveable.op is not None and id(saveable.op) in seen:
                raise ValueError("The same saveable will be restored with two names: %s" % saveable.name)
            seen.add(id(saveable.op))
            saveables.append(saveable)
    return saveables


def _shape_or_tensor(graph, given):
    return graph._tensor(given) if isinstance(given, _muster.Output) else tensor_shape.TensorShape(given)


def native(graph, saveable):
    """The C++ saveable. One that a script describes is called back while the saver is built."""
    if "_is_native" in vars(type(saveable)):  # not one that a script derives from them
        return saveable._native

    def spec_tensor(spec):
        def read(scope):
            with graph._in_scope(scope):
                return convert.convert_to_tensor(spec.tensor)._output

        return read

    def restore(scope, tensors, shapes):
        with graph._in_scope(scope):
            result = saveable.restore([graph._tensor(t) for t in tensors], None if shapes is None else [
                _shape_or_tensor(graph, s) for s in shapes])
        return getattr(result, "op", result)._node

    specs = [(spec.name, spec.slice_spec, int(dtypes.as_dtype(spec.dtype).base_dtype), spec.device or "",
              spec_tensor(spec)) for spec in saveable.specs]
    return _muster.custom_saveable(saveable.name, specs, None, restore)
