"""Variables behind a resource handle."""
from muster.graph import convert, framework
from muster.graph.framework import colocate_with, control_dependencies, device, name_scope
from muster.graph.op_library import call
from muster.ops import array_ops
from muster.variables.variables import Variable, VariableAggregation, VariableSynchronization


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
        """The variable after `op`, read lazily; `read` is an existing read that comes after `op`."""
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
