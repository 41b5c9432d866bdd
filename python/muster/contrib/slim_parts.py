"""Parts of tf.contrib.slim around its layers: queues that hand batches to towers, end points, the size of a model."""
import collections
import contextlib

from muster import summary
from muster.contrib.model_variables import collect_named_outputs  # noqa: F401
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.ops import array_ops, data_flow_ops, logging_ops, math_ops
from muster.train import coordinator, queue_runner


# --- slim.prefetch_queue and slim.queues ---
def prefetch_queue(tensors, capacity=8, num_threads=1, dynamic_pad=False, shared_name=None, name=None):
    """A queue that runners fill with the tensors (a list, or a dict by name); dequeue gives them."""
    if isinstance(tensors, dict):
        names = sorted(tensors)
        values = [tensors[key] for key in names]
    else:
        names, values = None, list(tensors)
    with framework.name_scope(name, "prefetch_queue", values):
        kind = data_flow_ops.PaddingFIFOQueue if dynamic_pad else data_flow_ops.FIFOQueue
        queue = kind(capacity=capacity, dtypes=[v.dtype for v in values], shapes=[v.get_shape() for v in values],
                     names=names, shared_name=shared_name)
        enqueue = queue.enqueue(tensors)
        queue_runner.add_queue_runner(queue_runner.QueueRunner(queue, [enqueue] * num_threads))
        summary.scalar("fraction_of_%d_full" % capacity, math_ops.cast(queue.size(), "float32") * (1. / capacity))
        return queue


@contextlib.contextmanager
def QueueRunners(session):
    """A context in which the graph's queue runners run."""
    coord = coordinator.Coordinator()
    threads = []
    try:
        for runner in session.graph.get_collection(GraphKeys.QUEUE_RUNNERS):
            threads.extend(runner.create_threads(session, coord=coord, daemon=True, start=True))
        yield
    finally:
        coord.request_stop()
        try:
            coord.join(threads, stop_grace_period_secs=120)
        except RuntimeError:
            session.close()


# --- slim.utils ---
def convert_collection_to_dict(collection, clear_collection=False):
    """The tensors of a collection by the aliases they have been given."""
    found = collections.OrderedDict((alias, tensor) for tensor in framework.get_collection(collection)
                                    for alias in get_tensor_aliases(tensor))
    if clear_collection:
        framework.get_default_graph().clear_collection(collection)
    return found


def get_tensor_aliases(tensor):
    aliases = getattr(tensor, "aliases", None)
    if aliases:
        return aliases
    name = tensor.op.name
    return [name[:-len("/Identity")] if name.endswith("/Identity") else name]


def append_tensor_alias(tensor, alias):
    tensor.aliases = list(getattr(tensor, "aliases", None) or []) + [alias.rstrip("/")]
    return tensor


def append_tensor_aliases(tensor, aliases):
    for alias in aliases:
        append_tensor_alias(tensor, alias)
    return tensor


def last_dimension(shape, min_rank=1):
    return _dimension(shape, -1, min_rank)


def first_dimension(shape, min_rank=1):
    return _dimension(shape, 0, min_rank)


def _dimension(shape, index, min_rank):
    if shape.ndims is None:
        raise ValueError("dims of shape must be known but is None")
    if shape.ndims < min_rank:
        raise ValueError("rank of shape must be at least %d not: %d" % (min_rank, shape.ndims))
    value = shape[index].value
    if value is None:
        raise ValueError("%s dimension shape must be known but is None" % ("last" if index else "first"))
    return value


def two_element_tuple(value):
    if isinstance(value, (list, tuple)):
        if len(value) != 2:
            raise ValueError("Must be a list with 2 elements: %s" % value)
        return tuple(value)
    return int(value), int(value)


def smart_cond(pred, fn1, fn2, name=None):
    """cond, or the result of the branch that is taken where `pred` is known."""
    from muster.graph import convert
    from muster.ops import control_flow_ops

    known = pred if isinstance(pred, bool) else None if not isinstance(pred, framework.Tensor) else \
        convert.constant_value(pred)
    if known is not None:
        return fn1() if known else fn2()
    return control_flow_ops.cond(pred, true_fn=fn1, false_fn=fn2, name=name)


def constant_value(value_or_tensor_or_var, dtype=None):
    from muster.graph import convert

    value = value_or_tensor_or_var
    return convert.constant_value(value) if isinstance(value, framework.Tensor) else value


# --- slim.model_analyzer ---
def analyze_ops(graph, print_info=False):
    """The number of elements in the outputs of all operations, as far as their shapes are known."""
    if print_info:
        print("---------")
        print("Operations: name -> (type shapes) [size]")
        print("---------")
    total = 0
    for op in graph.get_operations():
        size = sum(output.get_shape().num_elements() or 0 for output in op.outputs)
        total += size
        if print_info:
            print(op.name, "->", ", ".join("%s %s" % (o.dtype.name, o.get_shape()) for o in op.outputs), "[%d]" % size)
    return total


def analyze_vars(variables, print_info=False):
    """(elements, bytes) of the variables."""
    if print_info:
        print("---------")
        print("Variables: name (type shape) [size]")
        print("---------")
    total, total_bytes = 0, 0
    for v in variables:
        size = v.get_shape().num_elements() or 0
        size_bytes = size * v.dtype.base_dtype.size
        total, total_bytes = total + size, total_bytes + size_bytes
        if print_info:
            print(v.name, "(%s %s)" % (v.dtype.base_dtype.name, "x".join(str(d) for d in v.get_shape().as_list())),
                  "[%d, bytes: %d]" % (size, size_bytes))
    if print_info:
        print("Total size of variables: %d" % total)
        print("Total bytes of variables: %d" % total_bytes)
    return total, total_bytes


# --- slim.summaries ---
def _printed(value, text):
    return logging_ops.Print(value, [value], text)


def _summary(kind):
    def add(tensor, name=None, prefix=None, print_summary=False):
        name = name or tensor.op.name
        name = "%s/%s" % (prefix, name) if prefix else name
        return kind(name, _printed(tensor, name) if print_summary else tensor)

    return add


add_scalar_summary = _summary(summary.scalar)
add_histogram_summary = _summary(summary.histogram)
add_image_summary = _summary(summary.image)


def add_zero_fraction_summary(tensor, name=None, prefix=None, print_summary=False):
    from muster.nn import nn_ops

    name = (prefix + "/" if prefix else "") + (name or tensor.op.name)
    return add_scalar_summary(nn_ops.zero_fraction(tensor), name, print_summary=print_summary)


def add_scalar_summaries(tensors, prefix=None, print_summary=False):
    return [add_scalar_summary(tensor, prefix=prefix, print_summary=print_summary) for tensor in tensors]


def add_histogram_summaries(tensors, prefix=None):
    return [add_histogram_summary(tensor, prefix=prefix) for tensor in tensors]


PARTS = {
    "prefetch_queue": (prefetch_queue,), "queues": (QueueRunners,),
    "utils": (append_tensor_alias, append_tensor_aliases, collect_named_outputs, constant_value,
              convert_collection_to_dict, first_dimension, get_tensor_aliases, last_dimension, smart_cond,
              two_element_tuple),
    "model_analyzer": (analyze_ops, analyze_vars),
    "summaries": (add_zero_fraction_summary, add_scalar_summaries, add_histogram_summaries)}
