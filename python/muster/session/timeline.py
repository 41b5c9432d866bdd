"""tensorflow.python.client.timeline: a traced step as a chrome://tracing file, which the C++ core writes."""
import collections
import json

from muster import _muster

AllocationMaximum = collections.namedtuple("AllocationMaximum", ("timestamp", "num_bytes", "tensors"))
StepStatsAnalysis = collections.namedtuple("StepStatsAnalysis", "chrome_trace allocator_maximums")


class _Trace(object):
    """The text of a trace."""

    def __init__(self, text):
        self._text = text

    def format_to_string(self, pretty=False):
        return json.dumps(json.loads(self._text), indent=4, separators=(",", ": ")) if pretty else self._text


class Timeline(object):
    """Timeline(run_metadata.step_stats).generate_chrome_trace_format() is the text of a trace file."""

    def __init__(self, step_stats, graph=None):
        self._step_stats = step_stats

    def generate_chrome_trace_format(self, show_dataflow=True, show_memory=False, op_time="schedule"):
        """The trace; `op_time` "all" or "gpu" leaves out the time of the runtime around a kernel."""
        return self.analyze_step_stats(show_dataflow, show_memory, op_time).chrome_trace.format_to_string(pretty=True)

    def analyze_step_stats(self, show_dataflow=True, show_memory=True, op_time="schedule"):
        """The trace, and for each allocator when it held the most."""
        text, maximums = _muster.timeline(self._step_stats.SerializeToString(), bool(show_dataflow), bool(show_memory),
                                          op_time in ("gpu", "all"))
        return StepStatsAnalysis(_Trace(text), {key: AllocationMaximum(*most) for key, most in maximums.items()})
