"""The global step."""
from muster import dtypes, framework, init_ops, variable_scopes, variables
from muster.framework import GraphKeys


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
    if global_step_tensor.get_shape().ndims not in (0, None):
        raise TypeError("Existing \"global_step\" is not scalar: %s" % global_step_tensor.get_shape())


__all__ = ["global_step", "get_global_step", "create_global_step", "get_or_create_global_step", "assert_global_step"]
