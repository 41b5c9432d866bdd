"""group, tuple, cond, while_loop and their kin. Branches and bodies are built inside contexts of the C++ graph."""
import collections

from muster import _muster, dtypes, nest
from muster.generated.control_flow_ops import *  # noqa: F403
from muster.graph import convert, framework, tensor_shape
from muster.graph.framework import colocate_with, control_dependencies, device, name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, math_ops


def group(*inputs, **kwargs):
    """An op that has run when all inputs have."""
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError("Unknown keyword arguments: " + ", ".join(kwargs.keys()))
    inputs = nest.flatten(inputs)
    for inp in inputs:
        if not hasattr(inp, "device"):
            raise TypeError("Expected tf.group() expected Tensor objects not None with type '%s'" % type(inp))
    ops = [getattr(inp, "op", inp) for inp in inputs]
    graph = framework.graph_for(ops)
    if graph.building_function:
        ops = [op for op in ops if op.graph is graph]  # no control edges into a function
    return graph._operation(_muster.group(graph._building_scope(), [op._node for op in ops],
                                          "group_deps" if name is None else name))


def with_dependencies(dependencies, output_tensor, name=None):
    with name_scope(name, "control_dependency", list(dependencies) + [output_tensor]) as name:
        with colocate_with(output_tensor):
            with control_dependencies(dependencies):
                output_tensor = convert.convert_to_tensor_or_indexed_slices(output_tensor)
                if isinstance(output_tensor, framework.Tensor):
                    return _identity(output_tensor, name=name)
                return framework.IndexedSlices(_identity(output_tensor.values, name=name), output_tensor.indices,
                                               output_tensor.dense_shape)


def _identity(data, name=None):
    data = convert.convert_to_tensor_or_indexed_slices(data, as_ref=True)
    if isinstance(data, framework.Tensor):
        if data.dtype._is_ref_dtype:
            return call("RefIdentity", name=name, input=data)
        return array_ops.identity(data, name=name)
    return framework.IndexedSlices(_identity(data.values, name=name), array_ops.identity(data.indices),
                                   data.dense_shape)


def tuple(tensors, name=None, control_inputs=None):
    """The tensors, each available only when all are."""
    with name_scope(name, "tuple", tensors) as name:
        gating_ops = [t.op if isinstance(t, framework.IndexedSlices) else getattr(t, "op", t)
                      for t in tensors if t is not None]
        for c in control_inputs or ():
            c = getattr(c, "op", c)
            if not isinstance(c, framework.Operation):
                raise TypeError("Control input must be Operation or Tensor: %s" % c)
            gating_ops.append(c)
        seen = set()
        gating_ops = sorted((op for op in gating_ops if not (op in seen or seen.add(op))), key=lambda op: op._id)
        if not gating_ops:
            raise ValueError("Must have at least one Tensor: %s" % tensors)
        gate = group(*gating_ops)
        result = []
        for t in tensors:
            if isinstance(t, framework.Operation):
                with control_dependencies([gate]):
                    result.append(group(t))
            elif t is None:
                result.append(None)
            else:
                result.append(with_dependencies([gate], t))
        return result


# --- cond. ---
def _branch_results(graph, value):
    """What a branch returned: its structure, and each element as the context takes it."""
    if value is None:
        return value, []
    elements = []
    for element in nest.flatten(value):
        if element is None:
            raise ValueError("true_fn and false_fn must return Tensors or Operations, not None")
        if isinstance(element, framework.Operation):
            elements.append(element._node)
        elif isinstance(element, framework.IndexedSlices):
            raise TypeError("IndexedSlices as the result of a conditional are not supported")
        else:
            if not isinstance(element, framework.Tensor):
                element = convert.convert_to_tensor(element)
            elements.append(element._output)
    return value, elements


def _note_contexts(graph):
    if not _muster.in_control_flow(graph._scope):
        from muster.graph import meta_graph

        meta_graph.add_contexts(graph)


