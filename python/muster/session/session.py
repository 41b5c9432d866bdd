"""tf.Session: fetches of any structure, feeds of any tensor, over the C++ session."""
import functools
import sys
import warnings
import weakref

from muster import _muster, dtypes, errors
from muster.graph import default_stack, framework
from muster.session.fetches_feeds import _Fetches, _expand_feed, _feed_array, _view_bfloat16, flatten_feeds


def with_failing_op(graph, error):
    """The error, with the operation that its text names."""
    name = errors.failing_node_name(error.message) if isinstance(error, errors.OpError) else None
    node = graph._g.find(name) if name else None
    return error if node is None else type(error)(None, graph._operation(node), error.message)


# Sessions by the id of their C++ session, which they keep alive.
_sessions = weakref.WeakValueDictionary()


def session_of(core):
    """The tf.Session over a session of the extension."""
    return _sessions[id(core)]


class BaseSession(object):
    """What Session and InteractiveSession share."""

    def __init__(self, target="", graph=None, config=None):
        if graph is None:
            self._graph = framework.get_default_graph()
        else:
            if not isinstance(graph, framework.Graph):
                raise TypeError("graph must be a tf.Graph, but got %s" % type(graph))
            self._graph = graph
        if target is not None and not isinstance(target, (str, bytes)):
            raise TypeError("target must be a string, but got %s" % type(target))
        target = (target.decode() if isinstance(target, bytes) else target) or ""
        self._target = target
        if config is not None and not hasattr(config, "SerializeToString"):
            raise TypeError("config must be a tf.ConfigProto, but got %s" % type(config))
        self._config = config
        self._closed = False
        if target:
            self._session = _muster.connect_session(self._graph._g, target, _serialized(config))
        else:
            self._session = _muster.new_session(self._graph._g, **_session_options(config))
        self._plans = {}
        self._costs = None
        if config is not None and config.graph_options.build_cost_model > 0:
            from muster.session import run_metadata as filler

            self._costs = filler.CostModel(config.graph_options, is_local=not self._target)
        _sessions[id(self._session)] = self

    # --- Running. ---
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        if options is None and run_metadata is None and self._costs is None:
            try:
                key = (fetches if type(fetches) is not list else tuple(fetches), type(fetches),
                       tuple(feed_dict) if feed_dict else ())
                cached = self._plans.get(key)
            except TypeError:  # an unhashable part
                key = cached = None
            if cached is not None:
                return self._run_cached(cached, feed_dict)
        else:
            key = None
        return self._run_new(key, fetches, feed_dict, options, run_metadata)

    def _run_cached(self, cached, feed_dict):
        plan, feed_tensors, build, _ = cached
        if feed_dict:
            values = list(feed_dict.values())
            feeds = [_feed_array(t, v) for t, v in zip(feed_tensors, values)]
        else:
            feeds = []
        try:
            return build(self._session.run(plan, feeds))
        except errors.OpError as e:
            raise self._with_op(e) from None

    def _run_new(self, key, fetches, feed_dict, options, run_metadata):
        if self._graph.version == 0:
            raise RuntimeError("The Session graph is empty.  Add operations to the graph before calling run().")
        feed_tensors, feeds, plain = self._feeds(feed_dict)
        structure = _Fetches(self._graph, fetches, self)
        build = structure.build
        if any(t.dtype.base_dtype == dtypes.bfloat16 for t in getattr(structure, "tensors", ())):
            build = functools.partial(_view_bfloat16, structure.tensors, build)
        try:
            plan = self._session.prepare([t._output for t in feed_tensors], structure.outputs, structure.targets)
            measured = self._costs is not None and self._costs.wants(structure.kind_of_step(feed_tensors))
            if options is None and run_metadata is None:
                if key is not None and plain:
                    if len(self._plans) > 1000:
                        self._plans.clear()
                    self._plans[key] = (plan, feed_tensors, build, fetches)
                return build(self._session.run(plan, feeds))
            timeout = options.timeout_in_ms if options is not None else 0
            trace = options is not None and options.trace_level > 0
            measured = measured and run_metadata is not None
            partitions = options is not None and options.output_partition_graphs
            graph_key = options.experimental.collective_graph_key if options is not None else 0
            values, serialized = self._session.run_with_options(plan, feeds, timeout, trace or measured, partitions,
                                                                graph_key)
        except errors.OpError as e:
            raise self._with_op(e) from None
        if run_metadata is not None:
            run_metadata.ParseFromString(serialized)
        if measured:
            self._costs.fill(run_metadata, trace)
        return build(values)

    def _feeds(self, feed_dict):
        return flatten_feeds(self._graph, feed_dict)

    def _with_op(self, error):
        return with_failing_op(self._graph, error)

    def make_callable(self, fetches, feed_list=None, accept_options=False):
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError("`feed_list` must be a list or tuple.")
        tensors = [self._graph.as_graph_element(f, allow_operation=False) for f in feed_list or ()]
        structure = _Fetches(self._graph, fetches, self)
        try:
            plan = self._session.prepare([t._output for t in tensors], structure.outputs, structure.targets)
        except errors.OpError as e:
            raise self._with_op(e) from None

        def run_callable(*args, **kwargs):
            if self._closed:
                raise RuntimeError("Attempted to use a closed Session.")
            options, metadata = kwargs.get("options"), kwargs.get("run_metadata")
            # With too few arguments it is the step that misses them, as in TensorFlow.
            if len(args) != len(tensors) or options is not None or metadata is not None:
                return self.run(fetches, dict(zip(tensors, args)), options, metadata)
            feeds = [_feed_array(t, v) for t, v in zip(tensors, args)]
            try:
                return structure.build(self._session.run(plan, feeds))
            except errors.OpError as e:
                raise self._with_op(e) from None

        return run_callable

    def partial_run_setup(self, fetches, feeds=None):
        structure = _Fetches(self._graph, fetches, self)
        tensors = []
        for feed in feeds or ():
            tensors.extend(part for part, _ in _expand_feed(feed, (None, None, None)))
        tensors = [self._graph.as_graph_element(t, allow_operation=False) for t in tensors]
        try:
            return self._session.partial_run_setup([t._output for t in tensors], structure.outputs, structure.targets)
        except errors.OpError as e:
            raise self._with_op(e) from None

    def partial_run(self, handle, fetches, feed_dict=None):
        tensors, arrays, _ = self._feeds(feed_dict)
        structure = _Fetches(self._graph, fetches, self)
        try:
            return structure.build(self._session.partial_run(
                handle, [(t._output, a) for t, a in zip(tensors, arrays)], structure.outputs))
        except errors.OpError as e:
            raise self._with_op(e) from None

    # --- The rest. ---
    @property
    def graph(self):
        return self._graph

    @property
    def graph_def(self):
        return self._graph.as_graph_def()

    @property
    def sess_str(self):
        return self._target.encode()

    def explain_placement(self, op=None):
        """Why `op` (an operation, a tensor or a name; None: every one) runs where it does, as a list of texts."""
        name = op if isinstance(op, str) else "" if op is None else getattr(op, "op", op).name
        return self._session.explain_placement(name)

    def list_devices(self):
        return [_DeviceAttributes(*d[:4]) for d in self._session.list_devices()]

    def close(self):
        if not self._closed:
            self._closed = True
            self._session.close()

    def as_default(self):
        return default_stack.session_stack.enter(self)

    def __del__(self):
        try:
            self.close()
            session = self._session
            self._session = None
            # Ends iterators that call Python functions.
            if sys.getrefcount(session) <= 2:
                _muster.end_session(session)
        except Exception:  # the interpreter may be shutting down
            pass


