"""tf.io.gfile: files under the newer names."""
from muster.file_io import (  # noqa: F401
    copy, create_dir as mkdir, delete_file as remove, delete_recursively as rmtree, file_exists as exists,
    get_matching_files as glob, is_directory as isdir, list_directory as listdir, recursive_create_dir as makedirs,
    rename, stat)
from muster import file_io
from muster.gfile import GFile  # noqa: F401


def walk(top, topdown=True, onerror=None):
    return file_io.walk(top, topdown)


__all__ = ["GFile", "copy", "exists", "glob", "isdir", "listdir", "makedirs", "mkdir", "remove", "rename", "rmtree",
           "stat", "walk"]
