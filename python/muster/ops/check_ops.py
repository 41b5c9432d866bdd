"""Assertions on tensors: decided while building where values are known, else by Assert nodes."""
import numpy as np

from muster import dtypes, errors
from muster.graph import framework, tensor_shape
from muster.graph.convert import constant_value, convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, control_flow_ops, math_ops, slice_ops

_NUMERIC = (dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64,
            dtypes.uint8, dtypes.qint8, dtypes.qint32, dtypes.quint8, dtypes.complex64)


def _prefix(message):
    return "%s.  " % message if message else ""


def _static_text(value):
    if not isinstance(value, framework.Tensor):
        return str(value)
    known = constant_value(value)
    return str(value) if known is None else str(known)


def _check_static(holds, data):
    if not holds:
        raise errors.InvalidArgumentError(None, None, "\n".join(_static_text(d) for d in data))


def _binary(symbol, op_name, function, static_function):
    def check(x, y, data=None, summarize=None, message=None, name=None):
        with name_scope(name, op_name, [x, y, data]):
            x = convert_to_tensor(x, name="x")
            y = convert_to_tensor(y, name="y")
            if data is None:
                data = ["Condition x %s y did not hold element-wise:" % symbol, "x (%s) = " % x.name, x,
                        "y (%s) = " % y.name, y]
            if message is not None:
                data = [message] + list(data)
            condition = math_ops.reduce_all(function(x, y))
            static_x, static_y = constant_value(x), constant_value(y)
            if static_x is not None and static_y is not None:
                _check_static(np.all(static_function(static_x, static_y)), data)
            return control_flow_ops.Assert(condition, data, summarize=summarize)

    check.__name__ = op_name
    return check


_assert_equal = _binary("==", "assert_equal", math_ops.equal, np.equal)
assert_none_equal = _binary("!=", "assert_none_equal", math_ops.not_equal, np.not_equal)
assert_less = _binary("<", "assert_less", math_ops.less, np.less)
assert_less_equal = _binary("<=", "assert_less_equal", math_ops.less_equal, np.less_equal)
assert_greater = _binary(">", "assert_greater", math_ops.greater, np.greater)
assert_greater_equal = _binary(">=", "assert_greater_equal", math_ops.greater_equal, np.greater_equal)


def assert_equal(x, y, data=None, summarize=None, message=None, name=None):
    with name_scope(name, "assert_equal", [x, y, data]):
        if x is y:
            return control_flow_ops.no_op()
    return _assert_equal(x, y, data, summarize, message, name)


def _sign(op_name, text, compare):
    def check(x, data=None, summarize=None, message=None, name=None):
        with name_scope(name, op_name, [x, data]):
            x = convert_to_tensor(x, name="x")
            if data is None:
                data = [_prefix(message)] + text(x) + [x]
            zero = convert_to_tensor(0, dtype=x.dtype)
            return compare(x, zero, data, summarize)

    check.__name__ = op_name
    return check


def _sign_text(symbol):
    return lambda x: ["Condition x %s 0 did not hold element-wise:" % symbol, "x (%s) = " % x.name]


assert_negative = _sign("assert_negative", _sign_text("<"),
                        lambda x, zero, data, n: assert_less(x, zero, data=data, summarize=n))
assert_positive = _sign("assert_positive", _sign_text(">"),
                        lambda x, zero, data, n: assert_less(zero, x, data=data, summarize=n))
assert_non_negative = _sign("assert_non_negative", _sign_text(">="),
                            lambda x, zero, data, n: assert_less_equal(zero, x, data=data, summarize=n))
assert_non_positive = _sign(
    "assert_non_positive", lambda x: ["Condition x <= 0 did not hold element-wise:x (%s) = " % x.name],
    lambda x, zero, data, n: assert_less_equal(x, zero, data=data, summarize=n))


