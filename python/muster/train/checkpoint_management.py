"""The file `checkpoint` of a folder, and functions that find checkpoints by name."""
import os

from muster import _muster, _protos, errors, tf_logging

__all__ = ["checkpoint_exists", "generate_checkpoint_state_proto", "get_checkpoint_mtimes", "get_checkpoint_state",
           "latest_checkpoint", "remove_checkpoint", "update_checkpoint_state"]


def _state(serialized):
    return _protos.get("tensorflow.CheckpointState").FromString(serialized)


def _lists(model_checkpoint_path, paths, timestamps):
    """The paths with the newest last, and the times; ValueError when these do not fit."""
    paths = [os.fspath(p) for p in paths or []]
    timestamps = list(timestamps or [])
    if not paths or paths[-1] != model_checkpoint_path:
        paths.append(model_checkpoint_path)
    if timestamps and len(timestamps) != len(paths):
        raise ValueError("Checkpoint timestamps, if provided, must match checkpoint paths (got paths %s and timestamps "
                         "%s)" % (paths, timestamps))
    return paths, timestamps


def generate_checkpoint_state_proto(save_dir, model_checkpoint_path, all_model_checkpoint_paths=None,
                                    all_model_checkpoint_timestamps=None, last_preserved_timestamp=None):
    """The CheckpointState message that the state file of save_dir would hold."""
    newest = os.fspath(model_checkpoint_path)
    paths, times = _lists(newest, all_model_checkpoint_paths, all_model_checkpoint_timestamps)
    return _state(_muster.make_checkpoint_state(os.fspath(save_dir), newest, paths, times, last_preserved_timestamp))


def update_checkpoint_state(save_dir, model_checkpoint_path, all_model_checkpoint_paths=None, latest_filename=None,
                            all_model_checkpoint_timestamps=None, last_preserved_timestamp=None):
    """Replaces the state file of save_dir."""
    update_checkpoint_state_internal(
        save_dir, model_checkpoint_path, all_model_checkpoint_paths, latest_filename, False,
        all_model_checkpoint_timestamps, last_preserved_timestamp)


def update_checkpoint_state_internal(save_dir, model_checkpoint_path, all_model_checkpoint_paths=None,
                                     latest_filename=None, save_relative_paths=False,
                                     all_model_checkpoint_timestamps=None, last_preserved_timestamp=None):
    save_dir, newest = os.fspath(save_dir), os.fspath(model_checkpoint_path)
    paths, times = _lists(newest, all_model_checkpoint_paths, all_model_checkpoint_timestamps)
    if os.path.join(save_dir, latest_filename or "checkpoint") == newest:
        raise RuntimeError("Save path '%s' conflicts with path used for checkpoint state.  Please use a different save "
                           "path." % newest)
    _muster.write_checkpoint_state(save_dir, newest, paths, times, last_preserved_timestamp, save_relative_paths,
                                   latest_filename or "")


def get_checkpoint_state(checkpoint_dir, latest_filename=None):
    """The CheckpointState of a folder with complete paths; None when the file is missing or cannot be read."""
    checkpoint_dir = os.fspath(checkpoint_dir)
    name = os.path.join(checkpoint_dir, latest_filename or "checkpoint")
    try:
        return _state(_muster.read_checkpoint_state(checkpoint_dir, latest_filename or ""))
    except errors.NotFoundError:
        return None
    except errors.OpError as e:
        if "Invalid checkpoint state loaded from" in e.message:
            raise ValueError("Invalid checkpoint state loaded from " + checkpoint_dir)
        tf_logging.warning("%s: %s", type(e).__name__, e)
        tf_logging.warning("%s: Checkpoint ignored", name)
        return None


def latest_checkpoint(checkpoint_dir, latest_filename=None):
    """The prefix of the newest checkpoint of a folder, or None."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    if _muster.checkpoint_exists(state.model_checkpoint_path):
        return state.model_checkpoint_path
    tf_logging.error("Couldn't match files for checkpoint %s", state.model_checkpoint_path)
    return None


def checkpoint_exists(checkpoint_prefix):
    """Whether a checkpoint of either format has that prefix."""
    return _muster.checkpoint_exists(os.fspath(checkpoint_prefix))


checkpoint_exists_internal = checkpoint_exists


def get_checkpoint_mtimes(checkpoint_prefixes):
    """When the checkpoints that exist were written, in seconds; those that do not are left out."""
    times = [_muster.checkpoint_time(os.fspath(prefix)) for prefix in checkpoint_prefixes]
    return [time for time in times if time is not None]


def remove_checkpoint(checkpoint_prefix, checkpoint_format_version=2, meta_graph_suffix="meta"):
    """Removes the files of a checkpoint and its graph, whatever its format."""
    del checkpoint_format_version  # the files say it
    _muster.remove_checkpoint(os.fspath(checkpoint_prefix), meta_graph_suffix)


def meta_graph_filename(checkpoint_filename, meta_graph_suffix="meta"):
    """The file of the graph that belongs to a checkpoint."""
    return _muster.meta_graph_file_name(os.fspath(checkpoint_filename), meta_graph_suffix)
