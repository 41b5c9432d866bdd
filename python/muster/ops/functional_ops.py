"""map_fn, scan, foldl and foldr: loops over the first dimension with TensorArrays."""
import contextlib

from muster import dtypes, nest
from muster.graph import tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.ops import array_ops, control_flow_ops, tensor_array_ops


@contextlib.contextmanager
def _cached_variables():
    """Variables read in a loop body are cached on the device that reads them."""
    from muster.variables import variable_scopes

    scope = variable_scopes.get_variable_scope()
    if scope.caching_device is not None:
        yield
        return
    scope.set_caching_device(lambda op: op.device)
    try:
        yield
    finally:
        scope.set_caching_device(None)


def _array(elem, n):
    return tensor_array_ops.TensorArray(dtype=elem.dtype, size=n, dynamic_size=False, infer_shape=True)


def _count(elems):
    return elems[0].get_shape()[0].value or array_ops.shape(elems[0])[0]


def _check_callable(fn):
    if not callable(fn):
        raise TypeError("fn must be callable.")


def _static_count(elems):
    n = elems[0].get_shape().with_rank_at_least(1)[0]
    for elem in elems[1:]:
        n.assert_is_compatible_with(elem.get_shape().with_rank_at_least(1)[0])
    return n


def _set_count(results, n):
    for result in results:
        result.set_shape(tensor_shape.TensorShape([n]).concatenate(result.get_shape()[1:]))
    return results


def map_fn(fn, elems, dtype=None, parallel_iterations=None, back_prop=True, swap_memory=False, infer_shape=True,
           name=None):
    _check_callable(fn)
    elems_flat = nest.flatten(elems)
    with name_scope(name, "map", elems_flat), _cached_variables():
        elems_flat = [convert_to_tensor(elem, name="elem") for elem in elems_flat]
        if dtype is None:
            dtype = nest.pack_sequence_as(elems, [elem.dtype for elem in elems_flat])
        dtypes_flat = [dtypes.as_dtype(d) for d in nest.flatten(dtype)]
        static_shape = elems_flat[0].get_shape()
        if static_shape.ndims is not None and static_shape.ndims < 1:
            if len(elems_flat) == 1:
                raise ValueError("elems must be a 1+ dimensional Tensor, not a scalar")
            raise ValueError("elements in elems must be 1+ dimensional Tensors, not scalars")
        n = _count(elems_flat)
        elem_arrays = [_array(elem, n) for elem in elems_flat]
        elem_arrays = [array.unstack(elem) for array, elem in zip(elem_arrays, elems_flat)]
        i = constant(0)
        arrays = [tensor_array_ops.TensorArray(dtype=d, size=n, dynamic_size=False, infer_shape=infer_shape)
                  for d in dtypes_flat]

        def compute(i, arrays):
            values = nest.pack_sequence_as(elems, [array.read(i) for array in elem_arrays])
            results = fn(values)
            nest.assert_same_structure(dtype, results)
            arrays = [array.write(i, value) for array, value in zip(arrays, nest.flatten(results))]
            return i + 1, arrays

        _, arrays = control_flow_ops.while_loop(
            lambda i, _: i < n, compute, (i, arrays), parallel_iterations=parallel_iterations or 10,
            back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=n)
        results = _set_count([array.stack() for array in arrays], _static_count(elems_flat))
        return nest.pack_sequence_as(dtype, results)


def _fold(scope_name, fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name, from_right):
    _check_callable(fn)
    with name_scope(name, scope_name, nest.flatten(elems)), _cached_variables():
        elems_flat = [convert_to_tensor(elem, name="elem") for elem in nest.flatten(elems)]
        n = _count(elems_flat)
        arrays = nest.pack_sequence_as(elems, [_array(elem, n).unstack(elem) for elem in elems_flat])

        def read(i):
            return nest.map_structure(lambda array: array.read(i), arrays)

        if from_right:
            i = n - 1 if initializer is None else n
            state = read(i) if initializer is None else initializer

            def compute(i, state):
                i -= 1
                return [i, fn(state, read(i))]

            def condition(i, state):
                return i > 0
        else:
            state = read(0) if initializer is None else initializer
            i = constant(1) if initializer is None else constant(0)

            def compute(i, state):
                state = fn(state, read(i))
                return [i + 1, state]

            def condition(i, state):
                return i < n

        _, result = control_flow_ops.while_loop(condition, compute, [i, state],
                                                parallel_iterations=parallel_iterations, back_prop=back_prop,
                                                swap_memory=swap_memory, maximum_iterations=n)
        return result


def foldl(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, name=None):
    return _fold("foldl", fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name, False)


def foldr(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, name=None):
    return _fold("foldr", fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name, True)


def scan(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, infer_shape=True,
         reverse=False, name=None):
    _check_callable(fn)
    structure = elems if initializer is None else initializer
    elems_flat = nest.flatten(elems)
    with name_scope(name, "scan", elems_flat), _cached_variables():
        elems_flat = [convert_to_tensor(elem, name="elem") for elem in elems_flat]
        n = elems_flat[0].get_shape()[0].value
        if n is None:
            n = array_ops.shape(elems_flat[0])[0]
        elem_arrays = [tensor_array_ops.TensorArray(dtype=elem.dtype, size=n, dynamic_size=False,
                                                    element_shape=elem.get_shape()[1:], infer_shape=True)
                       for elem in elems_flat]
        elem_arrays = [array.unstack(elem) for array, elem in zip(elem_arrays, elems_flat)]
        first = n - 1 if reverse else 0
        if initializer is None:
            states = [array.read(first) for array in elem_arrays]
            i = 1
        else:
            states = [convert_to_tensor(state) for state in nest.flatten(initializer)]
            i = 0
        arrays = [tensor_array_ops.TensorArray(dtype=state.dtype, size=n, dynamic_size=False, infer_shape=infer_shape,
                                               element_shape=state.get_shape() if infer_shape else None)
                  for state in states]
        if initializer is None:
            arrays = [array.write(first, state) for array, state in zip(arrays, states)]

        def compute(i, states, arrays):
            values = nest.pack_sequence_as(elems, [array.read(i) for array in elem_arrays])
            results = fn(nest.pack_sequence_as(structure, states), values)
            nest.assert_same_structure(structure, results)
            flat = nest.flatten(results)
            arrays = [array.write(i, value) for array, value in zip(arrays, flat)]
            return (i - 1 if reverse else i + 1), flat, arrays

        if reverse:
            initial, condition = n - 1 - i, lambda i, _1, _2: i >= 0
        else:
            initial, condition = i, lambda i, _1, _2: i < n
        _, _, arrays = control_flow_ops.while_loop(
            condition, compute, (initial, states, arrays), parallel_iterations=parallel_iterations,
            back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=n)
        results = _set_count([array.stack() for array in arrays], _static_count(elems_flat))
        return nest.pack_sequence_as(structure, results)


__all__ = ["map_fn", "scan", "foldl", "foldr"]
