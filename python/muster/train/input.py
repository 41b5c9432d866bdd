"""Queue-style input pipelines: producers that fill queues, and batches taken from queues, each with its QueueRunner."""
from muster import dtypes, summary
from muster.graph import convert, framework, op_library, tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import GraphKeys, name_scope
from muster.ops import array_ops, control_flow_ops, data_flow_ops, io_ops, math_ops, random_ops, sparse_tensor
from muster.train import queue_runner
from muster.variables import variables


def match_filenames_once(pattern, name=None):
    """A local variable that is initialized to the names of the files that match."""
    with name_scope(name, "matching_filenames", [pattern]) as name:
        return variables.Variable(name=name, initial_value=io_ops.matching_files(pattern), trainable=False,
                                  validate_shape=False, collections=[GraphKeys.LOCAL_VARIABLES])


def limit_epochs(tensor, num_epochs=None, name=None):
    """`tensor`, `num_epochs` times, then OutOfRange. Counts in a local variable."""
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError("num_epochs must be > 0 not %d." % num_epochs)
    with name_scope(name, "limit_epochs", [tensor]) as name:
        epochs = variables.Variable(constant(0, dtype=dtypes.int64), name="epochs", trainable=False,
                                    collections=[GraphKeys.LOCAL_VARIABLES])
        with framework.control_dependencies([epochs.count_up_to(num_epochs)]):
            return array_ops.identity(tensor, name=name)


def input_producer(input_tensor, element_shape=None, num_epochs=None, shuffle=True, seed=None, capacity=32,
                   shared_name=None, summary_name=None, name=None, cancel_op=None):
    """A queue into which a QueueRunner puts the rows of a tensor, epoch after epoch."""
    with name_scope(name, "input_producer", [input_tensor]):
        input_tensor = convert_to_tensor(input_tensor, name="input_tensor")
        element_shape = input_tensor.get_shape()[1:].merge_with(element_shape)
        if not element_shape.is_fully_defined():
            raise ValueError("Either `input_tensor` must have a fully defined shape or `element_shape` must be specified")
        if shuffle:
            input_tensor = random_ops.random_shuffle(input_tensor, seed=seed)
        input_tensor = limit_epochs(input_tensor, num_epochs)
        queue = data_flow_ops.FIFOQueue(capacity=capacity, dtypes=[input_tensor.dtype.base_dtype],
                                        shapes=[element_shape], shared_name=shared_name, name=name)
        enqueue = queue.enqueue_many([input_tensor])
        queue_runner.add_queue_runner(queue_runner.QueueRunner(queue, [enqueue], cancel_op=cancel_op))
        if summary_name is not None:
            _summarize_fullness(summary_name, queue.size(), capacity)
        return queue


def _summarize_fullness(name, size, capacity):
    summary.scalar(name, math_ops.cast(size, dtypes.float32) * (1. / capacity))


def string_input_producer(string_tensor, num_epochs=None, shuffle=True, seed=None, capacity=32, shared_name=None,
                          name=None, cancel_op=None):
    """A queue of strings, names of files mostly."""
    not_null = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, framework.Tensor) and not _is_variable(string_tensor) and not string_tensor:
        raise ValueError(not_null)
    with name_scope(name, "input_producer", [string_tensor]) as name:
        string_tensor = convert_to_tensor(string_tensor, dtype=dtypes.string)
        check = control_flow_ops.Assert(math_ops.greater(array_ops.size(string_tensor), 0), [not_null])
        with framework.control_dependencies([check]):
            string_tensor = array_ops.identity(string_tensor)
        return input_producer(string_tensor, [], num_epochs, shuffle, seed, capacity, shared_name,
                              "fraction_of_%d_full" % capacity, name, cancel_op)


def _is_variable(value):
    return hasattr(value, "_as_graph_element") or isinstance(value, variables.Variable)


def range_input_producer(limit, num_epochs=None, shuffle=True, seed=None, capacity=32, shared_name=None, name=None):
    """A queue of the integers below `limit`."""
    with name_scope(name, "input_producer", [limit]) as name:
        return input_producer(math_ops.range(limit), [], num_epochs, shuffle, seed, capacity, shared_name,
                              "fraction_of_%d_full" % capacity, name)


