"""tf.data.Dataset: a chain of nodes, each a dataset made from those before it; an iterator runs it."""
import functools

import numpy as np

from muster import _muster, dtypes, errors
from muster.data import structure
from muster.data.function import StructuredFunction
from muster.data.iterator import Iterator
from muster.data.options import Options
from muster.graph import convert, framework, functions, tensor_shape
from muster.graph.op_library import call
from muster.ops import array_ops, math_ops

AUTOTUNE = -1


@functools.lru_cache(maxsize=None)
def _known_ops():
    return frozenset(_muster.op_names())


def _int64(value, name, default=None):
    return convert.convert_to_tensor(default if value is None else value, dtype=dtypes.int64, name=name)


def _seeds(seed):
    """The two seeds of a shuffle as tensors, by TensorFlow's rule."""
    if seed is None and framework.get_default_graph().seed is None:
        return (convert.constant(0, dtype=dtypes.int64, name="seed"), convert.constant(0, dtype=dtypes.int64, name="seed2"))
    if isinstance(seed, framework.Tensor):
        graph_seed = framework.get_default_graph().seed
        first, second = 87654321 if graph_seed is None else graph_seed, seed
    else:
        first, second = framework.get_seed(seed)
    first = convert.convert_to_tensor(first, dtype=dtypes.int64, name="seed")
    with framework.name_scope("seed2") as scope:
        second = convert.convert_to_tensor(second, dtype=dtypes.int64)
        both_zero = math_ops.logical_and(math_ops.equal(first, 0), math_ops.equal(second, 0))
        return first, array_ops.where(both_zero, convert.constant(2 ** 31 - 1, dtype=dtypes.int64), second, name=scope)


