"""Meta graphs: a graph, its saver and its collections as one message, out of a graph and back."""
import os
import re

from muster import _muster, _protos, compat, file_io, tf_logging
from muster.graph import framework, importer
from muster.graph.framework import GraphKeys
from muster.variables import resources

_UNBOUND = "$unbound_inputs_"
_VARIABLE_COLLECTIONS = frozenset((
    GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES, GraphKeys.MODEL_VARIABLES,
    GraphKeys.TRAINABLE_VARIABLES, GraphKeys.MOVING_AVERAGE_VARIABLES, GraphKeys.CONCATENATED_VARIABLES,
    GraphKeys.TRAINABLE_RESOURCE_VARIABLES))
_SAVE_OPS = frozenset(("SaveV2", "Save", "SaveSlice", "LegacySave", "LegacySaveSlice", "RestoreV2", "Restore",
                       "RestoreSlice", "LegacyRestore", "LegacyRestoreSlice"))


# --- Names with and without a scope. ---
def prepend_name_scope(name, import_scope):
    if not import_scope or not isinstance(name, (str, bytes)):
        return name
    scope = import_scope[:-1] if import_scope.endswith("/") else import_scope
    return re.sub(r"([\^]|loc:@|^)(.*)", lambda m: m.group(1) + scope + "/" + m.group(2), compat.as_str(name), count=1)


def strip_name_scope(name, export_scope):
    if not export_scope or not isinstance(name, (str, bytes)):
        return name
    scope = export_scope[:-1] if export_scope.endswith("/") else export_scope
    return re.sub(r"([\^]|loc:@|^)" + re.escape(scope) + r"[\/]+(.*)", r"\1\2", compat.as_str(name), count=1)


# --- Collections whose items are messages. ---
_proto_functions = {}  # collection -> (name of the message, to_proto or None, from_proto)


def register_proto_function(collection_name, proto_type=None, to_proto=None, from_proto=None):
    if to_proto and not callable(to_proto):
        raise TypeError("to_proto must be callable.")
    if from_proto and not callable(from_proto):
        raise TypeError("from_proto must be callable.")
    _proto_functions[collection_name] = (proto_type, to_proto, from_proto)


def _to_proto(item, export_scope=None):
    return item.to_proto(export_scope=export_scope)


def _variable_from_proto(proto, import_scope=None):
    from muster.variables import variables

    return variables.Variable.from_proto(proto, import_scope=import_scope)


def _saver_from_proto(proto, import_scope=None):
    from muster.train import saver

    return saver.Saver.from_proto(proto, import_scope=import_scope)


def _queue_runner_from_proto(proto, import_scope=None):
    from muster.train import queue_runner

    return queue_runner.QueueRunner.from_proto(proto, import_scope=import_scope)


class ControlFlowContext(object):
    """A conditional's branch or a loop, as an item of a collection."""

    def __init__(self, graph, context):
        self._graph, self._context = graph, context

    name = property(lambda self: self._context.name)

    def to_proto(self, export_scope=None):
        if export_scope and not self.name.startswith(export_scope):
            return None
        kind = "tensorflow.WhileContextDef" if self._context.is_loop else "tensorflow.CondContextDef"
        return _protos.get(kind).FromString(_muster.context_to_proto(self._context, export_scope or ""))

    @staticmethod
    def from_proto(proto, import_scope=None):
        graph = framework.get_default_graph()
        is_loop = proto.DESCRIPTOR.full_name == "tensorflow.WhileContextDef"
        context = _muster.context_from_proto(graph._g, (import_scope or "").rstrip("/"), proto.SerializeToString(),
                                             is_loop)
        graph._known_contexts.add(context.name)
        return ControlFlowContext(graph, context)


def add_contexts(graph):
    """Puts conditionals and loops that were made since the last call into the graph's collections."""
    for context in _muster.root_contexts(graph._g):
        if context.name not in graph._known_contexts:
            graph._known_contexts.add(context.name)
            key = GraphKeys.WHILE_CONTEXT if context.is_loop else GraphKeys.COND_CONTEXT
            graph._collections.setdefault(key, []).append(ControlFlowContext(graph, context))


