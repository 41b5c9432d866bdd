"""tf.compat: bytes and text, and tf itself under the name v1."""
import sys

import numpy as np

from muster.names import absent as _absent


def as_bytes(bytes_or_text, encoding="utf-8"):
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text
    raise TypeError("Expected binary or unicode string, got %r" % (bytes_or_text,))


def as_text(bytes_or_text, encoding="utf-8"):
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    raise TypeError("Expected binary or unicode string, got %r" % (bytes_or_text,))


as_str = as_text


def as_str_any(value):
    return as_str(value) if isinstance(value, bytes) else str(value)


def path_to_str(path):
    return as_str_any(path.__fspath__()) if hasattr(path, "__fspath__") else path


integral_types = (int, np.integer)
real_types = (int, float, np.integer, np.floating)
complex_types = (int, float, complex, np.number)
bytes_or_text_types = (bytes, str)


_explain = _absent.explain(__name__)


def __getattr__(name):
    if name == "v1":
        return sys.modules["muster"]
    return _explain(name)


def __dir__():
    return sorted(set(globals()) | {"v1"})
