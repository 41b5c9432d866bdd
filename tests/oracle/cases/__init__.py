"""The table: which cases each op has. A file per family; each entry is a function that is called once per op and typing

    @cases("Sum", "Mean", tolerance=SUM)
    def reduction(g):
        g.normal([g.values(3, 4), [1]])
        g.empty([g.values(0, 4), [1]])
        g.edge([g.special(3, 4), [1]])
        g.error([g.values(3, 4), [2]])

Inputs are arrays or nested lists in the order of the op's arguments (lists flattened); they become tensors of the types
that the op's definition and the attributes give. Arguments that are variables (ref or resource) become variables with
these values, which are read and compared too after the op has run. Every normal case is run a second time with inputs
in unaligned memory, as an edge case.
"""

import importlib
import pkgutil
import zlib

import numpy as np

import compare
import element_types as et
from graphs import UNKNOWN, Case, Typed, Uninitialized  # noqa: F401  (for the tables)

_TABLE = {}  # op -> [(function, settings)]
KINDS = ("normal", "empty", "edge", "error")


def cases(*ops, tolerance=compare.ELEMENTWISE, gradient=False, attrs=None, only=None, fetch=None, shaped=False,
          gradient_of=None):
    """Registers a maker of cases for `ops`. `gradient`: normal cases of float and double are differentiated too.
    `gradient_of`: the outputs to differentiate, where not all. `shaped`: the fed tensors have static shapes. `only`: typings (by a function of {attr: type}) for which the entry makes sense."""

    def add(function):
        for op in ops:
            _TABLE.setdefault(op, []).append(
                (function, dict(tolerance=tolerance, gradient=gradient, attrs=attrs or {}, only=only, fetch=fetch,
                      shaped=shaped, gradient_of=gradient_of)))
        return function

    return add


