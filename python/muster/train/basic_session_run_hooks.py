"""The hooks of tf.train. Each is a hook of C++; what concerns collections, names and savers is asked here."""
import os

import numpy as np

from muster import _muster, compat
from muster.graph import framework
from muster.session import fetches_feeds, session as session_lib
from muster.train import training_util
from muster.train.session_run_hook import SessionRunArgs, SessionRunHook, metadata_message, options_message, options_tuple


class _HookTimer(object):
    """Decides at which steps a hook triggers."""

    def reset(self):
        pass

    def should_trigger_for_step(self, step):
        raise NotImplementedError

    def update_last_triggered_step(self, step):
        raise NotImplementedError

    def last_triggered_step(self):
        raise NotImplementedError


class SecondOrStepTimer(_HookTimer):
    """Triggers every `every_secs` seconds or `every_steps` steps, never twice for one step."""

    def __init__(self, every_secs=None, every_steps=None):
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs, self._every_steps = every_secs, every_steps
        self._timer = _muster.StepTimer(every_steps, every_secs)

    def reset(self):
        self._timer.reset()

    def should_trigger_for_step(self, step):
        return self._timer.due(int(step))

    def update_last_triggered_step(self, step):
        return self._timer.happened(int(step))

    def last_triggered_step(self):
        return self._timer.last_step()


class NeverTriggerTimer(_HookTimer):
    """Never triggers."""

    def should_trigger_for_step(self, step):
        return False

    def update_last_triggered_step(self, step):
        return None, None

    def last_triggered_step(self):
        return None


def _check_interval(every_secs, every_steps):
    SecondOrStepTimer(every_secs, every_steps)  # raises if both or neither are given


def _global_step():
    """(output, name of the variable) of the default graph's step, or None."""
    read = training_util._get_or_create_global_step_read()
    if read is None:
        return None
    return read._output, training_util.get_global_step().op.name


class _NativeHook(SessionRunHook):
    """A hook that is implemented in C++. Python calls its methods only where a derived class overrides some of them;
    fetches then have TensorFlow's structure."""

    _core = None
    _asked = ()

    def begin(self):
        self._core.begin()

    def after_create_session(self, session, coord):
        self._core.after_create_session(session._session, getattr(coord, "_coordinator", None))

    def before_run(self, run_context):
        session = run_context.session
        request, stop = self._core.before_run(session._session)
        if stop:
            run_context.request_stop()
        if request is None:
            self._asked = ()
            return None
        self._asked, _, feeds, options = request
        graph = session.graph
        fetches = self._structure([graph._tensor(output) for output in self._asked]) if self._asked else None
        return SessionRunArgs(fetches, {graph._tensor(output): value for output, value in feeds} or None,
                              options_message(options) if any(options) else None)

    def after_run(self, run_context, run_values):
        values = [np.asarray(v) for v in self._flat(run_values.results)] if self._asked else []
        options, metadata = run_values.options, run_values.run_metadata
        if self._core.after_run(run_context.session._session, list(self._asked), values, options_tuple(options),
                                b"" if metadata is None else metadata.SerializeToString()):
            run_context.request_stop()

    def end(self, session):
        self._core.end(session._session)

    # The fetches in the structure of TensorFlow's hook of this name, and the results as a flat list.
    def _structure(self, tensors):
        return tensors[0]

    def _flat(self, results):
        return [results]


_CALLS = ("begin", "after_create_session", "before_run", "after_run", "end")


def native_hook(hook):
    """The C++ hook of `hook`, or None if a method is overridden."""
    if not isinstance(hook, _NativeHook) or any(name in vars(hook) for name in _CALLS):
        return None
    if any(getattr(type(hook), name) is not getattr(_NativeHook, name) for name in _CALLS):
        return None
    return hook._core


def _as_graph_element(obj):
    """A tensor by name, or what belongs to the default graph already."""
    graph = framework.get_default_graph()
    if not isinstance(obj, str):
        if not hasattr(obj, "graph") or obj.graph != graph:
            raise ValueError("Passed %s should have graph attribute that is equal to current graph %s." % (obj, graph))
        return obj
    if ":" in obj:
        return graph.as_graph_element(obj)
    element = graph.as_graph_element(obj + ":0")
    try:
        graph.as_graph_element(obj + ":1")
    except (KeyError, ValueError):
        return element
    raise ValueError("Name %s is ambiguous, as this `Operation` has multiple outputs (at least 2)." % obj)


def _output_of(value):
    """The C++ output of a tensor or a variable of the default graph."""
    return framework.get_default_graph().as_graph_element(value, allow_operation=False)._output


