"""Looking into checkpoints, and waiting for them."""
import os
import time

from muster import _muster, dtypes, file_io, tf_logging
from muster.train import checkpoint_management

__all__ = ["NewCheckpointReader", "checkpoints_iterator", "list_variables", "load_checkpoint", "load_variable"]


class CheckpointReader(object):
    """The tensors of a checkpoint of either format, by name."""

    def __init__(self, filepattern):
        self._reader = _muster.open_checkpoint(os.fspath(filepattern))
        self._variables = self._reader.variables()

    def has_tensor(self, tensor_str):
        return self._reader.has_tensor(tensor_str)

    def get_tensor(self, tensor_str):
        value = self._reader.get_tensor(tensor_str)
        name = tensor_str if isinstance(tensor_str, str) else tensor_str.decode("utf-8", "surrogateescape")
        dtype = dtypes.as_dtype(self._variables[name][0])
        # Types that numpy itself does not have come as integers of their size.
        return value.view(dtype.as_numpy_dtype) if dtype == dtypes.bfloat16 else value

    def get_variable_to_shape_map(self):
        return {name: shape for name, (_, shape) in self._variables.items()}

    def get_variable_to_dtype_map(self):
        return {name: dtypes.as_dtype(number) for name, (number, _) in self._variables.items()}

    def debug_string(self):
        return self._reader.debug_string()


def NewCheckpointReader(filepattern):  # pylint: disable=invalid-name
    """A reader of the checkpoint with that prefix; NotFoundError when there is none."""
    return CheckpointReader(filepattern)


def _prefix_in(ckpt_dir_or_file):
    path = os.fspath(ckpt_dir_or_file)
    return checkpoint_management.latest_checkpoint(path) if file_io.is_directory(path) else path


def load_checkpoint(ckpt_dir_or_file):
    """A reader of a checkpoint, or of the newest one in a folder."""
    prefix = _prefix_in(ckpt_dir_or_file)
    if prefix is None:
        raise ValueError("Couldn't find 'checkpoint' file or checkpoints in given directory %s" % ckpt_dir_or_file)
    return NewCheckpointReader(prefix)


def load_variable(ckpt_dir_or_file, name):
    """The value of one variable."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name[:-2] if name.endswith(":0") else name)


def list_variables(ckpt_dir_or_file):
    """(name, shape) of every variable, sorted by name."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def wait_for_new_checkpoint(checkpoint_dir, last_checkpoint=None, seconds_to_sleep=1, timeout=None):
    """The newest checkpoint once it is another than last_checkpoint; None when that takes longer than timeout."""
    tf_logging.info("Waiting for new checkpoint at %s", checkpoint_dir)
    end = None if timeout is None else time.time() + timeout
    while True:
        found = checkpoint_management.latest_checkpoint(checkpoint_dir)
        if found is not None and found != last_checkpoint:
            tf_logging.info("Found new checkpoint at %s", found)
            return found
        if end is not None and time.time() + seconds_to_sleep > end:
            return None
        time.sleep(seconds_to_sleep)


def checkpoints_iterator(checkpoint_dir, min_interval_secs=0, timeout=None, timeout_fn=None):
    """Gives each new checkpoint of a folder as it appears.

    Ends when none comes within `timeout` seconds and timeout_fn is not given or says that no more will come.
    """
    last = None
    while True:
        found = wait_for_new_checkpoint(checkpoint_dir, last, timeout=timeout)
        if found is not None:
            start = time.time()
            last = found
            yield found
            time.sleep(max(0.0, start + min_interval_secs - time.time()))
        elif timeout_fn is None:
            tf_logging.info("Timed-out waiting for a checkpoint (without timeout_fn).")
            return
        if timeout_fn is not None and timeout_fn():
            tf_logging.info("Done. No new checkpoints will be generated.")
            return
