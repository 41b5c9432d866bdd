"""Functions of graphs made from Python functions: each is traced once, in a graph of its own, with placeholders."""
import contextlib
import itertools
import threading

from muster import _muster, dtypes
from muster.graph import convert, default_stack, framework, tensor_shape

_uids = itertools.count(1)
_lock = threading.Lock()


class FunctionGraph(framework.Graph):
    """The body of a function while it is built. Tensors of graphs outside become arguments, or are copied."""

    def __init__(self, outer, by_value=False):
        super(FunctionGraph, self).__init__()
        self._building_function = True
        self.outer_graph = outer
        self.seed = outer.seed
        for key in outer.get_all_collection_keys():
            self._collections[key] = outer.get_collection(key)
        self._copies = _muster.ByValueCapture(self._g) if by_value else None
        self.inputs = []
        self.captures = {}  # tensors outside -> what stands for them here, in the order of their first use

    @property
    def captured_inputs(self):
        return list(self.captures)

    def _capture(self, tensor):
        outer = self.outer_graph
        if tensor.graph is not outer and outer.building_function:
            tensor = outer._capture(tensor)
        if tensor.graph is not outer:
            raise ValueError("%s must be from the same graph as the function that reads it, or from one around it."
                             % tensor)
        inner = self.captures.get(tensor)
        if inner is None:
            with self.as_default(), self._in_scope(self._root):
                inner = self._new_capture(tensor)
            self.captures[tensor] = inner
        return inner

    def _new_capture(self, tensor):
        if self._copies is not None:
            return self._tensor(self._copies.capture(tensor._handle))
        if tensor.dtype._is_ref_dtype:
            raise ValueError("%s is a reference to a variable, which a function cannot take: read it outside, or use a "
                             "resource variable (tf.get_variable(use_resource=True))" % tensor)
        argument = self.add_input(tensor.dtype, tensor.shape, tensor.op.name)
        if tensor.dtype == dtypes.resource:
            _muster.copy_handle_shapes(tensor._handle, argument._handle)
        return argument

    def add_input(self, dtype, shape, name):
        """A placeholder that stands for an argument."""
        shape = tensor_shape.as_shape(shape)
        node = self._add("Placeholder", [], {
            "dtype": int(dtypes.as_dtype(dtype).base_dtype), "shape": None if shape.dims is None else shape.as_list()},
            name)
        self.inputs.append(node.outputs[0])
        return node.outputs[0]

    # Control dependencies and devices outside do not apply to the nodes of a function, which runs elsewhere.
    def control_dependencies(self, control_inputs):
        if control_inputs is not None:
            control_inputs = [c for c in control_inputs if getattr(c, "graph", self) is self]
        return super(FunctionGraph, self).control_dependencies(control_inputs)

    def colocate_with(self, op, ignore_existing=False):
        if op is not None and getattr(op, "graph", self) is not self:
            return contextlib.nullcontext()
        return super(FunctionGraph, self).colocate_with(op, ignore_existing)

    @contextlib.contextmanager
    def building(self):
        """The default graph, and tensors outside it are captured."""
        with _lock:
            default_stack.count_functions_being_built(1)
        try:
            with self.as_default():
                yield self
        finally:
            with _lock:
                default_stack.count_functions_being_built(-1)


def outermost(graph):
    """The graph that a session runs and that keeps what functions inside functions need."""
    while isinstance(graph, FunctionGraph):
        graph = graph.outer_graph
    return graph


class Function(object):
    """A function in the library of the graph in which it was made."""

    def __init__(self, name, captured_inputs):
        self.name = name
        self.captured_inputs = captured_inputs


def define(name, specs, body):
    """Traces body(*tensors), which returns a list of tensors; `specs` are (dtype, shape) of its arguments.

    Tensors of outer graphs that the body reads come as further arguments: `captured_inputs` of the result.
    """
    outer = framework.get_default_graph()
    graph = FunctionGraph(outer)
    with graph.building():
        arguments = [graph.add_input(dtype, shape, "args_%d" % i) for i, (dtype, shape) in enumerate(specs)]
        results = [convert.convert_to_tensor(r)._output for r in body(*arguments)]
        returned = _muster.return_after_effects(graph._g, results)
    with _lock:
        unique = "__inference_%s_%d" % (name, next(_uids))
    made = _muster.define_function(graph._g, unique, [t._handle for t in graph.inputs], returned, False, outer._g)
    return Function(made, graph.captured_inputs)


def define_by_value(name, body):
    """A function without arguments, whose name ends in a digest; what it reads from outside is copied into it."""
    outer = framework.get_default_graph()
    graph = FunctionGraph(outer, by_value=True)
    with graph.building():
        results = [convert.convert_to_tensor(r)._output for r in body()]
    return Function(_muster.define_function(graph._g, name, [], results, True, outer._g), [])


class Defun(object):
    """Decorator: the function's calls in a graph become nodes that call one function of its library."""

    def __init__(self, *input_types, **kwargs):
        self._types = [dtypes.as_dtype(t) for t in input_types]
        self._name = kwargs.pop("func_name", None)
        kwargs.pop("shape_func", None)
        kwargs.pop("noinline", None)
        if kwargs:
            raise NotImplementedError("Defun(%s): Muster has no such option" % ", ".join(sorted(kwargs)))

    def __call__(self, function):
        defined = {}

        def call(*args, **kwargs):
            name = kwargs.pop("name", None)
            if kwargs:
                raise ValueError("Unknown keyword arguments: %s" % ", ".join(sorted(kwargs)))
            graph = framework.get_default_graph()
            if len(args) != len(self._types):
                raise ValueError("Expected number of arguments: %d, received: %d" % (len(self._types), len(args)))
            args = [convert.convert_to_tensor(a, dtype=t) for a, t in zip(args, self._types)]
            if id(graph) not in defined:
                defined[id(graph)] = (graph, _plain_function(self._name or function.__name__, function, self._types))
            made = defined[id(graph)][1]
            outputs = graph._add(made.name, list(args) + made.captured_inputs, {}, name or made.name).outputs
            return outputs[0] if len(outputs) == 1 else outputs

        call.__name__ = getattr(function, "__name__", "defun")
        return call


def _plain_function(name, function, types):
    def body(*arguments):
        results = function(*arguments)
        if results is None:
            return []
        return results if isinstance(results, (list, tuple)) else [results]

    return define(name, [(t, None) for t in types], body)


__all__ = ["Defun"]
