"""tf.io.gfile: files under the newer names of functions and arguments."""
from muster import file_io
from muster.gfile import GFile  # noqa: F401
from muster.names import absent as _absent

__getattr__ = _absent.explain(__name__)


def copy(src, dst, overwrite=False):
    file_io.copy(src, dst, overwrite)


def exists(path):
    return file_io.file_exists(path)


def glob(pattern):
    return file_io.get_matching_files(pattern)


def isdir(path):
    return file_io.is_directory(path)


def listdir(path):
    return file_io.list_directory(path)


def makedirs(path):
    file_io.recursive_create_dir(path)


def mkdir(path):
    file_io.create_dir(path)


def remove(path):
    file_io.delete_file(path)


def rename(src, dst, overwrite=False):
    file_io.rename(src, dst, overwrite)


def rmtree(path):
    file_io.delete_recursively(path)


def stat(path):
    return file_io.stat(path)


def walk(top, topdown=True, onerror=None):
    return file_io.walk(top, topdown)


__all__ = ["GFile", "copy", "exists", "glob", "isdir", "listdir", "makedirs", "mkdir", "remove", "rename", "rmtree",
           "stat", "walk"]
