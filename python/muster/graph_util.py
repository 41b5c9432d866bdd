"""tf.graph_util: GraphDefs cut down, and variables frozen into constants."""
import re

import numpy as np

from muster import _muster, _protos, dtypes, tf_logging
from muster.graph import convert, framework
from muster.names import absent as _absent

__getattr__ = _absent.explain(__name__)

_VARIABLE_OPS = ("Assign", "AssignAdd", "AssignSub", "Queue", "ScatterAdd", "ScatterSub", "ScatterUpdate", "TruncatedNormal",
                 "Variable", "VariableV2")
_STORES = ("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp")


def _node_name(text):
    """The node that an input of a NodeDef names."""
    return re.sub(r":\d+$", "", text[1:] if text.startswith("^") else text)


def _check_graph_def(graph_def):
    if getattr(getattr(graph_def, "DESCRIPTOR", None), "full_name", None) != "tensorflow.GraphDef":
        raise TypeError("graph_def must be a graph_pb2.GraphDef proto.")


def must_run_on_cpu(node, pin_variables_on_cpu=False):
    """Whether a node (an Operation or NodeDef) can only be placed on a CPU."""
    definition = node.node_def if isinstance(node, framework.Operation) else node
    if pin_variables_on_cpu and definition.op in _VARIABLE_OPS:
        return True
    attr = definition.attr
    if definition.op == "Const":
        return attr["dtype"].type in (dtypes.string, dtypes.int32)
    if definition.op in ("DynamicStitch", "ParallelDynamicStitch"):
        return attr["T"].type == dtypes.int32
    return definition.op == "Cast" and attr["SrcT"].type == dtypes.int32


def set_cpu0(device_string):
    spec = framework.DeviceSpec.from_string(device_string)
    spec.device_type, spec.device_index = "CPU", 0
    return spec.to_string()


def tensor_shape_from_node_def_name(graph, input_name):
    """The static shape of a tensor that is named as an input of a NodeDef names it."""
    name = input_name if ":" in input_name else input_name + ":0"
    return graph.get_tensor_by_name(name).get_shape()


def _reachable(dest_nodes, inputs):
    seen, waiting = set(), list(dest_nodes)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(inputs[name])
    return seen


def extract_sub_graph(graph_def, dest_nodes):
    """The nodes that `dest_nodes` need, and those."""
    _check_graph_def(graph_def)
    if isinstance(dest_nodes, (str, bytes)):
        raise TypeError("dest_nodes must be a list.")
    inputs = {node.name: [_node_name(i) for i in node.input] for node in graph_def.node}
    for name in dest_nodes:
        assert name in inputs, "%s is not in graph" % name
    wanted = _reachable(dest_nodes, inputs)
    result = type(graph_def)()
    result.node.extend(node for node in graph_def.node if node.name in wanted)
    result.library.CopyFrom(graph_def.library)
    result.versions.CopyFrom(graph_def.versions)
    return result


def remove_training_nodes(input_graph, protected_nodes=None):
    """Leaves out CheckNumerics and Identity nodes that only stand between others."""
    protected = set(protected_nodes or ())
    # Control inputs cannot take the place of a node, nor can a node that has some.
    by_name = {node.name: node for node in input_graph.node}
    controls = {_node_name(i) for node in input_graph.node for i in node.input if i.startswith("^")}
    spliced = {}
    for node in input_graph.node:
        if node.op not in ("Identity", "CheckNumerics") or node.name in protected or node.name in controls:
            continue
        if len(node.input) == 1 and not node.input[0].startswith("^"):
            source = by_name.get(_node_name(node.input[0]))
            # The reader of a variable keeps its value apart from later assignments.
            if source is not None and source.op not in ("Variable", "VariableV2", "Switch", "RefSwitch"):
                spliced[node.name] = node.input[0]

    def target(text):
        while _node_name(text) in spliced and not text.startswith("^"):
            text = spliced[_node_name(text)]
        return text

    result = type(input_graph)()
    for node in input_graph.node:
        if node.name in spliced:
            continue
        copy = result.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [target(i) for i in node.input]
    result.library.CopyFrom(input_graph.library)
    result.versions.CopyFrom(input_graph.versions)
    return result


