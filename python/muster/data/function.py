"""Functions that datasets apply to their elements."""
import functools

from muster.data import structure
from muster.graph import functions


def _function_name(function):
    if hasattr(function, "__name__"):
        return function.__name__
    if isinstance(function, functools.partial):
        return _function_name(function.func)
    return type(function).__name__


class StructuredFunction(object):
    """`function` of one element, traced: its name in the graph's library, what it captures, what it returns."""

    def __init__(self, function, transformation, spec):
        self._result = None
        flat = structure.flatten(spec)
        name = "%s_%s" % (transformation.replace(".", "_").replace("()", ""), _function_name(function))

        def body(*tensors):
            element = structure.element(spec, tensors)
            value = function(*element) if type(element) is tuple else function(element)
            if isinstance(value, list):
                value = tuple(value)  # the results of an op with several outputs, not one packed tensor
            try:
                results, self._result = structure.tensors(value)
            except (ValueError, TypeError):
                raise TypeError("Unsupported return value from function passed to %s: %s." % (transformation, value))
            return results

        self._function = functions.define(name, [(s.component_dtype, s.component_shape) for s in flat], body)

    name = property(lambda self: self._function.name)
    captured_inputs = property(lambda self: self._function.captured_inputs)
    result = property(lambda self: self._result)
