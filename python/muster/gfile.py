"""tf.gfile: files under the old names."""
from muster import file_io
from muster.file_io import (  # noqa: F401
    create_dir as MkDir, delete_file as Remove, delete_recursively as DeleteRecursively, file_exists as Exists,
    get_matching_files as Glob, is_directory as IsDirectory, list_directory as ListDirectory,
    recursive_create_dir as MakeDirs, stat as Stat, walk as Walk)


class GFile(file_io.FileIO):
    """A file; errors are tf.errors."""

    def __init__(self, name, mode="r"):
        super(GFile, self).__init__(name, mode)


class FastGFile(GFile):
    """The same; TensorFlow's was faster once."""


Open = GFile


def Copy(oldpath, newpath, overwrite=False):
    file_io.copy(oldpath, newpath, overwrite)


def Rename(oldname, newname, overwrite=False):
    file_io.rename(oldname, newname, overwrite)


__all__ = ["Copy", "DeleteRecursively", "Exists", "FastGFile", "GFile", "Glob", "IsDirectory", "ListDirectory",
           "MakeDirs", "MkDir", "Open", "Remove", "Rename", "Stat", "Walk"]