def slice_input_producer(tensor_list, num_epochs=None, shuffle=True, seed=None, capacity=32, shared_name=None,
                         name=None):
    """One row of every tensor, in the same order for all of them."""
    with name_scope(name, "input_producer", tensor_list):
        tensor_list = _tensors(tensor_list)
        if not tensor_list:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        queue = range_input_producer(array_ops.shape(tensor_list[0])[0], num_epochs=num_epochs, shuffle=shuffle,
                                     seed=seed, capacity=capacity, shared_name=shared_name)
        index = queue.dequeue()
        return [array_ops.gather(tensor, index) for tensor in tensor_list]


# --- Batches. ---
def _tensors(values):
    if any(sparse_tensor.is_sparse(value) for value in values):
        raise TypeError("a producer takes slices of dense tensors, not of SparseTensors")
    return convert.convert_n_to_tensor(list(values))


class _SparseColumns(object):
    """SparseTensors pass through a queue as numbers under which they are set aside; one map per column of the lists."""

    def __init__(self, lists, enqueue_many):
        self._many, self._maps, self._dtypes, self._ranks = enqueue_many, {}, {}, {}
        self._columns = set(i for tensors in lists for i, value in enumerate(tensors) if sparse_tensor.is_sparse(value))
        for tensors in lists:
            for i in self._columns:
                if i >= len(tensors) or not sparse_tensor.is_sparse(tensors[i]):
                    raise ValueError("Inconsistent sparsity of the tensors to batch: column %d" % i)

    def store(self, tensors):
        return convert.convert_n_to_tensor([
            self._stored(i, value) if i in self._columns else value for i, value in enumerate(tensors)])

    def _stored(self, column, value):
        map_op = self._maps.get(column)
        shared = None if map_op is None else (map_op.get_attr("shared_name").decode() or map_op.name)
        op = op_library.apply_op("AddManySparseToTensorsMap" if self._many else "AddSparseToTensorsMap",
                                 sparse_indices=value.indices, sparse_values=value.values,
                                 sparse_shape=value.dense_shape, shared_name=shared)
        if map_op is None:
            self._maps[column] = op
        self._dtypes[column] = value.dtype
        self._ranks[column] = value.dense_shape.get_shape()[0].value
        return op.outputs[0]

    def restore(self, dequeued):
        if not self._columns:
            return dequeued
        is_list = isinstance(dequeued, (list, tuple))
        values = list(dequeued) if is_list else [dequeued]
        for column in self._columns:
            map_op = self._maps[column]
            with framework.colocate_with(map_op):
                parts = op_library.call("TakeManySparseFromTensorsMap", sparse_handles=array_ops.reshape(values[column], [-1]),
                                        dtype=self._dtypes[column],
                                        shared_name=map_op.get_attr("shared_name").decode() or map_op.name)
            rank = self._ranks[column]
            if rank is not None:
                rank = rank if self._many else rank + 1
                parts[0].set_shape([None, rank])
                parts[2].set_shape([rank])
            values[column] = sparse_tensor.SparseTensor(*parts)
        return values if is_list else values[0]


def _as_list(tensors):
    return [tensors[key] for key in sorted(tensors, key=str)] if isinstance(tensors, dict) else tensors


def _as_lists(tensors_list):
    if not tensors_list:
        raise ValueError("Expected at least one set of tensors")
    if isinstance(tensors_list[0], dict):
        if any(set(tensors) != set(tensors_list[0]) for tensors in tensors_list):
            raise ValueError("All dictionaries in tensors_list must have the same keys")
        return [_as_list(tensors) for tensors in tensors_list]
    return tensors_list


def _like(original, dequeued):
    if not isinstance(original, dict):
        return dequeued
    if len(original) == 1:
        dequeued = [dequeued]
    return dict(zip(sorted(original, key=str), dequeued))


def _checked_keep_input(keep_input, enqueue_many):
    keep_input = convert_to_tensor(keep_input)
    ndims = keep_input.get_shape().ndims
    if ndims is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if not enqueue_many and ndims == 1:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    if ndims > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    return keep_input


