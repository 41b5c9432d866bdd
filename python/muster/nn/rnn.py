"""Running a recurrent cell over a sequence: a loop (dynamic_rnn) or one copy per step (static_rnn)."""
from muster import dtypes, nest
from muster.graph import tensor_shape
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import colocate_with, control_dependencies, name_scope
from muster.nn import rnn_cell
from muster.ops import array_ops, control_flow_ops, math_ops, tensor_array_ops
from muster.variables import variable_scopes


def _transpose_batch_time(x):
    static = x.get_shape()
    if static.ndims is not None and static.ndims < 2:
        raise ValueError("Expected input tensor %s to have rank at least 2, but saw shape: %s" % (x, static))
    rank = array_ops.rank(x)
    result = array_ops.transpose(x, array_ops.concat(([1, 0], math_ops.range(2, rank)), axis=0))
    if static.ndims is not None:
        dims = static.as_list()
        result.set_shape([dims[1], dims[0]] + dims[2:])
    return result


def _batch_size(flat_input):
    for value in flat_input:
        shape = value.get_shape()
        if shape.ndims is None:
            continue
        if shape.ndims < 2:
            raise ValueError("Expected input tensor %s to have rank at least 2" % value)
        if shape[1].value is not None:
            return shape[1].value
    return array_ops.shape(flat_input[0])[1]


def _state_dtype(dtype, state):
    if dtype is not None:
        return dtype
    found = [element.dtype for element in nest.flatten(state)]
    if not found:
        raise ValueError("Unable to infer dtype from empty state.")
    if any(d != found[0] for d in found):
        raise ValueError("State has tensors of different inferred_dtypes. Unable to infer a single representative "
                         "dtype.")
    return found[0]


def _use_cache(scope):
    if scope.caching_device is None:
        scope.set_caching_device(lambda op: op.device)


def _initial_state(cell, initial_state, batch_size, dtype):
    if initial_state is not None:
        return initial_state
    if not dtype:
        raise ValueError("If there is no initial_state, you must give a dtype.")
    if getattr(cell, "get_initial_state", None) is not None:
        return cell.get_initial_state(inputs=None, batch_size=batch_size, dtype=dtype)
    return cell.zero_state(batch_size, dtype)


def _rnn_step(time, sequence_length, min_length, max_length, zero_output, state, call_cell, skip_conditionals):
    """One step; sequences that have ended keep their state and output zeros."""
    flat_state, flat_zero = nest.flatten(state), nest.flatten(zero_output)
    ended = time >= sequence_length

    def keep(old, new):
        if isinstance(old, tensor_array_ops.TensorArray) or old.get_shape().ndims == 0:
            return new
        with colocate_with(new):
            return array_ops.where(ended, old, new)

    def step():
        output, new_state = call_cell()
        nest.assert_same_structure(zero_output, output)
        nest.assert_same_structure(state, new_state)
        return nest.flatten(output), nest.flatten(new_state)

    def mixed(outputs, states):
        return [keep(z, o) for z, o in zip(flat_zero, outputs)] + [keep(s, n) for s, n in zip(flat_state, states)]

    if skip_conditionals:
        results = mixed(*step())
    else:
        def running():
            outputs, states = step()
            return control_flow_ops.cond(time < min_length, lambda: outputs + states, lambda: mixed(outputs, states))

        results = control_flow_ops.cond(time >= max_length, lambda: flat_zero + flat_state, running)
    outputs, states = results[:len(flat_zero)], results[len(flat_zero):]
    for new, old in list(zip(outputs, flat_zero)) + list(zip(states, flat_state)):
        if not isinstance(new, tensor_array_ops.TensorArray):
            new.set_shape(old.get_shape())
    return nest.pack_sequence_as(zero_output, outputs), nest.pack_sequence_as(state, states)


