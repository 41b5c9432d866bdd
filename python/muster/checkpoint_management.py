"""The file `checkpoint` of a folder, and questions about checkpoints by name."""
import os
import time

from muster import _muster, _protos, compat, tf_logging

_V2 = 2


def _path(path):
    return compat.as_str(compat.path_to_str(path))


def _state_proto(serialized):
    return _protos.get("tensorflow.CheckpointState").FromString(serialized)


def generate_checkpoint_state_proto(save_dir, model_checkpoint_path, all_model_checkpoint_paths=None,
                                    all_model_checkpoint_timestamps=None, last_preserved_timestamp=None):
    return _state_proto(_muster.make_checkpoint_state(
        _path(save_dir), _path(model_checkpoint_path), [_path(p) for p in all_model_checkpoint_paths or ()],
        list(all_model_checkpoint_timestamps or ()), last_preserved_timestamp))


def update_checkpoint_state(save_dir, model_checkpoint_path, all_model_checkpoint_paths=None, latest_filename=None,
                            all_model_checkpoint_timestamps=None, last_preserved_timestamp=None):
    """Writes the file that names the newest checkpoint."""
    state = generate_checkpoint_state_proto(save_dir, model_checkpoint_path, all_model_checkpoint_paths,
                                            all_model_checkpoint_timestamps, last_preserved_timestamp)
    if os.path.join(_path(save_dir), latest_filename or "checkpoint") == state.model_checkpoint_path:
        raise RuntimeError("Save path '%s' conflicts with path used for checkpoint state.  Please use a different save "
                           "path." % model_checkpoint_path)
    _muster.write_checkpoint_state(
        _path(save_dir), state.model_checkpoint_path, list(state.all_model_checkpoint_paths),
        list(state.all_model_checkpoint_timestamps),
        state.last_preserved_timestamp if last_preserved_timestamp is not None else None, latest_filename or "")


def get_checkpoint_state(checkpoint_dir, latest_filename=None):
    """The CheckpointState of a folder, with whole paths; None when there is none."""
    folder = _path(checkpoint_dir)
    found, problem = _muster.read_checkpoint_state(folder, latest_filename or "")
    if found is not None:
        return _state_proto(found)
    if problem:
        tf_logging.warning(problem)
        tf_logging.warning("%s: Checkpoint ignored", os.path.join(folder, latest_filename or "checkpoint"))
    return None


def latest_checkpoint(checkpoint_dir, latest_filename=None):
    """The prefix of the newest checkpoint; None when its files are not there."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None or not state.model_checkpoint_path:
        return None
    if _muster.checkpoint_exists(state.model_checkpoint_path):
        return state.model_checkpoint_path
    tf_logging.error("Couldn't match files for checkpoint %s", state.model_checkpoint_path)
    return None


def checkpoint_exists(checkpoint_prefix):
    return _muster.checkpoint_exists(_path(checkpoint_prefix))


def get_checkpoint_mtimes(checkpoint_prefixes):
    times = [_muster.checkpoint_time(_path(prefix)) for prefix in checkpoint_prefixes]
    return [t for t in times if t is not None]


def remove_checkpoint(checkpoint_prefix, checkpoint_format_version=_V2, meta_graph_suffix="meta"):
    _muster.remove_checkpoint(_path(checkpoint_prefix), meta_graph_suffix)


def meta_graph_filename(checkpoint_filename, meta_graph_suffix="meta"):
    return _muster.meta_graph_file_name(_path(checkpoint_filename), meta_graph_suffix)


def wait_for_new_checkpoint(checkpoint_dir, last_checkpoint=None, seconds_to_sleep=1, timeout=None):
    """The newest checkpoint once it is another one; None when that takes longer than `timeout` seconds."""
    tf_logging.info("Waiting for new checkpoint at %s", checkpoint_dir)
    stop = None if timeout is None else time.time() + timeout
    while True:
        found = latest_checkpoint(checkpoint_dir)
        if found is not None and found != last_checkpoint:
            tf_logging.info("Found new checkpoint at %s", found)
            return found
        if stop is not None and time.time() + seconds_to_sleep > stop:
            return None
        time.sleep(seconds_to_sleep)


def checkpoints_iterator(checkpoint_dir, min_interval_secs=0, timeout=None, timeout_fn=None):
    """Newest checkpoints, each as it comes; what has been overtaken meanwhile is left out."""
    found = None
    while True:
        newer = wait_for_new_checkpoint(checkpoint_dir, found, timeout=timeout)
        if newer is None:
            if timeout_fn is None:
                tf_logging.info("Timed-out waiting for a checkpoint.")
                return
            if timeout_fn():
                return
            continue
        start = time.time()
        found = newer
        yield newer
        remaining = start + min_interval_secs - time.time()
        if remaining > 0:
            time.sleep(remaining)


__all__ = ["generate_checkpoint_state_proto", "update_checkpoint_state", "get_checkpoint_state", "latest_checkpoint",
           "checkpoint_exists", "get_checkpoint_mtimes", "remove_checkpoint", "checkpoints_iterator"]