def _common_types(lists):
    types = [tensor.dtype for tensor in lists[0]]
    for other in lists[1:]:
        others = [tensor.dtype for tensor in other]
        if others != types:
            raise TypeError("Expected types to be consistent: %s vs. %s." % (
                ", ".join(t.name for t in types), ", ".join(t.name for t in others)))
    return types


def _element_shapes(lists, shapes, enqueue_many):
    if shapes is not None:
        return shapes
    for tensors in lists:
        for tensor in tensors:
            if tensor.get_shape().ndims is None:
                raise ValueError("Cannot infer Tensor's rank: %s" % tensor)
    result = []
    for column in zip(*lists):
        merged = [tensor_shape.as_shape(tensor.get_shape()) for tensor in column]
        if enqueue_many:
            merged = [shape.with_rank_at_least(1)[1:] for shape in merged]
        for shape in merged[1:]:
            merged[0].merge_with(shape)  # only to see that they fit
        result.append(merged[0].as_list())
    return result


def _enqueue_op(queue, tensors, enqueue_many, keep_input):
    """The op that puts `tensors` into the queue where `keep_input` says so."""
    enqueue = queue.enqueue_many if enqueue_many else queue.enqueue
    if keep_input.get_shape().ndims == 1:
        wanted = math_ops.cast(keep_input, dtypes.int32)
        return enqueue([array_ops.dynamic_partition(tensor, wanted, num_partitions=2)[1] for tensor in tensors])
    known = convert.constant_value(keep_input)
    if known is None:
        return control_flow_ops.cond(keep_input, lambda: enqueue(tensors), control_flow_ops.no_op)
    return enqueue(tensors) if known else control_flow_ops.no_op()


class _Batching(object):
    """What the eight batching functions have in common."""

    def __init__(self, scope, originals, joined, batch_size, keep_input, capacity, enqueue_many, shapes,
                 allow_smaller_final_batch, shared_name, name):
        self.scope, self.originals, self.joined = scope, originals, joined
        self.batch_size, self.keep_input, self.capacity = batch_size, keep_input, capacity
        self.enqueue_many, self.shapes = enqueue_many, shapes
        self.allow_smaller, self.shared_name, self.name = allow_smaller_final_batch, shared_name, name

    def build(self, make_queue, summarize, num_threads=1):
        lists = _as_lists(self.originals) if self.joined else [_as_list(self.originals[0])]
        flat = [tensor for tensors in lists for tensor in tensors]
        with name_scope(self.name, self.scope, flat + [self.keep_input]) as name:
            summarize.check()
            sparse = _SparseColumns(lists, self.enqueue_many)
            lists = [sparse.store(tensors) for tensors in lists]
            if not self.joined and not lists[0]:
                raise ValueError("Expected at least one tensor in batch().")
            keep_input = _checked_keep_input(self.keep_input, self.enqueue_many)
            queue = make_queue(capacity=self.capacity, dtypes=_common_types(lists),
                               shapes=_element_shapes(lists, self.shapes, self.enqueue_many),
                               shared_name=self.shared_name)
            enqueues = [_enqueue_op(queue, tensors, self.enqueue_many, keep_input) for tensors in lists]
            queue_runner.add_queue_runner(queue_runner.QueueRunner(queue, enqueues * num_threads))
            summarize(queue)
            dequeue = queue.dequeue_up_to if self.allow_smaller else queue.dequeue_many
            return _like(self.originals[0], sparse.restore(dequeue(self.batch_size, name=name)))


class _Fullness(object):
    """The summary of how full a queue is, beyond what it has to keep."""

    def __init__(self, capacity, min_after_dequeue=None, checked=False):
        self.capacity, self.least, self.checked = capacity, min_after_dequeue, checked

    def check(self):
        if self.checked and self.capacity <= self.least:
            raise ValueError("capacity %d must be bigger than min_after_dequeue %d." % (self.capacity, self.least))

    def __call__(self, queue):
        if self.least is None:
            return _summarize_fullness("fraction_of_%d_full" % self.capacity, queue.size(), self.capacity)
        room = self.capacity - self.least
        over = math_ops.maximum(0, queue.size() - self.least)
        _summarize_fullness("fraction_over_%d_of_%d_full" % (self.least, room), over, room)


def _queue_kind(dynamic_pad):
    return data_flow_ops.PaddingFIFOQueue if dynamic_pad else data_flow_ops.FIFOQueue