def dynamic_rnn(cell, inputs, sequence_length=None, initial_state=None, dtype=None, parallel_iterations=None,
                swap_memory=False, time_major=False, scope=None):
    rnn_cell.assert_like_rnncell("cell", cell)
    with variable_scopes.variable_scope(scope or "rnn") as varscope:
        _use_cache(varscope)
        flat_input = nest.flatten(inputs)
        if not time_major:
            flat_input = [convert_to_tensor(value) for value in flat_input]
            flat_input = [_transpose_batch_time(value) for value in flat_input]
        if sequence_length is not None:
            sequence_length = math_ops.cast(sequence_length, dtypes.int32)
            if sequence_length.get_shape().ndims not in (None, 1):
                raise ValueError("sequence_length must be a vector of length batch_size, but saw shape: %s"
                                 % sequence_length.get_shape())
            sequence_length = array_ops.identity(sequence_length, name="sequence_length")
        batch_size = _batch_size(flat_input)
        state = _initial_state(cell, initial_state, batch_size, dtype)
        if sequence_length is not None:
            found = array_ops.shape(sequence_length)
            wanted = array_ops.stack([batch_size])
            check = control_flow_ops.Assert(
                math_ops.reduce_all(math_ops.equal(found, wanted)),
                ["Expected shape for Tensor %s is " % sequence_length.name, wanted, " but saw shape: ", found])
            with control_dependencies([check]):
                sequence_length = array_ops.identity(sequence_length, name="CheckSeqLen")
        inputs = nest.pack_sequence_as(inputs, flat_input)
        outputs, final_state = _loop(cell, inputs, state, parallel_iterations or 32, swap_memory, sequence_length,
                                     dtype)
        if not time_major:
            outputs = nest.map_structure(_transpose_batch_time, outputs)
        return outputs, final_state


def _check_shapes(flat_input):
    shapes = [value.get_shape().with_rank_at_least(3) for value in flat_input]
    steps, batch = shapes[0].as_list()[:2]
    for shape in shapes:
        if not shape[2:].is_fully_defined():
            raise ValueError("Input size (depth of inputs) must be accessible via shape inference, but saw value None.")
        if shape[0].value != steps:
            raise ValueError("Time steps is not the same for all the elements in the input in a batch.")
        if shape[1].value != batch:
            raise ValueError("Batch_size is not the same for all the elements in the input.")
    return shapes, steps, batch


def _loop(cell, inputs, state, parallel_iterations, swap_memory, sequence_length, dtype):
    flat_input, flat_output_size = nest.flatten(inputs), nest.flatten(cell.output_size)
    time_steps = array_ops.shape(flat_input[0])[0]
    batch_size = _batch_size(flat_input)
    shapes, const_steps, const_batch = _check_shapes(flat_input)
    output_dtype = _state_dtype(dtype, state)
    zero_output = nest.pack_sequence_as(cell.output_size, [
        array_ops.zeros(array_ops.stack(rnn_cell.concat_shape(batch_size, size)), output_dtype)
        for size in flat_output_size])
    if sequence_length is not None:
        min_length = math_ops.reduce_min(sequence_length)
        max_length = math_ops.reduce_max(sequence_length)
    else:
        max_length = time_steps
    time = array_ops.constant(0, dtype=dtypes.int32, name="time")
    with name_scope("dynamic_rnn") as base_name:
        pass

    def array(name, element_shape, kind):
        return tensor_array_ops.TensorArray(dtype=kind, size=time_steps, element_shape=element_shape,
                                            tensor_array_name=base_name + name)

    def element_shape(size):
        size = [size] if isinstance(size, (int, tensor_shape.Dimension)) else size
        return tensor_shape.TensorShape([const_batch]).concatenate(size)

    outputs = tuple(array("output_%d" % i, element_shape(size), output_dtype)
                    for i, size in enumerate(flat_output_size))
    input_arrays = [array("input_%d" % i, value.get_shape()[1:], value.dtype) for i, value in enumerate(flat_input)]
    input_arrays = [a.unstack(value) for a, value in zip(input_arrays, flat_input)]

    def step(time, outputs, state):
        values = [a.read(time) for a in input_arrays]
        for value, shape in zip(values, shapes):
            value.set_shape(shape[1:])
        values = nest.pack_sequence_as(inputs, values)
        if sequence_length is not None:
            output, new_state = _rnn_step(time, sequence_length, min_length, max_length, zero_output, state,
                                          lambda: cell(values, state), skip_conditionals=True)
        else:
            output, new_state = cell(values, state)
        outputs = tuple(a.write(time, value) for a, value in zip(outputs, nest.flatten(output)))
        return time + 1, outputs, new_state

    # One step is made even for an empty batch, so that shapes are known.
    bound = math_ops.minimum(time_steps, math_ops.maximum(1, max_length))
    _, outputs, final_state = control_flow_ops.while_loop(
        lambda time, *_: time < bound, step, (time, outputs, state), parallel_iterations=parallel_iterations,
        maximum_iterations=time_steps, swap_memory=swap_memory)
    results = [a.stack() for a in outputs]
    for result, size in zip(results, flat_output_size):
        result.set_shape(rnn_cell.concat_shape([const_steps, const_batch], size, static=True))
    return nest.pack_sequence_as(cell.output_size, results), final_state


