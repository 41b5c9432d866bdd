"""Element types: tf.float32 and its kin."""
import builtins

import numpy as np

from muster.names import absent as _absent

_NAMES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16",
    17: "uint16", 18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
}
_NUMPY = {
    1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8, 7: np.object_, 8: np.complex64,
    9: np.int64, 10: np.bool_, 11: np.int8, 12: np.uint8, 13: np.int32, 15: np.int16, 16: np.uint16, 17: np.uint16,
    18: np.complex128, 19: np.float16, 20: np.object_, 21: np.object_, 22: np.uint32, 23: np.uint64,
}
_SIZES = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 7: 1, 8: 8, 9: 8, 10: 1, 11: 1, 12: 1, 13: 4, 14: 2, 15: 2, 16: 2,
          17: 2, 18: 16, 19: 2, 20: 1, 21: 1, 22: 4, 23: 8}


def _bfloat16_numpy():
    import ml_dtypes  # only programs that touch bfloat16 arrays need it

    return ml_dtypes.bfloat16


class DType(object):
    """The type of a tensor's elements; reference types end in _ref."""

    __slots__ = ("_number",)

    def __init__(self, type_enum):
        number = int(type_enum)
        if (number - 100 if number > 100 else number) not in _NAMES:
            raise TypeError("type_enum is not a valid types_pb2.DataType: %r" % (type_enum,))
        self._number = number

    @property
    def as_datatype_enum(self):
        return self._number

    @property
    def _is_ref_dtype(self):
        return self._number > 100

    @property
    def _base(self):
        return self._number - 100 if self._number > 100 else self._number

    @property
    def _as_ref(self):
        return self if self._is_ref_dtype else _BY_NUMBER[self._number + 100]

    @property
    def base_dtype(self):
        return _BY_NUMBER[self._base]

    @property
    def real_dtype(self):
        return {8: float32, 18: float64}.get(self._base, self)

    @property
    def is_numpy_compatible(self):
        return self._base not in (20, 21)

    @property
    def as_numpy_dtype(self):
        return _bfloat16_numpy() if self._base == 14 else _NUMPY[self._base]

    @property
    def is_bool(self):
        return self._base == 10

    @property
    def is_integer(self):
        return self._base in (3, 4, 5, 6, 9, 17, 22, 23)

    @property
    def is_floating(self):
        return self._base in (1, 2, 14, 19)

    @property
    def is_complex(self):
        return self._base in (8, 18)

    @property
    def is_quantized(self):
        return self._base in (11, 12, 13, 15, 16)

    @property
    def is_unsigned(self):
        return self._base in (4, 17, 22, 23)

    @property
    def min(self):
        return self._limit("min")

    @property
    def max(self):
        return self._limit("max")

    def _limit(self, which):
        if self._base in (7, 8, 18, 20, 21):
            raise TypeError("Cannot find %simum value of %s." % (which, self.name))
        if self._base == 14:
            return float.fromhex("-0x1.FEp127" if which == "min" else "0x1.FEp127")
        if self._base == 10:
            return which == "max"
        kind = _NUMPY[self._base]
        return getattr(np.finfo(kind) if self.is_floating else np.iinfo(kind), which)

    @property
    def limits(self):
        return (0, self.max) if self.is_unsigned else (self.min, self.max)

    def is_compatible_with(self, other):
        other = as_dtype(other)
        return self._number in (other._number, other._base)

    @property
    def name(self):
        return _NAMES[self._base] + ("_ref" if self._is_ref_dtype else "")

    @property
    def size(self):
        return _SIZES[self._base]

    def __eq__(self, other):
        if other is None:
            return False
        try:
            return self._number == as_dtype(other)._number
        except TypeError:
            return False

    def __ne__(self, other):
        return not self.__eq__(other)

    def __hash__(self):
        return self._number

    def __int__(self):
        return self._number

    __index__ = __int__

    def __reduce__(self):
        return as_dtype, (self.name,)

    def __repr__(self):
        return "tf." + self.name

    def __str__(self):
        return "<dtype: %r>" % self.name


_BY_NUMBER = {}
_BY_NAME = {}
for _number, _name in _NAMES.items():
    for _offset, _suffix in ((0, ""), (100, "_ref")):
        _dtype = DType(_number + _offset)
        _BY_NUMBER[_number + _offset] = _dtype
        _BY_NAME[_name + _suffix] = _dtype
        globals()[_name + _suffix] = _dtype
half = float16  # noqa: F821
double = float64  # noqa: F821
_BY_NAME.update({"half": float16, "float": float32, "double": float64})  # noqa: F821
_BY_NAME.update({"half_ref": float16_ref, "float_ref": float32_ref, "double_ref": float64_ref})  # noqa: F821
_BY_NUMPY = {np.dtype(kind): _BY_NUMBER[number] for number, kind in _NUMPY.items()
             if number not in (7, 11, 12, 13, 15, 16, 20, 21)}
_BY_PYTHON = {builtins.float: float32, builtins.bool: bool, builtins.int: int32, object: string,  # noqa: F821
              builtins.str: string, builtins.bytes: string}  # noqa: F821


def as_dtype(type_value):
    """The DType for a DType, its number, its name, or a numpy or Python type."""
    if isinstance(type_value, DType):
        return type_value
    if isinstance(type_value, str):
        found = _BY_NAME.get(type_value)
        if found is not None:
            return found
    elif isinstance(type_value, (int, np.integer)) and not isinstance(type_value, builtins.bool):
        found = _BY_NUMBER.get(int(type_value))
        if found is not None:
            return found
    elif isinstance(type_value, type) and type_value in _BY_PYTHON:
        return _BY_PYTHON[type_value]
    try:
        kind = np.dtype(type_value)
    except TypeError:
        kind = None
    if kind is not None:
        if kind.kind in "SUO":
            return string  # noqa: F821
        if kind in _BY_NUMPY:
            return _BY_NUMPY[kind]
        if kind.name == "bfloat16":
            return bfloat16  # noqa: F821
    raise TypeError("Cannot convert value %r to a TensorFlow DType." % (type_value,))


QUANTIZED_DTYPES = frozenset([qint8, quint8, qint16, quint16, qint32])  # noqa: F821


_explain = _absent.explain(__name__)


_CASTS = ("as_string", "cast", "complex", "saturate_cast")  # tf.dtypes is this module, and has the casts of tf too


def __getattr__(name):
    if name in _CASTS:
        import muster

        return getattr(muster, name)
    return _explain(name)


def __dir__():
    return sorted(set(globals()) | set(_CASTS))
