"""Datasets that a Python generator feeds: the nodes call back into this process."""
import itertools
import threading

import numpy as np

from muster import dtypes
from muster.data import structure
from muster.data.dataset import Dataset
from muster.data.function import StructuredFunction
from muster.graph import convert
from muster.graph.op_library import call
from muster.ops import script_ops


class _Running(object):
    """The iterators of one generator that are under way, by number."""

    def __init__(self, generator):
        self._generator = generator
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._iterators = {}

    def start(self, *args):
        iterator = iter(self._generator(*args))
        with self._lock:
            number = next(self._numbers)
            self._iterators[number] = iterator
        return np.array(number, dtype=np.int64)

    def get(self, number):
        return self._iterators[int(number)]

    def finish(self, number):
        with self._lock:
            self._iterators.pop(int(number), None)
        return np.array(0, dtype=np.int64)


def _component(value, spec):
    if spec.dtype == dtypes.string:
        array = np.array(value, dtype=object)
    else:
        try:
            array = np.asarray(value, dtype=spec.dtype.as_numpy_dtype)
        except (TypeError, ValueError):
            raise TypeError("`generator` yielded an element that could not be converted to the expected type. The "
                            "expected type was %s, but the yielded element was %s." % (spec.dtype.name, value))
    if not spec.shape.is_compatible_with(array.shape):
        raise TypeError("`generator` yielded an element of shape %s where an element of shape %s was expected."
                        % (array.shape, spec.shape))
    return array


def from_generator(generator, output_types, output_shapes=None, args=None):
    if not callable(generator):
        raise TypeError("`generator` must be callable.")
    output_types = structure.transform(dtypes.as_dtype, output_types)
    spec = structure.from_legacy(output_types, output_shapes)
    flat = structure.flatten(spec)
    args = tuple(convert.convert_to_tensor(a, name="args_%d" % i) for i, a in enumerate(args or ()))
    running = _Running(generator)

    def start(*start_args):
        return script_ops.py_func(running.start, list(args), dtypes.int64)

    def values_of(number):
        values = next(running.get(number))
        try:
            leaves = structure.flatten_up_to(output_types, values)
        except (TypeError, ValueError):
            raise TypeError("`generator` yielded an element that did not match the expected structure. The expected "
                            "structure was %s, but the yielded element was %s." % (output_types, values))
        return [_component(value, s) for value, s in zip(leaves, flat)]

    def following(number):
        tensors = script_ops.py_func(values_of, [number], [s.dtype for s in flat])
        for tensor, s in zip(tensors, flat):
            tensor.set_shape(s.shape)
        return structure.element(spec, tensors)

    def finish(number):
        return script_ops.py_func(running.finish, [number], dtypes.int64)

    def one_pass(dummy):
        begin = StructuredFunction(start, "GeneratorDataset", structure.Spec(dtypes.int32, []))
        step = StructuredFunction(following, "GeneratorDataset", begin.result)
        end = StructuredFunction(finish, "GeneratorDataset", begin.result)
        variant = call("GeneratorDataset", init_func_other_args=[dummy] + begin.captured_inputs,
                       next_func_other_args=step.captured_inputs, finalize_func_other_args=end.captured_inputs,
                       init_func=begin.name, next_func=step.name, finalize_func=end.name, **structure.flat_attrs(spec))
        return Dataset(variant, spec)

    return Dataset.from_tensors(0).flat_map(one_pass)