class Dataset(object):
    """A sequence of elements, each a nested structure of tensors."""

    def __init__(self, variant_tensor, spec, inputs=(), options=None):
        self._variant_tensor = variant_tensor
        self._spec = spec
        self._inputs = list(inputs)
        self._own_options = options

    # --- What the elements are. ---
    output_types = property(lambda self: structure.types_of(self._spec))
    output_shapes = property(lambda self: structure.shapes_of(self._spec))
    output_classes = property(lambda self: structure.classes_of(self._spec))

    def __repr__(self):
        return "<%s shapes: %s, types: %s>" % (type(self).__name__, self.output_shapes, self.output_types)

    def __iter__(self):
        raise RuntimeError("__iter__() is only supported inside of tf.function or when eager execution is enabled.")

    def _then(self, op_type, spec=None, others=(), **arguments):
        """The dataset that a node makes from this one."""
        if op_type not in _known_ops():
            raise errors.UnimplementedError(None, None, "%s: Muster has no such op" % op_type)
        spec = self._spec if spec is None else spec
        variant = call(op_type, input_dataset=self._variant_tensor, **dict(structure.flat_attrs(spec), **arguments))
        return Dataset(variant, spec, [self] + list(others))

    # --- Sources. ---
    @staticmethod
    def from_tensors(tensors):
        """One element."""
        with framework.name_scope("normalize_element"):
            flat, spec = structure.tensors(tensors, names=True)
        variant = call("TensorDataset", components=flat, output_shapes=[t.shape for t in flat])
        return Dataset(variant, spec)

    @staticmethod
    def from_tensor_slices(tensors):
        """One element per row of the tensors."""
        with framework.name_scope("normalize_element"):
            flat, spec = structure.tensors(tensors, names=True, rows=True)
        rows = tensor_shape.Dimension(None)
        for tensor in flat:
            rows = rows.merge_with(tensor.shape.with_rank_at_least(1)[0])
        spec = structure.transform(lambda s: s.with_shape(s.shape.with_rank_at_least(1)[1:]), spec)
        variant = call("TensorSliceDataset", components=flat,
                       output_shapes=structure.flat_attrs(spec)["output_shapes"])
        return Dataset(variant, spec)

    @staticmethod
    def from_generator(generator, output_types, output_shapes=None, args=None):
        """What the iterators that `generator` makes yield, in this process."""
        from muster.data import generator as implementation

        return implementation.from_generator(generator, output_types, output_shapes, args)

    @staticmethod
    def range(*args):
        """range(stop), range(start, stop) or range(start, stop, step), as int64."""
        if not 1 <= len(args) <= 3:
            raise ValueError("Invalid arguments to RangeDataset: %s" % str(args))
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (tuple(args) + (1,))[:3]
        start, stop, step = _int64(start, "start"), _int64(stop, "stop"), _int64(step, "step")
        spec = structure.Spec(dtypes.int64, [])
        return Dataset(call("RangeDataset", start=start, stop=stop, step=step, **structure.flat_attrs(spec)), spec)

    @staticmethod
    def zip(datasets):
        """Elements of several datasets side by side, until the shortest ends."""
        flat = structure.flatten(datasets)
        for dataset in flat:
            if not isinstance(dataset, Dataset):
                text = "The argument to `Dataset.zip()` must be a nested structure of `Dataset` objects."
                if isinstance(dataset, list):
                    text += " Nested structures do not support Python lists; please use a tuple instead."
                raise TypeError(text)
        spec = structure.transform(lambda d: d._spec, datasets)
        variant = call("ZipDataset", input_datasets=[d._variant_tensor for d in flat], **structure.flat_attrs(spec))
        return Dataset(variant, spec, flat)

    @staticmethod
    def list_files(file_pattern, shuffle=None, seed=None):
        """Names of the files that match, in random order unless `shuffle` is False."""
        from muster.ops import control_flow_ops, io_ops

        with framework.name_scope("list_files"):
            shuffle = True if shuffle is None else shuffle
            file_pattern = convert.convert_to_tensor(file_pattern, dtype=dtypes.string, name="file_pattern")
            matching = io_ops.matching_files(file_pattern)
            found = math_ops.greater(array_ops.shape(matching)[0], 0, name="match_not_empty")
            message = math_ops.add("No files matched pattern: ", _joined(file_pattern), name="message")
            with framework.control_dependencies([control_flow_ops.Assert(found, [message], summarize=1,
                                                                         name="assert_not_empty")]):
                matching = array_ops.identity(matching)
            dataset = Dataset.from_tensor_slices(matching)
            if shuffle:
                size = math_ops.maximum(array_ops.shape(matching, out_type=dtypes.int64)[0], 1)
                dataset = dataset.shuffle(size, seed=seed)
            return dataset

    # --- Functions of elements. ---
    def map(self, map_func, num_parallel_calls=None):
        function = StructuredFunction(map_func, "Dataset.map()", self._spec)
        if num_parallel_calls is None:
            return self._then("MapDataset", function.result, other_arguments=function.captured_inputs, f=function.name)
        calls = convert.convert_to_tensor(num_parallel_calls, dtype=dtypes.int32, name="num_parallel_calls")
        return self._then("ParallelMapDataset", function.result, other_arguments=function.captured_inputs,
                          num_parallel_calls=calls, f=function.name)

    def filter(self, predicate):
        function = StructuredFunction(predicate, "Dataset.filter()", self._spec)
        wanted = structure.Spec(dtypes.bool, [])
        if structure.is_nested(function.result) or not wanted.is_compatible_with(function.result):
            raise ValueError("`predicate` must return a scalar boolean tensor.")
        return self._then("FilterDataset", other_arguments=function.captured_inputs, predicate=function.name)

    def _expanding(self, map_func, transformation):
        function = StructuredFunction(map_func, transformation, self._spec)
        if not isinstance(function.result, structure.DatasetSpec):
            raise TypeError("`map_func` must return a `Dataset` object.")
        return function, function.result.element_spec

    def flat_map(self, map_func):
        function, spec = self._expanding(map_func, "Dataset.flat_map()")
        return self._then("FlatMapDataset", spec, other_arguments=function.captured_inputs, f=function.name)

    def interleave(self, map_func, cycle_length=AUTOTUNE, block_length=1, num_parallel_calls=None):
        return self._interleave(map_func, "Dataset.interleave()", cycle_length, block_length, num_parallel_calls)

    def _interleave(self, map_func, transformation, cycle_length, block_length, num_parallel_calls, **attrs):
        function, spec = self._expanding(map_func, transformation)
        arguments = dict(attrs, other_arguments=function.captured_inputs, f=function.name,
                         cycle_length=_int64(cycle_length, "cycle_length"),
                         block_length=_int64(block_length, "block_length"))
        if num_parallel_calls is None:
            return self._then("InterleaveDataset", spec, **arguments)
        return self._then("ParallelInterleaveDatasetV2", spec,
                          num_parallel_calls=_int64(num_parallel_calls, "num_parallel_calls"), **arguments)

    def apply(self, transformation_func):
        dataset = transformation_func(self)
        if not isinstance(dataset, Dataset):
            raise TypeError("`transformation_func` must return a Dataset. Got %s." % (dataset,))
        if dataset is not self:
            dataset._inputs = [self] + [d for d in dataset._inputs if d is not self]
        return dataset

    # --- Batches. ---
    def batch(self, batch_size, drop_remainder=False):
        batch_size = _int64(batch_size, "batch_size")
        drop_remainder = convert.convert_to_tensor(drop_remainder, dtype=dtypes.bool, name="drop_remainder")
        rows = [_static_batch(batch_size, drop_remainder)]
        spec = structure.transform(lambda s: s.with_shape(tensor_shape.TensorShape(rows).concatenate(s.shape)), self._spec)
        return self._then("BatchDatasetV2", spec, batch_size=batch_size, drop_remainder=drop_remainder)

    def padded_batch(self, batch_size, padded_shapes, padding_values=None, drop_remainder=False):
        specs = structure.flatten(self._spec)
        if any(isinstance(s, structure.SparseSpec) for s in specs):
            raise TypeError("Batching of padded sparse tensors is not currently supported")
        batch_size = _int64(batch_size, "batch_size")
        if padding_values is None:
            values = [None] * len(specs)
        elif not structure.is_nested(padding_values):
            values = [padding_values] * len(specs)
        else:
            values = structure.flatten_up_to(self._spec, padding_values)
        shapes = structure.flatten_up_to(self._spec, padded_shapes)
        shapes = [_padded_shape(s, spec.shape) for s, spec in zip(shapes, specs)]
        values = [_padding_value(v, spec.dtype) for v, spec in zip(values, specs)]
        drop_remainder = convert.convert_to_tensor(drop_remainder, dtype=dtypes.bool, name="drop_remainder")
        rows = tensor_shape.TensorShape([_static_batch(batch_size, drop_remainder)])
        spec = structure.pack(self._spec, [
            s.with_shape(rows.concatenate(_static_padded(shape))) for s, shape in zip(specs, shapes)])
        return self._then("PaddedBatchDatasetV2", spec, output_types=None, batch_size=batch_size, padded_shapes=shapes,
                          padding_values=values, drop_remainder=drop_remainder)

    def window(self, size, shift=None, stride=1, drop_remainder=False):
        """Datasets of `size` elements each."""
        if shift is None:
            shift = size
        spec = structure.transform(lambda s: structure.DatasetSpec(s, Dataset), self._spec)
        return self._then("WindowDataset", spec, size=_int64(size, "window_size"), shift=_int64(shift, "window_shift"),
                          stride=_int64(stride, "window_stride"), drop_remainder=convert.convert_to_tensor(
                              drop_remainder, dtype=dtypes.bool, name="drop_remainder"))

    # --- Order and number of elements. ---
    def shuffle(self, buffer_size, seed=None, reshuffle_each_iteration=None):
        buffer_size = _int64(buffer_size, "buffer_size")
        seed, seed2 = _seeds(seed)
        again = True if reshuffle_each_iteration is None else reshuffle_each_iteration
        return self._then("ShuffleDataset", buffer_size=buffer_size, seed=seed, seed2=seed2,
                          reshuffle_each_iteration=again)

    def _shuffle_and_repeat(self, buffer_size, count, seed):
        buffer_size = _int64(buffer_size, "buffer_size")
        count = _int64(count, "count", -1)
        seed, seed2 = _seeds(seed)
        return self._then("ShuffleAndRepeatDataset", buffer_size=buffer_size, count=count, seed=seed, seed2=seed2)

    def repeat(self, count=None):
        return self._then("RepeatDataset", count=_int64(count, "count", -1))

    def take(self, count):
        return self._then("TakeDataset", count=_int64(count, "count"))

    def skip(self, count):
        return self._then("SkipDataset", count=_int64(count, "count"))

    def shard(self, num_shards, index):
        """Every num_shards-th element, from number `index` on."""
        shards, at = _static_int(num_shards), _static_int(index)
        if shards is not None and shards < 1:
            raise ValueError("num_shards must be >= 1; got: %s" % shards)
        if shards is not None and at is not None and not 0 <= at < shards:
            raise ValueError("index must be in range [0, %d); got: %s" % (shards, at))
        return self._then("ShardDataset", num_shards=_int64(num_shards, "num_shards"), index=_int64(index, "index"))

    def concatenate(self, dataset):
        if self.output_types != dataset.output_types:
            raise TypeError("Two datasets to concatenate have different types %s and %s"
                            % (self.output_types, dataset.output_types))
        if self.output_classes != dataset.output_classes:
            raise TypeError("Two datasets to concatenate have different classes %s and %s"
                            % (self.output_classes, dataset.output_classes))
        theirs = iter(structure.flatten(dataset._spec))
        spec = structure.transform(lambda s: s.with_shape(_in_common(s.shape, next(theirs).shape)), self._spec)
        return self._then("ConcatenateDataset", spec, [dataset], another_dataset=dataset._variant_tensor)

    def enumerate(self, start=0):
        return Dataset.zip((Dataset.range(start, np.iinfo(np.int64).max), self))

    def cache(self, filename=""):
        return self._then("CacheDataset", filename=convert.convert_to_tensor(filename, dtype=dtypes.string,
                                                                             name="filename"))

    def prefetch(self, buffer_size):
        return self._then("PrefetchDataset", buffer_size=_int64(buffer_size, "buffer_size", -1))

    # --- How it is run. ---
    def options(self):
        options = Options()
        for dataset in self._inputs:
            options = options.merge(dataset.options())
        return options if self._own_options is None else options.merge(self._own_options)

    def with_options(self, options):
        return Dataset(self._variant_tensor, self._spec, [self], options)

    def _apply_options(self):
        """This dataset as iterators run it."""
        options, dataset = self.options(), self
        rewrites = options._static_optimizations()
        if rewrites:
            dataset = dataset._then("OptimizeDataset", optimizations=convert.convert_to_tensor(
                rewrites, dtype=dtypes.string, name="optimizations"))
        if options.experimental_optimization.autotune is not False:
            dataset = dataset._then("ModelDataset")
        return dataset

    def make_one_shot_iterator(self):
        """An iterator that needs no initializer and passes through the dataset once."""
        try:
            factory = functions.define_by_value("_make_dataset", lambda: [self._apply_options()._variant_tensor])
        except ValueError as error:
            if "Cannot capture a stateful node" in str(error):
                raise ValueError(
                    "Failed to create a one-shot iterator for a dataset. `Dataset.make_one_shot_iterator()` does not "
                    "support datasets that capture stateful objects, such as a `Variable` or `LookupTable`. In these "
                    "cases, use `Dataset.make_initializable_iterator()`. (Original error: %s)" % error)
            raise
        resource = call("OneShotIterator", dataset_factory=factory.name, **structure.flat_attrs(self._spec))
        return Iterator(resource, None, None, spec=self._spec)

    def make_initializable_iterator(self, shared_name=None):
        """An iterator whose initializer must run first; it may run again."""
        dataset = self._apply_options()
        resource = call("IteratorV2", container="", shared_name=shared_name or "", **structure.flat_attrs(self._spec))
        with framework.colocate_with(resource.op):
            initializer = call("MakeIterator", dataset=dataset._variant_tensor, iterator=resource)
        return Iterator(resource, initializer, None, spec=self._spec)


