"""tf.Variable: a tensor that outlives a step, as a reference (default) or behind a resource handle."""
import enum

from muster import _muster, array_ops, convert, device_spec, dtypes, framework, math_ops, state_ops, tensor_shape
from muster.framework import GraphKeys, colocate_with, control_dependencies, device, name_scope
from muster.op_library import call


class VariableSynchronization(enum.Enum):
    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = 3


_use_resource_default = False


def enable_resource_variables():
    global _use_resource_default
    _use_resource_default = True


def disable_resource_variables():
    global _use_resource_default
    _use_resource_default = False


def resource_variables_enabled():
    return _use_resource_default


_creators = []  # innermost last; see variable_creator_scope


class _VariableMeta(type):
    """tf.Variable(...) picks the kind of variable; isinstance(v, tf.Variable) holds for every kind."""

    def __call__(cls, *args, **kwargs):
        if cls is not Variable:
            return super(_VariableMeta, cls).__call__(*args, **kwargs)
        names = ("initial_value", "trainable", "collections", "validate_shape", "caching_device", "name",
                 "variable_def", "dtype", "expected_shape", "import_scope", "constraint", "use_resource",
                 "synchronization", "aggregation", "shape")
        if len(args) > len(names):
            raise TypeError("Variable() takes at most %d arguments (%d given)" % (len(names), len(args)))
        given = dict(zip(names, args))
        given.update(kwargs)

        def make(next_creator=None, **arguments):
            return _default_variable(**arguments)

        creator = make
        for outer in _creators:
            creator = _wrapped_creator(outer, creator)
        return creator(**given)


def _wrapped_creator(creator, next_creator):
    return lambda **arguments: creator(next_creator, **arguments)


def _default_variable(use_resource=None, **arguments):
    if use_resource is None:
        from muster import variable_scopes

        use_resource = variable_scopes.get_variable_scope().use_resource
    if use_resource is None:
        use_resource = _use_resource_default
    return (ResourceVariable if use_resource else RefVariable)(**arguments)