class Maker:
    """Makes the cases of one op for one choice of types."""

    def __init__(self, registry, op, label, types, settings, out):
        self.registry, self.op, self.label, self.types = registry, op, label, types
        self._settings, self._out = settings, out
        self.definition = registry.ops[op]
        self.tolerance = settings["tolerance"]
        self._random = np.random.RandomState(zlib.crc32(f"{op} {label}".encode()))

    @property
    def type(self):
        """The type of the data: T, or whatever the op calls it."""
        for name in ("T", "Tparams", "dtype", "x", "SrcT", "Tidx", "type", "out_type"):
            if name in self.types:
                return self.types[name]
        return next(iter(self.types.values()), et.FLOAT)

    # --- Values. ---
    def values(self, *shape, low=None, high=None, dtype=None):
        """Plain values: a little of everything that the type has around zero."""
        dtype = self.type if dtype is None else dtype
        random = self._random
        if dtype == et.STRING:
            words = np.array([b"", b"a", b"muster", b"\x00\xff", b"longer than a small string's buffer"], object)
            return words[random.randint(0, len(words), shape)] if shape else words[2]
        if dtype == et.BOOL:
            return random.randint(0, 2, shape).astype(bool)
        if dtype in et.INTEGERS:
            low = (0 if dtype in et.UNSIGNED else -9) if low is None else max(low, 0) if dtype in et.UNSIGNED else low
            low = int(np.floor(low))
            return random.randint(low, max(10 if high is None else int(np.ceil(high)), low + 1), shape)
        low, high = -3.0 if low is None else low, 3.0 if high is None else high
        result = random.uniform(low, high, shape)
        if dtype in et.COMPLEXES:
            result = result + 1j * random.uniform(low, high, shape)
        # Representable in every float type, so that an input does not carry a rounding of its own.
        return et.numbers(et.carrier(result, et.BFLOAT16), et.BFLOAT16) if dtype in et.FLOATS else result

    def special(self, *shape, dtype=None):
        """Values at the edges of the type, repeated to fill the shape."""
        dtype = self.type if dtype is None else dtype
        if dtype in et.FLOATS:
            found = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -2.5, 1.5, et.LARGEST[dtype], -et.LARGEST[dtype],
                     1e-3, 88.0, -104.0]
        elif dtype in et.COMPLEXES:
            found = [0, 1, -1, 1j, -1j, 1e3 + 2j, -0.5 + 0.25j, 1e-3 - 1e-3j]
        elif dtype in et.INTEGERS:
            info = np.iinfo(et.CARRIERS[dtype])
            found = [info.max, info.min, 0, 1, info.max - 1, info.min + 1, 2, 100]
        elif dtype == et.BOOL:
            found = [True, False]
        else:
            found = [b"", b"\x00", b"\xff\xfe", "\u00e9\u4e2d".encode(), b"x" * 1000]
        count = int(np.prod(shape)) if shape else len(found)
        filled = (found * (count // len(found) + 1))[:count]
        array = np.array(filled, object if dtype == et.STRING else None) if dtype not in et.INTEGERS else np.array(
            filled, et.CARRIERS[dtype])
        return array.reshape(shape) if shape else array

    # --- Cases. ---
    def _add(self, kind, inputs, note="", tolerance=None, nodes=None, gradient=None, sliced=None, fetch=None, shaped=None,
             text=False, **attrs):
        settings = self._settings
        full = {**self.types, **settings["attrs"], **attrs}
        common = dict(op=self.op, typing=self.label, attrs=full, inputs=list(inputs), nodes=nodes,
                      tolerance=tolerance or self.tolerance, fetch=fetch or settings["fetch"],
                      shaped=settings["shaped"] if shaped is None else shaped)
        self._out.append(Case(kind=kind, note=note, text=text, **common))
        if kind != "normal":
            return
        if nodes is None and sliced is not False and inputs:
            self._out.append(Case(kind="edge", note=f"{note} unaligned".strip(), sliced=True, **common))
        wanted = settings["gradient"] if gradient is None else gradient
        if wanted and self.type in (et.FLOAT, et.DOUBLE):
            common.update(tolerance=compare.SUM, fetch=settings["gradient_of"] or common["fetch"], gradient=True)
            self._out.append(Case(kind=kind, note=note, **common))
            if not common["shaped"]:
                self._out.append(Case(kind=kind, note=f"{note} static shapes".strip(), **dict(common, shaped=True)))

    def normal(self, inputs, note="", **settings):
        self._add("normal", inputs, note, **settings)

    def empty(self, inputs, note="", **settings):
        self._add("empty", inputs, note, **settings)

    def edge(self, inputs, note="", **settings):
        self._add("edge", inputs, note, **settings)

    def error(self, inputs, note="", **settings):
        self._add("error", inputs, note, **settings)

    def refused(self, inputs, note, **settings):
        """An error that says what TensorFlow says, with and without static shapes."""
        for shaped in (False, True):
            self._add("error", inputs, note + (" static" if shaped else ""), shaped=shaped, text=True, **settings)

    def type_error(self, inputs, note="an input of another type", **settings):
        """For ops that take any values: the first input that is not a variable has a type that the op does not take."""
        inputs = list(inputs)
        flat = []
        for arg in self.definition.input_arg:
            flat.append(arg.is_ref or arg.type == et.RESOURCE)
        at = next((i for i, variable in enumerate(flat) if not variable), 0)
        wrong = et.STRING if self.type != et.STRING else et.FLOAT
        shape = np.shape(inputs[at])
        inputs[at] = Typed(wrong, np.full(shape, b"x", object) if wrong == et.STRING else np.zeros(shape))
        self._add("error", inputs, note, **settings)


def all_cases(registry, ops=None):
    """The cases of the table for the given ops, or for all that it has."""
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        importlib.import_module(f"{__name__}.{module}")
    found = []
    for op in sorted(_TABLE if ops is None else set(ops) & set(_TABLE)):
        if op not in registry.ops:
            raise KeyError(f"the table has cases for {op}, which TensorFlow does not know")
        for label, types in registry.typings(op):
            for function, settings in _TABLE[op]:
                if settings["only"] is None or settings["only"](types):
                    with np.errstate(all="ignore"):
                        function(Maker(registry, op, label, types, settings, found))
    return found
