"""Files as TensorFlow names their operations (tensorflow.python.lib.io.file_io); errors are tf.errors."""
import collections
import contextlib
import errno
import glob
import os
import re
import shutil
import uuid

from muster import compat, errors

FileStatistics = collections.namedtuple("FileStatistics", ["length", "mtime_nsec", "is_directory"])
_BY_ERRNO = {
    errno.ENOENT: errors.NotFoundError, errno.EEXIST: errors.AlreadyExistsError,
    errno.EACCES: errors.PermissionDeniedError, errno.EPERM: errors.PermissionDeniedError,
    errno.EROFS: errors.PermissionDeniedError, errno.ENOTDIR: errors.FailedPreconditionError,
    errno.EISDIR: errors.FailedPreconditionError, errno.ENOTEMPTY: errors.FailedPreconditionError,
    errno.ENOSPC: errors.ResourceExhaustedError, errno.EMFILE: errors.ResourceExhaustedError,
    errno.EINVAL: errors.InvalidArgumentError}


@contextlib.contextmanager
def _raising(path):
    """What the system reports about `path` is raised as one of tf.errors."""
    try:
        yield
    except OSError as e:
        raise _BY_ERRNO.get(e.errno, errors.UnknownError)(None, None, "%s; %s" % (path, e.strerror or e)) from None


def _local(path):
    path = compat.as_str_any(compat.path_to_str(path))
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*)://", path)
    if scheme is None:
        return path
    if scheme.group(1) == "file":
        return path[len("file://"):]
    raise errors.UnimplementedError(
        None, None, "File system scheme '%s' not implemented (file: '%s')" % (scheme.group(1), path))


class FileIO(object):
    """A file; it is opened when first read or written."""

    _MODES = ("r", "w", "a", "r+", "w+", "a+")

    def __init__(self, name, mode):
        self.__name, self.__mode = name, mode
        self._plain_mode = mode.replace("b", "")
        self._binary = "b" in mode
        if self._plain_mode not in self._MODES:
            raise errors.InvalidArgumentError(None, None, "mode is not 'r' or 'w' or 'a' or 'r+' or 'w+' or 'a+'")
        self._file = None

    name = property(lambda self: self.__name)
    mode = property(lambda self: self.__mode)

    def _open(self):
        if self._file is None:
            path = _local(self.__name)
            with _raising(path):
                self._file = open(path, self._plain_mode + "b")
        return self._file

    def _for_reading(self):
        if self._plain_mode in ("w", "a"):
            raise errors.PermissionDeniedError(None, None, "File isn't open for reading")
        return self._open()

    def _for_writing(self):
        if self._plain_mode == "r":
            raise errors.PermissionDeniedError(None, None, "File isn't open for writing")
        return self._open()

    def _text(self, data):
        return data if self._binary else compat.as_str_any(data)

    def read(self, n=-1):
        with _raising(self.__name):
            return self._text(self._for_reading().read(-1 if n is None else n))

    def write(self, file_content):
        with _raising(self.__name):
            self._for_writing().write(compat.as_bytes(file_content))

    def readline(self):
        with _raising(self.__name):
            return self._text(self._for_reading().readline())

    def readlines(self):
        return list(self)

    def seek(self, offset=None, whence=0, position=None):
        if offset is None and position is None:
            raise TypeError("seek(): offset argument required")
        if whence not in (0, 1, 2):
            raise errors.InvalidArgumentError(
                None, None, "Invalid whence argument: {}. Valid values are 0, 1, or 2.".format(whence))
        with _raising(self.__name):
            self._open().seek(position if offset is None else offset, whence)

    def tell(self):
        return self._open().tell()

    def size(self):
        if self._file is not None:
            self._file.flush()
        return stat(self.__name).length

    def flush(self):
        if self._file is not None:
            with _raising(self.__name):
                self._file.flush()

    def close(self):
        if self._file is None and self._plain_mode not in ("r", "r+"):
            self._open()  # a file opened for writing exists even when nothing is written
        if self._file is not None:
            file, self._file = self._file, None
            with _raising(self.__name):
                file.close()

    def seekable(self):
        return True

    def next(self):
        line = self.readline()
        if not line:
            raise StopIteration()
        return line

    __next__ = next

    def __iter__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def file_exists(filename):
    return os.path.lexists(_local(filename))


def delete_file(filename):
    path = _local(filename)
    with _raising(path):
        os.remove(path)


def read_file_to_string(filename, binary_mode=False):
    return FileIO(filename, "rb" if binary_mode else "r").read()


def write_string_to_file(filename, file_content):
    with FileIO(filename, "w") as f:
        f.write(file_content)


def atomic_write_string_to_file(filename, contents, overwrite=True):
    temporary = compat.as_str_any(compat.path_to_str(filename)) + ".tmp" + uuid.uuid4().hex
    write_string_to_file(temporary, contents)
    try:
        rename(temporary, filename, overwrite)
    except errors.OpError:
        delete_file(temporary)
        raise


def get_matching_files(filename):
    patterns = [filename] if isinstance(filename, (str, bytes)) or hasattr(filename, "__fspath__") else filename
    return [found for pattern in patterns for found in sorted(glob.glob(_local(pattern)))]


def create_dir(dirname):
    path = _local(dirname)
    with _raising(path):
        os.mkdir(path)


def recursive_create_dir(dirname):
    path = _local(dirname)
    with _raising(path):
        try:
            os.makedirs(path, exist_ok=True)
        except FileExistsError:
            raise OSError(errno.ENOTDIR, "Not a directory")


def copy(oldpath, newpath, overwrite=False):
    source, target = _local(oldpath), _local(newpath)
    if not overwrite and file_exists(target):
        raise errors.AlreadyExistsError(None, None, "file already exists")
    with _raising(source):
        shutil.copyfile(source, target)


def rename(oldname, newname, overwrite=False):
    source, target = _local(oldname), _local(newname)
    if not overwrite and file_exists(target):
        raise errors.AlreadyExistsError(None, None, "file already exists")
    with _raising(source):
        os.replace(source, target)


def delete_recursively(dirname):
    path = _local(dirname)
    with _raising(path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)


def is_directory(dirname):
    return os.path.isdir(_local(dirname))


def list_directory(dirname):
    path = _local(dirname)
    if not os.path.isdir(path):
        raise errors.NotFoundError(None, None, "Could not find directory %s" % path)
    with _raising(path):
        return os.listdir(path)


def walk(top, in_order=True):
    """(folder, folders in it, files in it), parents first unless in_order is False."""
    for folder, folders, files in os.walk(_local(top), topdown=in_order):
        yield folder, sorted(folders), sorted(files)


def stat(filename):
    path = _local(filename)
    with _raising(path):
        found = os.stat(path)
    return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(path))


def file_crc32(filename, block_size=1 << 24):
    import binascii

    crc = 0
    with FileIO(filename, "rb") as f:
        while True:
            block = f.read(block_size)
            if not block:
                return hex(crc & 0xFFFFFFFF)
            crc = binascii.crc32(block, crc)
