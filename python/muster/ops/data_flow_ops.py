"""Queues, accumulators, barriers and staging areas: what carries values from one step to another."""
import functools
import hashlib

from muster import dtypes as _dtypes
from muster.graph import convert, framework, tensor_shape
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import colocate_with, name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, control_flow_ops, math_ops

__all__ = ["QueueBase", "FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue",
           "ConditionalAccumulatorBase", "ConditionalAccumulator", "SparseConditionalAccumulator"]


def _type_list(dtypes):
    types = dtypes if isinstance(dtypes, (list, tuple)) else [dtypes]
    return [_dtypes.as_dtype(t) for t in types]


def _shape_list(shapes, partial=False):
    if partial and (not isinstance(shapes, (list, tuple)) or not shapes or
                    any(shape is None or isinstance(shape, int) for shape in shapes)):
        raise ValueError("When providing partial shapes, a list of shapes must be provided.")
    if shapes is None:
        return None
    if isinstance(shapes, tensor_shape.TensorShape):
        shapes = [shapes]
    if not isinstance(shapes, (list, tuple)):
        raise TypeError("shapes must be a TensorShape or a list or tuple of TensorShapes.")
    if all(shape is None or isinstance(shape, int) for shape in shapes):
        shapes = [shapes]  # a single shape, given as its sizes
    shapes = [tensor_shape.as_shape(shape) for shape in shapes]
    if not partial and not all(shape.is_fully_defined() for shape in shapes):
        raise ValueError("All shapes must be fully defined: %s" % shapes)
    if any(shape.dims is None for shape in shapes):
        raise ValueError("All shapes must have a defined rank: %s" % shapes)
    return shapes


def _name_list(names, dtypes):
    if names is None:
        return None
    names = list(names) if isinstance(names, (list, tuple)) else [names]
    if len(names) != len(dtypes):
        raise ValueError("List of names must have the same length as the list of dtypes")
    return names


def _in_common(a, b):
    """What two shapes agree on."""
    if a.ndims is None or b.ndims is None or a.ndims != b.ndims:
        return tensor_shape.unknown_shape()
    return tensor_shape.TensorShape([x if x == y else None for x, y in zip(a.as_list(), b.as_list())])


def _values(vals):
    if isinstance(vals, dict):
        return list(vals.values())
    return vals if isinstance(vals, (list, tuple)) else [vals]


def _batch_size(op, argument):
    return tensor_shape.Dimension(convert.constant_value(op.inputs[argument]))


