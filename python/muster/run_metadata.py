"""RunMetadata from what a traced step has recorded."""
import time

from muster import dtypes


def _epoch_offset():
    """Traces count from the start of the machine, RunMetadata from 1970."""
    return time.time_ns() - time.monotonic_ns()


def _label(name, op, inputs):
    return "%s = %s(%s)" % (name, op, ", ".join(inputs))


def _fill_output(output, slot, dtype, shape, size):
    output.slot = slot
    description = output.tensor_description
    description.dtype = dtype
    for dim in shape or ():
        description.shape.dim.add().size = dim
    description.allocation_description.requested_bytes = size
    description.allocation_description.allocated_bytes = size
    description.allocation_description.allocator_name = "cpu"


def _fill_node(stats, offset, trace):
    _, name, op, start, end, thread, outputs, inputs, scheduled = trace
    scheduled = min(scheduled or start, start)
    stats.node_name = name
    stats.all_start_nanos = start + offset
    stats.op_start_rel_nanos = 0
    stats.op_end_rel_nanos = stats.all_end_rel_nanos = end - start
    stats.scheduled_nanos = scheduled + offset
    stats.all_start_micros = (start + offset) // 1000
    stats.op_start_rel_micros = 0
    # A kernel that ran at all took some time.
    stats.op_end_rel_micros = stats.all_end_rel_micros = max(1, (end - start + 999) // 1000)
    stats.scheduled_micros = (scheduled + offset) // 1000
    stats.thread_id = thread
    stats.timeline_label = _label(name, op, inputs)
    total = 0
    for slot, dtype, shape, size in outputs:
        _fill_output(stats.output.add(), slot, dtype, shape, size)
        if dtypes.as_dtype(dtype) != dtypes.resource:
            total += size
    if total:
        memory = stats.memory.add()
        memory.allocator_name = "cpu"
        memory.total_bytes = memory.peak_bytes = memory.live_bytes = total


def fill(run_metadata, nodes, partition_graphs=()):
    """Replaces what `run_metadata` holds.

    nodes: (device, node, op, start, end, thread, [(slot, dtype, shape, bytes)], inputs, scheduled), times in ns.
    partition_graphs: serialized GraphDefs.
    """
    run_metadata.Clear()
    offset = _epoch_offset()
    by_device = {}
    for trace in sorted(nodes, key=lambda trace: trace[3]):
        stats = by_device.get(trace[0])
        if stats is None:
            stats = by_device[trace[0]] = run_metadata.step_stats.dev_stats.add()
            stats.device = trace[0]
        _fill_node(stats.node_stats.add(), offset, trace)
    for graph in partition_graphs:
        run_metadata.partition_graphs.add().ParseFromString(graph)