def cond(pred, true_fn=None, false_fn=None, strict=False, name=None, fn1=None, fn2=None):
    if fn1 is not None:
        if true_fn is not None:
            raise TypeError("cond(): true_fn and fn1 may not be set simultaneously.")
        true_fn = fn1
    elif true_fn is None:
        raise TypeError("cond(): true_fn argument required")
    if fn2 is not None:
        if false_fn is not None:
            raise TypeError("cond(): false_fn and fn2 may not be set simultaneously.")
        false_fn = fn2
    elif false_fn is None:
        raise TypeError("cond(): false_fn argument required")
    if not callable(true_fn):
        raise TypeError("true_fn must be callable.")
    if not callable(false_fn):
        raise TypeError("false_fn must be callable.")
    if isinstance(pred, bool):
        raise TypeError("pred must not be a Python bool")
    graph = framework.get_default_graph()
    with name_scope(name, "cond", [pred]):
        pred = convert.convert_to_tensor(pred) if not isinstance(pred, framework.Tensor) else pred
        if pred.dtype.base_dtype != dtypes.bool:
            raise TypeError("Input 'pred' of 'Switch' Op has type %s that does not match expected type of bool."
                            % pred.dtype.base_dtype.name)
        builder = _muster.CondBuilder.create(graph._building_scope(), pred._output)
        with graph._in_scope(builder.true_scope()):
            original_true, true_elements = _branch_results(graph, true_fn())
            builder.finish_true([] if original_true is None else true_elements)
        with graph._in_scope(builder.false_scope()):
            original_false, false_elements = _branch_results(graph, false_fn())
            builder.finish_false([] if original_false is None else false_elements)
        if (original_true is None) != (original_false is None):
            raise ValueError("true_fn and false_fn must have the same return type")
        if original_true is None:
            raise ValueError("true_fn must have a return value.")
        try:
            nest.assert_same_structure(original_true, original_false)
        except TypeError as e:
            raise TypeError("Incompatible return types of true_fn and false_fn: {}".format(e))
        for x, y in zip(true_elements, false_elements):
            x_type, y_type = (dtypes.as_dtype(e.dtype) if hasattr(e, "dtype") else dtypes.bool for e in (x, y))
            if x_type.base_dtype != y_type.base_dtype:
                raise ValueError("Outputs of true_fn and false_fn must have the same type: %s, %s"
                                 % (x_type.name, y_type.name))
        merged = [graph._tensor(output) for output in builder.merge()]
        _note_contexts(graph)
        result = nest.pack_sequence_as(original_true, merged)
        if not strict:
            result = _unpack_if_singleton(result)
        return result


def _unpack_if_singleton(res):
    if isinstance(res, (list, type(()))) and len(res) == 1:
        return res[0]
    return res


def smart_cond(pred, true_fn, false_fn, name=None):
    value = smart_constant_value(pred)
    if value is None:
        return cond(pred, true_fn=true_fn, false_fn=false_fn, name=name)
    return true_fn() if value else false_fn()


def smart_constant_value(pred):
    if isinstance(pred, framework.Tensor):
        value = convert.constant_value(pred)
        return None if value is None else bool(value)
    if pred in (0, 1, True, False):
        return bool(pred)
    raise TypeError("`pred` must be a Tensor, or a Python bool, or 1 or 0. Found instead: %s" % pred)