class LoggingTensorHook(_NativeHook):
    """Logs tensors every `every_n_iter` runs or `every_n_secs` seconds, or at the end."""

    def __init__(self, tensors, every_n_iter=None, every_n_secs=None, at_end=False, formatter=None):
        only_log_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_log_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError("invalid every_n_iter=%s." % every_n_iter)
        if isinstance(tensors, dict):
            self._tag_order = sorted(tensors.keys())
        else:
            self._tag_order = tensors
            tensors = {item: item for item in tensors}
        self._tensors = tensors
        self._formatter = formatter
        self._core = _muster.logging_tensors(
            tensors=self._logged, every_iter=every_n_iter, every_secs=every_n_secs, at_end=bool(at_end),
            formatter=None if formatter is None else self._format, text=_value_text)

    def _logged(self):
        self._current_tensors = {tag: _as_graph_element(tensor) for tag, tensor in self._tensors.items()}
        return [(str(tag), _output_of(self._current_tensors[tag])) for tag in self._tag_order]

    def _format(self, values):
        return self._formatter(dict(zip(self._tag_order, values)))

    def _structure(self, tensors):
        return dict(zip(self._tag_order, tensors))

    def _flat(self, results):
        return [results[tag] for tag in self._tag_order]


def _value_text(value):
    with np.printoptions(suppress=True):
        return "%s" % (value,)


class StopAtStepHook(_NativeHook):
    """Stops at a global step, or after a number of steps."""

    def __init__(self, num_steps=None, last_step=None):
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        if last_step is not None:
            self._core = _muster.stop_at_step(_global_step, int(np.ceil(last_step)))
        else:
            self._core = _muster.stop_after_steps(_global_step, int(np.ceil(num_steps)))

    @property
    def _last_step(self):
        return self._core.last_step


class CheckpointSaverListener(object):
    """Called before and after a checkpoint is saved."""

    def begin(self):
        pass

    def before_save(self, session, global_step_value):
        pass

    def after_save(self, session, global_step_value):
        """Returning True asks for the end of training."""

    def end(self, session, global_step_value):
        pass


class _ListenerAdapter(object):
    """Adapts a listener to the interface that C++ calls."""

    def __init__(self, listener):
        self._listener = listener
        self.begin = listener.begin

    def before_save(self, core, step):
        self._listener.before_save(session_lib.session_of(core), step)

    def after_save(self, core, step):
        return bool(self._listener.after_save(session_lib.session_of(core), step))

    def end(self, core, step):
        self._listener.end(session_lib.session_of(core), step)

    def __str__(self):
        return str(self._listener)


class CheckpointSaverHook(_NativeHook):
    """Saves a checkpoint every `save_steps` steps or `save_secs` seconds, when a session is created, and at the end."""

    def __init__(self, checkpoint_dir, save_secs=None, save_steps=None, saver=None, checkpoint_basename="model.ckpt",
                 scaffold=None, listeners=None):
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        _check_interval(save_secs, save_steps)
        checkpoint_dir = compat.as_text(os.fspath(checkpoint_dir))
        self._saver, self._scaffold = saver, scaffold
        self._checkpoint_dir = checkpoint_dir
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._listeners = listeners or []
        self._core = _muster.checkpoint_saver(
            step=_global_step, folder=checkpoint_dir, basename=checkpoint_basename,
            sink=_events_of(None, checkpoint_dir), save_steps=save_steps,
            save_secs=save_secs, save=self._write, describe=self._describe,
            listeners=[_ListenerAdapter(listener) for listener in self._listeners])

    def _write(self, core, path, step):
        self._get_saver().save(session_lib.session_of(core), path, global_step=step)

    def _describe(self, core):
        from muster import summary
        from muster.graph import meta_graph

        graph = session_lib.session_of(core).graph
        definition = graph.as_graph_def(add_shapes=True)
        meta_graph.write_graph(definition, self._checkpoint_dir, "graph.pbtxt")
        saver = self._get_saver()
        with graph.as_default():
            meta = meta_graph.create_meta_graph_def(
                graph_def=definition, saver_def=saver.saver_def if saver else None)
        writer = summary.FileWriterCache.get(self._checkpoint_dir)
        writer.add_graph(graph)
        writer.add_meta_graph(meta)

    def _save(self, session, step):
        """Saves now. Returns whether a listener asks for the end of training."""
        return self._core.save(session._session, int(step))

    def _get_saver(self):
        if self._saver is not None:
            return self._saver
        if self._scaffold is not None:
            return self._scaffold.saver
        key = framework.GraphKeys.SAVERS
        savers = framework.get_collection(key)
        if not savers:
            raise RuntimeError("No items in collection {}. Please add a saver to the collection or provide a saver or "
                               "scaffold.".format(key))
        if len(savers) > 1:
            raise RuntimeError("More than one item in collection {}. Please indicate which one to use by passing it to "
                               "the constructor.".format(key))
        self._saver = savers[0]
        return self._saver


