"""tf.train.MonitoredSession and its kin: arguments, collections and names; the layers themselves are C++."""
import inspect

from muster import _muster, errors, tf_logging
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.ops import array_ops, control_flow_ops
from muster.session import fetches_feeds, interruption, session as session_lib
from muster.train import basic_session_run_hooks, session_run_hook, sync_replicas
from muster.variables import resources, variable_collections

USE_DEFAULT = object()


class Scaffold(object):
    """What a model needs to be initialized, checked, summarized and saved; finalize() makes what is not given."""

    def __init__(self, init_op=None, init_feed_dict=None, init_fn=None, ready_op=None, ready_for_local_init_op=None,
                 local_init_op=None, summary_op=None, saver=None, copy_from_scaffold=None):
        base = copy_from_scaffold
        if base is not None and not isinstance(base, Scaffold):
            raise TypeError("copy_from_scaffold is not a Scaffold instance.")

        def pick(given, name):
            return given if given is not None or base is None else getattr(base, name)

        self._user_init_fn = pick(init_fn, "_user_init_fn")
        self._init_fn = self._call_init_fn if self._user_init_fn else None
        self._init_op = pick(init_op, "_init_op")
        self._init_feed_dict = pick(init_feed_dict, "_init_feed_dict")
        self._ready_op = pick(ready_op, "_ready_op")
        self._ready_for_local_init_op = pick(ready_for_local_init_op, "_ready_for_local_init_op")
        self._local_init_op = pick(local_init_op, "_local_init_op")
        self._summary_op = pick(summary_op, "_summary_op")
        self._saver = pick(saver, "_saver")

    def _call_init_fn(self, session):
        self._user_init_fn(self, session)

    def finalize(self):
        from muster import summary
        from muster.train import saver

        if self._init_op is None:
            self._init_op = self.get_or_default("init_op", GraphKeys.INIT_OP, _default_init_op)
        if self._ready_op is None:
            self._ready_op = self.get_or_default("ready_op", GraphKeys.READY_OP, _default_ready_op)
        if self._ready_for_local_init_op is None:
            self._ready_for_local_init_op = self.get_or_default(
                "ready_for_local_init_op", GraphKeys.READY_FOR_LOCAL_INIT_OP, _default_ready_for_local_init_op)
        if self._local_init_op is None:
            self._local_init_op = self.get_or_default("local_init_op", GraphKeys.LOCAL_INIT_OP,
                                                      self.default_local_init_op)
        if self._summary_op is None:
            self._summary_op = self.get_or_default("summary_op", GraphKeys.SUMMARY_OP, summary.merge_all)
        if self._saver is None:
            self._saver = saver._get_saver_or_default()
        self._saver.build()
        framework.get_default_graph().finalize()
        tf_logging.info("Graph was finalized.")
        return self

    init_fn = property(lambda self: self._init_fn)
    init_op = property(lambda self: self._init_op)
    ready_op = property(lambda self: self._ready_op)
    ready_for_local_init_op = property(lambda self: self._ready_for_local_init_op)
    local_init_op = property(lambda self: self._local_init_op)
    summary_op = property(lambda self: self._summary_op)
    saver = property(lambda self: self._saver)
    init_feed_dict = property(lambda self: self._init_feed_dict)

    @staticmethod
    def get_or_default(arg_name, collection_key, default_constructor):
        """The one element of the collection, or a new one that is put there."""
        elements = framework.get_collection(collection_key)
        if elements:
            if len(elements) > 1:
                raise RuntimeError("More than one item in the collection \"%s\". Please indicate which one to use by "
                                   "passing it to the tf.Scaffold constructor as:  tf.Scaffold(%s=item to use)"
                                   % (collection_key, arg_name))
            return elements[0]
        op = default_constructor()
        if op is not None:
            framework.add_to_collection(collection_key, op)
        return op

    @staticmethod
    def default_local_init_op():
        return control_flow_ops.group(variable_collections.local_variables_initializer(), variable_collections.tables_initializer(),
                                      resources.initialize_resources(resources.local_resources()))


