"""Graphs as Python sees them, and functions of the default one. Names, scopes, shapes and devices are kept by the C++
graph; the objects here hold handles into it, and collections."""
import contextlib
import re
import threading

from muster import _muster, _tasks, dtypes
from muster.graph import creation_stacks, tensor_shape
from muster.graph.default_stack import get_default_session, graph_stack  # noqa: F401
from muster.graph.device_spec import DeviceSpec, device_choice, device_result, device_string
from muster.graph.graph_elements import IndexedSlices, Operation, Tensor
from muster.graph.graph_keys import GraphKeys  # noqa: F401


class Graph(object):
    """A dataflow graph and its collections."""

    def __init__(self):
        self._g = _muster.Graph()
        self._root = _muster.Scope(self._g)
        self._local = threading.local()
        self._ops = {}
        self._stacks = creation_stacks.CreationStacks()
        self._collections = {}
        self._known_contexts = set()  # names of conditionals and loops that are in the collections
        self._finalized = False
        self._unfeedable = set()
        self._unfetchable = set()
        self._building_function = False
        self._lock = threading.RLock()

    # --- The scope in which this thread builds. ---
    @property
    def _scope(self):
        scope = getattr(self._local, "scope", None)
        return self._root if scope is None else scope

    @_scope.setter
    def _scope(self, scope):
        self._local.scope = scope

    @contextlib.contextmanager
    def _in_scope(self, scope):
        previous = self._scope
        self._scope = scope
        try:
            yield scope
        finally:
            self._scope = previous

    # --- Operations. ---
    def _operation(self, node):
        return self._operation_by_id(node.id, node)

    def _operation_by_id(self, node_id, node=None):
        op = self._ops.get(node_id)
        if op is None:
            op = self._ops[node_id] = Operation(self, node if node is not None else self._g.node(node_id))
        return op

    def _tensor(self, output):
        return self._operation(output.node).outputs[output.index]

    def _check_not_finalized(self):
        if self._finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")

    def _override_gradients(self, first):
        """Applies gradient_override_map to the nodes from number `first` on, which the C++ core has made."""
        overrides = getattr(self._local, "gradient_overrides", None)
        for i in range(first, self._g.num_nodes) if overrides else ():
            node = self._g.node(i)
            if node.op in overrides:
                node.set_attr("_gradient_op_type", overrides[node.op])

    def _building_scope(self):
        """Where functions of the C++ core make their nodes."""
        self._check_not_finalized()
        self._stacks.note(self._g.num_nodes)
        return self._scope

    def _add(self, op_type, inputs, attrs, name=""):
        """Makes a node; inputs are tensors or lists of tensors."""
        self._check_not_finalized()
        self._stacks.note(self._g.num_nodes)
        overrides = getattr(self._local, "gradient_overrides", None)
        if overrides and op_type in overrides:
            attrs = dict(attrs, _gradient_op_type=overrides[op_type])
        handles = [[t._output for t in i] if isinstance(i, (list, tuple)) else i._output for i in inputs]
        return self._operation(self._scope.add(op_type, handles, attrs, name or ""))

    def create_op(self, op_type, inputs, dtypes=None, input_types=None, name=None, attrs=None, op_def=None,
                  compute_shapes=True, compute_device=True):
        """For old programs: flat inputs, attrs as AttrValue protos or plain values."""
        definition = _muster.op_def(op_type)
        given = {key: _plain_attr(value) for key, value in (attrs or {}).items()}
        grouped, rest = [], list(inputs)
        for arg in definition.inputs:
            count = None
            if arg.number_attr:
                count = given[arg.number_attr]
            elif arg.type_list_attr:
                count = len(given[arg.type_list_attr])
            if count is None:
                grouped.append(rest.pop(0))
            else:
                grouped.append(rest[:count])
                rest = rest[count:]
        return self._add(op_type, grouped, given, name or op_type)

    def get_operations(self):
        return [self._operation_by_id(i) for i in range(self._g.num_nodes)]

    def get_operation_by_name(self, name):
        if not isinstance(name, str):
            raise TypeError("Operation names are strings (or similar), not %s." % type(name).__name__)
        return self.as_graph_element(name, allow_tensor=False, allow_operation=True)

    def get_tensor_by_name(self, name):
        if not isinstance(name, str):
            raise TypeError("Tensor names are strings (or similar), not %s." % type(name).__name__)
        return self.as_graph_element(name, allow_tensor=True, allow_operation=False)

    def as_graph_element(self, obj, allow_tensor=True, allow_operation=True):
        if allow_tensor and allow_operation:
            types_str = "Tensor or Operation"
        elif allow_tensor:
            types_str = "Tensor"
        elif allow_operation:
            types_str = "Operation"
        else:
            raise ValueError("allow_tensor and allow_operation can't both be False.")
        if hasattr(obj, "_as_graph_element"):
            obj = obj._as_graph_element()
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            return self._element_by_name(obj, allow_tensor, allow_operation)
        if isinstance(obj, Tensor) and allow_tensor:
            if obj.graph is not self:
                raise ValueError("Tensor %s is not an element of this graph." % obj)
            return obj
        if isinstance(obj, Operation) and allow_operation:
            if obj.graph is not self:
                raise ValueError("Operation %s is not an element of this graph." % obj.name)
            return obj
        raise TypeError("Can not convert a %s into a %s." % (type(obj).__name__, types_str))

    def _element_by_name(self, name, allow_tensor, allow_operation):
        if ":" in name and allow_tensor:
            try:
                op_name, index = name.split(":")
                index = int(index)
            except ValueError:
                raise ValueError("The name %s looks a like a Tensor name, but is not a valid one. Tensor names must be "
                                 "of the form \"<op_name>:<output_index>\"." % repr(name))
            node = self._g.find(op_name)
            if node is None:
                raise KeyError("The name %s refers to a Tensor which does not exist. The operation, %s, does not exist "
                               "in the graph." % (repr(name), repr(op_name)))
            if index >= node.num_outputs:
                raise KeyError("The name %s refers to a Tensor which does not exist. The operation, %s, exists but "
                               "only has %s outputs." % (repr(name), repr(op_name), node.num_outputs))
            return self._operation(node).outputs[index]
        if ":" in name:
            raise ValueError("Name %s appears to refer to a Tensor, not a Operation." % repr(name))
        if allow_operation:
            node = self._g.find(name)
            if node is None:
                raise KeyError("The name %s refers to an Operation not in the graph." % repr(name))
            return self._operation(node)
        if self._g.find(name) is not None:
            message = "The name %s refers to an Operation, not a Tensor. Tensor names must be of the form " \
                      "\"<op_name>:<output_index>\"." % repr(name)
        else:
            message = "The name %s looks like an (invalid) Operation name, not a Tensor. Tensor names must be of the " \
                      "form \"<op_name>:<output_index>\"." % repr(name)
        raise ValueError(message)

    # --- State. ---
    @property
    def version(self):
        return self._g.num_nodes

    _last_id = version

    @property
    def seed(self):
        return self._g.seed

    @seed.setter
    def seed(self, seed):
        self._g.seed = seed

    @property
    def finalized(self):
        return self._finalized

    def finalize(self):
        self._finalized = True

    def _unsafe_unfinalize(self):
        self._finalized = False

    @property
    def graph_def_versions(self):
        from muster import _protos

        return _protos.get("tensorflow.VersionDef")(producer=self._g.producer)

    @property
    def building_function(self):
        return self._building_function

    def as_default(self):
        return graph_stack.enter(self)

    def as_graph_def(self, from_version=None, add_shapes=False):
        from muster import _protos

        proto = _protos.get("tensorflow.GraphDef")()
        proto.ParseFromString(_muster.graph_def(self._g, from_version or 0, add_shapes))
        return proto

    def unique_name(self, name, mark_as_used=True):
        return self._g.unique_name(self._scope.prefix + name, mark_as_used)

    def get_name_scope(self):
        return self._scope.prefix.rstrip("/")

    def is_feedable(self, tensor):
        return tensor not in self._unfeedable

    def is_fetchable(self, tensor_or_op):
        return (tensor_or_op.op if isinstance(tensor_or_op, Tensor) else tensor_or_op) not in self._unfetchable

    def prevent_feeding(self, tensor):
        self._unfeedable.add(tensor)

    def prevent_fetching(self, op):
        self._unfetchable.add(op)

    # --- Collections. ---
    def add_to_collection(self, name, value):
        self._check_not_finalized()
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names, value):
        names = (names,) if isinstance(names, str) else set(names)
        for name in names:
            self.add_to_collection(name, value)

    def get_collection_ref(self, name):
        return self._collections.setdefault(name, [])

    def get_collection(self, name, scope=None):
        items = self._collections.get(name, [])
        if scope is None:
            return list(items)
        pattern = re.compile(scope)
        return [item for item in items if hasattr(item, "name") and pattern.match(item.name)]

    def get_all_collection_keys(self):
        return [key for key in self._collections if isinstance(key, str)]

    def clear_collection(self, name):
        self._check_not_finalized()
        self._collections.pop(name, None)

    @property
    def collections(self):
        return self.get_all_collection_keys()

    # --- Scopes. ---
    @contextlib.contextmanager
    def name_scope(self, name):
        if name:
            if isinstance(name, bytes):
                name = name.decode()
            if not name.endswith("/"):
                valid = _muster.is_valid_scope_name(name) if self._scope.prefix else _muster.is_valid_node_name(name)
                if not valid:
                    raise ValueError("'%s' is not a valid scope name" % name)
            scope = self._scope.name_scope(name)
        else:
            scope = self._scope.with_prefix("")
        with self._in_scope(scope):
            yield scope.prefix

    @contextlib.contextmanager
    def device(self, device_name_or_function):
        outer = getattr(self._local, "devices", ())
        self._local.devices = () if device_name_or_function is None else outer + (device_name_or_function,)
        try:
            with self._in_scope(self._device_scope(device_name_or_function)):
                yield
        finally:
            self._local.devices = outer

    def _apply_devices(self, nodes):
        """Gives nodes that were not made in a scope (imported ones) the devices of the scopes they are in.

        A device that a node names itself takes precedence; a node that is colocated with others takes theirs.
        """
        choices = getattr(self._local, "devices", ())
        if not choices:
            return
        for node in nodes:
            if node.colocation_groups:
                continue
            for choice in reversed(choices):
                if callable(choice) and not isinstance(choice, DeviceSpec):
                    node.device = device_result(choice(self._operation(node)))
                    continue
                spec = DeviceSpec.from_string(device_string(choice))
                spec.merge_from(DeviceSpec.from_string(node.device))
                node.device = spec.to_string()
        for node in nodes:
            for name in node.colocation_groups:
                other = self._g.find(name)
                if other is not None and other.device:
                    node.device = other.device
                    break

    def _device_scope(self, choice):
        scope = self._scope
        if choice is None:
            return scope.without_devices()
        choice = device_choice(self, choice)
        return scope.with_device_function(choice) if callable(choice) else scope.with_device(choice)

    @contextlib.contextmanager
    def control_dependencies(self, control_inputs):
        if control_inputs is None:
            scope = self._scope.without_control_dependencies()
        else:
            scope = self._scope.with_control_dependencies(
                [self._control_input(c)._node for c in control_inputs])
        with self._in_scope(scope):
            yield

    def _control_input(self, value):
        if isinstance(value, IndexedSlices):
            return value.op
        if getattr(value, "_is_resource", False):
            return value.op  # Waiting for a variable does not read it.
        value = self.as_graph_element(value)
        return value.op if isinstance(value, Tensor) else value

    @contextlib.contextmanager
    def colocate_with(self, op, ignore_existing=False):
        if op is None:
            if not ignore_existing:
                raise ValueError("Trying to reset colocation (op is None) but ignore_existing is not True")
            scope = self._scope.without_colocation()
        else:
            if isinstance(getattr(op, "handle", None), Tensor):
                op = op.handle.op  # A resource variable is where its handle is.
            elif not isinstance(op, Operation):
                op = self._control_input(op)
            scope = self._scope.colocated_with(op._node, ignore_existing)
        with self._in_scope(scope):
            yield

    @contextlib.contextmanager
    def container(self, container_name):
        with self._in_scope(self._scope.with_container(container_name)):
            yield self._scope

    @contextlib.contextmanager
    def _attr_scope(self, attr_map):
        scope = self._scope
        for name, value in attr_map.items():
            scope = scope.with_attr(name, _plain_attr(value))
        with self._in_scope(scope):
            yield

    @contextlib.contextmanager
    def gradient_override_map(self, op_type_map):
        if not isinstance(op_type_map, dict):
            raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        for op_type, mapped in op_type_map.items():
            if not isinstance(op_type, str) or not isinstance(mapped, str):
                raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        outer = getattr(self._local, "gradient_overrides", {})
        self._local.gradient_overrides = dict(outer, **op_type_map)
        try:
            yield
        finally:
            self._local.gradient_overrides = outer


