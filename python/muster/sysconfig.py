"""tf.sysconfig: where the package lies."""
import os

from muster.names import absent as _absent

__getattr__ = _absent.explain(__name__)

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def get_include():
    return os.path.join(_FOLDER, "include")


def get_lib():
    return _FOLDER


def get_compile_flags():
    return ["-I" + get_include(), "-std=c++20"]


def get_link_flags():
    return ["-L" + get_lib(), "-lmuster"]


__all__ = ["get_compile_flags", "get_include", "get_lib", "get_link_flags"]
