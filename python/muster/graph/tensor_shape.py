"""TensorShape and Dimension, with the v1 behaviour (a shape yields Dimensions)."""


class Dimension(object):
    """One extent of a shape; None when unknown."""

    __slots__ = ("_value",)

    def __init__(self, value):
        if value is None or isinstance(value, Dimension):
            self._value = value if value is None else value.value
            return
        if isinstance(value, float) and int(value) != value:
            raise ValueError("Ambiguous dimension: %s" % value)
        try:
            self._value = int(value) if not hasattr(value, "__index__") else value.__index__()
        except (TypeError, AttributeError):
            raise TypeError("Cannot convert %s to Dimension" % (value,))
        if self._value < 0:
            raise ValueError("Dimension %d must be >= 0" % self._value)

    @property
    def value(self):
        return self._value

    def __repr__(self):
        return "Dimension(%s)" % repr(self._value)

    def __str__(self):
        return "?" if self._value is None else str(self._value)

    def __eq__(self, other):
        try:
            other = as_dimension(other)
        except (TypeError, ValueError):
            return NotImplemented
        return None if self._value is None or other.value is None else self._value == other.value

    def __ne__(self, other):
        equal = self.__eq__(other)
        return equal if equal is NotImplemented or equal is None else not equal

    def __hash__(self):
        return hash(self._value)

    def __bool__(self):
        return bool(self._value)

    def __int__(self):
        return self._value

    def __index__(self):
        return self._value

    def is_compatible_with(self, other):
        other = as_dimension(other)
        return self._value is None or other.value is None or self._value == other.value

    def assert_is_compatible_with(self, other):
        if not self.is_compatible_with(other):
            raise ValueError("Dimensions %s and %s are not compatible" % (self, other))

    def merge_with(self, other):
        other = as_dimension(other)
        self.assert_is_compatible_with(other)
        return Dimension(other.value if self._value is None else self._value)

    def _combine(self, other, function, swap=False):
        try:
            other = as_dimension(other)
        except (TypeError, ValueError):
            return NotImplemented
        if self._value is None or other.value is None:
            return Dimension(None)
        return Dimension(function(other.value, self._value) if swap else function(self._value, other.value))

    def __add__(self, other):
        return self._combine(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other):
        return self._combine(other, lambda a, b: a - b)

    def __rsub__(self, other):
        return self._combine(other, lambda a, b: a - b, swap=True)

    def __mul__(self, other):
        return self._combine(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __floordiv__(self, other):
        return self._combine(other, lambda a, b: a // b)

    def __rfloordiv__(self, other):
        return self._combine(other, lambda a, b: a // b, swap=True)

    __div__ = __floordiv__

    def __truediv__(self, other):
        raise TypeError("unsupported operand type(s) for /: 'Dimension' and '%s', please use // instead"
                        % type(other).__name__)

    def __mod__(self, other):
        return self._combine(other, lambda a, b: a % b)

    def __rmod__(self, other):
        return self._combine(other, lambda a, b: a % b, swap=True)

    def _compare(self, other, function):
        other = as_dimension(other)
        return None if self._value is None or other.value is None else function(self._value, other.value)

    def __lt__(self, other):
        return self._compare(other, lambda a, b: a < b)

    def __le__(self, other):
        return self._compare(other, lambda a, b: a <= b)

    def __gt__(self, other):
        return self._compare(other, lambda a, b: a > b)

    def __ge__(self, other):
        return self._compare(other, lambda a, b: a >= b)


def as_dimension(value):
    return value if isinstance(value, Dimension) else Dimension(value)


def dimension_value(dimension):
    return dimension.value if isinstance(dimension, Dimension) else dimension


class TensorShape(object):
    """A shape whose rank or dimensions may be unknown."""

    __slots__ = ("_dims",)

    def __init__(self, dims):
        if dims is None:
            self._dims = None
        elif isinstance(dims, TensorShape):
            self._dims = dims._dims
        elif hasattr(dims, "unknown_rank"):  # a TensorShapeProto
            self._dims = None if dims.unknown_rank else [
                Dimension(d.size if d.size != -1 else None) for d in dims.dim]
        elif isinstance(dims, (str, bytes)):
            raise TypeError("Dimension value must be integer or None or have an __index__ method, got %r" % (dims,))
        else:
            try:
                iterator = iter(dims)
            except TypeError:
                self._dims = [as_dimension(dims)]
            else:
                self._dims = [as_dimension(d) for d in iterator]

    @property
    def dims(self):
        return self._dims

    def _list(self):
        """As the C++ core takes a shape: None, or sizes of which some are None."""
        return None if self._dims is None else self.as_list()

    @property
    def ndims(self):
        return None if self._dims is None else len(self._dims)

    rank = ndims

    def __len__(self):
        if self._dims is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self._dims)

    def __bool__(self):
        return self._dims is not None

    def __iter__(self):
        if self._dims is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter(self._dims)

    def __getitem__(self, key):
        if self._dims is not None:
            return TensorShape(self._dims[key]) if isinstance(key, slice) else self._dims[key]
        if isinstance(key, slice):
            start = key.start or 0
            if key.step is not None:
                raise ValueError("Steps are not yet handled")
            if key.stop is None or key.stop < 0 or start < 0:
                return unknown_shape()
            return unknown_shape(rank=max(key.stop - start, 0))
        return Dimension(None)

    def num_elements(self):
        if not self.is_fully_defined():
            return None
        size = 1
        for dim in self._dims:
            size *= dim.value
        return size

    def merge_with(self, other):
        other = as_shape(other)
        if self._dims is None:
            return other
        if other.dims is None:
            return self
        try:
            self.assert_same_rank(other)
            return TensorShape([a.merge_with(b) for a, b in zip(self._dims, other.dims)])
        except ValueError:
            raise ValueError("Shapes %s and %s are not compatible" % (self, other))

    def concatenate(self, other):
        other = as_shape(other)
        if self._dims is None or other.dims is None:
            return unknown_shape()
        return TensorShape(self._dims + other.dims)

    def __add__(self, other):
        return self.concatenate(other)

    def assert_same_rank(self, other):
        other = as_shape(other)
        if self.ndims is not None and other.ndims is not None and self.ndims != other.ndims:
            raise ValueError("Shapes %s and %s must have the same rank" % (self, other))

    def assert_has_rank(self, rank):
        if self.ndims not in (None, rank):
            raise ValueError("Shape %s must have rank %d" % (self, rank))

    def with_rank(self, rank):
        try:
            return self.merge_with(unknown_shape(rank=rank))
        except ValueError:
            raise ValueError("Shape %s must have rank %d" % (self, rank))

    def with_rank_at_least(self, rank):
        if self.ndims is not None and self.ndims < rank:
            raise ValueError("Shape %s must have rank at least %d" % (self, rank))
        return self

    def with_rank_at_most(self, rank):
        if self.ndims is not None and self.ndims > rank:
            raise ValueError("Shape %s must have rank at most %d" % (self, rank))
        return self

    def is_compatible_with(self, other):
        other = as_shape(other)
        if self._dims is None or other.dims is None:
            return True
        return len(self._dims) == len(other.dims) and all(
            a.is_compatible_with(b) for a, b in zip(self._dims, other.dims))

    def assert_is_compatible_with(self, other):
        if not self.is_compatible_with(other):
            raise ValueError("Shapes %s and %s are incompatible" % (self, other))

    def most_specific_compatible_shape(self, other):
        other = as_shape(other)
        if self._dims is None or other.dims is None or self.ndims != other.ndims:
            return unknown_shape()
        return TensorShape([a if a.value is not None and a.value == b.value else None
                            for a, b in zip(self._dims, other.dims)])

    def is_fully_defined(self):
        return self._dims is not None and all(d.value is not None for d in self._dims)

    def assert_is_fully_defined(self):
        if not self.is_fully_defined():
            raise ValueError("Shape %s is not fully defined" % self)

    def as_list(self):
        if self._dims is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return [d.value for d in self._dims]

    def as_proto(self):
        from muster import _protos

        proto = _protos.get("tensorflow.TensorShapeProto")()
        if self._dims is None:
            proto.unknown_rank = True
        else:
            for dim in self._dims:
                proto.dim.add().size = -1 if dim.value is None else dim.value
        return proto

    def __repr__(self):
        return "TensorShape(%r)" % (self._dims,)

    def __str__(self):
        if self._dims is None:
            return "<unknown>"
        if len(self._dims) == 1:
            return "(%s,)" % self._dims[0]
        return "(%s)" % ", ".join(str(d) for d in self._dims)

    def __eq__(self, other):
        try:
            other = as_shape(other)
        except TypeError:
            return NotImplemented
        if self._dims is None or other.dims is None:
            return self._dims is None and other.dims is None
        return [d.value for d in self._dims] == [d.value for d in other.dims]

    def __ne__(self, other):
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self):
        return hash(None if self._dims is None else tuple(d.value for d in self._dims))

    def __reduce__(self):
        return TensorShape, (None if self._dims is None else self.as_list(),)


def as_shape(shape):
    return shape if isinstance(shape, TensorShape) else TensorShape(shape)


def unknown_shape(rank=None, ndims=None):
    rank = ndims if rank is None else rank
    return TensorShape(None) if rank is None else TensorShape([None] * rank)


def scalar():
    return TensorShape([])


def vector(length):
    return TensorShape([length])


def matrix(rows, columns):
    return TensorShape([rows, columns])