class _DeviceAttributes(object):
    def __init__(self, name, device_type, memory_limit_bytes, incarnation):
        self.name, self.device_type = name, device_type
        self.memory_limit_bytes, self.incarnation = memory_limit_bytes, incarnation

    def __repr__(self):
        return "_DeviceAttributes(%s, %s, %d, %d)" % (
            self.name, self.device_type, self.memory_limit_bytes, self.incarnation)


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def _serialized(config):
    return b"" if config is None else config.SerializeToString()


def _session_options(config):
    options = {}
    if config is None:
        return options
    options["cpu_devices"] = max(1, config.device_count.get("CPU", 1))
    if "GPU" in config.device_count:
        options["gpu_devices"] = max(0, config.device_count["GPU"])
    options["visible_gpus"] = config.gpu_options.visible_device_list
    options["gpu_memory_fraction"] = config.gpu_options.per_process_gpu_memory_fraction
    options["virtual_gpus"] = [list(card.memory_limit_mb) for card in config.gpu_options.experimental.virtual_devices]
    options["operation_timeout_ms"] = config.operation_timeout_in_ms
    options["log_device_placement"] = config.log_device_placement
    options["allow_soft_placement"] = config.allow_soft_placement
    # One pool runs both nodes and what they split up, so a limit is one where TensorFlow would have two.
    if config.intra_op_parallelism_threads > 0 and config.inter_op_parallelism_threads > 0:
        options["threads"] = max(config.intra_op_parallelism_threads, config.inter_op_parallelism_threads)
    options["own_threads"] = config.use_per_session_threads
    options["executor_type"] = config.experimental.executor_type
    options["optimize"] = not (config.graph_options.rewrite_options.disable_meta_optimizer or
                               config.graph_options.optimizer_options.opt_level == -1)
    return options


class Session(BaseSession):
    """A session; as a context manager it is the default one and closes at the end."""

    def __init__(self, target="", graph=None, config=None):
        super(Session, self).__init__(target, graph, config=config)
        self._contexts = []

    def __enter__(self):
        contexts = [self.graph.as_default(), self.as_default()]
        for context in contexts:
            context.__enter__()
        self._contexts.append(contexts)
        return self

    def __exit__(self, exc_type, exc_value, exc_tb):
        for context in reversed(self._contexts.pop()):
            context.__exit__(exc_type, exc_value, exc_tb)
        self.close()
        return False

    @staticmethod
    def reset(target, containers=None, config=None):
        if not target:
            # The containers of this process belong to its sessions, and TensorFlow closes those as well.
            for session in list(_sessions.values()):
                if not session._target:
                    session.close()
            return
        target = target.decode() if isinstance(target, bytes) else target
        _muster.reset_containers(target, [_text(c) for c in containers or ()], _serialized(config))


class InteractiveSession(BaseSession):
    """A session that is the default one from the start."""

    _active = 0

    def __init__(self, target="", graph=None, config=None):
        super(InteractiveSession, self).__init__(target, graph, config)
        if InteractiveSession._active > 0:
            warnings.warn("An interactive session is already active. This can cause out-of-memory errors in some "
                          "cases. You must explicitly call `InteractiveSession.close()` to release resources held by "
                          "the other session(s).")
        InteractiveSession._active += 1
        self._explicit_graph = graph
        default_stack.session_stack.push(self)
        if graph is not None:
            default_stack.graph_stack.push(graph)

    def close(self):
        if not getattr(self, "_closed", True):
            InteractiveSession._active -= 1
            default_stack.session_stack.remove(self)
            if self._explicit_graph is not None:
                default_stack.graph_stack.remove(self._explicit_graph)
        super(InteractiveSession, self).close()
