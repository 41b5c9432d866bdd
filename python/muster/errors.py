"""tf.errors: exceptions of running ops, one class per status code."""
import atexit
import re

from muster import _muster


class OpError(Exception):
    """An op failed. `op` is the node that failed where it is known."""

    def __init__(self, node_def, op, message, error_code):
        super(OpError, self).__init__(node_def, op, message, error_code)
        self._node_def = node_def
        self._op = op
        self._message = message
        self._error_code = error_code

    def __reduce__(self):
        init_args = (self._node_def, None, self._message)
        return (type(self), init_args + ((self._error_code,) if type(self) is OpError else ()))

    @property
    def message(self):
        return self._message

    @property
    def op(self):
        return self._op

    @property
    def error_code(self):
        return self._error_code

    @property
    def node_def(self):
        return self._node_def if self._op is None else self._op.node_def

    def __str__(self):
        frames = getattr(self._op, "traceback", None)
        if not frames:
            return self._message
        import traceback

        return "%s\n\nOriginal stack trace for %r:\n%s" % (self._message, self._op.name,
                                                          "".join(traceback.format_list(frames)))


_CODES = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
          "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
          "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"]
_BY_CODE = {}


def _make_class(code, name):
    def __init__(self, node_def, op, message):
        OpError.__init__(self, node_def, op, message, code)

    cls = type(name, (OpError,), {"__init__": __init__, "__module__": __name__})
    _BY_CODE[code] = cls
    return cls


for _code, _constant in enumerate(_CODES):
    globals()[_constant] = _code
CancelledError = _make_class(1, "CancelledError")
UnknownError = _make_class(2, "UnknownError")
InvalidArgumentError = _make_class(3, "InvalidArgumentError")
DeadlineExceededError = _make_class(4, "DeadlineExceededError")
NotFoundError = _make_class(5, "NotFoundError")
AlreadyExistsError = _make_class(6, "AlreadyExistsError")
PermissionDeniedError = _make_class(7, "PermissionDeniedError")
ResourceExhaustedError = _make_class(8, "ResourceExhaustedError")
FailedPreconditionError = _make_class(9, "FailedPreconditionError")
AbortedError = _make_class(10, "AbortedError")
OutOfRangeError = _make_class(11, "OutOfRangeError")
UnimplementedError = _make_class(12, "UnimplementedError")
InternalError = _make_class(13, "InternalError")
UnavailableError = _make_class(14, "UnavailableError")
DataLossError = _make_class(15, "DataLossError")
UnauthenticatedError = _make_class(16, "UnauthenticatedError")


class InaccessibleTensorError(ValueError):
    pass


class OperatorNotAllowedInGraphError(TypeError):
    pass


def exception_type_from_error_code(error_code):
    return _BY_CODE[error_code]


def error_code_from_exception_type(cls):
    for code, candidate in _BY_CODE.items():
        if candidate is cls:
            return code
    raise KeyError(cls)


class raise_exception_on_not_ok_status(object):
    """Kept for old programs; it does nothing, since errors are raised without it."""

    def __enter__(self):
        return None

    def __exit__(self, *unused):
        return False


_NODE = re.compile(r"\[\[\{\{node ([^\}]+)\}\}\]\]")


def failing_node_name(message):
    """The name of the node that an error text points to, or None."""
    found = _NODE.search(message)
    return found.group(1) if found else None


def _make(code, message, while_running, kind):
    if kind:
        return {"LookupError": LookupError, "TypeError": TypeError, "RuntimeError": RuntimeError}.get(
            kind, ValueError)(message)
    if while_running:
        return _BY_CODE.get(code, UnknownError)(None, None, message)
    if code == NOT_FOUND and message.startswith("Op type not registered"):  # noqa: F821
        return NotFoundError(None, None, message)
    if code == UNIMPLEMENTED:  # noqa: F821
        return UnimplementedError(None, None, message)
    if code == INTERNAL:  # noqa: F821
        return InternalError(None, None, message)
    return ValueError(message)


_muster.set_error_maker(_make)
atexit.register(_muster.prepare_exit)  # the first to be registered runs last
