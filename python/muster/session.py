"""tf.Session: fetches of any structure, feeds of any tensor, over the C++ session."""
import collections
import functools
import sys
import warnings
import weakref

import numpy as np

from muster import _muster, default_stack, dtypes, errors, framework, nest


def _fetch_element(graph, fetch):
    try:
        element = graph.as_graph_element(fetch, allow_tensor=True, allow_operation=True)
    except TypeError as e:
        raise TypeError("Fetch argument %r has invalid type %r, must be a string or Tensor. (%s)"
                        % (fetch, type(fetch), str(e)))
    except ValueError as e:
        raise ValueError("Fetch argument %r cannot be interpreted as a Tensor. (%s)" % (fetch, str(e)))
    except KeyError as e:
        raise ValueError("Fetch argument %r cannot be interpreted as a Tensor. (%s)" % (fetch, str(e)))
    node = element._node if isinstance(element, framework.Operation) else element.op._node
    if not _muster.is_fetchable(node) or not graph.is_fetchable(element):
        raise errors.InaccessibleTensorError(
            "Operation %r has been marked as not fetchable. Typically this happens when it is defined in another "
            "function or code block. Use return values, explicit Python locals or TensorFlow collections to access it."
            % node.name)
    return element


_fetch_expansions = []  # (type, function: value -> (list of elements, function: list of values -> result))
_feed_expansions = []  # (type, function: (key, value) -> [(tensor, value)])


def register_session_run_conversion_functions(tensor_type, fetch_function, feed_function=None,
                                              feed_function_for_partial_run=None):
    for registered, _ in _fetch_expansions:
        if issubclass(tensor_type, registered):
            raise ValueError("%s has already been registered so ignore it." % tensor_type)
    _fetch_expansions.insert(0, (tensor_type, fetch_function))
    if feed_function is not None:
        _feed_expansions.insert(0, (tensor_type, feed_function))


class _Fetches(object):
    """The structure of a fetches argument: unique tensors and operations, and how to put the values back together."""

    def __init__(self, graph, fetches, session=None):
        self._graph = graph
        self._session = session
        self.outputs, self._output_at = [], {}
        self.targets, self._target_seen = [], set()
        self.build = self._structure(fetches)

    def _add(self, element):
        if isinstance(element, framework.Operation):
            if element not in self._target_seen:
                self._target_seen.add(element)
                self.targets.append(element._node)
            return None
        at = self._output_at.get(element)
        if at is None:
            at = self._output_at[element] = len(self.outputs)
            self.outputs.append(element._output)
            self.tensors = getattr(self, "tensors", [])
            self.tensors.append(element)
        return at

    def kind_of_step(self, feeds):
        """Equal for steps with the same feeds and fetches."""
        return frozenset(feeds), frozenset(self._output_at), frozenset(self._target_seen)

    def _structure(self, fetch):
        if fetch is None:
            raise TypeError("Fetch argument %r has invalid type %r" % (fetch, type(fetch)))
        if isinstance(fetch, (list, tuple)):
            return self._sequence(fetch)
        if isinstance(fetch, collections.abc.Mapping):
            keys = list(fetch.keys())
            parts = [self._structure(fetch[key]) for key in keys]
            kind = type(fetch)

            def build_dict(values):
                items = [(key, part(values)) for key, part in zip(keys, parts)]
                if kind is collections.defaultdict:
                    result = collections.defaultdict(fetch.default_factory)
                    result.update(items)
                    return result
                return kind(items)

            return build_dict
        if hasattr(type(fetch), "__attrs_attrs__"):
            names = [a.name for a in type(fetch).__attrs_attrs__]
            parts = [self._structure(getattr(fetch, name)) for name in names]
            return lambda values: type(fetch)(*[part(values) for part in parts])
        if isinstance(fetch, framework.IndexedSlices):
            return self._indexed_slices(fetch)
        for kind, expand in _fetch_expansions:
            if isinstance(fetch, kind):
                elements, contract = expand(fetch)
                places = [self._add(_fetch_element(self._graph, e)) for e in elements]
                return lambda values: contract([None if p is None else values[p] for p in places])
        element = _fetch_element(self._graph, fetch)
        at = self._add(element)
        if at is None:
            return lambda values: None
        if self._session is not None and element.op.type == "GetSessionHandle":
            from muster import session_ops

            session, dtype = self._session, element.op.inputs[0].dtype.base_dtype
            return lambda values: session_ops.fetched(session, values[at], dtype)
        return lambda values: values[at]

    def _sequence(self, fetch):
        parts = [self._structure(f) for f in fetch]
        if isinstance(fetch, list):
            return lambda values: [part(values) for part in parts]
        if hasattr(fetch, "_fields"):
            return lambda values: type(fetch)(*[part(values) for part in parts])
        return lambda values: type(fetch)([part(values) for part in parts])

    def _indexed_slices(self, fetch):
        elements = [fetch.values, fetch.indices] + ([fetch.dense_shape] if fetch.dense_shape is not None else [])
        places = [self._add(e) for e in elements]

        def build_slices(values):
            found = [values[p] for p in places]
            return IndexedSlicesValue(found[0], found[1], found[2] if len(found) > 2 else None)

        return build_slices