def _register_all():
    for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES, GraphKeys.MOVING_AVERAGE_VARIABLES,
                GraphKeys.LOCAL_VARIABLES, GraphKeys.MODEL_VARIABLES, GraphKeys.GLOBAL_STEP,
                GraphKeys.METRIC_VARIABLES):
        register_proto_function(key, "tensorflow.VariableDef", _to_proto, _variable_from_proto)
    register_proto_function(GraphKeys.SAVERS, "tensorflow.SaverDef", _to_proto, _saver_from_proto)
    register_proto_function(GraphKeys.QUEUE_RUNNERS, "tensorflow.QueueRunnerDef", _to_proto, _queue_runner_from_proto)
    register_proto_function(GraphKeys.COND_CONTEXT, "tensorflow.CondContextDef", _to_proto,
                            ControlFlowContext.from_proto)
    register_proto_function(GraphKeys.WHILE_CONTEXT, "tensorflow.WhileContextDef", _to_proto,
                            ControlFlowContext.from_proto)


_register_all()


def _message_class(proto_type):
    return _protos.get(proto_type) if isinstance(proto_type, str) else proto_type


# --- Writing. ---
def _kind_of(item):
    if isinstance(item, (str, bytes)):
        return "bytes_list"
    if isinstance(item, int):
        return "int64_list"
    if isinstance(item, float):
        return "float_list"
    if getattr(getattr(item, "DESCRIPTOR", None), "full_name", None) == "google.protobuf.Any":
        return "any_list"
    return "node_list"


def _included(item, export_scope, exclude_nodes):
    name = item if isinstance(item, str) else getattr(item, "name", None)
    if name is None:
        return True
    if exclude_nodes and name in exclude_nodes:
        return False
    return name.startswith(_UNBOUND) or not export_scope or name.startswith(export_scope)


def add_collection_def(meta_graph_def, key, graph=None, export_scope=None, exclude_nodes=None, override_contents=None):
    if not isinstance(key, (str, bytes)):
        tf_logging.warning("Only collections with string type keys will be serialized. This key has %s", type(key))
        return
    graph = graph or framework.get_default_graph()
    # A CollectionDef has no kind for what is registered of a resource.
    items = [item for item in override_contents or graph.get_collection(key)
             if _included(item, export_scope, exclude_nodes) and not resources.is_resource(item)]
    if not items:
        return
    try:
        _fill_collection(meta_graph_def.collection_def[key], key, items, export_scope)
    except Exception as e:
        tf_logging.warning("Issue encountered when serializing %s.\nType is unsupported, or the types of the items don't "
                           "match field type in CollectionDef. Note this is a warning and probably safe to ignore.\n%s",
                           key, str(e))
        del meta_graph_def.collection_def[key]


def _fill_collection(target, key, items, export_scope):
    proto_type, to_proto, _ = _proto_functions.get(key, (None, None, None))
    if to_proto:
        target.bytes_list.SetInParent()
        for item in items:
            proto = to_proto(item, export_scope=export_scope)
            if proto:
                assert proto.DESCRIPTOR.full_name == _message_class(proto_type).DESCRIPTOR.full_name
                target.bytes_list.value.append(proto.SerializeToString())
        return
    kind = _kind_of(items[0])
    values = getattr(target, kind).value
    if kind == "node_list":
        values.extend(strip_name_scope(item.name, export_scope) for item in items
                      if not export_scope or item.name.startswith(export_scope))
    elif kind == "bytes_list":
        values.extend(compat.as_bytes(item) for item in items)
    else:  # bools are integers here, as in 1.15
        values.extend(int(item) if isinstance(item, bool) else item for item in items)


def ops_used_by_graph_def(graph_def):
    functions = {f.signature.name: f for f in graph_def.library.function}
    used, waiting = set(), list(graph_def.node)
    while waiting:
        node = waiting.pop()
        names = [node.op]
        if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            names.append(node.attr["f"].func.name)
        for name in names:
            if name not in used:
                used.add(name)
                if name in functions:
                    waiting.extend(functions[name].node_def)
    return [name for name in used if name not in functions]


def stripped_op_list_for_graph(graph_def):
    op_list = _protos.get("tensorflow.OpList")()
    known = set(_muster.op_names())
    for name in sorted(ops_used_by_graph_def(graph_def)):
        if name in known:
            op_list.op.add().ParseFromString(_muster.op_def_proto(name))
    return op_list


def strip_graph_default_valued_attrs(meta_graph_def):
    """Removes attributes that have the default value of the op's definition."""
    defaults = {op.name: {attr.name: attr.default_value for attr in op.attr if attr.HasField("default_value")}
                for op in meta_graph_def.meta_info_def.stripped_op_list.op}
    graph_def = meta_graph_def.graph_def
    nodes = list(graph_def.node) + [node for f in graph_def.library.function for node in f.node_def]
    for node in nodes:
        for name, value in defaults.get(node.op, {}).items():
            if name in node.attr and node.attr[name] == value:
                del node.attr[name]
    meta_graph_def.meta_info_def.stripped_default_attrs = True


