"""tf.contrib.framework's functions of variables, shared by its layers and slim."""
import re

from muster.contrib.arg_scopes import add_arg_scope
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.train import checkpoint_utils, saver
from muster.variables import variable_scopes, variables


def collect_named_outputs(collections, alias, outputs):
    if collections:
        outputs.aliases = [alias[:-1] if alias.endswith("/") else alias]
        framework.add_to_collections(collections, outputs)
    return outputs


@add_arg_scope
def variable(name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=True, collections=None,
             caching_device=None, device=None, partitioner=None, custom_getter=None, use_resource=None):
    collections = list(collections if collections is not None else [GraphKeys.GLOBAL_VARIABLES])
    if GraphKeys.GLOBAL_VARIABLES not in collections:
        collections.append(GraphKeys.GLOBAL_VARIABLES)
    with framework.device(device or ""):
        return variable_scopes.get_variable(
            name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=trainable,
            collections=collections, caching_device=caching_device, partitioner=partitioner, custom_getter=custom_getter,
            use_resource=use_resource)


@add_arg_scope
def model_variable(name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=True, collections=None,
                   caching_device=None, device=None, partitioner=None, custom_getter=None, use_resource=None):
    collections = list(collections or []) + [GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer,
                    trainable=trainable, collections=collections, caching_device=caching_device, device=device,
                    partitioner=partitioner, custom_getter=custom_getter, use_resource=use_resource)


def get_variables(scope=None, suffix=None, collection=GraphKeys.GLOBAL_VARIABLES):
    if isinstance(scope, variable_scopes.VariableScope):
        scope = scope.name
    if suffix is not None:
        scope = (scope or "") + "(.*/)?" + suffix + "(:|$)" if ":" not in suffix else (scope or "") + ".*" + suffix
    return framework.get_collection(collection, scope)


def get_model_variables(scope=None, suffix=None):
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


def get_trainable_variables(scope=None, suffix=None):
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


def get_local_variables(scope=None, suffix=None):
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


def get_variables_by_name(given_name, scope=None):
    return get_variables(scope=scope, suffix="/" + given_name + ":|^" + given_name + ":")


def get_variables_by_suffix(suffix, scope=None):
    return get_variables(scope=scope, suffix=suffix)


def get_unique_variable(var_op_name):
    candidates = [v for v in get_variables() if v.op.name == var_op_name]
    if not candidates:
        raise ValueError("Couldn't find variable %s" % var_op_name)
    return candidates[0]


def get_variables_to_restore(include=None, exclude=None):
    """The variables whose names begin with one of `include` and with none of `exclude`."""
    def chosen(prefixes):
        if not isinstance(prefixes, (list, tuple)):
            raise TypeError("include and exclude must be lists or tuples of strings")
        return set(v for prefix in prefixes for v in get_variables(prefix))

    wanted = get_variables()
    if include is not None:
        included = chosen(include)
        wanted = [v for v in wanted if v in included]
    if exclude is not None:
        excluded = chosen(exclude)
        wanted = [v for v in wanted if v not in excluded]
    return wanted


def filter_variables(var_list, include_patterns=None, exclude_patterns=None, reg_search=True):
    match = re.search if reg_search else re.match
    included = [v for v in var_list if include_patterns is None
                or any(match(pattern, v.op.name) for pattern in include_patterns)]
    return [v for v in included if not any(match(pattern, v.op.name) for pattern in exclude_patterns or ())]


def assign_from_checkpoint_fn(model_path, var_list, ignore_missing_vars=False, reshape_variables=False):
    """The function that restores these variables in a session, or None where none are left."""
    if not var_list:
        raise ValueError("var_list cannot be empty")
    if ignore_missing_vars:
        reader = checkpoint_utils.load_checkpoint(model_path)
        named = var_list if isinstance(var_list, dict) else {v.op.name: v for v in var_list}
        var_list = {name: v for name, v in named.items() if reader.has_tensor(name)}
        if not var_list:
            return None
    restorer = saver.Saver(var_list, reshape=reshape_variables)

    def restore(session):
        restorer.restore(session, model_path)

    return restore


def assign_from_values_fn(var_names_to_values):
    pairs = [(get_unique_variable(name), value) for name, value in var_names_to_values.items()]

    def assign(session):
        for v, value in pairs:
            v.load(value, session)

    return assign


def local_variable(initial_value, validate_shape=True, name="local_variable", use_resource=None):
    return variables.Variable(initial_value, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES],
                              validate_shape=validate_shape, name=name, use_resource=use_resource)


def add_model_variable(var):
    if var not in framework.get_collection(GraphKeys.MODEL_VARIABLES):
        framework.add_to_collection(GraphKeys.MODEL_VARIABLES, var)


list_variables, load_variable, load_checkpoint = (
    checkpoint_utils.list_variables, checkpoint_utils.load_variable, checkpoint_utils.load_checkpoint)

NAMES = ("variable model_variable get_variables get_model_variables get_trainable_variables get_local_variables "
         "get_variables_by_name get_variables_by_suffix get_unique_variable get_variables_to_restore filter_variables "
         "assign_from_checkpoint_fn assign_from_values_fn local_variable add_model_variable list_variables load_variable "
         "load_checkpoint").split()