class FetchCache(object):
    """Flattens fetches, the same ones only once."""

    def __init__(self):
        self._known = {}

    def flatten(self, graph, fetches):
        """Lists of outputs and nodes, and the function that makes the result of their values."""
        try:
            key = (type(fetches), tuple(fetches.items()) if isinstance(fetches, dict) else
                   tuple(fetches) if isinstance(fetches, list) else fetches)
            found = self._known.get(key)
        except TypeError:  # an unhashable part
            key = found = None
        if found is not None and found[0] is graph:
            return found[1]
        structure = _Fetches(graph, fetches)
        build = structure.build
        if any(t.dtype.base_dtype == dtypes.bfloat16 for t in getattr(structure, "tensors", ())):
            build = functools.partial(_view_bfloat16, structure.tensors, build)
        flat = structure.outputs, structure.targets, build
        if key is not None:
            if len(self._known) > 1000:
                self._known.clear()
            self._known[key] = graph, flat
        return flat


IndexedSlicesValue = collections.namedtuple("IndexedSlicesValue", ["values", "indices", "dense_shape"])


def _expand_feed(key, value):
    for kind, expand in _feed_expansions:
        if isinstance(key, kind):
            return expand(key, value)
    if isinstance(key, framework.IndexedSlices):
        parts = [key.values, key.indices] + ([key.dense_shape] if key.dense_shape is not None else [])
        return list(zip(parts, value))
    return [(key, value)]


def _feed_array(tensor, value):
    """The value as an array of the tensor's type, checked against its static shape."""
    if isinstance(value, framework.Tensor):
        raise TypeError("The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python "
                        "scalars, strings, lists, numpy ndarrays, or TensorHandles. For reference, the tensor object "
                        "was %s which was passed to the feed with key %s." % (value, tensor))
    dtype = tensor.dtype.base_dtype
    if hasattr(value, "get_raw_handle"):  # a TensorHandle stands for what it names
        value = value.eval()
    if dtype == dtypes.string:
        # As objects: numpy's own strings lose zero bytes at their end.
        array = np.asarray(value) if isinstance(value, np.ndarray) else np.asarray(value, dtype=object)
        if array.dtype.kind not in "SUO":
            array = array.astype(object)
    else:
        kind = dtype.as_numpy_dtype
        if type(value) is np.ndarray and value.dtype == kind:
            array = value
        else:
            if isinstance(value, int) and not isinstance(value, bool) and dtype.is_integer and kind(
                    np.array(value).astype(kind)) != value:
                raise TypeError("Type of feed value " + str(value) + " with type " + str(type(value)) +
                                " is not compatible with Tensor type " + str(kind) +
                                ". Try explicitly setting the type of the feed tensor to a larger type (e.g. int64).")
            try:
                array = np.asarray(value, dtype=kind)
            except OverflowError:
                from muster import convert

                array = convert.wrapped(value, dtype)
    dims = tensor._output.shape
    if dims is not None and (len(dims) != array.ndim or any(
            d is not None and d != s for d, s in zip(dims, array.shape))):
        raise ValueError("Cannot feed value of shape %r for Tensor %r, which has shape %r"
                         % (array.shape, tensor.name, str(tensor.get_shape())))
    if dtype == dtypes.bfloat16:
        array = array.view(np.uint16)
    return array


