"""Tensors and operations: handles on nodes of a C++ graph and on their outputs."""
from muster import _muster, dtypes, errors
from muster.graph import default_stack, tensor_shape
from muster.graph.device_spec import device_string


def _not_allowed(what):
    return errors.OperatorNotAllowedInGraphError(
        "%s is not allowed in Graph execution. Use Eager execution or decorate this function with @tf.function." % what)


class Tensor(object):
    """A symbolic handle on one output of an operation. Operators are attached by math_ops and array_ops."""

    __slots__ = ("_op", "_value_index", "_dtype", "_handle", "__weakref__", "__dict__")
    __array_priority__ = 100
    OVERLOADABLE_OPERATORS = set()

    def __init__(self, op, value_index, dtype=None):
        self._op = op
        self._value_index = value_index
        self._handle = op._node.output(value_index)
        self._dtype = dtypes._BY_NUMBER[self._handle.dtype]

    @property
    def _output(self):
        """What nodes of the graph being built read: in a function, tensors from outside become arguments."""
        if default_stack.functions_being_built:
            from muster.graph import framework

            graph = framework.get_default_graph()
            if graph._building_function and graph is not self._op._graph:
                return graph._capture(self)._handle
        return self._handle

    @property
    def op(self):
        return self._op

    @property
    def dtype(self):
        return self._dtype

    def _train_variable(self):
        """A reference as the C++ core takes a variable."""
        return _muster.TrainVariable(self._output, False, int(self._dtype), self._output.shape, self._output, None,
                                     None, None)

    @property
    def graph(self):
        return self._op.graph

    @property
    def name(self):
        return "%s:%d" % (self._op.name, self._value_index)

    @property
    def device(self):
        return self._op.device

    @property
    def value_index(self):
        return self._value_index

    @property
    def shape(self):
        return tensor_shape.TensorShape(self._handle.shape)

    def get_shape(self):
        return self.shape

    def _shape_as_list(self):
        return self._handle.shape

    def set_shape(self, shape):
        shape = tensor_shape.as_shape(shape)
        if shape.dims is None:
            return
        try:
            self._handle.set_shape(shape.as_list())
        except ValueError as e:
            raise ValueError(str(e))

    def consumers(self):
        graph = self.graph
        # An op that takes the tensor twice is listed twice, as TensorFlow does.
        return [graph._operation_by_id(node_id) for node_id, _, output in self._op._node.consumers
                if output == self._value_index]

    def eval(self, feed_dict=None, session=None):
        return session_for(self.graph, session, "evaluate tensor", "`eval(session=sess)`").run(self, feed_dict)

    def _as_node_def_input(self):
        return self._op.name if self._value_index == 0 else self.name

    def __str__(self):
        shape = self.shape
        return "Tensor(\"%s\"%s%s%s)" % (
            self.name,
            (", shape=%s" % shape) if shape.ndims is not None else "",
            (", dtype=%s" % self._dtype.name) if self._dtype else "",
            (", device=%s" % self.device) if self.device else "")

    def __repr__(self):
        return "<tf.Tensor '%s' shape=%s dtype=%s>" % (self.name, self.shape, self._dtype.name)

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other

    def __len__(self):
        raise TypeError("len is not well defined for symbolic Tensors. (%s) Please call `x.shape` rather than `len(x)` "
                        "for shape information." % self.name)

    def __iter__(self):
        raise _not_allowed("iterating over `tf.Tensor`")

    def __bool__(self):
        raise _not_allowed("using a `tf.Tensor` as a Python `bool`")

    __nonzero__ = __bool__

    def __array__(self, *unused, **unused_kw):
        raise NotImplementedError("Cannot convert a symbolic Tensor (%s) to a numpy array." % self.name)

    @staticmethod
    def _override_operator(operator, func):
        setattr(Tensor, operator, func)