def assert_near(x, y, rtol=None, atol=None, data=None, summarize=None, message=None, name=None):
    with name_scope(name, "assert_near", [x, y, rtol, atol, data]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype)
        dtype = x.dtype.real_dtype if x.dtype.is_complex else x.dtype
        default = 10 * np.finfo(dtype.as_numpy_dtype).eps
        rtol = convert_to_tensor(default if rtol is None else rtol, name="rtol", dtype=dtype)
        atol = convert_to_tensor(default if atol is None else atol, name="atol", dtype=dtype)
        if data is None:
            data = [_prefix(message), "x and y not equal to tolerance rtol = %s, atol = %s" % (rtol, atol),
                    "x (%s) = " % x.name, x, "y (%s) = " % y.name, y]
        tolerance = atol + rtol * math_ops.abs(y)
        difference = math_ops.abs(x - y)
        return control_flow_ops.Assert(math_ops.reduce_all(math_ops.less(difference, tolerance)), data,
                                       summarize=summarize)


class _RankError(Exception):
    def __init__(self, actual, wanted):
        super(_RankError, self).__init__(actual, wanted)
        self.actual, self.wanted = actual, wanted


def _rank_check(x, ranks, static_condition, dynamic_condition, data, summarize):
    for rank in ranks:
        assert_type(rank, dtypes.int32)
    known = [constant_value(rank) for rank in ranks]
    if all(value is not None for value in known):
        if any(value.ndim != 0 for value in known):
            raise ValueError("Rank must be a scalar.")
        actual = x.get_shape().ndims
        if actual is not None:
            wanted = [int(value) for value in known]
            if not static_condition(actual, wanted):
                raise _RankError(actual, wanted)
            return control_flow_ops.no_op(name="static_checks_determined_all_ok")
    condition = dynamic_condition(array_ops.rank(x), ranks)
    for rank, value in zip(ranks, known):
        if value is None:
            scalar = assert_rank(rank, 0, data=["Rank must be a scalar. Received rank: ", rank])
            condition = control_flow_ops.with_dependencies([scalar], condition)
    return control_flow_ops.Assert(condition, data, summarize=summarize)


def assert_rank(x, rank, data=None, summarize=None, message=None, name=None):
    with name_scope(name, "assert_rank", (x, rank) + tuple(data or [])):
        x = convert_to_tensor(x, name="x")
        rank = convert_to_tensor(rank, name="rank")
        if data is None:
            data = [_prefix(message), "Tensor %s must have rank" % x.name, rank, "Received shape: ", array_ops.shape(x)]
        try:
            return _rank_check(x, [rank], lambda actual, wanted: actual == wanted[0],
                               lambda actual, wanted: math_ops.equal(actual, wanted[0]), data, summarize)
        except _RankError as e:
            raise ValueError("%sTensor %s must have rank %d.  Received rank %d, shape %s"
                             % (_prefix(message), x.name, e.wanted[0], e.actual, x.get_shape()))


def assert_rank_at_least(x, rank, data=None, summarize=None, message=None, name=None):
    with name_scope(name, "assert_rank_at_least", (x, rank) + tuple(data or [])):
        x = convert_to_tensor(x, name="x")
        rank = convert_to_tensor(rank, name="rank")
        if data is None:
            data = [_prefix(message), "Tensor %s must have rank at least" % x.name, rank, "Received shape: ",
                    array_ops.shape(x)]
        try:
            return _rank_check(x, [rank], lambda actual, wanted: actual >= wanted[0],
                               lambda actual, wanted: math_ops.greater_equal(actual, wanted[0]), data, summarize)
        except _RankError as e:
            raise ValueError("%sTensor %s must have rank at least %d.  Received rank %d, shape %s"
                             % (_prefix(message), x.name, e.wanted[0], e.actual, x.get_shape()))


def _any_rank(actual, ranks):
    if not ranks:
        return convert_to_tensor(False)
    result = math_ops.equal(ranks[0], actual)
    for rank in ranks[1:]:
        result = math_ops.logical_or(result, math_ops.equal(rank, actual))
    return result


