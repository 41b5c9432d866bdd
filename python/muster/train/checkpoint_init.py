"""tf.train.init_from_checkpoint and warm_start: initializers that read a checkpoint."""
import re
from collections import abc

from muster import compat, file_io, tf_logging
from muster.graph import framework
from muster.graph.op_library import call
from muster.train import saveable
from muster.train.checkpoint_management import latest_checkpoint
from muster.variables import partitioned_variable, variable_scopes, variables


def _is_variable(value):
    return isinstance(value, variables.Variable)


def _parts(name, store):
    """The parts of a partitioned variable, or None."""
    found = []
    while "%s/part_%d" % (name, len(found)) in store:
        found.append(store["%s/part_%d" % (name, len(found))])
    return found or None


def _set_initializer(variable, prefix, tensor_name, slice_spec):
    with framework.device(variable.device), framework.device("/cpu:0"):
        restored = call("RestoreV2", name="checkpoint_initializer", prefix=prefix, tensor_names=[tensor_name],
                        shape_and_slices=[slice_spec], dtypes=[variable.dtype.base_dtype])
        restored = restored[0] if isinstance(restored, (list, tuple)) else restored
        (name, op), = saveable.op_list_to_dict([variable]).items()
        item, = saveable.saveable_objects_for_op(op, name)
    variable._initializer_op = item.restore([restored], restored_shapes=None)
    restored.set_shape(variable.shape)
    variable._initial_value = restored


def _set_initializers(variable_or_parts, prefix, tensor_name):
    if not isinstance(variable_or_parts, (list, tuple)):
        _set_initializer(variable_or_parts, prefix, tensor_name, "")
        return
    full_name = None
    for part in variable_or_parts:
        info = part._get_save_slice_info()
        if full_name is not None and full_name != info.full_name:
            raise ValueError("Slices must all be from the same tensor: %s != %s" % (full_name, info.full_name))
        full_name = info.full_name
        _set_initializer(part, prefix, tensor_name, info.spec)


def _init_scope(scope_in_checkpoint, scope, store, shapes, prefix, where):
    """All variables of a scope from those of another."""
    folder = scope[:scope.rindex("/")] if "/" in scope else ""
    if not scope_in_checkpoint.endswith("/"):
        raise ValueError("Assignment map with scope only name {} should map to scope only {}. Should be 'scope/': "
                         "'other_scope/'.".format(folder, scope_in_checkpoint))
    names = {name[:name.index("/part_")] if "/part_" in name else name for name in store
             if not folder or name.startswith(folder + "/")}
    for name in sorted(names):
        tensor_name = name[len(folder):]
        if scope != "/":
            tensor_name = tensor_name[1:]
        if scope_in_checkpoint != "/":
            tensor_name = scope_in_checkpoint + tensor_name
        tensor_name = tensor_name[:-1] if tensor_name.endswith("/") else tensor_name
        if tensor_name not in shapes:
            raise ValueError("Tensor %s (%s in %s) is not found in %s checkpoint"
                             % (tensor_name, name[len(folder) + 1:], scope_in_checkpoint, where))
        _set_initializers(store.get(name) if name in store else _parts(name, store), prefix, tensor_name)


def init_from_checkpoint(ckpt_dir_or_file, assignment_map):
    """Replaces initializers of variables by ones that read {name or scope in the checkpoint: variable, name or scope}."""
    from muster.train import checkpoint_utils

    where = compat.as_str(compat.path_to_str(ckpt_dir_or_file))
    prefix = latest_checkpoint(where) if file_io.is_directory(where) else where
    shapes = checkpoint_utils.load_checkpoint(where).get_variable_to_shape_map()
    store = variable_scopes._get_default_variable_store()._vars
    pairs = assignment_map.items() if isinstance(assignment_map, abc.Mapping) else assignment_map
    for tensor_name, target in sorted(pairs, key=lambda pair: pair[0]):
        found = target
        if isinstance(target, partitioned_variable.PartitionedVariable):
            found = list(target)
        elif not (_is_variable(target) or isinstance(target, list) and all(_is_variable(v) for v in target)):
            found = store.get(target)
            found = _parts(target, store) if found is None else found
        if found is None:
            _init_scope(tensor_name, target, store, shapes, prefix, where)
            continue
        if tensor_name not in shapes:
            raise ValueError("Tensor %s is not found in %s checkpoint %s" % (tensor_name, where, shapes))
        if _is_variable(found) and not found.get_shape().is_compatible_with(shapes[tensor_name]):
            raise ValueError("Shape of variable %s (%s) doesn't match with shape of tensor %s (%s) from checkpoint reader."
                             % (found.name, found.get_shape(), tensor_name, shapes[tensor_name]))
        _set_initializers(found, prefix, tensor_name)
        tf_logging.debug("Initialize variable %s from checkpoint %s with %s", getattr(found, "name", target), where,
                         tensor_name)


def _warm_started(wanted):
    """(name, variable or parts) of the variables to start from a checkpoint."""
    if isinstance(wanted, str) or (isinstance(wanted, list) and all(isinstance(v, str) for v in wanted)):
        if isinstance(wanted, str):
            found = framework.get_collection(framework.GraphKeys.TRAINABLE_VARIABLES, scope=wanted)
        else:
            found = [v for v in framework.get_collection(framework.GraphKeys.GLOBAL_VARIABLES)
                     if any(re.match(pattern, v.name) for pattern in wanted)]
    elif isinstance(wanted, list) and all(_is_variable(v) for v in wanted):
        found = wanted
    elif wanted is None:
        found = []
    else:
        raise ValueError("If `vars_to_warm_start` is a list, it must be all `Variable` or all `str`.  Given types are %s"
                         % [type(v) for v in wanted])
    groups = {}
    for variable in found:
        info = variable._get_save_slice_info()
        if info is None:
            groups[variable.op.name] = variable
        else:
            groups.setdefault(info.full_name, []).append(variable)
    return groups


def warm_start(ckpt_to_initialize_from, vars_to_warm_start=".*", var_name_to_vocab_info=None,
               var_name_to_prev_var_name=None):
    """Lets variables of the graph begin with the values that a checkpoint has for them."""
    if var_name_to_vocab_info:
        raise NotImplementedError("warm_start with vocabularies is not supported")
    previous = dict(var_name_to_prev_var_name or {})
    groups = _warm_started(vars_to_warm_start)
    unknown = sorted(set(previous) - set(groups))
    if unknown:
        raise ValueError("You provided the following variables in var_name_to_prev_var_name that were not used: %s"
                         % ", ".join(unknown))
    init_from_checkpoint(ckpt_to_initialize_from, {previous.get(name, name): group for name, group in groups.items()})


__all__ = ["init_from_checkpoint", "warm_start"]
