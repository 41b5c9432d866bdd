"""Checkpoints of objects (tf.train.Checkpoint), as far as a Saver restores variables from them by name."""
from muster import _protos
from muster.train import saveable

_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


def names_to_keys(prefix):
    """{name of a variable: its key in the checkpoint}; None for a checkpoint that is not one of objects."""
    from muster import errors
    from muster.train import checkpoint_utils

    try:
        reader = checkpoint_utils.NewCheckpointReader(prefix)
    except errors.OpError:
        return None
    if not reader.has_tensor(_GRAPH_KEY):
        return None
    graph = _protos.get("tensorflow.TrackableObjectGraph").FromString(reader.get_tensor(_GRAPH_KEY))
    return {attribute.full_name: attribute.checkpoint_key for node in graph.nodes for attribute in node.attributes}


def renamed_saveables(var_list, keys, prefix):
    """{key: variable} for what a Saver saves; all of its names must be in the checkpoint."""
    names = var_list if isinstance(var_list, dict) else saveable.op_list_to_dict(var_list)
    missing = sorted(set(names) - set(keys))
    if missing:
        from muster import errors

        raise errors.NotFoundError(
            None, None, "Existing variables not in the checkpoint: %s\n\nVariables names when this checkpoint was written "
            "which don't exist now: %s\n\n(%d variable name(s) did match)\n\nCould not find some variables in the "
            "checkpoint (see names above). Saver was attempting to load an object-based checkpoint (saved using "
            "tf.train.Checkpoint or tf.keras.Model.save_weights) using variable names."
            % (", ".join(missing), ", ".join(sorted(set(keys) - set(names))), len(set(names) & set(keys))))
    return {keys[name]: op for name, op in names.items()}
