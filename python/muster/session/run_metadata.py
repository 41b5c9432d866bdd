"""The cost graph of a traced step, in RunMetadata."""


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
    """Which steps of a session are measured: of each kind every `build_cost_model`-th, from a given one on."""

    def __init__(self, graph_options, is_local):
        self._every = graph_options.build_cost_model
        self._after = graph_options.build_cost_model_after
        self._is_local = is_local
        self._steps = {}  # kind -> steps so far

    def wants(self, kind):
        """Counts a step of a kind; true when it is to be measured."""
        steps = self._steps.get(kind, 0) - self._after
        self._steps[kind] = self._steps.get(kind, 0) + 1
        # As in TensorFlow: at a master, unlike in a local session, steps before `_after` may be measured too.
        return (steps >= 0 or not self._is_local) and (steps + 1) % self._every == 0

    def fill(self, run_metadata, trace_wanted):
        fill_costs(run_metadata)
        if not self._is_local and not trace_wanted:
            run_metadata.ClearField("step_stats")
