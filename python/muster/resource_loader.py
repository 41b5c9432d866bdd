"""tf.resource_loader: data files beside the code that uses them."""
import os
import sys


def load_resource(path):
    with open(get_path_to_datafile(path), "rb") as f:
        return f.read()


def _folder_of_caller():
    return os.path.dirname(os.path.abspath(sys._getframe(2).f_globals.get("__file__", ".")))


def get_data_files_path():
    return _folder_of_caller()


def get_root_dir_with_all_resources():
    return _folder_of_caller()


def get_path_to_datafile(path):
    return os.path.join(_folder_of_caller(), path)


def readahead_file_path(path, readahead="128M"):
    return path


__all__ = ["get_data_files_path", "get_path_to_datafile", "get_root_dir_with_all_resources", "load_resource",
           "readahead_file_path"]
