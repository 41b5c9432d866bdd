"""tf.import_graph_def: nodes of a GraphDef become part of the default graph."""
from muster import _muster, compat
from muster.graph import convert, framework


def _check_graph_def(graph_def):
    descriptor = getattr(graph_def, "DESCRIPTOR", None)
    if getattr(descriptor, "full_name", None) != "tensorflow.GraphDef":
        raise TypeError("graph_def must be a GraphDef proto.")


def _check_input_map(input_map):
    if input_map is None:
        return {}
    if not (isinstance(input_map, dict) and all(isinstance(key, (str, bytes)) for key in input_map)):
        raise TypeError("input_map must be a dictionary mapping strings to Tensor objects.")
    return {compat.as_str(key): value for key, value in input_map.items()}


def _check_return_elements(return_elements):
    if return_elements is None:
        return None
    try:
        elements = tuple(return_elements)
    except TypeError:
        elements = (None,)
    if not all(isinstance(element, (str, bytes)) for element in elements):
        raise TypeError("return_elements must be a list of strings.")
    return tuple(compat.as_str(element) for element in elements)


def _check_tensor_name(name):
    parts = name.split(":")
    if len(parts) > 2 or len(parts) == 2 and not parts[1].isdigit():
        raise ValueError("Cannot convert %r to a tensor name." % name)


def _as_tensors(input_map, scope):
    if all(isinstance(value, framework.Tensor) for value in input_map.values()):
        return input_map
    if not scope:
        raise ValueError("tf.import_graph_def() requires a non-empty `name` if `input_map` contains non-Tensor "
                         "values. Try calling tf.convert_to_tensor() on `input_map` values before calling "
                         "tf.import_graph_def().")
    with framework.name_scope("_inputs"):
        return {key: convert.convert_to_tensor(value) for key, value in input_map.items()}


def import_graph_def(graph_def, input_map=None, return_elements=None, name=None, op_dict=None, producer_op_list=None):
    """Imports `graph_def` below the scope `name` ("import"); gives the operations and tensors of `return_elements`."""
    _check_graph_def(graph_def)
    input_map = _check_input_map(input_map)
    return_elements = _check_return_elements(return_elements)
    for element in return_elements or ():
        _check_tensor_name(element)
    graph = framework.get_default_graph()
    building = graph._building_scope()
    with framework.name_scope(name, "import", list(input_map.values())) as scope:
        tensors = _as_tensors(input_map, scope)
        for tensor in tensors.values():
            graph.as_graph_element(tensor, allow_operation=False)
        names = list(return_elements or ())
        outputs, nodes, made = _muster.import_graph_def(
            graph._g, graph_def.SerializeToString(), scope.rstrip("/") if scope else "",
            [(key, tensor._output) for key, tensor in tensors.items()], [n for n in names if ":" in n],
            [n for n in names if ":" not in n], [], "",
            producer_op_list.SerializeToString() if producer_op_list is not None else b"")
    graph._apply_devices(made)
    # Every imported node runs after the control dependencies of where it is imported, whatever its inputs.
    for before in building.control_dependencies():
        for node in made:
            graph._g.add_control_input(node, before)
    if return_elements is None:
        return None
    outputs, nodes = iter(outputs), iter(nodes)
    return [graph._tensor(next(outputs)) if ":" in n else graph._operation(next(nodes)) for n in names]


__all__ = ["import_graph_def"]