class QueueBase(object):
    """A queue of tuples of tensors; elements enter in one step and leave in another."""

    def __init__(self, dtypes, shapes, names, queue_ref):
        self._dtypes = dtypes
        if shapes is not None and len(shapes) != len(dtypes):
            raise ValueError("Queue shapes must have the same length as dtypes")
        self._shapes = [tensor_shape.as_shape(s) for s in shapes or [None] * len(dtypes)]
        if names is not None and len(names) != len(dtypes):
            raise ValueError("Queue names must have the same length as dtypes")
        self._names = names
        self._queue_ref = queue_ref
        self._name = queue_ref.op.name.split("/")[-1]

    @staticmethod
    def from_list(index, queues):
        """The queue of the list that `index`, a tensor, chooses at run time."""
        if not queues or not isinstance(queues, list) or not all(isinstance(q, QueueBase) for q in queues):
            raise TypeError("A list of queues expected")
        first = queues[0]
        if not all(first.dtypes == q.dtypes for q in queues):
            raise TypeError("Queues do not have matching component dtypes.")
        if not all(first.names == q.names for q in queues):
            raise TypeError("Queues do not have matching component names.")
        shapes = [functools.reduce(_in_common, s) for s in zip(*[q.shapes for q in queues])]
        chosen = array_ops.gather(array_ops.stack([q.queue_ref for q in queues]), index)
        return QueueBase(first.dtypes, shapes, first.names, chosen)

    queue_ref = property(lambda self: self._queue_ref)
    name = property(lambda self: self._queue_ref.op.name)
    dtypes = property(lambda self: self._dtypes)
    shapes = property(lambda self: self._shapes)
    names = property(lambda self: self._names)

    def _call(self, op_type, suffix, name=None, **arguments):
        if self._queue_ref.dtype.base_dtype == _dtypes.resource:
            op_type += "V2"
        name = "%s_%s" % (self._name, suffix) if name is None else name
        return call(op_type, name=name, handle=self._queue_ref, **arguments)

    def _components(self, vals):
        if isinstance(vals, dict):
            if not self._names:
                raise ValueError("Queue must have names to enqueue a dictionary")
            if sorted(self._names, key=str) != sorted(vals.keys(), key=str):
                raise ValueError("Keys in dictionary to enqueue do not match names of Queue.  Dictionary: (%s), "
                                 "Queue: (%s)" % (sorted(vals.keys()), sorted(self._names)))
            vals = [vals[name] for name in self._names]
        elif self._names:
            raise ValueError("You must enqueue a dictionary in a Queue with names")
        elif not isinstance(vals, (list, tuple)):
            vals = [vals]
        return [convert_to_tensor(value, dtype=dtype, name="component_%d" % i)
                for i, (value, dtype) in enumerate(zip(vals, self._dtypes))]

    def enqueue(self, vals, name=None):
        with name_scope(name, "%s_enqueue" % self._name, _values(vals)) as scope:
            vals = self._components(vals)
            for value, shape in zip(vals, self._shapes):
                value.get_shape().assert_is_compatible_with(shape)
            return self._call("QueueEnqueue", "enqueue", name=scope, components=vals)

    def enqueue_many(self, vals, name=None):
        with name_scope(name, "%s_EnqueueMany" % self._name, _values(vals)) as scope:
            vals = self._components(vals)
            batch = vals[0].get_shape().with_rank_at_least(1)[0]
            for value, shape in zip(vals, self._shapes):
                batch = batch.merge_with(value.get_shape().with_rank_at_least(1)[0])
                value.get_shape()[1:].assert_is_compatible_with(shape)
            return self._call("QueueEnqueueMany", "EnqueueMany", name=scope, components=vals)

    def _dequeued(self, tensors):
        if self._names:
            return dict(zip(self._names, tensors))
        return tensors[0] if len(tensors) == 1 else tensors

    def _set_shapes(self, tensors, batch=()):
        for tensor, shape in zip(tensors, self._shapes):
            tensor.set_shape(tensor_shape.TensorShape(list(batch)).concatenate(shape))
        return self._dequeued(tensors)

    def dequeue(self, name=None):
        return self._set_shapes(self._call("QueueDequeue", "Dequeue", name=name, component_types=self._dtypes))

    def dequeue_many(self, n, name=None):
        tensors = self._call("QueueDequeueMany", "DequeueMany", name=name, n=n, component_types=self._dtypes)
        return self._set_shapes(tensors, [_batch_size(tensors[0].op, 1)])

    def dequeue_up_to(self, n, name=None):
        tensors = self._call("QueueDequeueUpTo", "DequeueUpTo", name=name, n=n, component_types=self._dtypes)
        return self._set_shapes(tensors, [None])

    def close(self, cancel_pending_enqueues=False, name=None):
        return self._call("QueueClose", "Close", name=name, cancel_pending_enqueues=cancel_pending_enqueues)

    def is_closed(self, name=None):
        return self._call("QueueIsClosed", "Is_Closed", name=name)

    def size(self, name=None):
        return self._call("QueueSize", "Size", name=name)


class FIFOQueue(QueueBase):
    """Elements leave in the order in which they came."""

    def __init__(self, capacity, dtypes, shapes=None, names=None, shared_name=None, name="fifo_queue"):
        dtypes = _type_list(dtypes)
        shapes = _shape_list(shapes)
        names = _name_list(names, dtypes)
        ref = call("FIFOQueueV2", name=name, component_types=dtypes, shapes=shapes, capacity=capacity,
                   shared_name=shared_name)
        super(FIFOQueue, self).__init__(dtypes, shapes, names, ref)