def _default_init_op():
    return control_flow_ops.group(variable_collections.global_variables_initializer(),
                                  resources.initialize_resources(resources.shared_resources()),
                                  *framework.get_collection("saved_model_initializers"))


def _default_ready_op():
    return array_ops.concat([variable_collections.report_uninitialized_variables(), resources.report_uninitialized_resources()], 0)


def _default_ready_for_local_init_op():
    return array_ops.concat([variable_collections.report_uninitialized_variables(variable_collections.global_variables()),
                             resources.report_uninitialized_resources(resources.shared_resources())], 0)


# --- Session creators. ---
class SessionCreator(object):
    """Makes sessions in which the model is ready."""

    def create_session(self):
        raise NotImplementedError("create_session is not implemented for {}.".format(self))


class _ScaffoldSessionCreator(SessionCreator):
    def __init__(self, scaffold, master, config):
        self._scaffold = scaffold or Scaffold()
        self._master, self._config = master, config
        self._session_manager = None

    def _get_session_manager(self):
        from muster.train import session_manager

        if self._session_manager is None:
            self._session_manager = session_manager.SessionManager(
                local_init_op=self._scaffold.local_init_op, ready_op=self._scaffold.ready_op,
                ready_for_local_init_op=self._scaffold.ready_for_local_init_op, graph=framework.get_default_graph())
        return self._session_manager


class ChiefSessionCreator(_ScaffoldSessionCreator):
    """Restores or initializes the model."""

    def __init__(self, scaffold=None, master="", config=None, checkpoint_dir=None, checkpoint_filename_with_path=None):
        super(ChiefSessionCreator, self).__init__(scaffold, master, config)
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path

    def create_session(self):
        self._scaffold.finalize()
        return self._get_session_manager().prepare_session(
            self._master, saver=self._scaffold.saver, checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path, config=self._config,
            init_op=self._scaffold.init_op, init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn)


class WorkerSessionCreator(_ScaffoldSessionCreator):
    """Waits until the chief has made the model ready."""

    def __init__(self, scaffold=None, master="", config=None, max_wait_secs=30 * 60):
        super(WorkerSessionCreator, self).__init__(scaffold, master, config)
        self._max_wait_secs = max_wait_secs

    def create_session(self):
        self._scaffold.finalize()
        return self._get_session_manager().wait_for_session(self._master, config=self._config,
                                                            max_wait_secs=self._max_wait_secs)


# --- Sessions. ---
class StepContext(object):
    """What a function given to run_step_fn works with."""

    def __init__(self, session, run_with_hooks_fn):
        self._session = session
        self._run_with_hooks_fn = run_with_hooks_fn

    @property
    def session(self):
        return self._session

    def run_with_hooks(self, *args, **kwargs):
        return self._run_with_hooks_fn(*args, **kwargs)

    def request_stop(self):
        raise StopIteration("step_fn has requested the iterations to stop.")


class _Layer(object):
    """Stands for one of TensorFlow's nested wrappers: programs follow `_sess` through them to reach the tf.Session."""

    def __init__(self, owner, depth):
        self._owner, self._depth = owner, depth

    @property
    def _sess(self):
        return _Layer(self._owner, self._depth - 1) if self._depth else self._owner._tf_sess()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._owner, name)


def _function_arguments(function):
    return tuple(inspect.getfullargspec(function).args)