class Operation(object):
    """A node of a graph."""

    __slots__ = ("_node", "_graph", "_outputs", "_id", "_name", "_extra", "__weakref__", "__dict__")

    def __init__(self, graph, node):
        self._graph = graph
        self._node = node
        self._id = node.id
        self._name = node.name
        self._outputs = None

    @property
    def name(self):
        return self._name

    @property
    def type(self):
        return self._node.op

    @property
    def graph(self):
        return self._graph

    @property
    def _id_value(self):
        return self._id

    @property
    def outputs(self):
        if self._outputs is None:
            self._outputs = [Tensor(self, i) for i in range(self._node.num_outputs)]
        return self._outputs

    def values(self):
        return tuple(self.outputs)

    @property
    def inputs(self):
        graph = self._graph
        return [graph._tensor(output) for output in self._node.inputs]

    @property
    def control_inputs(self):
        return [self._graph._operation(node) for node in self._node.control_inputs]

    @property
    def device(self):
        return self._node.device

    def _set_device(self, device):
        self._node.device = device_string(device)

    @property
    def op_def(self):
        from muster import _protos

        proto = _protos.get("tensorflow.OpDef")()
        proto.ParseFromString(_muster.op_def_proto(self.type))
        return proto

    @property
    def node_def(self):
        from muster import _protos

        proto = _protos.get("tensorflow.NodeDef")()
        proto.ParseFromString(_muster.node_def(self._node))
        return proto

    @property
    def traceback(self):
        return self._graph._stacks.of(self._id)

    def get_attr(self, name):
        node = self._node
        if not node.has_attr(name):
            raise ValueError("Operation '%s' has no attr named '%s'." % (self._name, name))
        kind = node.attr_kind(name)
        value = node.attr(name)
        if kind == "type":
            return dtypes.as_dtype(value)
        if kind == "list(type)":
            return [dtypes.as_dtype(v) for v in value]
        if kind == "shape":
            return tensor_shape.TensorShape(value).as_proto()
        if kind == "tensor":
            from muster import _protos

            proto = _protos.get("tensorflow.TensorProto")()
            proto.ParseFromString(_muster.tensor_proto(value))
            return proto
        return value

    def _set_attr(self, name, value):
        self._node.set_attr(name, value)

    def _add_control_input(self, op):
        self._graph._g.add_control_input(self._node, op._node)

    def _add_control_inputs(self, ops):
        for op in ops:
            self._add_control_input(op)

    def _update_input(self, index, tensor):
        self._graph._g.update_input(self._node, index, tensor._output)

    def colocation_groups(self):
        groups = self._node.colocation_groups
        if not groups:
            return [("loc:@%s" % self._name).encode()]
        return [("loc:@%s" % name).encode() for name in groups]

    def run(self, feed_dict=None, session=None):
        session_for(self._graph, session, "execute operation", "`run(session=sess)`").run(self, feed_dict)

    def __str__(self):
        return str(self.node_def)

    def __repr__(self):
        return "<tf.Operation '%s' type=%s>" % (self._name, self.type)


def session_for(graph, session, action, argument):
    if session is None:
        session = default_stack.get_default_session()
        if session is None:
            raise ValueError("Cannot %s using `%s`: No default session is registered. Use `with sess.as_default()` or "
                             "pass an explicit session to %s"
                             % (action, "eval()" if "evaluate" in action else "run()", argument))
        if session.graph is not graph:
            raise ValueError("Cannot use the default session to %s: the tensor's graph is different from the "
                             "session's graph. Pass an explicit session to %s." % (action, argument))
    elif session.graph is not graph:
        raise ValueError("Cannot use the given session to %s: the tensor's graph is different from the session's "
                         "graph." % action)
    return session


class IndexedSlices(object):
    """A sparse gradient: rows `values` at `indices` of a tensor with `dense_shape`."""

    def __init__(self, values, indices, dense_shape=None):
        self._values = values
        self._indices = indices
        self._dense_shape = dense_shape

    values = property(lambda self: self._values)
    indices = property(lambda self: self._indices)
    dense_shape = property(lambda self: self._dense_shape)
    name = property(lambda self: self._values.name)
    device = property(lambda self: self._values.device)
    op = property(lambda self: self._values.op)
    dtype = property(lambda self: self._values.dtype)
    graph = property(lambda self: self._values.graph)

    @property
    def shape(self):
        if self._dense_shape is None:
            return tensor_shape.TensorShape(None)
        return tensor_shape.TensorShape(self._dense_shape._handle.constant_value_as_shape())

    def __str__(self):
        return "IndexedSlices(indices=%s, values=%s%s)" % (
            self._indices, self._values,
            (", dense_shape=%s" % self._dense_shape) if self._dense_shape is not None else "")

    def __neg__(self):
        return IndexedSlices(-self._values, self._indices, self._dense_shape)