def _feed_parts(key, value):
    """Pairs of what is fed and its value: a key may be a nest, the state of a recurrent network say."""
    if not nest.is_sequence(key):
        return _expand_feed(key, value)
    keys, values = nest.flatten(key), nest.flatten(value)
    if len(keys) != len(values):
        raise ValueError("Could not flatten dictionary. Key had %d elements, but value had %d elements. Key: %s, value: %s."
                         % (len(keys), len(values), keys, values))
    return [part for k, v in zip(keys, values) for part in _expand_feed(k, v)]


def flatten_feeds(graph, feed_dict):
    """The fed tensors, their values as arrays, and whether every key stands for one tensor."""
    if feed_dict is not None and not isinstance(feed_dict, collections.abc.Mapping):
        raise TypeError("feed_dict must be a dictionary, but got %s" % type(feed_dict))
    tensors, arrays, plain = [], [], True
    places = {}
    for key, value in (feed_dict or {}).items():
        parts = _feed_parts(key, value)
        plain = plain and len(parts) == 1 and parts[0][0] is key
        for part, part_value in parts:
            try:
                tensor = graph.as_graph_element(part, allow_tensor=True, allow_operation=False)
            except Exception as e:
                raise TypeError("Cannot interpret feed_dict key as Tensor: " + (e.args[0] if e.args else str(e)))
            if not _muster.is_feedable(tensor._output) or not graph.is_feedable(tensor):
                raise ValueError("Tensor %s may not be fed." % tensor)
            array = _feed_array(tensor, part_value)
            if tensor in places:  # under another of its names: the last value counts
                plain = False
                arrays[places[tensor]] = array
                continue
            places[tensor] = len(tensors)
            arrays.append(array)
            tensors.append(tensor)
    return tensors, arrays, plain


def flat_feeds(graph, feed_dict):
    """Pairs of outputs and arrays, as the extension takes them."""
    tensors, arrays, _ = flatten_feeds(graph, feed_dict)
    return [(t._output, a) for t, a in zip(tensors, arrays)]


def with_failing_op(graph, error):
    """The error, with the operation that its text names."""
    name = errors.failing_node_name(error.message) if isinstance(error, errors.OpError) else None
    node = graph._g.find(name) if name else None
    return error if node is None else type(error)(None, graph._operation(node), error.message)


# Sessions by the identity of what they are in C++, which they keep alive.
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
            from muster import run_metadata as filler

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
            values, nodes, graphs, serialized = self._session.run_with_options(plan, feeds, timeout, trace or measured,
                                                                               partitions, graph_key)
        except errors.OpError as e:
            raise self._with_op(e) from None
        if run_metadata is not None and self._target:
            run_metadata.ParseFromString(serialized)
        elif run_metadata is not None:
            from muster import run_metadata as filler

            filler.fill(run_metadata, nodes, graphs)
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
        return [_DeviceAttributes(*d) for d in self._session.list_devices()]

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
            # Iterators that call Python functions must be able to come to an end.
            if sys.getrefcount(session) <= 2:
                _muster.end_session(session)
        except Exception:  # the interpreter may be going down
            pass


def _view_bfloat16(tensors, build, values):
    import ml_dtypes

    values = [np.asarray(v).view(ml_dtypes.bfloat16)[()] if t.dtype.base_dtype == dtypes.bfloat16 else v
              for t, v in zip(tensors, values)]
    return build(values)


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
