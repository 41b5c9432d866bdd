"""tensorflow.python.client.timeline: a traced step as a chrome://tracing file."""
import collections
import json
import re

_LABEL = re.compile(r"(.*?) = (.*?)\((.*)\)$", re.DOTALL)
AllocationMaximum = collections.namedtuple("AllocationMaximum", ("timestamp", "num_bytes", "tensors"))
StepStatsAnalysis = collections.namedtuple("StepStatsAnalysis", "chrome_trace allocator_maximums")


class _Trace(object):
    """Collects events in Chrome's trace format."""

    def __init__(self):
        self._metadata, self._events = [], []

    def process(self, name, pid):
        self._metadata.append({"name": "process_name", "args": {"name": name}, "ph": "M", "pid": pid})

    def span(self, start, duration, pid, tid, name, args):
        self._add("X", "Op", name, pid, tid, start, dur=duration, args=args)

    def flow(self, name, kind, identity, timestamp, pid, tid):
        self._add(kind, "DataFlow", name, pid, tid, timestamp, id=identity)

    def object(self, kind, category, name, timestamp, pid, tid, identity, **more):
        self._add(kind, category, name, pid, tid, timestamp, id=identity, **more)

    def counter(self, name, pid, timestamp, values):
        self._add("C", "Memory", name, pid, 0, timestamp, args=values)

    def _add(self, kind, category, name, pid, tid, timestamp, **more):
        event = {"ph": kind, "cat": category, "name": name, "pid": pid, "tid": tid, "ts": timestamp}
        event.update(more)
        self._events.append(event)

    def format_to_string(self, pretty=False):
        trace = {"traceEvents": self._metadata + self._events}
        return json.dumps(trace, indent=4, separators=(",", ": ")) if pretty else json.dumps(
            trace, separators=(",", ":"))


class _Produced(object):
    """The outputs of one execution of a node: when they came to be, and the last time someone used them."""

    def __init__(self, name, time, pid, tid, identity):
        self.name, self.time, self.pid, self.tid, self.identity = name, time, pid, tid, identity
        self.last_use = time
        self.allocations = []  # (allocator, bytes, text)

    def show(self, trace, pid):
        if not self.allocations:
            return
        trace.object("N", "Tensor", self.name, self.time, pid, 0, self.identity)
        for _, _, text in self.allocations:
            trace.object("O", "Tensor", self.name, self.time, pid, 0, self.identity,
                         args={"snapshot": {"tensor_description": text}})
        trace.object("D", "Tensor", self.name, self.last_use, pid, 0, self.identity)


def _parts(node):
    """(name, op, inputs) of an execution, from the text that the runtime has put there."""
    match = _LABEL.match(node.timeline_label)
    if match is None:
        return node.node_name, node.node_name.rsplit("/", 1)[-1] or node.timeline_label, []
    name, op, inputs = match.groups()
    return name, op, [i for i in inputs.split(", ") if i]


class Timeline(object):
    """Timeline(run_metadata.step_stats).generate_chrome_trace_format() is the text of a trace file."""

    def __init__(self, step_stats, graph=None):
        self._step_stats = step_stats

    def generate_chrome_trace_format(self, show_dataflow=True, show_memory=False, op_time="schedule"):
        return self.analyze_step_stats(show_dataflow, show_memory, op_time).chrome_trace.format_to_string(pretty=True)

    def analyze_step_stats(self, show_dataflow=True, show_memory=True, op_time="schedule"):
        trace = _Trace()
        self._placed = []  # (execution, pid, tid, inputs)
        produced = {}
        pids = {}
        if show_memory:
            trace.process("Allocators", 0)
        for device in self._step_stats.dev_stats:
            pids[device.device] = len(pids) + 1
            trace.process(device.device + " Compute", pids[device.device])
        for device, pid in pids.items() if show_memory else ():
            trace.process(device + " Tensors", pid + len(pids))
        for device in self._step_stats.dev_stats:
            self._show_device(trace, device, pids[device.device], produced, op_time)
        if show_dataflow or show_memory:
            self._follow_inputs(trace, produced, show_dataflow)
        maximums = self._memory(trace, produced, pids, show_memory)
        return StepStatsAnalysis(trace, maximums)

    # --- One row per lane: executions that overlap in time do not share one. ---
    @staticmethod
    def _lanes(nodes):
        ends, lanes = [], []
        for node in nodes:
            start, end = node.all_start_micros, node.all_start_micros + node.all_end_rel_micros
            lane = next((i for i, busy_until in enumerate(ends) if busy_until <= start), None)
            if lane is None:
                lane = len(ends)
                ends.append(0)
            ends[lane] = end
            lanes.append(lane)
        return lanes

    def _show_device(self, trace, device, pid, produced, op_time):
        nodes = sorted(device.node_stats, key=lambda node: node.all_start_micros)
        for node, tid in zip(nodes, self._lanes(nodes)):
            name, op, inputs = _parts(node)
            start, duration = node.all_start_micros, node.all_end_rel_micros
            if op_time == "gpu" or op_time == "all":
                start, duration = start + node.op_start_rel_micros, node.op_end_rel_micros - node.op_start_rel_micros
            args = {"name": name, "op": op}
            args.update(("input%d" % i, value) for i, value in enumerate(inputs))
            trace.span(start, duration, pid, tid, op, args)
            self._placed.append((node, pid, tid, inputs))
            made = _Produced(name, start + duration, pid, tid, len(produced))
            for output in node.output:
                description = output.tensor_description.allocation_description
                made.allocations.append((description.allocator_name or "cpu", description.requested_bytes,
                                         str(output.tensor_description).replace('"', "")))
            produced[name] = made

    def _follow_inputs(self, trace, produced, show_dataflow):
        flow = 0
        for node, pid, tid, inputs in self._placed:
            for text in inputs:
                source = produced.get(re.sub(r":\d+$", "", text.lstrip("^")))
                if source is None:
                    continue
                start = node.all_start_micros
                source.last_use = max(source.last_use, start + node.all_end_rel_micros)
                if show_dataflow and (source.pid, source.tid) != (pid, tid):
                    trace.flow(source.name, "s", flow, source.time, source.pid, source.tid)
                    trace.flow(source.name, "t", flow, start, pid, tid)
                    flow += 1

    @staticmethod
    def _memory(trace, produced, pids, show):
        changes = collections.defaultdict(list)  # allocator -> (time, bytes, name)
        for made in produced.values():
            for allocator, size, _ in made.allocations:
                changes[allocator].append((made.time, size, made.name))
                changes[allocator].append((made.last_use, -size, made.name))
        maximums = {}
        for allocator in sorted(changes):
            live, total = collections.Counter(), 0
            best = AllocationMaximum(0, 0, set())
            for time, size, name in sorted(changes[allocator], key=lambda change: (change[0], -change[1])):
                total += size
                live[name] += size
                if total > best.num_bytes:
                    best = AllocationMaximum(time, total, {n for n, held in live.items() if held > 0})
                if show:
                    trace.counter(allocator, 0, time, {allocator: total})
            maximums[allocator] = best
        if show:
            for made in produced.values():
                made.show(trace, made.pid + len(pids))
        return maximums