class Variable(metaclass=_VariableMeta):
    """What all variables share."""

    _is_resource = False
    __array_priority__ = 100

    # --- Set up by subclasses. ---
    def _setup(self, initial_value, trainable, collections, name, dtype, constraint, synchronization, aggregation):
        self._synchronization, self._aggregation = synchronization, aggregation
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
        if not isinstance(collections, (list, tuple, set)):
            raise ValueError("collections argument to Variable constructor must be a list, tuple, or set. Got %s of "
                             "type %s" % (collections, type(collections)))
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        self._trainable = True if trainable is None else trainable
        self._constraint = constraint
        self._save_slice_info = None
        self._graph = framework.get_default_graph()
        if self._trainable and GraphKeys.TRAINABLE_VARIABLES not in collections:
            collections = list(collections) + [GraphKeys.TRAINABLE_VARIABLES]
        return list(collections)

    def _make(self, initial_value, dtype, name, validate_shape, shape=None):
        """The nodes of the variable, in a scope `name` that is open already."""
        from muster import initialized_values

        graph = framework.get_default_graph()
        caching = self._caching_device

        def converted():
            tensor = convert.convert_to_tensor(initial_value() if callable(initial_value) else initial_value,
                                               name="initial_value", dtype=dtype)
            if not self._is_resource and validate_shape and not tensor.get_shape().is_fully_defined():
                raise ValueError("initial_value must have a shape specified: %s" % tensor)
            return tensor

        def initial(scope):
            with graph._in_scope(scope), device(None):
                return converted()._output

        def guarded(scope, value):
            with graph._in_scope(scope):
                return initialized_values.guard(graph._tensor(value), name[:-1])._output

        if caching is not None:
            caching = device_spec.device_choice(graph, caching)
        if not callable(initial_value) and not self._is_resource:
            tensor = converted()
            if not _muster.is_fetchable(tensor.op._node):
                raise ValueError("Initializer for variable %s is from inside a control-flow construct, such as a loop or "
                                 "conditional. When creating a variable inside a loop or conditional, use a lambda as "
                                 "the initializer." % name)
            initial = tensor._output
        first = graph.version
        made = _muster.make_variable(graph._building_scope(), initial, self._is_resource, validate_shape,
                                     shape is not None, None if shape is None else tensor_shape.as_shape(shape)._list(),
                                     caching, guarded)
        graph._override_gradients(first)
        self._variable = graph._tensor(made.handle)
        self._initial_value = graph._tensor(made.initial_value)
        self._initializer_op = graph._operation(made.initializer)
        self._snapshot = graph._tensor(made.snapshot)
        return None if made.cached is None else graph._tensor(made.cached)

    # --- Properties. ---
    @property
    def name(self):
        return self._variable.name

    @property
    def op(self):
        return self._variable.op

    @property
    def _shared_name(self):
        return self.name[:self.name.rindex(":")]

    @property
    def dtype(self):
        return self._variable.dtype

    @property
    def device(self):
        return self._variable.device

    @property
    def graph(self):
        return self._graph

    @property
    def shape(self):
        return self._variable.get_shape()

    def get_shape(self):
        return self.shape

    @property
    def initializer(self):
        return self._initializer_op

    @property
    def initial_value(self):
        return self._initial_value

    @property
    def trainable(self):
        return self._trainable

    @property
    def constraint(self):
        return self._constraint

    @property
    def synchronization(self):
        return self._synchronization

    @property
    def aggregation(self):
        return self._aggregation

    def _train_variable(self):
        """The variable as the C++ core knows it."""
        initializer = self._initializer_op
        cached = getattr(self, "_cached_value", None)
        return _muster.TrainVariable(
            self._variable._output, self._is_resource, int(self.dtype), self.shape._list(),
            self._snapshot._output, None if initializer is None else initializer._node,
            None if self._initial_value is None else self._initial_value._output,
            None if cached is None else cached._output)

    def _set_save_slice_info(self, info):
        self._save_slice_info = info

    def _get_save_slice_info(self):
        return self._save_slice_info

    def eval(self, session=None):
        return self._variable_value_for_eval().eval(session=session)

    def load(self, value, session=None):
        session = session or framework.get_default_session()
        if session is None:
            raise ValueError("Either session argument should be provided or default session should be established")
        session.run(self.initializer, {self.initializer.inputs[1]: value})

    def count_up_to(self, limit):
        return state_ops.count_up_to(self, limit)

    def initialized_value(self):
        """The variable's value where it has one, its initial value otherwise."""
        graph = framework.get_default_graph()
        return graph._tensor(_muster.initialized_value(graph._building_scope(), self._train_variable()))

    def assign(self, value, use_locking=False, name=None, read_value=True):
        raise NotImplementedError

    def assign_add(self, delta, use_locking=False, name=None, read_value=True):
        raise NotImplementedError

    def assign_sub(self, delta, use_locking=False, name=None, read_value=True):
        raise NotImplementedError

    def set_shape(self, shape):
        self._variable.set_shape(shape)
        self.value().set_shape(shape)

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other

    def __iter__(self):
        raise TypeError("'Variable' object is not iterable.")

    def __getitem__(self, spec):
        return array_ops._slice_helper(self._dense(), spec, self)

    class SaveSliceInfo(object):
        """Which part of a partitioned variable a variable holds."""

        def __init__(self, full_name=None, full_shape=None, var_offset=None, var_shape=None, save_slice_info_def=None,
                     import_scope=None):
            if save_slice_info_def is not None:
                from muster import meta_graph

                info = save_slice_info_def
                full_name = meta_graph.prepend_name_scope(info.full_name, import_scope)
                full_shape, var_offset, var_shape = list(info.full_shape), list(info.var_offset), list(info.var_shape)
            self.full_name, self.full_shape = full_name, full_shape
            self.var_offset, self.var_shape = var_offset, var_shape

        @property
        def spec(self):
            return " ".join(["%d" % d for d in self.full_shape] + [
                ":".join("%d,%d" % (o, s) for o, s in zip(self.var_offset, self.var_shape))])

        def to_proto(self, export_scope=None):
            from muster import _protos, meta_graph

            if export_scope and not self.full_name.startswith(export_scope):
                return None
            return _protos.get("tensorflow.SaveSliceInfoDef")(
                full_name=meta_graph.strip_name_scope(self.full_name, export_scope), full_shape=self.full_shape,
                var_offset=self.var_offset, var_shape=self.var_shape)

    @staticmethod
    def from_proto(variable_def, import_scope=None):
        if variable_def.is_resource:
            return ResourceVariable(variable_def=variable_def, import_scope=import_scope)
        return RefVariable(variable_def=variable_def, import_scope=import_scope)

    def _init_from_proto(self, variable_def, import_scope):
        from muster import meta_graph

        graph = self._graph = framework.get_default_graph()

        def named(text):
            return meta_graph.prepend_name_scope(text, import_scope)

        self._variable = graph.as_graph_element(named(variable_def.variable_name))
        self._initializer_op = graph.as_graph_element(named(variable_def.initializer_name))
        self._initial_value = graph.as_graph_element(named(variable_def.initial_value_name)) \
            if variable_def.initial_value_name else None
        self._snapshot = graph.as_graph_element(named(variable_def.snapshot_name))
        self._trainable = getattr(variable_def, "trainable", True)
        self._constraint = None
        self._save_slice_info = None
        if variable_def.HasField("save_slice_info_def"):
            self._save_slice_info = Variable.SaveSliceInfo(save_slice_info_def=variable_def.save_slice_info_def,
                                                           import_scope=import_scope)
        self._caching_device = None
        self._synchronization = VariableSynchronization(variable_def.synchronization)
        self._aggregation = VariableAggregation(variable_def.aggregation)

    def to_proto(self, export_scope=None):
        from muster import _protos, meta_graph

        if export_scope and not self._variable.name.startswith(export_scope):
            return None
        proto = _protos.get("tensorflow.VariableDef")()

        def stripped(text):
            return meta_graph.strip_name_scope(text, export_scope)

        proto.variable_name = stripped(self._variable.name)
        if self._initial_value is not None:
            proto.initial_value_name = stripped(self._initial_value.name)
        proto.trainable = self._trainable
        proto.initializer_name = stripped(self.initializer.name)
        proto.snapshot_name = stripped(self._snapshot.name)
        proto.is_resource = self._is_resource
        proto.synchronization = self._synchronization.value
        proto.aggregation = self._aggregation.value
        if self._save_slice_info is not None:
            proto.save_slice_info_def.MergeFrom(self._save_slice_info.to_proto(export_scope))
        return proto


