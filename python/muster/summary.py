"""tf.summary: ops that summarize tensors for TensorBoard, and the files that their results go to."""
import atexit
import contextlib
import os
import re
import threading
import time
import warnings

from muster import _muster, _protos, compat, dtypes, python_io, tf_logging
from muster.graph import convert, framework, meta_graph
from muster.graph.framework import GraphKeys, name_scope
from muster.graph.op_library import call
from muster.names import absent as _absent

# Messages that are members of tf.summary.
_MESSAGES = ("Event", "SessionLog", "Summary", "SummaryDescription", "SummaryMetadata", "TaggedRunMetadata")


_explain = _absent.explain(__name__)


def __getattr__(name):
    if name in _MESSAGES:
        return _protos.get("tensorflow." + name)
    return _explain(name)


def __dir__():
    return sorted(set(globals()) | set(_MESSAGES))


# --- Ops ---------------------------------------------------------------------------------------------------------------


def collect(val, collections, default_collections):
    for key in default_collections if collections is None else collections:
        framework.add_to_collection(key, val)


_NOT_IN_TAGS = re.compile(r"[^-/A-Za-z0-9_.]")


def clean_tag(name):
    """`name` with the characters replaced that a tag must not contain."""
    if name is not None:
        cleaned = _NOT_IN_TAGS.sub("_", name).lstrip("/")
        if cleaned != name:
            tf_logging.info("Summary name %s is illegal; using %s instead." % (name, cleaned))
            name = cleaned
    return name


@contextlib.contextmanager
def summary_scope(name, family=None, default_name=None, values=None):
    """Enters a scope of the summary's name; gives the tag and the scope."""
    name, family = clean_tag(name), clean_tag(family)
    with name_scope(name if family is None else "{}/{}".format(family, name), default_name, values) as scope:
        tag = scope.rstrip("/")
        yield (tag if family is None else "{}/{}".format(family, tag)), scope


def scalar(name, tensor, collections=None, family=None):
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        val = call("ScalarSummary", tags=tag, values=tensor, name=scope)
        collect(val, collections, [GraphKeys.SUMMARIES])
    return val


def image(name, tensor, max_outputs=3, collections=None, family=None):
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        val = call("ImageSummary", tag=tag, tensor=tensor, max_images=max_outputs, name=scope)
        collect(val, collections, [GraphKeys.SUMMARIES])
    return val


def histogram(name, values, collections=None, family=None):
    with summary_scope(name, family, default_name="HistogramSummary", values=[values]) as (tag, scope):
        val = call("HistogramSummary", tag=tag, values=values, name=scope)
        collect(val, collections, [GraphKeys.SUMMARIES])
    return val


def audio(name, tensor, sample_rate, max_outputs=3, collections=None, family=None):
    with summary_scope(name, family=family, values=[tensor]) as (tag, scope):
        sample_rate = convert.convert_to_tensor(sample_rate, dtype=dtypes.float32, name="sample_rate")
        val = call("AudioSummaryV2", tag=tag, tensor=tensor, max_outputs=max_outputs, sample_rate=sample_rate,
                   name=scope)
        collect(val, collections, [GraphKeys.SUMMARIES])
    return val


def text(name, tensor, collections=None):
    if tensor.dtype != dtypes.string:
        raise ValueError("Expected tensor %s to have dtype string, got %s" % (tensor.name, tensor.dtype))
    metadata = _protos.get("tensorflow.SummaryMetadata")()
    metadata.plugin_data.plugin_name = "text"
    return tensor_summary(name, tensor, summary_metadata=metadata, collections=collections)


def tensor_summary(name, tensor, summary_description=None, collections=None, summary_metadata=None, family=None,
                   display_name=None):
    if summary_metadata is None:
        summary_metadata = _protos.get("tensorflow.SummaryMetadata")()
    if summary_description is not None:
        summary_metadata.summary_description = summary_description
    if display_name is not None:
        summary_metadata.display_name = display_name
    serialized = summary_metadata.SerializeToString()
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        val = call("TensorSummaryV2", tag=tag, tensor=tensor, serialized_summary_metadata=serialized, name=scope)
        collect(val, collections, [GraphKeys.SUMMARIES])
    return val


def merge(inputs, collections=None, name=None):
    name = clean_tag(name)
    with name_scope(name, "Merge", inputs):
        val = call("MergeSummary", inputs=inputs, name=name)
        collect(val, collections, [])
    return val


def merge_all(key=GraphKeys.SUMMARIES, scope=None, name=None):
    summaries = framework.get_collection(key, scope=scope)
    return merge(summaries, name=name) if summaries else None


def get_summary_description(node_def):
    from google.protobuf import json_format

    if node_def.op != "TensorSummary":
        raise ValueError("Can't get_summary_description on %s" % node_def.op)
    description = _protos.get("tensorflow.SummaryDescription")()
    json_format.Parse(compat.as_str_any(node_def.attr["description"].s), description)
    return description


# --- Event files -------------------------------------------------------------------------------------------------------


class EventFileWriter(object):
    """Writes Event messages to a file of `logdir`, on a background thread."""

    def __init__(self, logdir, max_queue=10, flush_secs=120, filename_suffix=None, _writer=None):
        self._logdir = compat.as_text(os.fspath(logdir))
        self._writer = _writer or _muster.new_event_writer(
            self._logdir, max_queue, float(flush_secs), compat.as_text(filename_suffix or ""))

    def get_logdir(self):
        return self._logdir

    def add_event(self, event):
        if not self._writer.is_closed:
            self._writer.add_event(event.SerializeToString())

    def flush(self):
        self._writer.flush()

    def close(self):
        self._writer.close()

    def reopen(self):
        self._writer.reopen()