def _plain_attr(value):
    """The Python value inside an AttrValue proto; other values pass."""
    if not hasattr(value, "WhichOneof"):
        if isinstance(value, dtypes.DType):
            return int(value)
        return value
    kind = value.WhichOneof("value")
    if kind == "list":
        for field in ("s", "i", "f", "b", "type"):
            items = list(getattr(value.list, field))
            if items:
                return items
        return []
    if kind == "shape":
        return tensor_shape.TensorShape(value.shape).as_list() if not value.shape.unknown_rank else None
    if kind == "tensor":
        return _muster.tensor_from_proto(value.tensor.SerializeToString())
    return getattr(value, kind)


_global_default_graphs = {}  # one; where tasks share the process, one for each (see _tasks)


def graph_for(values):
    """Where nodes that read these belong: the graph of the first tensor, or the function being built."""
    graph = get_default_graph()
    if not graph._building_function:
        for value in values:
            if isinstance(value, (Tensor, Operation)):
                return value.graph
    return graph


def get_default_graph():
    graph = graph_stack.top()
    if graph is not None:
        return graph
    task = _tasks.current()
    graph = _global_default_graphs.get(task)
    if graph is None:
        graph = _global_default_graphs[task] = Graph()
    return graph


def reset_default_graph():
    if graph_stack.top() is not None:
        raise AssertionError("Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared graph, "
                             "exit the nesting and create a new graph.")
    _global_default_graphs.pop(_tasks.current(), None)