def _check_type(value, full_name, what):
    if value and getattr(getattr(value, "DESCRIPTOR", None), "full_name", None) != full_name:
        raise TypeError("%s must be of type %s. Received type: %s." % (what, full_name.split(".")[-1], type(value)))


def create_meta_graph_def(meta_info_def=None, graph_def=None, saver_def=None, collection_list=None, graph=None,
                          export_scope=None, exclude_nodes=None, clear_extraneous_savers=False,
                          strip_default_attrs=False):
    import muster

    if graph and not isinstance(graph, framework.Graph):
        raise TypeError("graph must be of type Graph. Received type: %s." % type(graph))
    _check_type(meta_info_def, "tensorflow.MetaGraphDef.MetaInfoDef", "meta_info_def")
    _check_type(graph_def, "tensorflow.GraphDef", "graph_def")
    _check_type(saver_def, "tensorflow.SaverDef", "saver_def")
    graph = graph or framework.get_default_graph()
    add_contexts(graph)
    proto = _protos.get("tensorflow.MetaGraphDef")()
    if meta_info_def:
        proto.meta_info_def.MergeFrom(meta_info_def)
    proto.meta_info_def.tensorflow_version = muster.__version__
    proto.meta_info_def.tensorflow_git_version = muster.GIT_VERSION
    proto.graph_def.MergeFrom(graph_def or graph.as_graph_def(add_shapes=True))
    if not proto.meta_info_def.stripped_op_list.op:
        proto.meta_info_def.stripped_op_list.MergeFrom(stripped_op_list_for_graph(proto.graph_def))
    if strip_default_attrs:
        strip_graph_default_valued_attrs(proto)
    if saver_def:
        proto.saver_def.MergeFrom(saver_def)
    for key in graph.get_all_collection_keys() if collection_list is None else collection_list:
        override = None
        if clear_extraneous_savers and key == GraphKeys.SAVERS:
            override = [_saver_from_proto(saver_def)]
        add_collection_def(proto, key, graph, export_scope, exclude_nodes, override)
    return proto


def _op_name(name):
    return name.lstrip("^").split(":")[0]


def _scope_of(name):
    return name.rpartition("/")[0]


def _extraneous_saver_nodes(graph_def, saver_def):
    """Nodes in the scopes of savers other than the given one."""
    save_nodes = {node.name for node in graph_def.node if node.op in _SAVE_OPS}
    scopes = {_scope_of(name) for name in save_nodes} - save_nodes
    if saver_def is not None:
        scopes -= {_scope_of(_op_name(saver_def.save_tensor_name)), _scope_of(_op_name(saver_def.restore_op_name))}
    return {node.name for node in graph_def.node if any(node.name.startswith(scope + "/") for scope in scopes)}


def _move_node(node, export_scope, unbound, clear_devices):
    """Removes the scope from a node's names; inputs from outside of it are marked."""
    for i, name in enumerate(node.input):
        if export_scope and not name.lstrip("^").startswith(export_scope):
            node.input[i] = re.sub(r"([\^]|^)(.*)", lambda m: m.group(1) + _UNBOUND + m.group(2), name, count=1)
            unbound.append(node.input[i])
        else:
            node.input[i] = strip_name_scope(name, export_scope)
    node.name = strip_name_scope(node.name, export_scope)
    if export_scope and "_class" in node.attr:
        kept = [compat.as_bytes(strip_name_scope(s, export_scope)) for s in node.attr["_class"].list.s
                if compat.as_str(s).split("@")[1].startswith(export_scope)]
        del node.attr["_class"].list.s[:]
        node.attr["_class"].list.s.extend(kept)
    if export_scope and node.op in ("Enter", "RefEnter"):
        frame = compat.as_str(node.attr["frame_name"].s)
        if frame.startswith(export_scope):
            node.attr["frame_name"].s = compat.as_bytes(strip_name_scope(frame, export_scope))
    if clear_devices:
        node.device = ""


def _part_of_graph(graph, graph_def, export_scope, exclude_nodes, clear_devices, unbound):
    source = graph_def if graph_def is not None else graph.as_graph_def(add_shapes=True)
    part = type(source)()
    part.versions.CopyFrom(source.versions)
    part.library.CopyFrom(source.library)
    for node in source.node:
        if _included(node.name, export_scope, exclude_nodes):
            copy = part.node.add()
            copy.CopyFrom(node)
            _move_node(copy, export_scope, unbound, clear_devices)
    return part