def _joined(patterns):
    from muster.ops import string_ops

    return string_ops.reduce_join(patterns, separator=", ") if patterns.shape.ndims != 0 else patterns


def _static_int(value):
    if isinstance(value, framework.Tensor):
        value = convert.constant_value(value)
    return None if value is None else int(value)


def _static_batch(batch_size, drop_remainder):
    """The first dimension of every batch, where it is known."""
    return _static_int(batch_size) if convert.constant_value(drop_remainder) else None


def _in_common(a, b):
    if a.ndims is None or b.ndims is None or a.ndims != b.ndims:
        return tensor_shape.unknown_shape()
    return tensor_shape.TensorShape([x if x == y else None for x, y in zip(a.as_list(), b.as_list())])


def _padded_shape(wanted, have):
    """`wanted` as a vector in which -1 stands for what the longest element has."""
    if isinstance(wanted, framework.Tensor):
        return wanted
    shape = tensor_shape.as_shape(wanted)
    if have.ndims is not None and shape.ndims != have.ndims:
        raise ValueError("The padded shape %s is not compatible with the corresponding input component shape %s."
                         % (shape, have))
    for size, there in zip(shape.as_list(), have.as_list() if have.ndims is not None else []):
        if size is not None and there is not None and there > size:
            raise ValueError("The padded shape %s is not compatible with the corresponding input component shape %s."
                             % (shape, have))
    sizes = np.array([-1 if d is None else d for d in shape.as_list()], dtype=np.int64)
    return convert.convert_to_tensor(sizes, dtype=dtypes.int64, name="padded_shape")


def _static_padded(shape):
    value = convert.constant_value(shape)
    if value is None:
        return tensor_shape.TensorShape([None] * shape.shape[0].value if shape.shape[0].value is not None else None)
    return tensor_shape.TensorShape([None if d < 0 else int(d) for d in value])


def _padding_value(value, dtype):
    if value is None:
        value = "" if dtype == dtypes.string else np.zeros([], dtype.as_numpy_dtype)
    value = convert.convert_to_tensor(value, name="padding_value")
    if not value.shape.is_compatible_with(tensor_shape.TensorShape([])):
        raise ValueError("Padding value should be a scalar, but is not: %s" % value)
    if value.dtype != dtype:
        raise TypeError("Padding value tensor (%s) does not match output type: %s" % (value, dtype))
    return value


def make_one_shot_iterator(dataset):
    return dataset.make_one_shot_iterator()


def make_initializable_iterator(dataset, shared_name=None):
    return dataset.make_initializable_iterator(shared_name)


def get_legacy_output_types(dataset_or_iterator):
    return dataset_or_iterator.output_types


def get_legacy_output_shapes(dataset_or_iterator):
    return dataset_or_iterator.output_shapes


def get_legacy_output_classes(dataset_or_iterator):
    return dataset_or_iterator.output_classes
