"""Ops by name: arguments are converted as their definitions say, then the node is made. tf.raw_ops is this."""
import collections

from muster import _muster, dtypes
from muster.graph import convert, framework, tensor_shape

_definitions = {}
_tuples = {}


def _definition(op_type):
    definition = _definitions.get(op_type)
    if definition is None:
        definition = _definitions[op_type] = _Definition(_muster.op_def(op_type))
    return definition


class _Definition(object):
    """An op definition with what converting arguments needs, read once."""

    def __init__(self, op_def):
        self.name = op_def.name
        self.inputs = [(a.name, a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in op_def.inputs]
        self.outputs = [(a.name, bool(a.number_attr or a.type_list_attr), a.number_attr, a.type_list_attr)
                        for a in op_def.outputs]
        self.attrs = {a.name: a for a in op_def.attrs}
        self.attr_order = [a.name for a in op_def.attrs]
        self.attr_types = {a.name: a.type for a in op_def.attrs}
        self.default_types = {a.name: dtypes.as_dtype(a.default) for a in op_def.attrs
                              if a.type == "type" and a.has_default}
        self.allowed_types = {a.name: set(a.allowed_types) for a in op_def.attrs if a.allowed_types}


def _check_allowed(definition, attr, dtype, argument):
    allowed = definition.allowed_types.get(attr)
    if allowed and int(dtype.base_dtype) not in allowed:
        names = ", ".join(dtypes.as_dtype(t).name for t in definition.attrs[attr].allowed_types if t in dtypes._BY_NUMBER)
        raise TypeError("Value passed to parameter '%s' has DataType %s not in list of allowed values: %s"
                        % (argument, dtype.base_dtype.name, names))


def _attr_value(definition, op_type, name, value):
    """A keyword argument as the plain value that the bindings take."""
    kind = definition.attr_types[name]
    if kind.startswith("list("):
        if not isinstance(value, (list, tuple)):
            raise TypeError("Expected list for attr '%s'" % name)
        element = kind[5:-1]
        return [_attr_element(definition, op_type, name, v, element) for v in value]
    return _attr_element(definition, op_type, name, value, kind)


def _attr_element(definition, op_type, name, value, kind):
    if kind == "type":
        try:
            dtype = dtypes.as_dtype(value)
        except TypeError as e:
            raise TypeError("Expected DataType for argument '%s' not %s." % (name, repr(value)))
        _check_allowed(definition, name, dtype, name)
        return int(dtype.base_dtype)
    if kind == "shape":
        shape = tensor_shape.as_shape(value)
        return None if shape.dims is None else shape.as_list()
    if kind == "int":
        try:
            return int(value)
        except (TypeError, ValueError):
            raise TypeError("Expected int for argument '%s' not %s." % (name, repr(value)))
    if kind == "float":
        try:
            return float(value)
        except (TypeError, ValueError):
            raise TypeError("Expected float for argument '%s' not %s." % (name, repr(value)))
    if kind == "bool":
        if not isinstance(value, (bool, int)) and type(value).__name__ != "bool_" and type(value).__name__ != "bool":
            raise TypeError("Expected bool for argument '%s' not %s." % (name, repr(value)))
        return bool(value)
    if kind == "string":
        if not isinstance(value, (str, bytes)):
            raise TypeError("Expected string for argument '%s' not %s." % (name, repr(value)))
        value = value.encode() if isinstance(value, str) else value
        allowed = definition.attrs[name].allowed_strings
        if allowed and value.decode() not in allowed:
            raise ValueError("Attr '%s' of '%s' Op passed string '%s' not in: %s."
                             % (name, op_type, value.decode(), ", ".join('"%s"' % a for a in allowed)))
        return value
    if kind == "tensor":
        return convert.value_tensor(value)
    return value


def _convert_list(definition, op_type, argument, values, attrs, sources):
    name, fixed, type_attr, number_attr, type_list_attr, is_ref = argument
    if not isinstance(values, (list, tuple)):
        raise TypeError("Expected list for '%s' argument to '%s' Op, not %s." % (name, op_type, values))
    if type_list_attr:
        given = attrs.get(type_list_attr)
        if given is not None and len(given) == len(values):
            tensors = [convert.convert_to_tensor(v, dtype=dtypes.as_dtype(t), name="%s_%d" % (name, i), as_ref=is_ref)
                       for i, (v, t) in enumerate(zip(values, given))]
        else:
            tensors = convert.convert_n_to_tensor(values, name=name, as_ref=is_ref)
        return tensors
    dtype = dtypes.as_dtype(fixed) if fixed else None
    preferred = None
    if dtype is None and type_attr in attrs:
        dtype = dtypes.as_dtype(attrs[type_attr])
    if dtype is None:
        for value in values:
            if isinstance(value, framework.Tensor) or hasattr(value, "_as_graph_element"):
                dtype = value.dtype.base_dtype
                break
        else:
            preferred = definition.default_types.get(type_attr)
    try:
        tensors = convert.convert_n_to_tensor(values, dtype=dtype, name=name, preferred_dtype=preferred, as_ref=is_ref)
        if not is_ref and dtype is None and any(t.dtype.base_dtype != tensors[0].dtype.base_dtype for t in tensors):
            raise TypeError("types differ")
    except (TypeError, ValueError):
        tensors = [v if isinstance(v, framework.Tensor) else convert.convert_to_tensor(v) for v in values]
        prefix = "Tensors in list passed to '%s' of '%s' Op have types [%s]" % (
            name, op_type, ", ".join(t.dtype.base_dtype.name for t in tensors))
        if fixed:
            raise TypeError("%s that do not match expected type %s." % (prefix, dtype.name))
        if type_attr in sources:
            raise TypeError("%s that do not match type %s inferred from earlier arguments." % (prefix, dtype.name))
        raise TypeError("%s that don't all match." % prefix)
    minimum = definition.attrs[number_attr].minimum if number_attr else None
    if minimum is not None and len(tensors) < minimum:
        raise ValueError("List argument '%s' to '%s' Op with length %d shorter than minimum length %d."
                         % (name, op_type, len(tensors), minimum))
    if type_attr and tensors:
        attrs.setdefault(type_attr, int(tensors[0].dtype.base_dtype))
        sources.setdefault(type_attr, name)
        _check_allowed(definition, type_attr, tensors[0].dtype, name)
    return tensors


def _convert_one(definition, op_type, argument, value, attrs, sources):
    name, fixed, type_attr, _, _, is_ref = argument
    dtype, preferred = None, None
    if fixed:
        dtype = dtypes.as_dtype(fixed)
    elif type_attr in attrs:
        dtype = dtypes.as_dtype(attrs[type_attr])
    elif type_attr in definition.default_types:
        preferred = definition.default_types[type_attr]
    if isinstance(value, framework.Tensor) and (not is_ref):
        tensor = value
    else:
        try:
            tensor = convert.convert_to_tensor(value, dtype=dtype, name=name, preferred_dtype=preferred, as_ref=is_ref)
        except TypeError as error:
            if dtype is None:
                raise
            raise TypeError("Expected %s passed to parameter '%s' of op '%s', got %s of type '%s' instead. Error: %s"
                            % (dtype.name, name, op_type, repr(value), type(value).__name__, error))
        except ValueError:
            try:
                observed = convert.convert_to_tensor(value, as_ref=is_ref).dtype.name
            except ValueError as error:
                raise ValueError("Tried to convert '%s' to a tensor and failed. Error: %s" % (name, error))
            if dtype is None:
                raise
            if fixed:
                raise TypeError("Input '%s' of '%s' Op has type %s that does not match expected type of %s."
                                % (name, op_type, observed, dtype.name))
            raise TypeError("Input '%s' of '%s' Op has type %s that does not match type %s of argument '%s'."
                            % (name, op_type, observed, dtype.name, sources.get(type_attr, type_attr)))
    base = tensor.dtype.base_dtype
    if dtype is not None and base != dtype.base_dtype:
        if fixed:
            raise TypeError("Input '%s' of '%s' Op has type %s that does not match expected type of %s."
                            % (name, op_type, base.name, dtype.name))
        raise TypeError("Input '%s' of '%s' Op has type %s that does not match type %s of argument '%s'."
                        % (name, op_type, base.name, dtype.base_dtype.name, sources.get(type_attr, type_attr)))
    if is_ref and not tensor.dtype._is_ref_dtype:
        raise TypeError("'%s' Op requires that input '%s' be a mutable tensor (e.g.: a tf.Variable)" % (op_type, name))
    if type_attr:
        if type_attr not in attrs:
            attrs[type_attr] = int(base)
            sources[type_attr] = name
        _check_allowed(definition, type_attr, base, name)
    return tensor


def apply_op(op_type, name=None, **arguments):
    """Makes a node of `op_type` in the default graph and returns the Operation."""
    definition = _definition(op_type)
    graph = _graph_of(arguments) or framework.get_default_graph()
    graph._check_not_finalized()
    given = {attr: _attr_value(definition, op_type, attr, arguments[attr]) for attr in definition.attr_order
             if arguments.get(attr) is not None}
    # Attributes inferred from the arguments so far, for the ones after them; the node's own are inferred in C++.
    attrs, sources = dict(given), {attr: attr for attr in given}
    entered = graph is not framework.get_default_graph()
    context = graph.as_default() if entered else None
    if context is not None:
        context.__enter__()
    outer = graph._scope
    try:
        label = name or op_type
        if label.endswith("/"):
            inner = outer.with_prefix(label)
        else:
            valid = _muster.is_valid_scope_name(label) if outer.prefix else (
                _muster.is_valid_node_name(label) or op_type.startswith("_"))
            if not valid:
                raise ValueError("'%s' is not a valid scope name" % label)
            inner = outer.name_scope(label)
        inputs = []
        if definition.inputs:
            graph._scope = inner
            for argument in definition.inputs:
                argument_name = argument[0]
                if argument_name not in arguments and argument_name + "_" in arguments:
                    value = arguments[argument_name + "_"]
                elif argument_name in arguments:
                    value = arguments[argument_name]
                else:
                    raise TypeError("No argument for input %s" % argument_name)
                is_list = bool(argument[3] or argument[4])
                convert_argument = _convert_list if is_list else _convert_one
                inputs.append(convert_argument(definition, op_type, argument, value, attrs, sources))
            graph._scope = outer
        return graph._add(op_type, inputs, given, inner.prefix)
    finally:
        graph._scope = outer
        if context is not None:
            context.__exit__(None, None, None)


def _graph_of(arguments):
    """The graph of the first tensor argument, like TensorFlow's _get_graph_from_inputs."""
    if framework.get_default_graph().building_function:
        return None
    for value in arguments.values():
        values = value if isinstance(value, (list, tuple)) else (value,)
        for v in values:
            if isinstance(v, framework.Tensor):
                return v.graph
    return None


def results(op):
    """What a generated function returns: the operation, a tensor, or a named tuple of tensors and lists."""
    definition = _definition(op.type)
    outputs = op.outputs
    if not definition.outputs:
        return op
    if len(definition.outputs) == 1:
        return list(outputs) if definition.outputs[0][1] else outputs[0]
    structured, at = [], 0
    for _, is_list, number_attr, type_list_attr in definition.outputs:
        if is_list:
            count = op._node.attr(number_attr) if number_attr else len(op._node.attr(type_list_attr))
            structured.append(outputs[at:at + count])
            at += count
        else:
            structured.append(outputs[at])
            at += 1
    kind = _tuples.get(op.type)
    if kind is None:
        kind = _tuples[op.type] = collections.namedtuple(op.type.lstrip("_"), [o[0] for o in definition.outputs])
    return kind(*structured)


def call(op_type, name=None, **arguments):
    """apply_op, with the result as a generated op function gives it."""
    return results(apply_op(op_type, name=name, **arguments))


# Arguments that TensorFlow's Python functions call by another name than the definition.
_AXIS = {"axis": "reduction_indices"}
_RENAMED = dict.fromkeys(("All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum"), _AXIS)
_RENAMED.update({"ExpandDims": {"axis": "dim"}, "Select": {"x": "t", "y": "e"}, "Split": {"axis": "split_dim"},
                 "SplitV": {"axis": "split_dim"}, "Squeeze": {"axis": "squeeze_dims"}, "Where": {"condition": "input"}})


class RawOps(object):
    """tf.raw_ops.MatMul(a=x, b=y)."""

    def __getattr__(self, op_type):
        if op_type.startswith("__"):
            raise AttributeError(op_type)
        try:
            _definition(op_type)
        except Exception:
            raise AttributeError("tf.raw_ops.%s is not available: Muster has no op '%s'" % (op_type, op_type))

        def function(*positional, **arguments):
            if positional:
                raise TypeError("%s only takes keyword args (possible keys: %s). Please pass these args as kwargs instead."
                                % (op_type, [a[0] for a in _definition(op_type).inputs] + _definition(op_type).attr_order))
            name = arguments.pop("name", None)
            renamed = _RENAMED.get(op_type, {})
            return call(op_type, name=name, **{renamed.get(key, key): value for key, value in arguments.items()})

        function.__name__ = op_type
        setattr(self, op_type, function)
        return function

    def __dir__(self):
        return [name for name in _muster.op_names() if not name.startswith("_")]


raw_ops = RawOps()