def export_scoped_meta_graph(filename=None, graph_def=None, graph=None, export_scope=None, as_text=False,
                             unbound_inputs_col_name="unbound_inputs", clear_devices=False, saver_def=None,
                             clear_extraneous_savers=False, strip_default_attrs=False, save_debug_info=False, **kwargs):
    """(MetaGraphDef, {name: variable}) of a graph or of one of its scopes."""
    graph = graph or framework.get_default_graph()
    exclude_nodes = None
    if export_scope or clear_extraneous_savers or clear_devices:
        if clear_extraneous_savers:
            exclude_nodes = _extraneous_saver_nodes(graph_def or graph.as_graph_def(), saver_def)
        unbound = []
        graph_def = _part_of_graph(graph, graph_def, export_scope, exclude_nodes, clear_devices, unbound)
        if unbound_inputs_col_name:
            graph.clear_collection(unbound_inputs_col_name)
            for name in unbound:
                graph.add_to_collection(unbound_inputs_col_name, name)
    exported = {strip_name_scope(v.name, export_scope): v
                for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope=export_scope)
                if _included(v, export_scope, exclude_nodes)}
    proto = create_meta_graph_def(
        graph_def=graph_def, graph=graph, export_scope=export_scope, exclude_nodes=exclude_nodes,
        clear_extraneous_savers=clear_extraneous_savers, saver_def=saver_def, strip_default_attrs=strip_default_attrs,
        **kwargs)
    if filename:
        write_graph(proto, os.path.dirname(filename), os.path.basename(filename), as_text=as_text)
        if save_debug_info:
            beside = os.path.splitext(compat.as_str(compat.path_to_str(filename)))[0] + ".debug"
            write_graph(graph_debug_info(graph, [node.name for node in proto.graph_def.node], export_scope),
                        os.path.dirname(beside), os.path.basename(beside), as_text=as_text)
    return proto, exported


def graph_debug_info(graph, names, scope=None):
    """GraphDebugInfo: for each of these nodes the calls that made it, innermost first."""
    proto = _protos.get("tensorflow.GraphDebugInfo")()
    files = {}
    for name in names:
        node = graph.get_operation_by_name("%s/%s" % (scope, name) if scope else name)
        trace = proto.traces[name + "@"]
        for frame in reversed(node.traceback):
            trace.file_line_cols.add(file_index=files.setdefault(frame.filename, len(files)), line=frame.lineno,
                                     func=frame.name, code=frame.line)
    proto.files.extend(files)
    return proto


def write_graph(graph_or_graph_def, logdir, name, as_text=True):
    """Writes a graph (or any message) to a file, as text or in binary; gives the file's path."""
    proto = graph_or_graph_def
    if isinstance(proto, framework.Graph):
        proto = proto.as_graph_def()
    logdir = compat.as_str(compat.path_to_str(logdir))
    if logdir and not file_io.file_exists(logdir):
        file_io.recursive_create_dir(logdir)
    path = os.path.join(logdir, name)
    data = proto.SerializeToString(deterministic=True)
    if as_text:
        data = _muster.message_text(proto.DESCRIPTOR.full_name, data)
    file_io.atomic_write_string_to_file(path, data)
    return path


# --- Reading. ---
def read_message(filename, full_name):
    """A message from a file that holds it in binary or as text."""
    from google.protobuf import message, text_format

    if not file_io.file_exists(filename):
        raise IOError("File %s does not exist." % filename)
    data = file_io.read_file_to_string(filename, binary_mode=True)
    kind = _protos.get(full_name)
    try:
        return kind.FromString(data)
    except message.DecodeError:
        pass
    try:
        return text_format.Merge(data.decode("utf-8"), kind())
    except (text_format.ParseError, UnicodeDecodeError) as e:
        raise IOError("Cannot parse file %s: %s." % (filename, e))


def read_meta_graph_file(filename):
    return read_message(filename, "tensorflow.MetaGraphDef")


def as_meta_graph_def(meta_graph_or_file):
    full_name = getattr(getattr(meta_graph_or_file, "DESCRIPTOR", None), "full_name", None)
    if full_name == "tensorflow.MetaGraphDef":
        return meta_graph_or_file
    return read_meta_graph_file(compat.as_str(compat.path_to_str(meta_graph_or_file)))


def _check_unbound(proto, column, input_map):
    if not column or column not in proto.collection_def:
        return
    collection = proto.collection_def[column]
    kind = collection.WhichOneof("kind")
    names = [compat.as_str(v) for v in getattr(collection, kind).value] if kind else []
    if names and (not input_map or sorted(names) != sorted(input_map)):
        raise ValueError("Graph contains unbound inputs: %s. Must provide these inputs through input_map."
                         % ",".join(n for n in names if not input_map or n not in input_map))