class PaddingFIFOQueue(QueueBase):
    """Elements may differ in the unknown dimensions of their shapes; batches are padded with zeros."""

    def __init__(self, capacity, dtypes, shapes, names=None, shared_name=None, name="padding_fifo_queue"):
        dtypes = _type_list(dtypes)
        shapes = _shape_list(shapes, partial=True)
        names = _name_list(names, dtypes)
        if len(dtypes) != len(shapes):
            raise ValueError("Shapes must be provided for all components, but received %d dtypes and %d shapes."
                             % (len(dtypes), len(shapes)))
        ref = call("PaddingFIFOQueueV2", name=name, component_types=dtypes, shapes=shapes, capacity=capacity,
                   shared_name=shared_name)
        super(PaddingFIFOQueue, self).__init__(dtypes, shapes, names, ref)


class PriorityQueue(QueueBase):
    """The element whose first component, an int64, is smallest leaves first."""

    def __init__(self, capacity, types, shapes=None, names=None, shared_name=None, name="priority_queue"):
        types = _type_list(types)
        shapes = _shape_list(shapes)
        if shapes is None:
            raise TypeError("Expected list for 'shapes' argument to 'priority_queue_v2' Op, not None.")
        ref = call("PriorityQueueV2", name=name, component_types=types, shapes=shapes, capacity=capacity,
                   shared_name=shared_name)
        super(PriorityQueue, self).__init__([_dtypes.int64] + types, [()] + shapes if shapes else None, names, ref)


class RandomShuffleQueue(QueueBase):
    """Elements leave in random order."""

    def __init__(self, capacity, min_after_dequeue, dtypes, shapes=None, names=None, seed=None, shared_name=None,
                 name="random_shuffle_queue"):
        dtypes = _type_list(dtypes)
        shapes = _shape_list(shapes)
        names = _name_list(names, dtypes)
        seed1, seed2 = framework.get_seed(seed)
        if seed1 is None and seed2 is None:
            seed1, seed2 = 0, 0
        elif seed is None and shared_name is not None:
            # All graphs that share a queue must agree on its seed, wherever in the graph it is made.
            digest = hashlib.md5((str(seed1) + shared_name).encode("utf-8")).hexdigest()
            seed2 = int(digest[:8], 16) & 0x7FFFFFFF
        ref = call("RandomShuffleQueueV2", name=name, component_types=dtypes, shapes=shapes, capacity=capacity,
                   min_after_dequeue=min_after_dequeue, seed=seed1, seed2=seed2, shared_name=shared_name)
        super(RandomShuffleQueue, self).__init__(dtypes, shapes, names, ref)


class ConditionalAccumulatorBase(object):
    """Gradients are summed until enough have come to be taken."""

    _PREFIX = "ResourceAccumulator"

    def __init__(self, dtype, shape, accumulator_ref):
        self._dtype = dtype
        self._shape = tensor_shape.as_shape(shape)
        self._accumulator_ref = accumulator_ref
        self._name = accumulator_ref.op.name.split("/")[-1]

    accumulator_ref = property(lambda self: self._accumulator_ref)
    name = property(lambda self: self._name)
    dtype = property(lambda self: self._dtype)

    def num_accumulated(self, name=None):
        name = "%s_NumAccumulated" % self._name if name is None else name
        return call(self._PREFIX + "NumAccumulated", name=name, handle=self._accumulator_ref)

    def set_global_step(self, new_global_step, name=None):
        return call(self._PREFIX + "SetGlobalStep", name=name, handle=self._accumulator_ref,
                    new_global_step=_as_int64(new_global_step))


