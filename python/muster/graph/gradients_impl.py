"""tf.gradients and what registers gradients."""
import enum

from muster import _muster
from muster.graph import convert, framework
from muster.ops import array_ops, control_flow_ops


class AggregationMethod(object):
    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


class UnconnectedGradients(enum.Enum):
    NONE = "none"
    ZERO = "zero"


def _as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _handle_of(graph, value):
    """The output that a y or x stands for: resource variables are their handles."""
    if getattr(value, "_is_resource", False):
        return value.handle._output
    if not isinstance(value, framework.Tensor):
        value = convert.convert_to_tensor(value, name="x", as_ref=True) if not hasattr(value, "_variable") \
            else value._variable
    return value._output


def _to_python(graph, gradient):
    if gradient is None:
        return None
    if isinstance(gradient, tuple):
        values, indices, dense_shape = gradient
        return framework.IndexedSlices(graph._tensor(values), graph._tensor(indices),
                                       None if dense_shape is None else graph._tensor(dense_shape))
    return graph._tensor(gradient)


def _from_python(gradient):
    if gradient is None:
        return None
    if isinstance(gradient, framework.IndexedSlices):
        return (gradient.values._output, gradient.indices._output,
                None if gradient.dense_shape is None else gradient.dense_shape._output)
    return gradient._output


def gradients(ys, xs, grad_ys=None, name="gradients", colocate_gradients_with_ops=False, gate_gradients=False,
              aggregation_method=None, stop_gradients=None, unconnected_gradients=UnconnectedGradients.NONE):
    """Derivatives of the sum of ys with respect to each of xs."""
    ys, xs = _as_list(ys), _as_list(xs)
    stop_gradients = [] if stop_gradients is None else _as_list(stop_gradients)
    if grad_ys is None:
        grad_ys = [None] * len(ys)
    else:
        grad_ys = _as_list(grad_ys)
    if len(grad_ys) != len(ys):
        raise ValueError("Passed %d grad_ys for %d ys" % (len(grad_ys), len(ys)))
    if aggregation_method not in (None, AggregationMethod.ADD_N, AggregationMethod.EXPERIMENTAL_TREE,
                                  AggregationMethod.EXPERIMENTAL_ACCUMULATE_N):
        raise ValueError("Invalid aggregation_method specified %s." % aggregation_method)
    try:
        unconnected = UnconnectedGradients(unconnected_gradients)
    except ValueError:
        raise ValueError("Unknown value for unconnected_gradients: %r" % unconnected_gradients)
    graph = framework.graph_for(ys + xs)
    with graph.as_default():
        y_outputs = [(convert.convert_to_tensor(y, name="y") if not isinstance(y, framework.Tensor) else y)._output
                     for y in ys]
        x_outputs = [_handle_of(graph, x) for x in xs]
        stops = [_handle_of(graph, s) for s in stop_gradients]
        given = []
        for i, gradient in enumerate(grad_ys):
            if gradient is not None and not isinstance(gradient, (framework.Tensor, framework.IndexedSlices)):
                gradient = convert.convert_to_tensor(gradient, name="grad_ys_%d" % i,
                                                     dtype=framework.dtypes.as_dtype(y_outputs[i].dtype))
            given.append(_from_python(gradient))
        results = _muster.gradients(
            graph._building_scope(), y_outputs, x_outputs, given, stops, name, bool(colocate_gradients_with_ops),
            bool(gate_gradients), aggregation_method or 0, unconnected is UnconnectedGradients.ZERO)
        return [_to_python(graph, result) for result in results]


def hessians(ys, xs, name="hessians", colocate_gradients_with_ops=False, gate_gradients=False, aggregation_method=None):
    xs = _as_list(xs)
    results = []
    kwargs = {"colocate_gradients_with_ops": colocate_gradients_with_ops, "gate_gradients": gate_gradients,
              "aggregation_method": aggregation_method}
    first = gradients(ys, xs, **kwargs)
    for gradient, x in zip(first, xs):
        gradient = array_ops.reshape(gradient, [-1])
        n = array_ops.size(x)
        from muster.ops import tensor_array_ops

        loop_vars = [array_ops.constant(0, framework.dtypes.int32), tensor_array_ops.TensorArray(x.dtype, n)]

        def body(j, result, gradient=gradient, x=x):
            return j + 1, result.write(j, gradients(gradient[j], x)[0])

        _, hessian = control_flow_ops.while_loop(lambda j, _, n=n: j < n, body, loop_vars)
        shape = array_ops.shape(x)
        results.append(array_ops.reshape(hessian.stack(), array_ops.concat((shape, shape), 0)))
    return results


class RegisterGradient(object):
    """Decorator: the function (op, *grads) -> grads is the gradient of an op type."""

    def __init__(self, op_type):
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f):
        def call(node, output_gradients, scope):
            graph = _graph_of_node(node)
            op = graph._operation(node)
            grads = [_to_python(graph, g) for g in output_gradients]
            with graph.as_default(), graph._in_scope(scope):
                results = f(op, *grads)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            return [_from_python(convert.convert_to_tensor_or_indexed_slices(r) if r is not None else None)
                    for r in results]

        try:
            _muster.register_gradient(self._op_type, call)
        except ValueError as e:
            raise KeyError(str(e))
        return f


def _graph_of_node(node):
    # Gradients are only built for the graph that is being extended.
    return framework.get_default_graph()


def NotDifferentiable(op_type):
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    _muster.register_gradient(op_type, None)


NoGradient = NotDifferentiable


def stop_gradient(input, name=None):
    return array_ops.stop_gradient(input, name)


__all__ = ["AggregationMethod", "UnconnectedGradients", "gradients", "hessians", "RegisterGradient",
           "NotDifferentiable", "NoGradient"]
