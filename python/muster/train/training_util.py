"""The global step."""
from muster import _muster, dtypes, tf_logging
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.variables import init_ops, variable_scopes, variables

GLOBAL_STEP_READ_KEY = "global_step_read_op_cache"


def global_step(sess, global_step_tensor):
    return int(sess.run(global_step_tensor))


def get_global_step(graph=None):
    graph = graph or framework.get_default_graph()
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(found) == 1:
        tensor = found[0]
    elif not found:
        try:
            tensor = graph.get_tensor_by_name("global_step:0")
        except KeyError:
            return None
    else:
        tf_logging.error("Multiple tensors in global_step collection.")
        return None
    assert_global_step(tensor)
    return tensor


def create_global_step(graph=None):
    graph = graph or framework.get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError("\"global_step\" already exists.")
    with graph.as_default(), framework.name_scope(None):
        return variable_scopes.get_variable(
            GraphKeys.GLOBAL_STEP, shape=[], dtype=dtypes.int64, initializer=init_ops.zeros_initializer(),
            trainable=False, aggregation=variables.VariableAggregation.ONLY_FIRST_REPLICA,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP])


def get_or_create_global_step(graph=None):
    graph = graph or framework.get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def assert_global_step(global_step_tensor):
    if not (isinstance(global_step_tensor, (framework.Tensor, variables.Variable))):
        raise TypeError("Existing \"global_step\" must be a Variable or Tensor: %s." % global_step_tensor)
    if not global_step_tensor.dtype.base_dtype.is_integer:
        raise TypeError("Existing \"global_step\" does not have integer type: %s" % global_step_tensor.dtype)
    shape = global_step_tensor.get_shape()
    if shape.ndims != 0 and shape.is_fully_defined():
        raise TypeError("Existing \"global_step\" is not scalar: %s" % shape)


def _get_global_step_read(graph=None):
    graph = graph or framework.get_default_graph()
    found = graph.get_collection(GLOBAL_STEP_READ_KEY)
    if len(found) > 1:
        raise RuntimeError("There are multiple items in collection {}. There should be only one.".format(
            GLOBAL_STEP_READ_KEY))
    return found[0] if found else None


def _get_or_create_global_step_read(graph=None):
    """A tensor that hooks read the step from: a copy, also of a step that is not initialized yet."""
    graph = graph or framework.get_default_graph()
    found = _get_global_step_read(graph)
    if found is not None:
        return found
    step = get_global_step(graph)
    if step is None:
        return None
    source = step._train_variable() if isinstance(step, variables.Variable) else step._output
    read = _muster.read_global_step(graph._building_scope(), source)
    graph.add_to_collection(GLOBAL_STEP_READ_KEY, graph._tensor(read))
    return _get_global_step_read(graph)


def _increment_global_step(increment, graph=None):
    from muster.ops import state_ops

    graph = graph or framework.get_default_graph()
    step = get_global_step(graph)
    if step is None:
        raise ValueError("Global step tensor should be created by tf.train.get_or_create_global_step before calling "
                         "increment.")
    read = _get_or_create_global_step_read(graph)
    with graph.as_default(), framework.name_scope(None), framework.name_scope(step.op.name + "/"):
        with framework.control_dependencies([read]):
            return state_ops.assign_add(step, increment)


__all__ = ["global_step", "get_global_step", "create_global_step", "get_or_create_global_step", "assert_global_step"]