def _as_int64(value):
    return math_ops.cast(convert_to_tensor(value), _dtypes.int64)


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """For dense gradients."""

    def __init__(self, dtype, shape=None, shared_name=None, name="conditional_accumulator", reduction_type="MEAN"):
        ref = call("ResourceConditionalAccumulator", name=name, dtype=dtype, shape=tensor_shape.as_shape(shape),
                   shared_name=shared_name, reduction_type=reduction_type)
        super(ConditionalAccumulator, self).__init__(dtype, shape, ref)

    def apply_grad(self, grad, local_step=0, name=None):
        grad = convert_to_tensor(grad, self._dtype)
        grad.get_shape().assert_is_compatible_with(self._shape)
        return call("ResourceAccumulatorApplyGradient", name=name, handle=self._accumulator_ref,
                    local_step=_as_int64(local_step), gradient=grad)

    def take_grad(self, num_required, name=None):
        taken = call("ResourceAccumulatorTakeGradient", name=name, handle=self._accumulator_ref,
                     num_required=num_required, dtype=self._dtype)
        taken.set_shape(self._shape)
        return taken


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """For gradients of some rows."""

    _PREFIX = "Accumulator"

    def __init__(self, dtype, shape=None, shared_name=None, name="sparse_conditional_accumulator",
                 reduction_type="MEAN"):
        ref = call("SparseConditionalAccumulator", name=name, dtype=dtype, shape=tensor_shape.as_shape(shape),
                   shared_name=shared_name, reduction_type=reduction_type)
        super(SparseConditionalAccumulator, self).__init__(dtype, shape, ref)

    def apply_indexed_slices_grad(self, grad, local_step=0, name=None):
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step=local_step, name=name)

    def apply_grad(self, grad_indices, grad_values, grad_shape=None, local_step=0, name=None):
        local_step = _as_int64(local_step)
        indices = math_ops.cast(grad_indices, _dtypes.int64)
        shape = math_ops.cast([] if grad_shape is None else grad_shape, _dtypes.int64)
        return call("SparseAccumulatorApplyGradient", name=name, handle=self._accumulator_ref, local_step=local_step,
                    gradient_indices=indices, gradient_values=grad_values, gradient_shape=shape,
                    has_known_shape=grad_shape is not None)

    def take_grad(self, num_required, name=None):
        return call("SparseAccumulatorTakeGradient", name=name, handle=self._accumulator_ref,
                    num_required=num_required, dtype=self._dtype)

    def take_indexed_slices_grad(self, num_required, name=None):
        taken = self.take_grad(num_required, name=name)
        return framework.IndexedSlices(values=taken.values, indices=taken.indices, dense_shape=taken.shape)


class Barrier(object):
    """Components of one key come at different times and leave together."""

    def __init__(self, types, shapes=None, shared_name=None, name="barrier"):
        self._types = _type_list(types)
        if shapes is None:
            self._shapes = [tensor_shape.unknown_shape() for _ in self._types]
        else:
            self._shapes = _shape_list(shapes)
            for i, shape in enumerate(self._shapes):
                if shape.num_elements() == 0:
                    raise ValueError("Empty tensors are not supported, but received shape '%s' at index %d" % (shape, i))
        self._barrier_ref = call("Barrier", name=name, component_types=self._types, shapes=self._shapes,
                                 shared_name=shared_name)
        self._name = self._barrier_ref.op.name.split("/")[-1]

    barrier_ref = property(lambda self: self._barrier_ref)
    name = property(lambda self: self._barrier_ref.op.name)

    def _call(self, op_type, name=None, **arguments):
        name = "%s_%s" % (self._name, op_type) if name is None else name
        return call(op_type, name=name, handle=self._barrier_ref, **arguments)

    def insert_many(self, component_index, keys, values, name=None):
        return self._call("BarrierInsertMany", name, keys=keys, values=values, component_index=component_index)

    def take_many(self, num_elements, allow_small_batch=False, timeout=None, name=None):
        taken = self._call("BarrierTakeMany", name, num_elements=num_elements, component_types=self._types,
                           allow_small_batch=allow_small_batch, wait_for_incomplete=timeout)
        batch = [None if allow_small_batch else _batch_size(taken[0].op, 1)]
        for tensor in (taken.indices, taken.keys):
            tensor.set_shape(tensor_shape.TensorShape(batch))
        for tensor, shape in zip(taken.values, self._shapes):
            tensor.set_shape(tensor_shape.TensorShape(batch).concatenate(shape))
        return taken

    def close(self, cancel_pending_enqueues=False, name=None):
        return self._call("BarrierClose", name, cancel_pending_enqueues=cancel_pending_enqueues)

    def ready_size(self, name=None):
        return self._call("BarrierReadySize", name)

    def incomplete_size(self, name=None):
        return self._call("BarrierIncompleteSize", name)