class _MonitoredSession(object):
    """What MonitoredSession and SingularMonitoredSession share."""

    StepContext = StepContext

    def __init__(self, session_creator, hooks, should_recover, stop_grace_period_secs=120):
        self._graph = framework.get_default_graph()
        self._graph_was_finalized = self._graph.finalized
        self._hooks = hooks or []
        self._current = session_run_hook.CurrentRun()
        self._fetches = fetches_feeds.FetchCache()
        parts = _Parts(session_creator or ChiefSessionCreator())
        self._core = None
        self._core = _muster.MonitoredSession.create(
            create_session=parts.create_session, hooks=[self._native(hook) for hook in self._hooks],
            grace_secs=stop_grace_period_secs, recover=should_recover, new_coordinator=parts.new_coordinator,
            start_queue_runners=parts.start_queue_runners)
        interruption.watch(self)

    def _native(self, hook):
        core = basic_session_run_hooks.native_hook(hook)
        return core if core is not None else _muster.PythonHook(session_run_hook.HookAdapter(hook, self._current))

    @property
    def graph(self):
        session = self._tf_sess()
        return None if session is None else session.graph

    @property
    def _sess(self):
        return None if self._core is None else _Layer(self, 2)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        if self._core is None:
            raise AttributeError("'NoneType' object has no attribute 'run'")
        return self._run_on(self._core.run, fetches, feed_dict, options, run_metadata)

    def _run_on(self, run, fetches, feed_dict=None, options=None, run_metadata=None):
        outputs, targets, build = self._fetches.flatten(self._graph, fetches)
        feeds = fetches_feeds.flat_feeds(self._graph, feed_dict) if feed_dict else []
        outer = self._current.args, self._current.context
        self._current.args, self._current.context = session_run_hook.SessionRunArgs(fetches, feed_dict), None
        request = outputs, targets, feeds, session_run_hook.options_tuple(options)
        try:
            result = run(request, run_metadata is not None)
        except errors.OpError as e:
            if e.op is not None:
                raise
            raise session_lib.with_failing_op(self._graph, e) from None
        finally:
            self._current.args, self._current.context = outer
        if run_metadata is None:
            return build(result)
        values, serialized = result
        run_metadata.ParseFromString(serialized or b"")
        return build(values)

    def run_step_fn(self, step_fn):
        arguments = _function_arguments(step_fn)
        if arguments not in (("step_context",), ("self", "step_context")):
            raise ValueError("`step_fn` may either have one `step_context` argument, or `self` and `step_context` "
                             "arguments if it's an instance method. Got {} instead.".format(arguments))
        if self._core is None:
            raise AttributeError("'NoneType' object has no attribute 'run_step_fn'")
        returned = []

        def step(core, run):
            def run_with_hooks(fetches, feed_dict=None, options=None, run_metadata=None):
                return self._run_on(run, fetches, feed_dict, options, run_metadata)

            returned[:] = [step_fn(StepContext(session_lib.session_of(core), run_with_hooks))]

        self._core.run_step(step)
        return returned[0]

    def should_stop(self):
        return self._core is None or self._core.should_stop()

    def close(self):
        self._close(clean=True)

    def __enter__(self):
        return self

    def __exit__(self, exception_type, exception_value, traceback):
        if self._core is not None and interruption.is_interruption(exception_value):
            interruption.close(self, exception_value)
            return False
        clean = exception_type in (None, errors.OutOfRangeError, StopIteration)
        self._close(clean)
        return clean

    def close_interrupted(self):
        """Saves if this session saves at all, closes without calling `end` of hooks, and returns what was saved."""
        return self._end(self._core.close_interrupted)

    def _close(self, clean):
        if self._core is None:
            raise RuntimeError("Session is already closed.")
        self._end(lambda: self._core.close(clean))

    def _end(self, close):
        session = self._tf_sess()
        try:
            return close()
        finally:
            interruption.forget(self)
            self._core = None
            if session is not None:
                session._closed = True
            if not self._graph_was_finalized:
                self._graph._unsafe_unfinalize()

    def _is_closed(self):
        return self._tf_sess() is None

    def _tf_sess(self):
        core = None if self._core is None else self._core.raw_session
        return None if core is None else session_lib.session_of(core)


class _Parts(object):
    """Makes what C++ asks for, and keeps the newest: Python's objects live as long as the session that uses them."""

    def __init__(self, creator):
        self._creator = creator
        self._session = self._coordinator = None

    def create_session(self):
        self._session = self._creator.create_session()
        return self._session._session

    def new_coordinator(self):
        self._coordinator = session_run_hook.new_coordinator()
        return self._coordinator._coordinator

    def start_queue_runners(self, core, coord):
        from muster.train import queue_runner

        if framework.get_collection(GraphKeys.QUEUE_RUNNERS):
            queue_runner.start_queue_runners(sess=self._session, coord=self._coordinator)


