"""tf.data.experimental and tf.contrib.data: transformations for Dataset.apply, and options by their own names."""
import numpy as np

from muster.data.dataset import AUTOTUNE, Dataset
from muster.data.options import (  # noqa: F401
    DistributeOptions, MapVectorizationOptions, OptimizationOptions, StatsOptions, ThreadingOptions)
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


def prefetch_to_device(device, buffer_size=None):
    """A prefetch: elements are copied to the device when the step that takes them runs."""
    return lambda dataset: dataset.prefetch(buffer_size)


def copy_to_device(target_device, source_device="/cpu:0"):
    """The dataset itself: elements are copied to the device when the step that takes them runs."""
    return lambda dataset: dataset


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