class RefVariable(Variable):
    """A VariableV2 node, its Assign and its read."""

    def __init__(self, initial_value=None, trainable=None, collections=None, validate_shape=True, caching_device=None,
                 name=None, variable_def=None, dtype=None, expected_shape=None, import_scope=None, constraint=None,
                 synchronization=VariableSynchronization.AUTO, aggregation=VariableAggregation.NONE, shape=None):
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            self._init_from_proto(variable_def, import_scope)
            return
        collections = self._setup(initial_value, trainable, collections, name, dtype, constraint, synchronization,
                                  aggregation)
        self._caching_device = caching_device
        with self._graph.control_dependencies(None):
            with name_scope(name, "Variable", [] if callable(initial_value) else [initial_value]) as name:
                self._make(initial_value, dtype, name, validate_shape)
        self._graph.add_to_collections(collections, self)

    # --- Reading. ---
    def value(self):
        return self._snapshot

    def _dense(self):
        return self._snapshot

    def _variable_value_for_eval(self):
        return self._variable

    def read_value(self):
        return array_ops.identity(self._variable, name="read")

    def _ref(self):
        return self._variable

    def _as_graph_element(self):
        return self._variable

    def _AsTensor(self):
        return self._snapshot

    def is_initialized(self, name=None):
        return state_ops.is_variable_initialized(self._variable, name=name)

    def _strided_slice_assign(self, begin, end, strides, value, name, **masks):
        return call("StridedSliceAssign", name=name, ref=self._ref(), begin=begin, end=end, strides=strides, value=value,
                    **masks)

    # --- Changing. ---
    def assign(self, value, use_locking=False, name=None, read_value=True):
        result = state_ops.assign(self._variable, value, use_locking=use_locking, name=name)
        return result if read_value else result.op

    def assign_add(self, delta, use_locking=False, name=None, read_value=True):
        result = state_ops.assign_add(self._variable, delta, use_locking=use_locking, name=name)
        return result if read_value else result.op

    def assign_sub(self, delta, use_locking=False, name=None, read_value=True):
        result = state_ops.assign_sub(self._variable, delta, use_locking=use_locking, name=name)
        return result if read_value else result.op

    def __repr__(self):
        return "<tf.Variable '%s' shape=%s dtype=%s>" % (self.name, self.shape, self.dtype.name)