class SummarySaverHook(_NativeHook):
    """Writes summaries every `save_steps` steps or `save_secs` seconds."""

    def __init__(self, save_steps=None, save_secs=None, output_dir=None, summary_writer=None, scaffold=None,
                 summary_op=None):
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        _check_interval(save_secs, save_steps)
        self._summary_op, self._scaffold = summary_op, scaffold
        self._summary_writer, self._output_dir = summary_writer, output_dir
        self._core = _muster.summary_saver(
            step=_global_step, sink=_events_of(summary_writer, output_dir), save_steps=save_steps,
            save_secs=save_secs, summaries=lambda: [_tensor_output(op) for op in self._get_summary_op() or ()])

    def _get_summary_op(self):
        op = self._summary_op if self._summary_op is not None else self._scaffold.summary_op
        return op if op is None or isinstance(op, list) else [op]

    def _structure(self, tensors):
        return dict({"global_step": tensors[0]}, **({"summary": tensors[1:]} if len(tensors) > 1 else {}))

    def _flat(self, results):
        return [results["global_step"]] + list(results.get("summary", ()))


def _tensor_output(op):
    return (op if isinstance(op, framework.Tensor) else _as_graph_element(op))._output


def _events_of(writer, folder):
    """A function that gives the C++ writer of a tf.summary.FileWriter, or of a folder; None: no events."""
    if writer is not None:
        if not hasattr(writer, "_writer"):
            raise TypeError("summary_writer must be a tf.summary.FileWriter, got %r" % (writer,))
        return lambda: writer._writer
    if not folder:
        return None

    def of_folder():
        from muster import summary

        return summary.FileWriterCache.get(folder)._writer

    return of_folder


class StepCounterHook(_NativeHook):
    """Logs and writes how many steps are done per second."""

    def __init__(self, every_n_steps=100, every_n_secs=None, output_dir=None, summary_writer=None):
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._summary_writer, self._output_dir = summary_writer, output_dir
        self._core = _muster.step_counter(step=_global_step, sink=_events_of(summary_writer, output_dir),
                                          steps=every_n_steps, secs=every_n_secs)


class NanLossDuringTrainingError(RuntimeError):
    def __str__(self):
        return "NaN loss during training."


def _raise_nan_loss():
    raise NanLossDuringTrainingError


class NanTensorHook(_NativeHook):
    """Ends training when a loss is not a number."""

    def __init__(self, loss_tensor, fail_on_nan_loss=True):
        self._loss_tensor, self._fail_on_nan_loss = loss_tensor, fail_on_nan_loss
        self._core = _muster.nan_tensor(_tensor_output(loss_tensor), _raise_nan_loss if fail_on_nan_loss else None)


class GlobalStepWaiterHook(_NativeHook):
    """Delays this worker until the global step has a value."""

    def __init__(self, wait_until_step):
        self._wait_until_step = wait_until_step
        self._core = _muster.global_step_waiter(_global_step, int(np.ceil(wait_until_step)))


class FinalOpsHook(_NativeHook):
    """Runs ops once, at the end."""

    def __init__(self, final_ops, final_ops_feed_dict=None):
        self._final_ops, self._final_ops_feed_dict = final_ops, final_ops_feed_dict
        self._build = None
        self._core = _muster.final_ops(self._flatten)

    def _flatten(self):
        graph = framework.get_default_graph()
        if self._final_ops is None:
            return [], [], []
        outputs, targets, self._build = fetches_feeds.FetchCache().flatten(graph, self._final_ops)
        return outputs, targets, fetches_feeds.flat_feeds(graph, self._final_ops_feed_dict)

    @property
    def final_ops_values(self):
        values = self._core.values
        return None if values is None or self._build is None else self._build(values)


class FeedFnHook(_NativeHook):
    """Adds what a function returns to the feeds of every run."""

    def __init__(self, feed_fn):
        self.feed_fn = feed_fn
        self._core = _muster.feed_fn(
            lambda: fetches_feeds.flat_feeds(framework.get_default_graph(), self.feed_fn()))


class ProfilerHook(_NativeHook):
    """Traces a run every `save_steps` steps or `save_secs` seconds and writes a timeline of it."""

    def __init__(self, save_steps=None, save_secs=None, output_dir="", show_dataflow=True, show_memory=False):
        _check_interval(save_secs, save_steps)
        output_dir = compat.as_text(os.fspath(output_dir))
        self._show_dataflow, self._show_memory = show_dataflow, show_memory
        self._core = _muster.profiler(step=_global_step, folder=output_dir, sink=_events_of(None, output_dir),
                                      save_steps=save_steps, save_secs=save_secs, save=self._write)

    def _write(self, metadata, path):
        from muster import gfile
        from muster.session import timeline

        trace = timeline.Timeline(metadata_message(metadata).step_stats)
        with gfile.Open(path, "w") as file:
            file.write(trace.generate_chrome_trace_format(show_dataflow=self._show_dataflow,
                                                          show_memory=self._show_memory))

    def _structure(self, tensors):
        return {"global_step": tensors[0]}

    def _flat(self, results):
        return [results["global_step"]]


__all__ = ["SecondOrStepTimer", "NeverTriggerTimer", "LoggingTensorHook", "StopAtStepHook", "CheckpointSaverListener",
           "CheckpointSaverHook", "SummarySaverHook", "StepCounterHook", "NanLossDuringTrainingError", "NanTensorHook",
           "GlobalStepWaiterHook", "FinalOpsHook", "FeedFnHook", "ProfilerHook"]
