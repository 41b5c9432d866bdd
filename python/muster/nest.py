"""Nested structures of lists, tuples, named tuples, dicts and attrs classes, flattened and packed again."""
import collections.abc


def is_sequence(value):
    return (isinstance(value, (collections.abc.Mapping, collections.abc.MappingView)) or hasattr(type(value), "__attrs_attrs__") or
            (isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes))
             and not hasattr(value, "_as_graph_element") and not hasattr(value, "as_list")))


is_nested = is_sequence


def _items(value):
    if isinstance(value, collections.abc.Mapping):
        return [value[key] for key in sorted(value)]
    if hasattr(type(value), "__attrs_attrs__"):
        return [getattr(value, a.name) for a in type(value).__attrs_attrs__]
    return list(value)


def flatten(value):
    if not is_sequence(value):
        return [value]
    return [leaf for item in _items(value) for leaf in flatten(item)]


def _rebuild(value, items):
    if isinstance(value, collections.abc.Mapping):
        by_key = dict(zip(sorted(value), items))
        if hasattr(value, "default_factory"):
            result = type(value)(value.default_factory)
            for key in value:
                result[key] = by_key[key]
            return result
        return type(value)((key, by_key[key]) for key in value)
    if hasattr(value, "_fields") or hasattr(type(value), "__attrs_attrs__"):
        return type(value)(*items)
    return type(value)(items)


def pack_sequence_as(structure, flat_sequence):
    leaves = iter(flat_sequence)

    def pack(value):
        if not is_sequence(value):
            return next(leaves)
        return _rebuild(value, [pack(item) for item in _items(value)])

    flat = list(flat_sequence)
    if len(flat) != len(flatten(structure)):
        raise ValueError("Could not pack sequence. Structure had %d elements, but flat_sequence had %d elements.  "
                         "Structure: %s, flat_sequence: %s." % (len(flatten(structure)), len(flat), structure, flat))
    leaves = iter(flat)
    return pack(structure)


def map_structure(function, *structures, **kwargs):
    for other in structures[1:]:
        assert_same_structure(structures[0], other)
    return pack_sequence_as(structures[0], [function(*leaves) for leaves in zip(*[flatten(s) for s in structures])])


def _same(a, b, check_types):
    if is_sequence(a) != is_sequence(b):
        return False
    if not is_sequence(a):
        return True
    if check_types and type(a) is not type(b) and not (
            isinstance(a, collections.abc.Mapping) and isinstance(b, collections.abc.Mapping)):
        return None
    if isinstance(a, collections.abc.Mapping) and sorted(a) != sorted(b):
        return False
    first, second = _items(a), _items(b)
    if len(first) != len(second):
        return False
    for x, y in zip(first, second):
        result = _same(x, y, check_types)
        if not result:
            return result
    return True


def assert_same_structure(nest1, nest2, check_types=True):
    result = _same(nest1, nest2, check_types)
    if result:
        return
    text = "The two structures don't have the same nested structure.\n\nFirst structure: type=%s str=%s\n\n" \
           "Second structure: type=%s str=%s" % (type(nest1).__name__, nest1, type(nest2).__name__, nest2)
    if result is None:
        raise TypeError(text + "\n\nMore specifically: the types of the two structures differ.")
    raise ValueError(text)
