"""Protocol buffers that are names of tf and of tf.train, and the generated modules (`..._pb2`) of TensorFlow."""
import re
import sys
import types

from muster import _protos

# Names of tf itself.
TF_NAMES = frozenset((
    "AttrValue", "ConfigProto", "Event", "GPUOptions", "GraphDef", "GraphOptions", "HistogramProto", "LogMessage",
    "MetaGraphDef", "NameAttrList", "NodeDef", "OptimizerOptions", "RunMetadata", "RunOptions", "SessionLog", "Summary",
    "SummaryMetadata", "TensorInfo"))
# Names of tf.train.
TRAIN_NAMES = frozenset((
    "BytesList", "ClusterDef", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList",
    "Int64List", "JobDef", "SaverDef", "SequenceExample", "ServerDef"))
# Names that TensorFlow keeps inside another message.
_NESTED = {"LogMessage": "tensorflow.LogMessage"}


def get(name):
    return _protos.get(_NESTED.get(name, "tensorflow." + name))


def generated_module(path):
    """The module that protoc would have made for tensorflow/<path>.proto, e.g. core/framework/graph_pb2; or None."""
    match = re.fullmatch(r"(.*)_pb2", path)
    if match is None:
        return None
    for prefix in ("tensorflow/", "xla/", "xla/t"):
        name = prefix + match.group(1) + ".proto"
        try:
            found = _protos.pool().FindFileByName(name)
        except KeyError:
            continue
        return _module_of(found, path)
    return None


def _module_of(file, path):
    full = "tensorflow." + path.replace("/", ".")
    module = types.ModuleType(full, "Messages of %s." % file.name)
    # A file that only passes others on has their content too.
    for part in [file] + list(file.public_dependencies):
        for name, message in part.message_types_by_name.items():
            setattr(module, name, _protos.get(message.full_name))
        for name, enum in part.enum_types_by_name.items():
            values = _protos.enum(enum.full_name)
            setattr(module, name, values)
            for value in enum.values:
                setattr(module, value.name, value.number)
    module.DESCRIPTOR = file
    sys.modules[full] = module
    return module
