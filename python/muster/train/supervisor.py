"""tf.train.Supervisor: arguments, collections and names; the loop and its services are C++."""
import contextlib
import os
import sys
import weakref

from muster import _muster, _protos, dtypes, errors, tf_logging
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.ops import control_flow_ops
from muster.session import fetches_feeds, interruption, session as session_lib
from muster.train import coordinator, session_manager as session_manager_lib, sync_replicas, training_util
from muster.variables import variable_collections


class _Events(object):
    """A FileWriter, as the supervisor in C++ uses it."""

    def __init__(self, writer):
        self._writer = writer
        self.reopen, self.close = writer.reopen, writer.close

    def add_summary(self, summary, step):
        self._writer.add_summary(summary, step)

    def add_scalar(self, tag, value, step):
        summary = _protos.get("tensorflow.Summary")()
        summary.value.add(tag=tag, simple_value=value)
        self._writer.add_summary(summary, step)

    def add_session_log(self, status, path, step):
        self._writer.add_session_log(_protos.get("tensorflow.SessionLog")(status=status, checkpoint_path=path), step)


class _ServiceThread(coordinator.LooperThread):
    """A service of the supervisor in a thread of Python's."""

    def __init__(self, sv, service):
        super(_ServiceThread, self).__init__(sv.coord, service.every)
        self._sv = sv  # keeps what the service uses
        self._service = service

    def start_loop(self):
        self._service.start()

    def run_loop(self):
        self._service.run()


