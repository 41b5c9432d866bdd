"""tf.contrib: the few members that programs of its time commonly use; everything else says that it is missing."""
import importlib
import sys

from muster import _absent


def _from(module, attribute=None):
    def load():
        loaded = importlib.import_module("muster." + module)
        return loaded if attribute is None else getattr(loaded, attribute)

    return load


def _part(name, members):
    made = _absent.Absent("contrib." + name, _absent.REASONS["contrib"], members)
    sys.modules["muster.contrib." + name] = made
    return made


_mnist = _from("examples.tutorials.mnist.input_data")
_datasets = _part("learn.datasets", {
    "mnist": _mnist, "base": _mnist, "load_dataset": _from("examples.tutorials.mnist.input_data", "load_dataset")})
_learn = _part("learn", {"datasets": lambda: _datasets})
_framework = _part("framework", {
    "get_or_create_global_step": _from("training_util", "get_or_create_global_step"),
    "get_global_step": _from("training_util", "get_global_step"),
    "create_global_step": _from("training_util", "create_global_step"),
    "assert_global_step": _from("training_util", "assert_global_step"),
    "nest": _from("nest")})
_layers = _part("layers", {
    "xavier_initializer": _from("contrib_initializers", "xavier_initializer"),
    "xavier_initializer_conv2d": _from("contrib_initializers", "xavier_initializer"),
    "variance_scaling_initializer": _from("contrib_initializers", "variance_scaling_initializer")})
_training = _part("training", {
    "GreedyLoadBalancingStrategy": _from("device_setter", "GreedyLoadBalancingStrategy"),
    "byte_size_load_fn": _from("device_setter", "byte_size_load_fn")})

_LOOKUP = (
    "HashTable MutableHashTable MutableDenseHashTable KeyValueTensorInitializer TextFileInitializer TextFileIndex "
    "TextFileStringTableInitializer TextFileIdTableInitializer IdTableWithHashBuckets HasherSpec StrongHashSpec "
    "FastHashSpec LookupInterface index_table_from_file index_table_from_tensor index_to_string_table_from_file "
    "index_to_string_table_from_tensor").split()
_lookup = _part("lookup", {name: _from("lookup", name) for name in _LOOKUP})

_DATA = ("AUTOTUNE Counter batch_and_drop_remainder enumerate_dataset ignore_errors map_and_batch "
         "padded_batch_and_drop_remainder parallel_interleave prefetch_to_device shuffle_and_repeat unbatch").split()
_data = _part("data", dict(
    {name: _from("data.experimental", name) for name in _DATA},
    **{name: _from("data", name) for name in (
        "Dataset", "FixedLengthRecordDataset", "Iterator", "TFRecordDataset", "TextLineDataset")}))

_staging = _part("staging", {"StagingArea": _from("data_flow_ops", "StagingArea")})
_plugins = _part("tensorboard.plugins", {"projector": _from("projector")})
_tensorboard = _part("tensorboard", {"plugins": lambda: _plugins})

sys.modules[__name__] = _absent.Absent("contrib", _absent.REASONS["contrib"], {
    "framework": lambda: _framework, "layers": lambda: _layers, "learn": lambda: _learn,
    "data": lambda: _data, "lookup": lambda: _lookup,
    "tensorboard": lambda: _tensorboard, "training": lambda: _training, "staging": lambda: _staging})