def _reversed(value, lengths, time_axis, batch_axis):
    if lengths is None:
        return array_ops.reverse(value, axis=[time_axis])
    return array_ops.reverse_sequence(value, lengths, seq_axis=time_axis, batch_axis=batch_axis)


def bidirectional_dynamic_rnn(cell_fw, cell_bw, inputs, sequence_length=None, initial_state_fw=None,
                              initial_state_bw=None, dtype=None, parallel_iterations=None, swap_memory=False,
                              time_major=False, scope=None):
    rnn_cell.assert_like_rnncell("cell_fw", cell_fw)
    rnn_cell.assert_like_rnncell("cell_bw", cell_bw)
    time_axis, batch_axis = (0, 1) if time_major else (1, 0)
    options = dict(sequence_length=sequence_length, dtype=dtype, parallel_iterations=parallel_iterations,
                   swap_memory=swap_memory, time_major=time_major)
    with variable_scopes.variable_scope(scope or "bidirectional_rnn"):
        with variable_scopes.variable_scope("fw") as fw_scope:
            output_fw, state_fw = dynamic_rnn(cell_fw, inputs, initial_state=initial_state_fw, scope=fw_scope,
                                              **options)
        with variable_scopes.variable_scope("bw") as bw_scope:
            backwards = nest.map_structure(
                lambda value: _reversed(value, sequence_length, time_axis, batch_axis), inputs)
            output, state_bw = dynamic_rnn(cell_bw, backwards, initial_state=initial_state_bw, scope=bw_scope,
                                           **options)
    output_bw = nest.map_structure(lambda value: _reversed(value, sequence_length, time_axis, batch_axis), output)
    return (output_fw, output_bw), (state_fw, state_bw)


def static_rnn(cell, inputs, initial_state=None, dtype=None, sequence_length=None, scope=None):
    rnn_cell.assert_like_rnncell("cell", cell)
    if not nest.is_sequence(inputs):
        raise TypeError("inputs must be a sequence")
    if not inputs:
        raise ValueError("inputs must not be empty")
    outputs = []
    with variable_scopes.variable_scope(scope or "rnn") as varscope:
        _use_cache(varscope)
        first = nest.flatten(inputs[0])[0]
        static = first.get_shape()
        fixed = static.with_rank_at_least(2)[0].value if static.ndims not in (None, 1) else (
            static[0].value if static.ndims == 1 else None)
        batch_size = fixed if fixed is not None else array_ops.shape(first)[0]
        state = _initial_state(cell, initial_state, batch_size, dtype)
        if sequence_length is not None:
            sequence_length = convert_to_tensor(sequence_length, name="sequence_length")
            if sequence_length.get_shape().ndims not in (None, 1):
                raise ValueError("sequence_length must be a vector of length batch_size")
            zero_output = nest.map_structure(lambda size: _zero_output(size, batch_size, fixed, first.dtype),
                                             cell.output_size)
            sequence_length = math_ops.cast(sequence_length, dtypes.int32)
            min_length = math_ops.reduce_min(sequence_length)
            max_length = math_ops.reduce_max(sequence_length)
        for time, value in enumerate(inputs):
            if time > 0:
                varscope.reuse_variables()
            if sequence_length is not None:
                output, state = _rnn_step(time, sequence_length, min_length, max_length, zero_output, state,
                                          lambda value=value, state=state: cell(value, state),
                                          skip_conditionals=False)
            else:
                output, state = cell(value, state)
            outputs.append(output)
        return outputs, state


def static_bidirectional_rnn(cell_fw, cell_bw, inputs, initial_state_fw=None, initial_state_bw=None, dtype=None,
                             sequence_length=None, scope=None):
    rnn_cell.assert_like_rnncell("cell_fw", cell_fw)
    rnn_cell.assert_like_rnncell("cell_bw", cell_bw)
    if not nest.is_sequence(inputs):
        raise TypeError("inputs must be a sequence")
    if not inputs:
        raise ValueError("inputs must not be empty")
    with variable_scopes.variable_scope(scope or "bidirectional_rnn"):
        with variable_scopes.variable_scope("fw") as fw_scope:
            outputs_fw, state_fw = static_rnn(cell_fw, inputs, initial_state_fw, dtype, sequence_length, scope=fw_scope)
        with variable_scopes.variable_scope("bw") as bw_scope:
            outputs, state_bw = static_rnn(cell_bw, _reversed_steps(inputs, sequence_length), initial_state_bw, dtype,
                                           sequence_length, scope=bw_scope)
    outputs_bw = _reversed_steps(outputs, sequence_length)
    flat = [array_ops.concat([fw, bw], 1) for fw, bw in zip(nest.flatten(outputs_fw), nest.flatten(outputs_bw))]
    return nest.pack_sequence_as(outputs_fw, flat), state_fw, state_bw