class _Freezer(object):
    """Replaces the variables of a GraphDef by their values."""

    # Ops through which a handle of a variable passes on its way to where it is read.
    _PASS_HANDLES = ("Identity", "Switch", "Enter", "RefEnter", "RefIdentity", "Merge", "Exit", "NextIteration")

    def __init__(self, graph_def, chosen):
        self._nodes = {node.name: node for node in graph_def.node}
        self.stores = {node.name: node for node in graph_def.node if node.op in _STORES and chosen(node.name)}
        self._resources = {name for name, node in self.stores.items() if node.op == "VarHandleOp"}

    def store_of(self, text):
        """The frozen variable whose handle arrives at an input, or None."""
        name = _node_name(text)
        for _ in range(len(self._nodes)):
            if name in self._resources:
                return name
            node = self._nodes.get(name)
            if node is None or node.op not in self._PASS_HANDLES or not node.input:
                return None
            name = _node_name(node.input[0])
        return None

    def value_name(self, name):
        """The tensor that gives a variable's value."""
        if name not in self._resources:
            return name + ":0"
        own = name + "/Read/ReadVariableOp"
        if own in self._nodes:
            return own + ":0"
        for node in self._nodes.values():
            if node.op == "ReadVariableOp" and _node_name(node.input[0]) == name:
                return node.name + ":0"
        raise ValueError("Variable %s is never read in the graph, so its value cannot be found" % name)

    def constant(self, name, value, out):
        node = out.node.add(name=name, op="Const", device="")
        dtype = self.stores[name].attr["dtype"].type
        node.attr["dtype"].type = dtype
        node.attr["value"].tensor.ParseFromString(
            _muster.tensor_proto(convert.value_tensor(value, dtype, np.shape(value))))

    def copy(self, node, out):
        """Copies a node, reading constants where it has read variables."""
        store = self.store_of(node.input[0]) if node.input and not node.input[0].startswith("^") else None
        made = out.node.add()
        made.CopyFrom(node)
        if store is None:
            return
        dtype = self.stores[store].attr["dtype"].type
        if node.op == "ReadVariableOp":
            made.op = "Identity"
            made.attr.clear()
            made.attr["T"].type = dtype
            if "_class" in node.attr:
                made.attr["_class"].CopyFrom(node.attr["_class"])
        elif node.op == "ResourceGather":
            axis = out.node.add(name=node.name + "/axis", op="Const", device=node.device)
            axis.attr["dtype"].type = 3
            axis.attr["value"].tensor.CopyFrom(_protos.get("tensorflow.TensorProto")(
                dtype=3, tensor_shape={}, int_val=[0]))
            made.op = "GatherV2"
            made.attr.clear()
            made.input[:] = [node.input[0], node.input[1], axis.name]
            made.attr["Tparams"].type = dtype
            made.attr["Tindices"].CopyFrom(node.attr["Tindices"])
            made.attr["Taxis"].type = 3
            made.attr["batch_dims"].CopyFrom(node.attr["batch_dims"])
        elif node.op in self._PASS_HANDLES:
            made.attr["T"].type = dtype
        elif node.op == "VariableShape":
            made.op = "Shape"
            out_type = node.attr["out_type"].type or 3
            made.attr.clear()
            made.attr["T"].type = dtype
            made.attr["out_type"].type = out_type
        else:
            raise ValueError("Cannot find the variable that is an input to the %s node %s: it changes the variable or "
                             "needs its handle, and the graph is to hold constants" % (node.op, node.name))


def convert_variables_to_constants(sess, input_graph_def, output_node_names, variable_names_whitelist=None,
                                   variable_names_blacklist=None):
    """The part of a GraphDef that the outputs need, with the values that the variables have in `sess`."""
    inference = extract_sub_graph(input_graph_def, output_node_names)

    def chosen(name):
        if variable_names_whitelist is not None and name not in variable_names_whitelist:
            return False
        return variable_names_blacklist is None or name not in variable_names_blacklist

    freezer = _Freezer(inference, chosen)
    names = list(freezer.stores)
    values = sess.run([freezer.value_name(name) for name in names]) if names else []
    tf_logging.info("Froze %d variables.", len(values))
    found = dict(zip(names, values))
    out = type(input_graph_def)()
    for node in inference.node:
        if node.name in found:
            freezer.constant(node.name, found[node.name], out)
        else:
            freezer.copy(node, out)
    out.library.CopyFrom(inference.library)
    out.versions.CopyFrom(input_graph_def.versions)
    tf_logging.info("Converted %d variables to const ops.", len(values))
    return out


__all__ = ["convert_variables_to_constants", "extract_sub_graph", "must_run_on_cpu", "remove_training_nodes", "set_cpu0",
           "tensor_shape_from_node_def_name"]