def _variables_have_trainable(version):
    """Releases before 1.9 left the field out."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers.group(1)), int(numbers.group(2))) >= (1, 9)


def _import_collection(graph, key, collection, scope, known_variables, have_trainable):
    kind = collection.WhichOneof("kind")
    if kind is None:
        tf_logging.error("Cannot identify data type for collection %s. Skipping.", key)
        return
    proto_type, _, from_proto = _proto_functions.get(key, (None, None, None))
    if from_proto and kind == "bytes_list":
        for value in collection.bytes_list.value:
            item = known_variables.get(value) if key in _VARIABLE_COLLECTIONS else None
            if item is None:
                proto = _message_class(proto_type).FromString(value)
                if key in _VARIABLE_COLLECTIONS and not have_trainable:
                    proto.trainable = key == GraphKeys.TRAINABLE_VARIABLES
                item = from_proto(proto, import_scope=scope)
                if key in _VARIABLE_COLLECTIONS:
                    known_variables[value] = item
            graph.add_to_collection(key, item)
        return
    for value in getattr(collection, kind).value:
        if kind == "node_list":
            value = graph.as_graph_element(prepend_name_scope(value, scope))
        elif kind == "int64_list":
            value = int(value)
        elif kind == "bytes_list" and scope:
            value = prepend_name_scope(value, scope)
        graph.add_to_collection(key, value)


def import_scoped_meta_graph_with_return_elements(
        meta_graph_or_file, clear_devices=False, graph=None, import_scope=None, input_map=None,
        unbound_inputs_col_name="unbound_inputs", restore_collections_predicate=(lambda key: True),
        return_elements=None):
    """Imports nodes and collections; ({name without the scope: variable}, return elements)."""
    proto = as_meta_graph_def(meta_graph_or_file)
    _check_unbound(proto, unbound_inputs_col_name, input_map)
    graph = graph or framework.get_default_graph()
    with graph.as_default():
        graph_def = proto.graph_def
        if clear_devices:
            for node in graph_def.node:
                node.device = ""
        scope = graph.unique_name(import_scope, mark_as_used=False) if import_scope else graph._scope.prefix
        elements = importer.import_graph_def(
            graph_def, name=import_scope or scope, input_map=input_map, return_elements=return_elements,
            producer_op_list=proto.meta_info_def.stripped_op_list
            if proto.meta_info_def.HasField("stripped_op_list") else None)
        have_trainable = _variables_have_trainable(proto.meta_info_def.tensorflow_version)
        known_variables = {}
        contexts_before = {key: len(graph.get_collection(key)) for key in (
            GraphKeys.COND_CONTEXT, GraphKeys.WHILE_CONTEXT)}
        # Trainable variables first: the others may be the same ones.
        for key in sorted(proto.collection_def, key=lambda k: (k != GraphKeys.TRAINABLE_VARIABLES, k)):
            if key != unbound_inputs_col_name and restore_collections_predicate(key):
                _import_collection(graph, key, proto.collection_def[key], scope, known_variables, have_trainable)
        _muster.check_contexts(graph._g, [
            item._context for key in (GraphKeys.COND_CONTEXT, GraphKeys.WHILE_CONTEXT)
            for item in graph.get_collection(key)[contexts_before[key]:]])
        imported = {strip_name_scope(v.name, scope): v
                    for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope=scope or None)}
    return imported, elements


def import_scoped_meta_graph(meta_graph_or_file, clear_devices=False, graph=None, import_scope=None, input_map=None,
                             unbound_inputs_col_name="unbound_inputs",
                             restore_collections_predicate=(lambda key: True)):
    return import_scoped_meta_graph_with_return_elements(
        meta_graph_or_file, clear_devices, graph, import_scope, input_map, unbound_inputs_col_name,
        restore_collections_predicate)[0]


def copy_scoped_meta_graph(from_scope, to_scope, from_graph=None, to_graph=None):
    from_graph = from_graph or framework.get_default_graph()
    to_graph = to_graph or framework.get_default_graph()
    if from_graph is to_graph and from_scope == to_scope:
        raise ValueError("'from_scope' and 'to_scope' need to be different when performing copy in the same graph. "
                         "Received: 'from_scope': %s, 'to_scope': %s." % (from_scope, to_scope))
    proto, _ = export_scoped_meta_graph(export_scope=from_scope, graph=from_graph)
    return import_scoped_meta_graph(proto, graph=to_graph, import_scope=to_scope)