def device(device_name_or_function):
    return get_default_graph().device(device_name_or_function)


def container(container_name):
    return get_default_graph().container(container_name)


def colocate_with(op, ignore_existing=False):
    return get_default_graph().colocate_with(op, ignore_existing)


def control_dependencies(control_inputs):
    return get_default_graph().control_dependencies(control_inputs)


def add_to_collection(name, value):
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names, value):
    get_default_graph().add_to_collections(names, value)


def get_collection(key, scope=None):
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key):
    return get_default_graph().get_collection_ref(key)


def get_all_collection_keys():
    return get_default_graph().get_all_collection_keys()


def set_random_seed(seed):
    get_default_graph().seed = seed


def get_seed(op_seed):
    """(seed, seed2) of a random op, by TensorFlow's rule."""
    return get_default_graph()._g.seeds_for(None if op_seed is None else int(op_seed))


class name_scope(object):
    """Opens a scope of names; yields its name with a trailing slash."""

    def __init__(self, name, default_name=None, values=None):
        self._name = default_name if name is None else name
        if name is not None and not isinstance(name, (str, bytes)):
            raise TypeError("name_scope(name) must be a string, got %r" % (name,))
        self._default_name = default_name
        self._values = values
        if self._name is None and values is not None:
            raise ValueError("At least one of name (%s) and default_name (%s) must be provided." % (name, default_name))

    @property
    def name(self):
        return self._name

    def __enter__(self):
        graph = graph_for(self._values or ())
        self._graph_context = graph.as_default() if graph is not get_default_graph() else None
        if self._graph_context is not None:
            self._graph_context.__enter__()
        self._scope_context = graph.name_scope(self._name)
        return self._scope_context.__enter__()

    def __exit__(self, *exc):
        self._scope_context.__exit__(*exc)
        if self._graph_context is not None:
            self._graph_context.__exit__(*exc)
        return False


def op_scope(values, name, default_name=None):
    """The old order of name_scope's arguments."""
    return name_scope(name, default_name, values)
