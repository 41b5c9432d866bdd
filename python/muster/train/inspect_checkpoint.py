"""What scripts import from tensorflow.python.tools.inspect_checkpoint: prints what a checkpoint holds."""
import numpy as np

from muster import errors
from muster.train import checkpoint_utils


def print_tensors_in_checkpoint_file(file_name, tensor_name, all_tensors, all_tensor_names=False,
                                     count_exclude_pattern=""):
    """Prints one tensor; without a name all of them, or their names, types and shapes."""
    try:
        reader = checkpoint_utils.NewCheckpointReader(file_name)
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()
        if all_tensors or all_tensor_names:
            for name in sorted(shapes):
                print("tensor_name: ", name)
                if all_tensors:
                    print(reader.get_tensor(name))
        elif not tensor_name:
            for name in sorted(shapes):
                print("%s (DT_%s) %s" % (name, types[name].name.upper(), shapes[name]))
        else:
            print("tensor_name: ", tensor_name)
            print(reader.get_tensor(tensor_name))
        counted = [n for n in shapes if not count_exclude_pattern or not _matches(count_exclude_pattern, n)]
        print("# Total number of params: %d" % sum(int(np.prod(shapes[n])) for n in counted))
    except errors.OpError as e:
        print(str(e))


def _matches(pattern, name):
    import re

    return re.search(pattern, name) is not None