class BaseStagingArea(object):
    """Tuples put aside on a device, to be taken in a later step."""

    def __init__(self, dtypes, shapes=None, names=None, shared_name=None, capacity=0, memory_limit=0):
        if shared_name is None:
            self._name = framework.get_default_graph().unique_name(type(self).__name__)
        elif isinstance(shared_name, str):
            self._name = shared_name
        else:
            raise ValueError("shared_name must be a string")
        self._dtypes = dtypes
        if shapes is not None and len(shapes) != len(dtypes):
            raise ValueError("StagingArea shapes must be the same length as dtypes")
        self._shapes = [tensor_shape.as_shape(s) for s in shapes or [None] * len(dtypes)]
        if names is not None and len(names) != len(dtypes):
            raise ValueError("StagingArea names must be the same length as dtypes")
        self._names = names
        self._capacity = capacity
        self._memory_limit = memory_limit
        # All ops of the area are where this one is.
        with name_scope("%s_root" % self._name):
            self._coloc_op = control_flow_ops.no_op()

    name = property(lambda self: self._name)
    dtypes = property(lambda self: self._dtypes)
    shapes = property(lambda self: self._shapes)
    names = property(lambda self: self._names)
    capacity = property(lambda self: self._capacity)
    memory_limit = property(lambda self: self._memory_limit)

    def _call(self, op_type, suffix, name=None, **arguments):
        name = "%s_%s" % (self._name, suffix) if name is None else name
        arguments.setdefault("dtypes", self._dtypes)
        return call(op_type, name=name, shared_name=self._name, capacity=self._capacity,
                    memory_limit=self._memory_limit, **arguments)

    def _components(self, vals, indices=None):
        """(tensors, the places where they belong)."""
        if isinstance(vals, dict):
            if not self._names:
                raise ValueError("Staging areas must have names to enqueue a dictionary")
            if not set(vals).issubset(self._names):
                raise ValueError("Keys in dictionary to put do not match names of staging area. Dictionary: (%s), "
                                 "Queue: (%s)" % (sorted(vals), sorted(self._names)))
            indices = [i for i, name in enumerate(self._names) if name in vals]
            vals = [vals[self._names[i]] for i in indices]
        else:
            if self._names:
                raise ValueError("You must enqueue a dictionary in a staging area with names")
            if indices is None:
                raise ValueError("Indices must be supplied when inserting a list of tensors")
            if len(indices) != len(vals):
                raise ValueError("Number of indices '%s' doesn't match number of values '%s'"
                                 % (len(indices), len(vals)))
        if len(vals) > len(self._dtypes):
            raise ValueError("Unexpected number of inputs '%s' vs '%s'" % (len(vals), len(self._dtypes)))
        tensors = []
        for value, i in zip(vals, indices):
            value = convert_to_tensor(value, dtype=self._dtypes[i], name="component_%d" % i)
            value.get_shape().assert_is_compatible_with(self._shapes[i])
            tensors.append(value)
        return tensors, list(indices)

    def _elsewhere(self, tensors):
        """The tensors, copied when they are wanted on another device."""
        if control_flow_ops.no_op().device != self._coloc_op.device:
            tensors = [array_ops.identity(t) for t in tensors]
        return tensors

    def _taken(self, tensors, indices):
        tensors = self._elsewhere(tensors)
        for tensor, i in zip(tensors, indices):
            tensor.set_shape(self._shapes[i])
        return {self._names[i]: t for t, i in zip(tensors, indices)} if self._names else tensors


