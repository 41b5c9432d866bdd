"""Examples of serialized messages, encoded by hand."""

import numpy as np

import compare
from cases import cases

EXACT = compare.EXACT


def _field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def example(**features):
    """An Example: floats, integers (below 128) or bytes by name."""
    entries = b""
    for name, values in features.items():
        if values and isinstance(values[0], float):
            feature = _field(2, _field(1, np.array(values, "<f4").tobytes()))
        elif values and isinstance(values[0], bytes):
            feature = _field(1, b"".join(_field(1, value) for value in values))
        elif values is None:
            feature = b""
        else:
            feature = _field(3, _field(1, bytes(values)))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


FULL = example(f=[1.5, 2.0], i=[1, 2, 3], b=[b"x", b"yz"])
OTHER = example(f=[3.0, 4.0], i=[9])
ODD = example(f=[3.0], b=[b"q"])
FLOAT, INT64, STRING = 1, 9, 7
COLUMNS = dict(sparse_types=[INT64, STRING], Tdense=[FLOAT], dense_shapes=[[2]])
SINGLE = dict(COLUMNS, num_sparse=2, sparse_keys=["i", "b"], dense_keys=["f"])


@cases("ParseExample", tolerance=EXACT)
def parse_example(g):
    more = dict(COLUMNS, Nsparse=2, Ndense=1)
    keys = [b"i", b"b", b"f"]
    none = np.zeros(0, np.float32)
    names = np.zeros(0, object)
    g.normal([[FULL, OTHER], names] + keys + [none], sliced=False, **more)
    g.normal([[ODD, OTHER], names] + keys[:2] + [b"absent", [7.0, 8.0]], "a default", sliced=False, **more)
    g.normal([[FULL, ODD], names] + keys + [0.5], "any length", sliced=False, **dict(more, dense_shapes=[[-1]]))
    g.empty([np.zeros(0, object), names] + keys + [none], **more)
    g.edge([[FULL + OTHER], names] + keys + [none], "two messages in one", **more)
    g.error([[FULL, ODD], [b"one", b"two"]] + keys + [none], "too few values", **more)
    g.error([[FULL, b""], names] + keys + [none], "a required feature", **more)
    g.error([[b"garbage"], names] + keys + [none], "garbage", **more)
    g.error([[FULL], names, b"f", b"b", b"i", none], "types", **more)
    g.error([FULL, names] + keys + [none], "a scalar", **more)
    g.error([[FULL], [b"a", b"b"]] + keys + [none], "names", **more)


@cases("ParseSingleExample", tolerance=EXACT)
def parse_single_example(g):
    none = np.zeros(0, np.float32)
    g.normal([FULL, none], sliced=False, **SINGLE)
    g.normal([ODD, [7.0, 8.0]], "a default", sliced=False, **dict(SINGLE, dense_keys=["absent"]))
    g.normal([ODD, 0.5], "any length", sliced=False, **dict(SINGLE, dense_shapes=[[-1]]))
    g.empty([b"", [1.0, 2.0]], **SINGLE)
    g.edge([OTHER + FULL, none], "two messages in one", **SINGLE)
    g.error([ODD, none], "too few values", **SINGLE)
    g.error([b"", none], "a required feature", **SINGLE)
    g.error([b"garbage", none], "garbage", **SINGLE)
    g.error([[FULL], none], "a vector", **SINGLE)
    g.error([FULL, [1.0]], "the default's shape", **SINGLE)
