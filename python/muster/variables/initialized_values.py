"""Initial values that depend on other variables: they must see them initialized, whatever the order of initializers.

TensorFlow rewrites such a value: each variable it reads is replaced by a conditional over "is it initialized", and the
ops between are copied under new names. Values that go through loops or placeholders are left as they are."""
from muster.graph import framework

_UNSAFE = ("IsVariableInitialized", "VarIsInitializedOp", "ReadVariableOp")


def guard(initial_value, variable_name):
    tensor = _safe(initial_value, variable_name, {})
    return initial_value if tensor is None else tensor


def _has_cycle(op, state):
    if state.get(op.name) == 1:
        return True
    if state.get(op.name) == 2:
        return False
    state[op.name] = 1
    for op_input in [t.op for t in op.inputs] + op.control_inputs:
        if _has_cycle(op_input, state):
            return True
    state[op.name] = 2
    return False


def _safe(value, variable_name, cache):
    op = value.op
    if _has_cycle(op, {}):
        return value
    return _safe_tensor(value, variable_name, cache)


def _find_variable(op):
    """The variable that `op` is the node of, or nothing."""
    graph = framework.get_default_graph()
    for key in (framework.GraphKeys.GLOBAL_VARIABLES, framework.GraphKeys.LOCAL_VARIABLES):
        for variable in graph.get_collection_ref(key):
            if getattr(variable, "op", None) is op:
                return variable
    return None


def _safe_tensor(tensor, variable_name, cache):
    op = tensor.op
    if op in cache:
        replacement = cache[op]
        return replacement.outputs[tensor.value_index] if isinstance(replacement, framework.Operation) else replacement
    if op.type in _UNSAFE:
        cache[op] = op
        return tensor
    if op.type in ("Variable", "VariableV2", "VarHandleOp"):
        variable = _find_variable(op)
        if variable is None:
            cache[op] = op
            return tensor
        cache[op] = variable.initialized_value()
        return cache[op]
    new_inputs, modified = [], False
    for op_input in op.inputs:
        new_input = _safe_tensor(op_input, variable_name, cache)
        new_inputs.append(new_input)
        modified = modified or new_input is not op_input
    if not modified:
        cache[op] = op
        return tensor
    # The slash at the end makes it the whole name, whatever scope is open.
    new_name = (op.name + "_" + variable_name).replace(":", "_") + "/"
    attrs = {name: op._node.attr(name) for name in op._node.attr_names}
    # What a conditional gives in place of a variable is a value, not a reference.
    new_type = "Switch" if op.type == "RefSwitch" else op.type
    cache[op] = op.graph.create_op(new_type, new_inputs, name=new_name, attrs=attrs)
    return cache[op].outputs[tensor.value_index]