class StagingArea(BaseStagingArea):
    """The oldest tuple is taken first."""

    def put(self, values, name=None):
        with name_scope(name, "%s_put" % self._name, _values(values)) as scope:
            if not isinstance(values, (list, tuple, dict)):
                values = [values]
            tensors, _ = self._components(values, range(len(values)))
            with colocate_with(self._coloc_op):
                return self._call("Stage", "put", name=scope, values=tensors,
                                  dtypes=[t.dtype.base_dtype for t in tensors])

    def get(self, name=None):
        with colocate_with(self._coloc_op):
            tensors = self._call("Unstage", "get", name=name)
        return self._taken(tensors, range(len(self._dtypes)))

    def peek(self, index, name=None):
        with colocate_with(self._coloc_op):
            tensors = self._call("StagePeek", "peek", name=name, index=index)
        return self._taken(tensors, range(len(self._dtypes)))

    def size(self, name=None):
        return self._call("StageSize", "size", name=name)

    def clear(self, name=None):
        return self._call("StageClear", "clear", name=name)


class MapStagingArea(BaseStagingArea):
    """Tuples have keys; their components may come, and go, one by one."""

    def __init__(self, dtypes, shapes=None, names=None, shared_name=None, ordered=False, capacity=0, memory_limit=0):
        super(MapStagingArea, self).__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)
        self._prefix = "OrderedMap" if ordered else "Map"

    def put(self, key, vals, indices=None, name=None):
        with name_scope(name, "%s_put" % self._name, _values(vals)) as scope:
            tensors, indices = self._components(vals, indices)
            with colocate_with(self._coloc_op):
                return self._call(self._prefix + "Stage", "put", name=scope, key=key, indices=indices, values=tensors)

    def _places(self, indices):
        if indices is None:
            indices = list(range(len(self._dtypes)))
        if not isinstance(indices, (tuple, list)):
            raise TypeError("Invalid indices type '%s'" % type(indices))
        if not indices:
            raise ValueError("Empty indices")
        if all(isinstance(i, str) for i in indices):
            if self._names is None:
                raise ValueError("String indices provided '%s', but this Staging Area was not created with names."
                                 % indices)
            if not set(indices).issubset(self._names):
                raise ValueError("Named index '%s' not in Staging Area names '%s'" % (indices, self._names))
            indices = [self._names.index(i) for i in indices]
        elif not all(isinstance(i, int) for i in indices):
            raise TypeError("Mixed types in indices '%s'. May only be str or int" % indices)
        return list(indices), [self._dtypes[i] for i in indices]

    def peek(self, key, indices=None, name=None):
        indices, dtypes = self._places(indices)
        with colocate_with(self._coloc_op):
            tensors = self._call(self._prefix + "Peek", "pop", name=name, key=key, indices=indices, dtypes=dtypes)
        return self._taken(tensors, indices)

    def get(self, key=None, indices=None, name=None):
        indices, dtypes = self._places(indices)
        with colocate_with(self._coloc_op):
            if key is not None:
                tensors = self._call(self._prefix + "Unstage", "get", name=name, key=key, indices=indices,
                                     dtypes=dtypes)
                return key, self._taken(tensors, indices)
            taken = self._call(self._prefix + "UnstageNoKey", "get_nokey", name=name, indices=indices, dtypes=dtypes)
        return self._elsewhere([taken.key])[0], self._taken(taken.values, indices)

    def size(self, name=None):
        return self._call(self._prefix + "Size", "size", name=name)

    def incomplete_size(self, name=None):
        return self._call(self._prefix + "IncompleteSize", "incomplete_size", name=name)

    def clear(self, name=None):
        return self._call(self._prefix + "Clear", "clear", name=name)