def _shuffling(min_after_dequeue, seed):
    def make(**options):
        return data_flow_ops.RandomShuffleQueue(min_after_dequeue=min_after_dequeue, seed=seed, **options)

    return make


def maybe_batch(tensors, keep_input, batch_size, num_threads=1, capacity=32, enqueue_many=False, shapes=None,
                dynamic_pad=False, allow_smaller_final_batch=False, shared_name=None, name=None):
    batching = _Batching("batch", [tensors], False, batch_size, keep_input, capacity, enqueue_many, shapes,
                         allow_smaller_final_batch, shared_name, name)
    return batching.build(_queue_kind(dynamic_pad), _Fullness(capacity), num_threads)


def batch(tensors, batch_size, num_threads=1, capacity=32, enqueue_many=False, shapes=None, dynamic_pad=False,
          allow_smaller_final_batch=False, shared_name=None, name=None):
    return maybe_batch(tensors, True, batch_size, num_threads, capacity, enqueue_many, shapes, dynamic_pad,
                       allow_smaller_final_batch, shared_name, name)


def maybe_batch_join(tensors_list, keep_input, batch_size, capacity=32, enqueue_many=False, shapes=None,
                     dynamic_pad=False, allow_smaller_final_batch=False, shared_name=None, name=None):
    batching = _Batching("batch_join", tensors_list, True, batch_size, keep_input, capacity, enqueue_many, shapes,
                         allow_smaller_final_batch, shared_name, name)
    return batching.build(_queue_kind(dynamic_pad), _Fullness(capacity))


def batch_join(tensors_list, batch_size, capacity=32, enqueue_many=False, shapes=None, dynamic_pad=False,
               allow_smaller_final_batch=False, shared_name=None, name=None):
    return maybe_batch_join(tensors_list, True, batch_size, capacity, enqueue_many, shapes, dynamic_pad,
                            allow_smaller_final_batch, shared_name, name)


def maybe_shuffle_batch(tensors, batch_size, capacity, min_after_dequeue, keep_input, num_threads=1, seed=None,
                        enqueue_many=False, shapes=None, allow_smaller_final_batch=False, shared_name=None, name=None):
    batching = _Batching("shuffle_batch", [tensors], False, batch_size, keep_input, capacity, enqueue_many, shapes,
                         allow_smaller_final_batch, shared_name, name)
    return batching.build(_shuffling(min_after_dequeue, seed), _Fullness(capacity, min_after_dequeue, checked=True),
                          num_threads)


def shuffle_batch(tensors, batch_size, capacity, min_after_dequeue, num_threads=1, seed=None, enqueue_many=False,
                  shapes=None, allow_smaller_final_batch=False, shared_name=None, name=None):
    return maybe_shuffle_batch(tensors, batch_size, capacity, min_after_dequeue, True, num_threads, seed, enqueue_many,
                               shapes, allow_smaller_final_batch, shared_name, name)


def maybe_shuffle_batch_join(tensors_list, batch_size, capacity, min_after_dequeue, keep_input, seed=None,
                             enqueue_many=False, shapes=None, allow_smaller_final_batch=False, shared_name=None,
                             name=None):
    batching = _Batching("shuffle_batch_join", tensors_list, True, batch_size, keep_input, capacity, enqueue_many,
                         shapes, allow_smaller_final_batch, shared_name, name)
    return batching.build(_shuffling(min_after_dequeue, seed), _Fullness(capacity, min_after_dequeue))


def shuffle_batch_join(tensors_list, batch_size, capacity, min_after_dequeue, seed=None, enqueue_many=False,
                       shapes=None, allow_smaller_final_batch=False, shared_name=None, name=None):
    return maybe_shuffle_batch_join(tensors_list, batch_size, capacity, min_after_dequeue, True, seed, enqueue_many,
                                    shapes, allow_smaller_final_batch, shared_name, name)


__all__ = ["match_filenames_once", "limit_epochs", "input_producer", "string_input_producer", "range_input_producer",
           "slice_input_producer", "batch", "maybe_batch", "batch_join", "maybe_batch_join", "shuffle_batch",
           "maybe_shuffle_batch", "shuffle_batch_join", "maybe_shuffle_batch_join"]