class FileWriter(object):
    """Writes summaries, graphs and other events to a file of `logdir`.

    With `session`, writers of the same session and folder share one file.
    """

    def __init__(self, logdir, graph=None, max_queue=10, flush_secs=120, graph_def=None, filename_suffix=None,
                 session=None):
        event_writer = None
        if session is not None:
            shared = session.__dict__.setdefault("_event_writers", {})
            event_writer = shared.get(compat.as_text(os.fspath(logdir)))
        if event_writer is None:
            event_writer = EventFileWriter(logdir, max_queue, flush_secs, filename_suffix)
        if session is not None:
            shared[event_writer.get_logdir()] = event_writer
        self._start(event_writer, graph, graph_def)

    def _start(self, event_writer, graph, graph_def):
        self.event_writer = event_writer
        self._writer = event_writer._writer
        if graph is None and graph_def is None:
            return
        self.add_graph(graph=graph, graph_def=graph_def)
        given = graph if graph is not None else graph_def
        if isinstance(given, framework.Graph):
            given = given.as_graph_def(add_shapes=True)
        self.add_meta_graph(meta_graph.create_meta_graph_def(graph_def=given))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def get_logdir(self):
        return self.event_writer.get_logdir()

    def _is_open(self):
        """Whether the writer is open; warns if it is not."""
        if self._writer.is_closed:
            warnings.warn("Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter is "
                          "explicitly reopened.")
            return False
        return True

    @staticmethod
    def _step(global_step):
        return None if global_step is None else int(global_step)

    def add_summary(self, summary, global_step=None):
        if not isinstance(summary, bytes):
            summary = summary.SerializeToString()
        if self._is_open():
            self._writer.add_summary(summary, self._step(global_step))

    def add_session_log(self, session_log, global_step=None):
        event = _protos.get("tensorflow.Event")(wall_time=time.time(), session_log=session_log)
        if global_step is not None:
            event.step = int(global_step)
        self.add_event(event)

    def add_graph(self, graph, global_step=None, graph_def=None):
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        given = graph if graph is not None else graph_def
        if isinstance(given, framework.Graph):
            if graph is None:
                tf_logging.warning("When passing a `Graph` object, please use the `graph` named argument instead of "
                                   "`graph_def`.")
            given = given.as_graph_def(add_shapes=True)
        elif isinstance(given, _protos.get("tensorflow.GraphDef")):
            tf_logging.warning("Passing a `GraphDef` to the SummaryWriter is deprecated. Pass a `Graph` object instead, "
                               "such as `sess.graph`.")
        else:
            raise TypeError("The passed graph must be an instance of `Graph` or the deprecated `GraphDef`")
        if self._is_open():
            self._writer.add_graph(given.SerializeToString(), self._step(global_step))

    def add_meta_graph(self, meta_graph_def, global_step=None):
        if not isinstance(meta_graph_def, _protos.get("tensorflow.MetaGraphDef")):
            raise TypeError("meta_graph_def must be type MetaGraphDef, saw type: %s" % type(meta_graph_def))
        if self._is_open():
            self._writer.add_meta_graph(meta_graph_def.SerializeToString(), self._step(global_step))

    def add_run_metadata(self, run_metadata, tag, global_step=None):
        serialized = run_metadata.SerializeToString()
        if self._is_open():
            self._writer.add_run_metadata(serialized, compat.as_text(tag), self._step(global_step))

    def add_event(self, event):
        if self._is_open():
            self._writer.add_event(event.SerializeToString())

    def flush(self):
        if self._is_open():
            self._writer.flush()

    def close(self):
        self._writer.close()

    def reopen(self):
        self._writer.reopen()


class FileWriterCache(object):
    """One FileWriter per folder; the hooks of this process write to the same files."""

    _cache = {}
    _lock = threading.RLock()

    @staticmethod
    def clear():
        with FileWriterCache._lock:
            FileWriterCache._cache.clear()
            _muster.clear_event_writers()

    @staticmethod
    def get(logdir):
        logdir = compat.as_text(os.fspath(logdir))
        with FileWriterCache._lock:
            writer = FileWriterCache._cache.get(logdir)
            if writer is None:
                writer = FileWriter.__new__(FileWriter)
                writer._start(EventFileWriter(logdir, _writer=_muster.cached_event_writer(logdir)),
                              framework.get_default_graph(), None)
                FileWriterCache._cache[logdir] = writer
            return writer


class SummaryWriter(FileWriter):
    """The name that FileWriter had before TensorFlow 1.0."""

    def __init__(self, logdir, graph=None, max_queue=10, flush_secs=120, graph_def=None):
        super(SummaryWriter, self).__init__(logdir, graph, max_queue, flush_secs, graph_def)


def summary_iterator(path):
    """The Event messages of a file."""
    event_class = _protos.get("tensorflow.Event")
    for record in python_io.tf_record_iterator(path):
        yield event_class.FromString(record)


# Events of writers that are still open when the program ends reach their files.
atexit.register(_muster.flush_event_writers)


SummaryWriterCache = FileWriterCache
