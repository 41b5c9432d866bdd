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


def _inputs_of(stats):
    """The (node, output) pairs that a node reads and the nodes that it waits for, from its label."""
    read, waited = [], []
    begin, end = stats.timeline_label.find("("), stats.timeline_label.rfind(")")
    for name in filter(None, stats.timeline_label[begin + 1:end].split(", ")):
        if name.startswith("^"):
            waited.append(name[1:])
        else:
            node, _, port = name.partition(":")
            read.append((node, int(port) if port.isdigit() else 0))
    return read, waited


def fill_costs(run_metadata):
    """Makes the cost graph of a traced step: its nodes, what they read, how long they took and how large their results are."""
    costs = run_metadata.cost_graph
    costs.SetInParent()
    nodes = [(device.device, stats) for device in run_metadata.step_stats.dev_stats for stats in device.node_stats]
    ids = {stats.node_name: i for i, (_, stats) in enumerate(nodes)}
    for i, (device, stats) in enumerate(nodes):
        node = costs.node.add()
        node.name, node.device, node.id = stats.node_name, device, i
        node.compute_cost = node.compute_time = stats.op_end_rel_micros
        read, waited = _inputs_of(stats)
        for name, port in read:
            if name in ids:
                info = node.input_info.add()
                info.preceding_node, info.preceding_port = ids[name], port
        node.control_input.extend(ids[name] for name in waited if name in ids)
        for output in stats.output:
            info = node.output_info.add()
            description = output.tensor_description
            info.size = description.allocation_description.requested_bytes
            info.alias_input_port = -1
            info.dtype = description.dtype
            info.shape.CopyFrom(description.shape)


class CostModel(object):
    """Which steps of a session are measured: every so many of each kind, from some step on (GraphOptions)."""

    def __init__(self, graph_options, is_local):
        self._every = graph_options.build_cost_model
        self._after = graph_options.build_cost_model_after
        self._is_local = is_local
        self._steps = {}  # of each kind

    def wants(self, kind):
        """Counts a step of a kind; true when it is to be measured."""
        steps = self._steps.get(kind, 0) - self._after
        self._steps[kind] = self._steps.get(kind, 0) + 1
        # A master, unlike a local session, measures before the first step that counts if the numbers say so.
        return (steps >= 0 or not self._is_local) and (steps + 1) % self._every == 0

    def fill(self, run_metadata, trace_wanted):
        fill_costs(run_metadata)
        if not self._is_local and not trace_wanted:
            run_metadata.ClearField("step_stats")
