"""tf.Variable: a tensor that outlives a step, as a reference (default) or behind a resource handle."""
import enum

from muster import _muster
from muster.graph import convert, device_spec, framework, tensor_shape
from muster.graph.framework import GraphKeys, device
from muster.ops import math_ops, slice_ops, state_ops


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
        from muster.variables import variable_scopes

        use_resource = variable_scopes.get_variable_scope().use_resource
    if use_resource is None:
        use_resource = _use_resource_default
    return _kind(use_resource)(**arguments)


def _kind(is_resource):
    # Both are made of what is below.
    from muster.variables import ref_variable, resource_variable

    return resource_variable.ResourceVariable if is_resource else ref_variable.RefVariable


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
        from muster.variables import initialized_values

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
        return slice_ops._slice_helper(self._dense(), spec, self)

    class SaveSliceInfo(object):
        """Which part of a partitioned variable a variable holds."""

        def __init__(self, full_name=None, full_shape=None, var_offset=None, var_shape=None, save_slice_info_def=None,
                     import_scope=None):
            if save_slice_info_def is not None:
                from muster.graph import meta_graph

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
            from muster import _protos
            from muster.graph import meta_graph

            if export_scope and not self.full_name.startswith(export_scope):
                return None
            return _protos.get("tensorflow.SaveSliceInfoDef")(
                full_name=meta_graph.strip_name_scope(self.full_name, export_scope), full_shape=self.full_shape,
                var_offset=self.var_offset, var_shape=self.var_shape)

    @staticmethod
    def from_proto(variable_def, import_scope=None):
        return _kind(variable_def.is_resource)(variable_def=variable_def, import_scope=import_scope)

    def _init_from_proto(self, variable_def, import_scope):
        from muster.graph import meta_graph

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
        from muster import _protos
        from muster.graph import meta_graph

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