# --- while_loop. ---
def while_loop(cond, body, loop_vars, shape_invariants=None, parallel_iterations=10, back_prop=True, swap_memory=False,
               name=None, maximum_iterations=None, return_same_structure=False):
    if not callable(cond):
        raise TypeError("cond must be callable.")
    if not callable(body):
        raise TypeError("body must be callable.")
    if not loop_vars:
        raise ValueError("No loop variables provided")
    if parallel_iterations < 1:
        raise TypeError("parallel_iterations must be a positive integer.")
    graph = framework.get_default_graph()
    with name_scope(name, "while"):
        single = False
        if maximum_iterations is not None:
            maximum_iterations = convert.convert_to_tensor(maximum_iterations, name="maximum_iterations")
            if maximum_iterations.shape.ndims != 0:
                raise ValueError("maximum_iterations must be a scalar, saw shape: %s" % maximum_iterations.shape)
            counter = array_ops.constant(0, dtype=maximum_iterations.dtype, name="iteration_counter")
            orig_cond, orig_body = cond, body
            single = not return_same_structure and len(loop_vars) == 1
            if len(loop_vars) == 1:
                loop_vars = (counter, loop_vars[0])
                cond = lambda i, lv: math_ops.logical_and(i < maximum_iterations, orig_cond(lv))  # noqa: E731
                body = lambda i, lv: (i + 1, orig_body(lv))  # noqa: E731
            else:
                loop_vars = (counter, loop_vars)
                cond = lambda i, lv: math_ops.logical_and(i < maximum_iterations, orig_cond(*lv))  # noqa: E731
                body = lambda i, lv: (i + 1, orig_body(*lv))  # noqa: E731
            if shape_invariants is not None:
                shape_invariants = (tensor_shape.TensorShape([]),
                                    shape_invariants[0] if len(shape_invariants) == 1 else shape_invariants)
        result = _while(graph, cond, body, loop_vars, shape_invariants, parallel_iterations, back_prop, swap_memory,
                        maximum_iterations, return_same_structure or maximum_iterations is not None)
        if maximum_iterations is not None:
            inner = result[1]
            if return_same_structure:
                return inner if len(loop_vars) == 2 and not single else inner
            return inner
        return result


def _while(graph, cond, body, loop_vars, shape_invariants, parallel_iterations, back_prop, swap_memory,
           maximum_iterations, return_same_structure):
    original = loop_vars
    flat, restore = _flatten_variables(loop_vars)
    tensors = [convert.convert_to_tensor(v) if not isinstance(v, framework.Tensor) else v for v in flat]
    invariants = None
    if shape_invariants is not None:
        nest.assert_same_structure(loop_vars, shape_invariants)
        invariants = [_dims(s) for s in _flatten_shapes(shape_invariants)]
    builder = _muster.WhileBuilder.create(
        graph._building_scope(), [t._output for t in tensors], invariants, parallel_iterations, back_prop, swap_memory,
        None if maximum_iterations is None else maximum_iterations._output)
    with graph._in_scope(builder.scope()):
        variables = restore([graph._tensor(o) for o in builder.condition_variables()])
        condition = convert.convert_to_tensor(cond(*variables))
        builder.set_condition(condition._output)
        variables = restore([graph._tensor(o) for o in builder.body_variables()])
        results = body(*variables)
        if not nest.is_sequence(results) and len(loop_vars) == 1:
            results = [results]
        nest.assert_same_structure(list(original), list(results))
        flat_results, restore_results = _flatten_variables(results)
        next_tensors = []
        for before, value in zip(tensors, flat_results):
            if not isinstance(value, framework.Tensor):
                value = convert.convert_to_tensor(value, dtype=before.dtype.base_dtype)
            next_tensors.append(value)
        exits = builder.finish([t._output for t in next_tensors])
    _note_contexts(graph)
    values = restore_results([graph._tensor(o) for o in exits])
    if return_same_structure:
        return values
    return values[0] if len(exits) == 1 else values


def _dims(shape):
    shape = tensor_shape.as_shape(shape)
    return None if shape.dims is None else shape.as_list()


def _flatten_shapes(shapes):
    if isinstance(shapes, tensor_shape.TensorShape):
        return [shapes]
    if isinstance(shapes, dict):
        return [s for key in sorted(shapes) for s in _flatten_shapes(shapes[key])]
    if isinstance(shapes, (list, type(()))):
        return [s for shape in shapes for s in _flatten_shapes(shape)]
    return [shapes]


