"""tf.data.experimental and tf.contrib.data: transformations for Dataset.apply, and options by their own names."""
import numpy as np

from muster.data.dataset import AUTOTUNE, Dataset, _int64
from muster.data.options import (  # noqa: F401
    DistributeOptions, MapVectorizationOptions, OptimizationOptions, StatsOptions, ThreadingOptions)
from muster.graph import framework
from muster.graph.device_spec import DeviceSpec
from muster.names import absent as _absent

__all__ = ["AUTOTUNE", "Counter", "DistributeOptions", "MapVectorizationOptions", "OptimizationOptions", "StatsOptions",
           "ThreadingOptions", "batch_and_drop_remainder", "copy_to_device", "enumerate_dataset", "ignore_errors",
           "map_and_batch", "padded_batch_and_drop_remainder", "parallel_interleave", "parse_example_dataset",
           "prefetch_to_device", "shuffle_and_repeat", "unbatch"]


def shuffle_and_repeat(buffer_size, count=None, seed=None):
    return lambda dataset: dataset._shuffle_and_repeat(buffer_size, count, seed)


def map_and_batch(map_func, batch_size, num_parallel_batches=None, drop_remainder=False, num_parallel_calls=None):
    """map and batch one after the other: the order and the values are those of the fused op."""
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise ValueError("The `num_parallel_batches` and `num_parallel_calls` arguments are mutually exclusive.")
    if num_parallel_batches is not None:
        num_parallel_calls = batch_size * num_parallel_batches
    return lambda dataset: dataset.map(map_func, num_parallel_calls).batch(batch_size, drop_remainder)


def batch_and_drop_remainder(batch_size):
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size, padded_shapes, padding_values=None):
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def parallel_interleave(map_func, cycle_length, block_length=1, sloppy=False, buffer_output_elements=None,
                        prefetch_input_elements=None):
    """Dataset.interleave with a reader per open dataset; Muster chooses how far each of them prefetches."""
    def transform(dataset):
        return dataset._interleave(map_func, "tf.data.experimental.parallel_interleave()", cycle_length, block_length,
                                   cycle_length, sloppy=bool(sloppy))

    return transform


def enumerate_dataset(start=0):
    return lambda dataset: dataset.enumerate(start)


def unbatch():
    """Elements of batches one by one."""
    def transform(dataset):
        def rows(*components):
            return Dataset.from_tensor_slices(components[0] if len(components) == 1 and not isinstance(
                dataset._spec, tuple) else components)

        return dataset.flat_map(rows)

    return transform


def ignore_errors():
    return lambda dataset: dataset._then("ExperimentalIgnoreErrorsDataset")


def _is_gpu(device):
    return DeviceSpec.from_string(device).device_type == "GPU"


class _OnGpu(Dataset):
    """Elements in memory that a GPU reads by itself. Their iterator is there: its elements are in the card's memory."""

    def __init__(self, variant_tensor, spec, inputs, device):
        super(_OnGpu, self).__init__(variant_tensor, spec, inputs)
        self._device = device

    @staticmethod
    def copied(dataset, device, buffer_size):
        # What the options ask for happens before the copy: those nodes run on the host.
        source = dataset._apply_options()
        with framework.device(device):
            made = source._then("PrefetchDataset", buffer_size=buffer_size)
        return _OnGpu(made._variant_tensor, dataset._spec, [dataset], device)

    def prefetch(self, buffer_size):
        return _OnGpu.copied(self, self._device, _int64(buffer_size, "buffer_size", -1))

    def with_options(self, options):
        return _OnGpu.copied(self._inputs[0].with_options(options), self._device, _int64(0, "buffer_size"))

    def _apply_options(self):
        return self

    def make_one_shot_iterator(self):
        raise ValueError("Cannot create a one shot iterator when using `tf.data.experimental.copy_to_device` or "
                         "`prefetch_to_device` with a GPU. Please use `Dataset.make_initializable_iterator()` instead.")

    def make_initializable_iterator(self, shared_name=None):
        with framework.device(self._device):
            return super(_OnGpu, self).make_initializable_iterator(shared_name)


def prefetch_to_device(device, buffer_size=None):
    """A prefetch for a GPU, as the last transformation: the iterator gives elements in the card's memory."""
    if not _is_gpu(device):
        return lambda dataset: dataset.prefetch(buffer_size)
    return lambda dataset: _OnGpu.copied(dataset, device, _int64(buffer_size, "buffer_size", -1))


def copy_to_device(target_device, source_device="/cpu:0"):
    """For a GPU, as the last transformation but prefetch: the iterator gives elements in the card's memory."""
    if not _is_gpu(target_device):
        return lambda dataset: dataset
    return lambda dataset: _OnGpu.copied(dataset, target_device, _int64(0, "buffer_size"))


def parse_example_dataset(features, num_parallel_calls=1):
    """Batches of serialized examples as dicts of dense features."""
    from muster.ops import parsing_ops

    return lambda dataset: dataset.map(lambda serialized: parsing_ops.parse_example(serialized, features),
                                       num_parallel_calls)


def Counter(start=0, step=1, dtype=None):
    """start, start + step, ... without end."""
    from muster import dtypes
    from muster.ops import math_ops

    dataset = Dataset.range(start, np.iinfo(np.int64).max if step > 0 else np.iinfo(np.int64).min, step)
    if dtype in (None, dtypes.int64):
        return dataset
    return dataset.map(lambda i: math_ops.cast(i, dtype))


__getattr__ = _absent.explain(__name__)