class MonitoredSession(_MonitoredSession):
    """A session with hooks that starts over when a task of the cluster was lost."""

    def __init__(self, session_creator=None, hooks=None, stop_grace_period_secs=120):
        super(MonitoredSession, self).__init__(session_creator, hooks, should_recover=True,
                                               stop_grace_period_secs=stop_grace_period_secs)


class SingularMonitoredSession(_MonitoredSession):
    """A session with hooks; errors of lost tasks reach the caller."""

    def __init__(self, hooks=None, scaffold=None, master="", config=None, checkpoint_dir=None,
                 stop_grace_period_secs=120, checkpoint_filename_with_path=None):
        creator = ChiefSessionCreator(scaffold=scaffold, master=master, config=config, checkpoint_dir=checkpoint_dir,
                                      checkpoint_filename_with_path=checkpoint_filename_with_path)
        super(SingularMonitoredSession, self).__init__(creator, hooks, should_recover=False,
                                                       stop_grace_period_secs=stop_grace_period_secs)

    def raw_session(self):
        return self._tf_sess()


def _steps_or_secs(steps, secs, default_steps, default_secs):
    """The interval asked for; the default if neither was given."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default_steps, default_secs
    return (None if steps is USE_DEFAULT else steps), (None if secs is USE_DEFAULT else secs)


def MonitoredTrainingSession(master="", is_chief=True, checkpoint_dir=None, scaffold=None, hooks=None,
                             chief_only_hooks=None, save_checkpoint_secs=USE_DEFAULT, save_summaries_steps=USE_DEFAULT,
                             save_summaries_secs=USE_DEFAULT, config=None, stop_grace_period_secs=120,
                             log_step_count_steps=100, max_wait_secs=7200, save_checkpoint_steps=USE_DEFAULT,
                             summary_dir=None):
    """A MonitoredSession for training, with the usual hooks on the chief."""
    summaries_steps, summaries_secs = _steps_or_secs(save_summaries_steps, save_summaries_secs, 100, None)
    checkpoint_steps, checkpoint_secs = _steps_or_secs(save_checkpoint_steps, save_checkpoint_secs, None, 600)
    scaffold = scaffold or Scaffold()
    if not is_chief:
        creator = WorkerSessionCreator(scaffold=scaffold, master=master, config=config, max_wait_secs=max_wait_secs)
        return MonitoredSession(session_creator=creator, hooks=hooks or [],
                                stop_grace_period_secs=stop_grace_period_secs)
    creator = ChiefSessionCreator(scaffold=scaffold, checkpoint_dir=checkpoint_dir, master=master, config=config)
    all_hooks = list(chief_only_hooks or [])
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            all_hooks.append(basic_session_run_hooks.StepCounterHook(
                output_dir=summary_dir, every_n_steps=log_step_count_steps))
        if (summaries_steps and summaries_steps > 0) or (summaries_secs and summaries_secs > 0):
            all_hooks.append(basic_session_run_hooks.SummarySaverHook(
                scaffold=scaffold, save_steps=summaries_steps, save_secs=summaries_secs, output_dir=summary_dir))
    if checkpoint_dir:
        if (checkpoint_secs and checkpoint_secs > 0) or (checkpoint_steps and checkpoint_steps > 0):
            all_hooks.append(basic_session_run_hooks.CheckpointSaverHook(
                checkpoint_dir, save_steps=checkpoint_steps, save_secs=checkpoint_secs, scaffold=scaffold))
    all_hooks.extend(hooks or [])
    all_hooks.extend(sync_replicas.MissingChiefHook(optimizer)
                     for optimizer in getattr(framework.get_default_graph(), "_sync_replicas", ()))
    return MonitoredSession(session_creator=creator, hooks=all_hooks, stop_grace_period_secs=stop_grace_period_secs)


__all__ = ["Scaffold", "SessionCreator", "ChiefSessionCreator", "WorkerSessionCreator", "MonitoredSession",
           "SingularMonitoredSession", "MonitoredTrainingSession"]