def _reversed_steps(values, lengths):
    """A list of steps backwards; each sequence within its length."""
    if lengths is None:
        return list(reversed(values))
    columns = [[] for _ in nest.flatten(values[0])]
    for value in values:
        for column, part in zip(columns, nest.flatten(value)):
            column.append(part)
    turned = []
    for column in columns:
        shape = tensor_shape.TensorShape(None)
        for part in column:
            shape = shape.merge_with(part.get_shape())
        reverse = array_ops.unstack(array_ops.reverse_sequence(array_ops.stack(column), lengths, seq_axis=0, batch_axis=1))
        for part in reverse:
            part.set_shape(shape)
        turned.append(reverse)
    return [nest.pack_sequence_as(values[0], list(parts)) for parts in zip(*turned)]


def raw_rnn(cell, loop_fn, parallel_iterations=None, swap_memory=False, scope=None):
    """A loop in which `loop_fn` decides about inputs, states and the end of every sequence."""
    rnn_cell.assert_like_rnncell("cell", cell)
    if not callable(loop_fn):
        raise TypeError("loop_fn must be a callable")
    with variable_scopes.variable_scope(scope or "rnn") as varscope:
        _use_cache(varscope)
        time = array_ops.constant(0, dtype=dtypes.int32)
        finished, first_input, state, emit_structure, loop_state = loop_fn(time, None, None, None)
        flat_input = nest.flatten(first_input)
        has_loop_state = loop_state is not None
        loop_state = loop_state if has_loop_state else array_ops.constant(0, dtype=dtypes.int32)
        batches = [value.get_shape()[0].value for value in flat_input]
        batch_size = next((size for size in batches if size is not None), None) or array_ops.shape(flat_input[0])[0]
        if emit_structure is None:
            flat_emit = nest.flatten(cell.output_size)
            sizes = [tensor_shape.as_shape([size] if isinstance(size, int) else size) for size in flat_emit]
            kinds = [nest.flatten(state)[0].dtype] * len(sizes)
            structure = cell.output_size
        else:
            flat_emit = [convert_to_tensor(value) for value in nest.flatten(emit_structure)]
            sizes = [value.get_shape() for value in flat_emit]
            kinds = [value.dtype for value in flat_emit]
            structure = emit_structure
        arrays = [tensor_array_ops.TensorArray(dtype=kind, dynamic_size=True, size=0, element_shape=None,
                                               name="rnn_output_%d" % i) for i, kind in enumerate(kinds)]
        zeros = [array_ops.zeros(rnn_cell.concat_shape(batch_size, size), kind) for size, kind in zip(sizes, kinds)]

        def copied(done, old, new):
            def choose(o, n):
                if isinstance(n, tensor_array_ops.TensorArray) or n.get_shape().ndims == 0:
                    return n
                with colocate_with(n):
                    return array_ops.where(done, o, n)

            return nest.pack_sequence_as(new, [choose(o, n) for o, n in zip(nest.flatten(old), nest.flatten(new))])

        def body(time, done, current, arrays, state, loop_state):
            output, cell_state = cell(current, state)
            next_time = time + 1
            next_done, next_input, next_state, emit, new_loop = loop_fn(
                next_time, output, cell_state, loop_state if has_loop_state else None)
            emitted = nest.flatten(copied(done, nest.pack_sequence_as(structure, zeros), emit))
            arrays = [a.write(time, value) for a, value in zip(arrays, emitted)]
            new_loop = loop_state if new_loop is None else new_loop
            return (next_time, math_ops.logical_or(next_done, done), next_input, arrays,
                    copied(done, state, next_state), new_loop)

        results = control_flow_ops.while_loop(
            lambda time, done, *_: math_ops.logical_not(math_ops.reduce_all(done)), body,
            [time, finished, first_input, arrays, state, loop_state], parallel_iterations=parallel_iterations or 32,
            swap_memory=swap_memory)
        emitted = nest.pack_sequence_as(structure, results[3])
        return emitted, results[4], results[5] if has_loop_state else None


def _zero_output(size, batch_size, fixed, dtype):
    output = array_ops.zeros(rnn_cell.concat_shape(batch_size, size), dtype)
    output.set_shape(tensor_shape.TensorShape(rnn_cell.concat_shape([fixed], size, static=True)))
    return output