def _add_ref_scatters():
    for kind in ("sub", "add", "max", "min", "mul", "div", "update"):
        function = getattr(state_ops, "scatter_" + kind)

        def method(self, sparse_delta, use_locking=False, name=None, _function=function, _kind=kind):
            if not isinstance(sparse_delta, framework.IndexedSlices):
                raise ValueError("sparse_delta is not IndexedSlices: %s" % sparse_delta)
            return _function(self._variable, sparse_delta.indices, sparse_delta.values, use_locking=use_locking,
                             name=name)

        setattr(RefVariable, "scatter_" + kind, method)
    for kind in ("sub", "add", "update"):
        function = getattr(state_ops, "scatter_nd_" + kind)

        def nd_method(self, indices, updates, name=None, _function=function):
            return _function(self._variable, indices, updates, use_locking=True, name=name)

        setattr(RefVariable, "scatter_nd_" + kind, nd_method)


_add_ref_scatters()


class ResourceVariable(Variable):
    """A variable behind a VarHandleOp; every read is a node."""

    _is_resource = True

    def __init__(self, initial_value=None, trainable=None, collections=None, validate_shape=True, caching_device=None,
                 name=None, dtype=None, variable_def=None, import_scope=None, constraint=None, expected_shape=None,
                 synchronization=VariableSynchronization.AUTO, aggregation=VariableAggregation.NONE, shape=None):
        if variable_def is not None:
            self._init_from_proto(variable_def, import_scope)
            self._handle = self._variable
            self._graph_element = self._snapshot
            self._value_dtype = self._graph_element.dtype
            return
        collections = self._setup(initial_value, trainable, collections, name, dtype, constraint, synchronization,
                                  aggregation)
        self._caching_device = caching_device
        with self._graph.control_dependencies(None):
            with name_scope(name, "Variable", [] if callable(initial_value) else [initial_value]) as name:
                self._cached_value = self._make(initial_value, dtype, name, validate_shape, shape)
        self._handle, self._graph_element = self._variable, self._snapshot
        self._value_dtype = self._initial_value.dtype.base_dtype
        self._graph.add_to_collections(collections, self)

    def _read(self):
        return call("ReadVariableOp", resource=self._handle, dtype=self._value_dtype)

    @property
    def handle(self):
        return self._handle

    @property
    def dtype(self):
        return self._value_dtype

    @property
    def shape(self):
        return self._graph_element.get_shape()

    @property
    def create(self):
        return self._initializer_op

    @property
    def initializer(self):
        return self._initializer_op

    def value(self):
        if getattr(self, "_cached_value", None) is not None:
            return self._cached_value
        with colocate_with(None, ignore_existing=True), device(self._handle.device):
            return self._read()

    def _dense(self):
        return self.value()

    def read_value(self):
        with name_scope("Read"):
            with device(self._handle.device):
                value = self._read()
        return array_ops.identity(value)

    def _lazy_read(self, op, read=None):
        """The variable after `op`, read where someone asks for its value; `read` is a read after it that exists."""
        return _ChangedVariable(self, op, read)

    def _variable_value_for_eval(self):
        return self._graph_element

    def _as_graph_element(self):
        return self._graph_element

    def is_initialized(self, name=None):
        return call("VarIsInitializedOp", name=name, resource=self._handle)

    def sparse_read(self, indices, name=None):
        with name_scope("Gather" if name is None else name) as name:
            value = call("ResourceGather", name=name, resource=self._handle, indices=indices, dtype=self._value_dtype)
        return array_ops.identity(value)

    def gather_nd(self, indices, name=None):
        with name_scope("GatherNd" if name is None else name) as name:
            value = call("ResourceGatherNd", name=name, resource=self._handle, indices=indices, dtype=self._value_dtype)
        return array_ops.identity(value)

    def _change(self, op, value, name, read_value):
        value = convert.convert_to_tensor(value, dtype=self._value_dtype)
        self.shape.assert_is_compatible_with(value.get_shape())
        changed = call(op, name=name, resource=self._handle, value=value)
        return self._lazy_read(changed) if read_value else changed

    def assign(self, value, use_locking=None, name=None, read_value=True):
        return self._change("AssignVariableOp", value, name, read_value)

    def assign_add(self, delta, use_locking=None, name=None, read_value=True):
        return self._change("AssignAddVariableOp", delta, name, read_value)

    def assign_sub(self, delta, use_locking=None, name=None, read_value=True):
        return self._change("AssignSubVariableOp", delta, name, read_value)

    def _scatter(self, op, indices, updates, name=None):
        return call("Resource" + op, name=name, resource=self._handle, indices=indices, updates=updates,
                    dtype=self._value_dtype)

    def __repr__(self):
        return "<tf.Variable '%s' shape=%s dtype=%s>" % (self.name, self.shape, self.dtype.name)