class Supervisor(object):
    """Prepares sessions, saves and summarizes beside the program's own loop, and ends all threads together."""

    USE_DEFAULT = 0

    def __init__(self, graph=None, ready_op=USE_DEFAULT, ready_for_local_init_op=USE_DEFAULT, is_chief=True,
                 init_op=USE_DEFAULT, init_feed_dict=None, local_init_op=USE_DEFAULT, logdir=None,
                 summary_op=USE_DEFAULT, saver=USE_DEFAULT, global_step=USE_DEFAULT, save_summaries_secs=120,
                 save_model_secs=600, recovery_wait_secs=30, stop_grace_secs=120, checkpoint_basename="model.ckpt",
                 session_manager=None, summary_writer=USE_DEFAULT, init_fn=None, local_init_run_options=None):
        graph = framework.get_default_graph() if graph is None else graph
        self._graph = graph
        self._is_chief = is_chief
        self._session = None  # the one that was prepared last, until the stop
        self._init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        with graph.as_default():
            self._init_ops(ready_op, ready_for_local_init_op, init_op, local_init_op, saver, summary_op, global_step)
        self._coord = coordinator.Coordinator()
        self._init_writing(logdir, save_summaries_secs, save_model_secs, checkpoint_basename, summary_writer)
        if session_manager is None:
            session_manager = session_manager_lib.SessionManager(
                local_init_op=self._local_init_op, ready_op=self._ready_op,
                ready_for_local_init_op=self._ready_for_local_init_op, graph=graph,
                recovery_wait_secs=recovery_wait_secs, local_init_run_options=local_init_run_options)
        self._session_manager = session_manager
        self._check_devices()
        step = self._global_step
        self._supervisor = _muster.new_supervisor(
            weakref.ref(self), self._coord._coordinator, bool(is_chief), self._logdir or "", checkpoint_basename,
            [self._save_summaries_secs or 0, self._save_model_secs or 0, stop_grace_secs],
            self._output(self._summary_op), self._output(step), "" if step is None else step.op.name,
            _Events(self._summary_writer) if self._summary_writer else None, bool(self._saver))
        graph.finalize()

    # --- What is not given. ---
    def _init_ops(self, ready_op, ready_for_local_init_op, init_op, local_init_op, saver, summary_op, global_step):
        from muster import summary
        from muster.train import saver as saver_lib

        def default_local_init_op():
            return control_flow_ops.group(variable_collections.local_variables_initializer(), variable_collections.tables_initializer())

        self._ready_op = _given_or_default(ready_op, GraphKeys.READY_OP, variable_collections.report_uninitialized_variables)
        self._ready_for_local_init_op = _given_or_default(ready_for_local_init_op, GraphKeys.READY_FOR_LOCAL_INIT_OP)
        self._init_op = _given_or_default(init_op, GraphKeys.INIT_OP, variable_collections.global_variables_initializer)
        self._local_init_op = _given_or_default(local_init_op, GraphKeys.LOCAL_INIT_OP, default_local_init_op)
        self._saver = _given_or_default(
            saver, GraphKeys.SAVERS, lambda: saver_lib.Saver() if variable_collections.global_variables() else None)
        self._summary_op = _given_or_default(summary_op, GraphKeys.SUMMARY_OP, summary.merge_all)
        self._global_step = _given_or_default(global_step, GraphKeys.GLOBAL_STEP, _default_global_step)

    def _init_writing(self, logdir, save_summaries_secs, save_model_secs, checkpoint_basename, summary_writer):
        self._logdir = self._save_path = self._summary_writer = None
        self._save_summaries_secs = self._save_model_secs = None
        if not self._is_chief:
            return
        self._logdir = logdir
        self._save_summaries_secs, self._save_model_secs = save_summaries_secs, save_model_secs
        if logdir:
            self._save_path = os.path.join(logdir, checkpoint_basename)
        if summary_writer is not Supervisor.USE_DEFAULT:
            self._summary_writer = summary_writer
        elif logdir:
            from muster import summary

            self._summary_writer = summary.FileWriter(logdir)

    def _check_devices(self):
        if self._is_chief:
            return
        for op in self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError("When using replicas, all Variables must have their device set: %s" % op)

    def _output(self, tensor):
        """What a session fetches for it: a variable stands for its value."""
        return None if tensor is None else fetches_feeds._Fetches(self._graph, tensor).outputs[0]

    # --- What C++ asks for. ---
    def _save(self, core, path, step):
        self._saver.save(session_lib.session_of(core), path, global_step=step)

    def _describe(self, with_events):
        from muster.graph import meta_graph

        if self._logdir:
            meta_graph.write_graph(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
        if with_events:
            self._summary_writer.add_graph(self._graph)
            self._summary_writer.add_meta_graph(meta_graph.create_meta_graph_def(
                graph_def=self._graph.as_graph_def(add_shapes=True), graph=self._graph,
                saver_def=self._saver.saver_def if self._saver else None))

    def _start_services(self, core):
        self.start_standard_services(session_lib.session_of(core))

    def _start_runners(self, core):
        self.start_queue_runners(session_lib.session_of(core))

    # --- The loop. ---
    def prepare_or_wait_for_session(self, master="", config=None, wait_for_checkpoint=False, max_wait_secs=7200,
                                    start_standard_services=True):
        """A session with the model ready, and its services and queue runners running."""
        opened = []

        def open_session():
            if self._is_chief:
                sess = self._session_manager.prepare_session(
                    master, init_op=self._init_op, saver=self._saver, checkpoint_dir=self._logdir,
                    wait_for_checkpoint=wait_for_checkpoint, max_wait_secs=max_wait_secs, config=config,
                    init_feed_dict=self._init_feed_dict, init_fn=self._init_fn)
            else:
                sess = self._session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
            opened.append(sess)
            return sess._session

        self._supervisor.prepare_or_wait_for_session(open_session, bool(start_standard_services))
        if self._is_chief:
            sync_replicas.watch_for_missing_chief(self._graph, opened[-1], self._coord)
        else:
            sync_replicas.supervised_worker_joins(self._graph, opened[-1])
        self._session = opened[-1]
        interruption.watch(self)
        return opened[-1]

    def start_standard_services(self, sess):
        """Starts the chief's services: summaries, the speed of training, checkpoints."""
        services = self._supervisor.services(sess._session)
        if not self._logdir:
            return None
        threads = [_ServiceThread(self, service) for service in services]
        for thread in threads:
            thread.start()
        return threads

    def start_queue_runners(self, sess, queue_runners=None):
        if queue_runners is None:
            queue_runners = self._graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        threads = []
        for runner in queue_runners:
            threads.extend(runner.create_threads(sess, coord=self._coord, daemon=True, start=True))
        return threads

    def loop(self, timer_interval_secs, target, args=None, kwargs=None):
        """Starts a thread that calls `target` again and again until the stop."""
        return coordinator.LooperThread.loop(self._coord, timer_interval_secs, target, args, kwargs)

    def stop(self, threads=None, close_summary_writer=True, ignore_live_threads=False):
        """Ends all threads, raises what one of them failed with; the session stays open."""
        interrupted_by = sys.exc_info()[1]
        if self._session is not None and interruption.is_interruption(interrupted_by):
            interruption.close(self, interrupted_by)
        interruption.forget(self)
        if self._session is not None:
            failed = interrupted_by is not None or self._coord._coordinator.requested is not None
            sync_replicas.supervised_worker_leaves(self._session, returns_tokens=not failed)
        self._session = None
        try:
            self._supervisor.stop([self._coord._joinable(t) for t in threads or ()], bool(close_summary_writer),
                                  bool(ignore_live_threads))
        finally:
            self._coord._settle()

    def close_interrupted(self):
        """Saves, if this is the chief, and returns what was saved."""
        session, self._session = self._session, None
        if session is None or not self._is_chief or self._saver is None or not self._save_path:
            return []
        return [self._saver.save(session, self._save_path, global_step=self._global_step)]

    def request_stop(self, ex=None):
        self._coord.request_stop(ex=ex)

    def should_stop(self):
        return self._coord.should_stop()

    def stop_on_exception(self):
        return self._coord.stop_on_exception()

    def wait_for_stop(self):
        self._coord.wait_for_stop()

    def summary_computed(self, sess, summary, global_step=None):
        """Writes a summary that the program has run itself."""
        if not self._summary_writer:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self._global_step is not None:
            global_step = training_util.global_step(sess, self._global_step)
        self._summary_writer.add_summary(summary, global_step)

    @contextlib.contextmanager
    def managed_session(self, master="", config=None, start_standard_services=True, close_summary_writer=True):
        """A session for a `with`, at whose end everything stops; what failed first is raised there."""
        sess = None
        try:
            sess = self.prepare_or_wait_for_session(master=master, config=config,
                                                    start_standard_services=start_standard_services)
            yield sess
        except Exception as e:
            self.request_stop(e)
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                # This also ends the steps of threads that are still alive.
                with contextlib.suppress(Exception):
                    if sess is not None:
                        sess.close()

    # --- What it was made of. ---
    is_chief = property(lambda self: self._is_chief)
    session_manager = property(lambda self: self._session_manager)
    coord = property(lambda self: self._coord)
    init_op = property(lambda self: self._init_op)
    init_feed_dict = property(lambda self: self._init_feed_dict)
    ready_op = property(lambda self: self._ready_op)
    ready_for_local_init_op = property(lambda self: self._ready_for_local_init_op)
    summary_writer = property(lambda self: self._summary_writer)
    summary_op = property(lambda self: self._summary_op)
    save_summaries_secs = property(lambda self: self._save_summaries_secs)
    global_step = property(lambda self: self._global_step)
    saver = property(lambda self: self._saver)
    save_model_secs = property(lambda self: self._save_model_secs)
    save_path = property(lambda self: self._save_path)

    # Spellings of old programs.
    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Stop = stop
    RequestStop = request_stop
    Loop = loop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    SummaryComputed = summary_computed


def _given_or_default(given, key, make=None):
    """What was given; by default the first of the collection, or a new one that is put there."""
    if given is not Supervisor.USE_DEFAULT:
        return given
    found = framework.get_collection(key)
    if len(found) > 1:
        tf_logging.info("Found %d %s operations. Returning the first one.", len(found), key)
    if found or make is None:
        return found[0] if found else None
    made = make()
    if made is not None:
        framework.add_to_collection(key, made)
    return made


def _default_global_step():
    try:
        step = framework.get_default_graph().get_tensor_by_name("global_step:0")
    except KeyError:
        return None
    if step.dtype.base_dtype in (dtypes.int32, dtypes.int64):
        return step
    tf_logging.warning("Found 'global_step' is not an int type: %s", step.dtype)
    return None


def basic_train_loop(supervisor, train_step_fn, args=None, kwargs=None, master=""):
    """Calls train_step_fn(session, ...) until the stop, in a new session whenever a task of the cluster was lost."""
    while True:
        try:
            with supervisor.managed_session(master) as sess:
                while not supervisor.should_stop():
                    train_step_fn(sess, *(args or ()), **(kwargs or {}))
            return
        except errors.AbortedError:
            pass


__all__ = ["Supervisor", "basic_train_loop"]