def assert_rank_in(x, ranks, data=None, summarize=None, message=None, name=None):
    with name_scope(name, "assert_rank_in", (x,) + tuple(ranks) + tuple(data or [])):
        x = convert_to_tensor(x, name="x")
        ranks = [convert_to_tensor(rank, name="rank") for rank in ranks]
        if data is None:
            data = [_prefix(message), "Tensor %s must have rank in" % x.name] + ranks + [
                "Received shape: ", array_ops.shape(x)]
        try:
            return _rank_check(x, ranks, lambda actual, wanted: actual in wanted, _any_rank, data, summarize)
        except _RankError as e:
            raise ValueError("%sTensor %s must have rank in %s.  Received rank %d, shape %s"
                             % (_prefix(message), x.name, tuple(e.wanted), e.actual, x.get_shape()))


def assert_integer(x, message=None, name=None):
    with name_scope(name, "assert_integer", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_integer:
            raise TypeError("%sExpected \"x\" to be integer type.  Found: %s of dtype %s"
                            % (_prefix(message), x.name, x.dtype))
        return control_flow_ops.no_op("statically_determined_was_integer")


def assert_type(tensor, tf_type, message=None, name=None):
    with name_scope(name, "assert_type", [tensor]):
        tensor = convert_to_tensor(tensor, name="tensor")
        if tensor.dtype != tf_type:
            raise TypeError("%s%s must be of type %s" % (_prefix(message), tensor.name, tf_type))
        return control_flow_ops.no_op("statically_determined_correct_type")


def assert_scalar(tensor, name=None, message=None):
    with name_scope(name, "assert_scalar", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name=scope)
        if tensor.get_shape().ndims != 0:
            raise ValueError("%sExpected scalar shape for %s, saw shape: %s."
                             % (_prefix(message), tensor.name, tensor.get_shape()))
        return tensor


def assert_proper_iterable(values):
    if isinstance(values, (framework.Tensor, np.ndarray, str, bytes)):
        raise TypeError("Expected argument \"values\" to be a \"proper\" iterable.  Found: %s" % type(values))
    if not hasattr(values, "__iter__"):
        raise TypeError("Expected argument \"values\" to be iterable.  Found: %s" % type(values))


def _label(item):
    return item.name if hasattr(item, "name") else str(item)


def assert_same_float_dtype(tensors=None, dtype=None):
    expected, origin = dtype, ""
    for item in tensors or ():
        if item is None:
            continue
        found = item.dtype.base_dtype
        if not expected:
            expected, origin = found, " as %s" % _label(item)
        elif expected != found:
            raise ValueError("%s, type=%s, must be of the same type (%s)%s." % (_label(item), found, expected, origin))
    if not expected:
        return dtypes.float32
    if not expected.is_floating:
        raise ValueError("Expected floating point type, got %s." % expected)
    return expected


def is_numeric_tensor(tensor):
    return isinstance(tensor, framework.Tensor) and tensor.dtype in _NUMERIC


def _monotonic(x, compare):
    x = array_ops.reshape(x, [-1])
    if not is_numeric_tensor(x):
        raise TypeError("Expected x to be numeric, instead found: %s" % x)
    short = math_ops.less(array_ops.size(x), 2)
    last = array_ops.shape(x) - 1
    return control_flow_ops.cond(
        short, lambda: convert_to_tensor([], dtype=dtypes.bool),
        lambda: compare(slice_ops.strided_slice(x, [1], [1] + last), slice_ops.strided_slice(x, [0], last)))


def is_non_decreasing(x, name=None):
    with name_scope(name, "is_non_decreasing", [x]):
        return math_ops.reduce_all(_monotonic(x, math_ops.greater_equal))


def is_strictly_increasing(x, name=None):
    with name_scope(name, "is_strictly_increasing", [x]):
        return math_ops.reduce_all(_monotonic(x, math_ops.greater))


def ensure_shape(x, shape, name=None):
    return call("EnsureShape", name=name, input=x, shape=tensor_shape.as_shape(shape))


__all__ = ["assert_equal", "assert_none_equal", "assert_less", "assert_less_equal", "assert_greater",
           "assert_greater_equal", "assert_negative", "assert_positive", "assert_non_negative", "assert_non_positive",
           "assert_near", "assert_rank", "assert_rank_at_least", "assert_rank_in", "assert_integer", "assert_type",
           "assert_scalar", "assert_proper_iterable", "assert_same_float_dtype", "is_numeric_tensor",
           "is_non_decreasing", "is_strictly_increasing", "ensure_shape"]