def _add_resource_scatters():
    for kind in ("sub", "add", "max", "min", "mul", "div", "update"):
        def method(self, sparse_delta, use_locking=False, name=None, _op="Scatter" + kind.capitalize()):
            if not isinstance(sparse_delta, framework.IndexedSlices):
                raise ValueError("sparse_delta is not IndexedSlices: %s" % sparse_delta)
            values = convert.convert_to_tensor(sparse_delta.values, dtype=self._value_dtype)
            return self._lazy_read(self._scatter(_op, sparse_delta.indices, values, name))

        setattr(ResourceVariable, "scatter_" + kind, method)
    for kind in ("sub", "add", "update"):
        def nd_method(self, indices, updates, name=None, _op="ResourceScatterNd" + kind.capitalize()):
            updates = convert.convert_to_tensor(updates, dtype=self._value_dtype)
            return self._lazy_read(call(_op, name=name, ref=self._handle, indices=indices, updates=updates))

        setattr(ResourceVariable, "scatter_nd_" + kind, nd_method)


_add_resource_scatters()


class _ChangedVariable(ResourceVariable):
    """What assign returns: a variable whose reads and changes come after that assignment."""

    def __init__(self, variable, op, read=None):
        self._handle = self._variable = variable._handle
        self._parent_op = op
        self._value_dtype, self._graph = variable._value_dtype, variable._graph
        self._trainable, self._constraint, self._save_slice_info = False, None, None
        self._synchronization, self._aggregation = variable._synchronization, variable._aggregation
        self._initializer_op, self._initial_value = None, None
        self._graph_element = self._snapshot = self._read() if read is None else read
        if variable.shape.ndims is not None:
            self._graph_element.set_shape(variable.shape)

    @property
    def op(self):
        return self._parent_op

    @property
    def name(self):
        return self._parent_op.name

    def _read(self):
        with control_dependencies([self._parent_op]):
            return super(_ChangedVariable, self)._read()

    def value(self):
        return self._read()

    def read_value(self):
        return self._read()

    def _change(self, op, value, name, read_value):
        with control_dependencies([self._parent_op]):
            return super(_ChangedVariable, self)._change(op, value, name, read_value)

    def _scatter(self, op, indices, updates, name=None):
        with control_dependencies([self._parent_op]):
            return super(_ChangedVariable, self)._scatter(op, indices, updates, name)


def _dense_var_to_tensor(var, dtype=None, name=None, as_ref=False):
    if dtype is not None and not dtype.is_compatible_with(var.dtype.base_dtype):
        raise ValueError("Incompatible type conversion requested to type '%s' for variable of type '%s'"
                         % (dtype.name, var.dtype.name))
    if as_ref:
        if var._is_resource:
            return var.read_value().op.inputs[0]
        return var._ref()
    return var.value()


convert.register_tensor_conversion_function(Variable, _dense_var_to_tensor, 50)


def _overload_operators():
    """Operators of variables are those of tensors, applied to the value."""
    def overload(operator):
        tensor_operator = getattr(framework.Tensor, operator)

        def run(self, *args, **kwargs):
            return tensor_operator(self._dense(), *args, **kwargs)

        setattr(Variable, operator, run)

    for operator in math_ops.OVERLOADED:
        if operator != "__getitem__":
            overload(operator)


_overload_operators()


# --- Collections of variables and their initializers. ---
def global_variables(scope=None):
    return framework.get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def all_variables():
    return global_variables()


def local_variables(scope=None):
    return framework.get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope=None):
    return framework.get_collection(GraphKeys.MODEL_VARIABLES, scope)


def trainable_variables(scope=None):
    return framework.get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def moving_average_variables(scope=None):
    return framework.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def variables_initializer(var_list, name="init"):
    from muster import control_flow_ops

    if var_list:
        return control_flow_ops.group(*[v.initializer for v in var_list], name=name)
    return control_flow_ops.group(name=name)


def global_variables_initializer():
    return variables_initializer(global_variables())


def local_variables_initializer():
    return variables_initializer(local_variables())


def tables_initializer(name="init_all_tables"):
    from muster import control_flow_ops

    initializers = framework.get_collection(GraphKeys.TABLE_INITIALIZERS)
    if not initializers:
        return control_flow_ops.no_op(name=name)
    return control_flow_ops.group(*initializers, name=name)