def _flatten_variables(loop_vars):
    """Flat tensors, and a function that puts others into the same structure; TensorArrays travel as their flow."""
    from muster.ops import tensor_array_ops

    flat = nest.flatten(loop_vars)
    tensors = [v.flow if isinstance(v, tensor_array_ops.TensorArray) else v for v in flat]

    def restore(values):
        wrapped = [tensor_array_ops.build_with_flow(old, new) if isinstance(old, tensor_array_ops.TensorArray) else new
                   for old, new in zip(flat, values)]
        return nest.pack_sequence_as(loop_vars, wrapped)

    return tensors, restore


def case(pred_fn_pairs, default=None, exclusive=False, strict=False, name="case"):
    if isinstance(pred_fn_pairs, dict):
        pairs = sorted(pred_fn_pairs.items(), key=lambda item: item[0].name)
    else:
        if not isinstance(pred_fn_pairs, (list, type(()))):
            raise TypeError("pred_fn_pairs must be a list, tuple, or dict")
        pairs = list(pred_fn_pairs)
    if not pairs:
        raise ValueError("pred_fn_pairs must not be empty")
    for pair in pairs:
        if not isinstance(pair, type(())) or len(pair) != 2:
            raise TypeError("Each entry in pred_fn_pairs must be a 2-tuple")
        if not callable(pair[1]):
            raise TypeError("fn for pred %s must be callable." % pair[0].name)
    if default is not None and not callable(default):
        raise TypeError("default must be callable.")
    with name_scope(name, "case", [p for p, _ in pairs]):
        if default is None:
            default, pairs = _last_as_default(pairs)
        if not exclusive:
            return _nested_conds(pairs, default, strict)
        with control_dependencies([_assert_at_most_n_true([p for p, _ in pairs], 1, "Input error: exclusive=True")]):
            return _nested_conds(pairs, default, strict)


def _assert_at_most_n_true(preds, n, message):
    packed = array_ops.stack(preds, name="preds_c")
    count = math_ops.reduce_sum(math_ops.cast(packed, dtypes.int32), name="num_true_conds")
    condition = math_ops.less_equal(count, array_ops.constant(n, name="n_true_conds"))
    names = ", ".join(getattr(p, "name", "?") for p in preds)
    return Assert(condition, ["%s: more than %d conditions (%s) evaluated as True:" % (message, n, names), packed],
                  summarize=len(preds))


def _last_as_default(pairs):
    """(the last branch as default, which asserts that its predicate is the one that holds; the branches before it)."""
    at = len(pairs) - 1
    preds = [p for p, _ in pairs]

    def default():
        none = ("Input error: None of conditions evaluated as True:", array_ops.stack(preds, name="preds_c"))
        others = ("Implementation error: selected default action #%d was called, but some of other predicates are "
                  "True: " % at)
        with control_dependencies([_assert_at_most_n_true(preds[:at], 0, others), Assert(preds[at], none)]):
            return pairs[at][1]()

    return default, pairs[:at]


def _nested_conds(pairs, default, strict):
    function = default
    for predicate, action in reversed(pairs):
        function = (lambda p, a, rest: lambda: cond(p, true_fn=a, false_fn=rest, strict=strict))(
            predicate, action, function)
    return function()


def Assert(condition, data, summarize=None, name=None):
    """Fails the step unless `condition` holds."""
    with name_scope(name, "Assert", [condition] + list(data)):
        xs = convert.convert_n_to_tensor(data)
        if all(x.dtype.base_dtype in (dtypes.string, dtypes.int32) for x in xs):
            condition = convert.convert_to_tensor(condition, dtype=dtypes.bool, name="condition")
            return call("Assert", condition=condition, data=data, summarize=3 if summarize is None else summarize)
        condition = convert.convert_to_tensor(condition, dtype=dtypes.bool, name="Condition")

        def true_assert():
            return call("Assert", condition=condition, data=data, summarize=3 if summarize is None else summarize)

        guarded = cond(condition, no_op, true_assert, name="AssertGuard")
        return guarded.op
