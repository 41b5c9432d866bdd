"""The variables of a graph, and what initializes or reports on them."""
from muster import _muster
from muster.graph import framework
from muster.graph.framework import GraphKeys, colocate_with
from muster.ops import array_ops, state_ops


# --- Collections of variables and their initializers. ---
def global_variables(scope=None):
    return framework.get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def all_variables():
    return global_variables()


def local_variables(scope=None):
    return framework.get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope=None):
    return framework.get_collection(GraphKeys.MODEL_VARIABLES, scope)


def trainable_variables(scope=None):
    return framework.get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def moving_average_variables(scope=None):
    return framework.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def variables_initializer(var_list, name="init"):
    from muster.ops import control_flow_ops

    if var_list:
        return control_flow_ops.group(*[v.initializer for v in var_list], name=name)
    return control_flow_ops.group(name=name)


def global_variables_initializer():
    return variables_initializer(global_variables())


def local_variables_initializer():
    return variables_initializer(local_variables())


def tables_initializer(name="init_all_tables"):
    from muster.ops import control_flow_ops

    initializers = framework.get_collection(GraphKeys.TABLE_INITIALIZERS)
    if not initializers:
        return control_flow_ops.no_op(name=name)
    return control_flow_ops.group(*initializers, name=name)


initialize_variables = variables_initializer
initialize_all_variables = global_variables_initializer
initialize_local_variables = local_variables_initializer
initialize_all_tables = tables_initializer


def _all_saveable_objects(scope=None):
    return (framework.get_collection(GraphKeys.GLOBAL_VARIABLES, scope) +
            framework.get_collection(GraphKeys.SAVEABLE_OBJECTS, scope))


def is_variable_initialized(variable):
    return state_ops.is_variable_initialized(variable)


def assert_variables_initialized(var_list=None):
    if var_list is None:
        var_list = global_variables() + local_variables()
    if not var_list:
        return None
    ranks = []
    for var in var_list:
        with colocate_with(var.op):
            ranks.append(array_ops.rank_internal(var, optimize=False))
    return ranks[0] if len(ranks) == 1 else array_ops.stack(ranks)


def report_uninitialized_variables(var_list=None, name="report_uninitialized_variables"):
    if var_list is None:
        var_list = global_variables() + local_variables()
    graph = framework.get_default_graph()
    return graph._tensor(_muster.report_uninitialized(graph._building_scope(),
                                                      [v._train_variable() for v in var_list], name))
