"""What is fetched and fed: structures to flat lists of outputs and arrays, and values back to structures."""
import collections
import functools

import numpy as np

from muster import _muster, dtypes, errors, nest
from muster.graph import framework


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
            from muster.session import session_ops

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
                from muster.graph import convert

                array = convert.wrapped(value, dtype)
    _muster.check_feed(tensor._output, array.shape)
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


def _view_bfloat16(tensors, build, values):
    import ml_dtypes

    values = [np.asarray(v).view(ml_dtypes.bfloat16)[()] if t.dtype.base_dtype == dtypes.bfloat16 else v
              for t, v in zip(tensors, values)]
    return build(values)