initialize_variables = variables_initializer
initialize_all_variables = global_variables_initializer
initialize_local_variables = local_variables_initializer
initialize_all_tables = tables_initializer


def _all_saveable_objects(scope=None):
    return (framework.get_collection(GraphKeys.GLOBAL_VARIABLES, scope) +
            framework.get_collection(GraphKeys.SAVEABLE_OBJECTS, scope))


def is_variable_initialized(variable):
    return state_ops.is_variable_initialized(variable)


def assert_variables_initialized(var_list=None):
    if var_list is None:
        var_list = global_variables() + local_variables()
    if not var_list:
        return None
    ranks = []
    for var in var_list:
        with colocate_with(var.op):
            ranks.append(array_ops.rank_internal(var, optimize=False))
    return ranks[0] if len(ranks) == 1 else array_ops.stack(ranks)


def report_uninitialized_variables(var_list=None, name="report_uninitialized_variables"):
    if var_list is None:
        var_list = global_variables() + local_variables()
    graph = framework.get_default_graph()
    return graph._tensor(_muster.report_uninitialized(graph._building_scope(),
                                                      [v._train_variable() for v in var_list], name))


class PartitionedVariable(object):
    """A variable kept in parts along one axis."""

    def __init__(self, name, shape, dtype, variable_list, partitions):
        if not isinstance(variable_list, (list, tuple)):
            raise TypeError("variable_list is not a list or tuple: %s" % variable_list)
        if not isinstance(partitions, (list, tuple)):
            raise TypeError("partitions is not a list or tuple: %s" % partitions)
        self._name, self._shape = name, tensor_shape.as_shape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._variable_list = sorted(variable_list, key=lambda v: v._get_save_slice_info().var_offset)
        self._partitions = list(partitions)
        self._as_tensor_cache = None

    def __iter__(self):
        return iter(self._variable_list)

    def __len__(self):
        return len(self._partition_axes()) and len(self._variable_list)

    name = property(lambda self: self._name)
    dtype = property(lambda self: self._dtype)
    shape = property(lambda self: self._shape)

    def get_shape(self):
        return self._shape

    def _partition_axes(self):
        if all(p == 1 for p in self._partitions):
            return [0]
        return [i for i, p in enumerate(self._partitions) if p > 1]

    def _get_variable_list(self):
        return self._variable_list

    def _get_partitions(self):
        return self._partitions

    def _concat(self):
        if len(self._variable_list) == 1:
            with name_scope(None):
                return array_ops.identity(self._variable_list[0], name=self._name)
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError("Cannot concatenate along more than one dimension: %s. Multi-axis partition "
                                      "concat is not supported" % str(axes))
        with name_scope(self._name + "/ConcatPartitions/"):
            concatenated = array_ops.concat(self._variable_list, axes[0])
        with name_scope(None):
            return array_ops.identity(concatenated, name=self._name)

    def as_tensor(self):
        with control_dependencies(None):
            return self._concat()

    def initialized_value(self):
        return self.as_tensor()

    @property
    def _distribute_strategy(self):
        return None

    def _apply_assign(self, method, value, **kwargs):
        axes = self._partition_axes()
        if not isinstance(value, (list, PartitionedVariable)):
            sizes = [v.get_shape().as_list()[axes[0]] for v in self._variable_list]
            value = array_ops.split(convert.convert_to_tensor(value, dtype=self._dtype.base_dtype), sizes, axis=axes[0])
        return [getattr(v, method)(part, **kwargs) for v, part in zip(self._variable_list, value)]

    def assign(self, value, use_locking=False, name=None, read_value=True):
        return self._apply_assign("assign", value, use_locking=use_locking)

    def assign_add(self, value, use_locking=False, name=None, read_value=True):
        return self._apply_assign("assign_add", value, use_locking=use_locking)

    def assign_sub(self, value, use_locking=False, name=None, read_value=True):
        return self._apply_assign("assign_sub", value, use_locking=use_locking)


def _partitioned_to_tensor(var, dtype=None, name=None, as_ref=False):
    if dtype is not None and not dtype.is_compatible_with(var.dtype):
        raise ValueError("Incompatible type conversion requested to type '%s' for variable of type '%s'"
                         % (dtype.name, var.dtype.name))
    return var.as_tensor()


convert.register_tensor_conversion_function(PartitionedVariable, _partitioned_to_tensor, 100)
