"""Message classes of MasterService and WorkerService.

TensorFlow's Python package contains no module for master.proto and
worker.proto; their serialized descriptors are in its C++ library, where they
are found by file name. Every other message comes from the *_pb2 modules of
the installed TensorFlow 2 package, which is not itself imported.

request('/tensorflow.MasterService/RunStep') is the class RunStepRequest.
"""
import glob
import importlib.util
import mmap
import os
import sys
import types

if "tensorflow" not in sys.modules:  # the pb2 modules alone: fast, small
    spec = importlib.util.find_spec("tensorflow")
    if spec is None:
        sys.exit("this tool needs an interpreter with tensorflow 2.x and grpcio")
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["tensorflow"] = package

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, empty_pb2, message_factory  # noqa: F401
from google.protobuf.internal import decoder
from tensorflow.core.framework import (attr_value_pb2, cost_graph_pb2, device_attributes_pb2, graph_pb2,
                                       step_stats_pb2, tensor_pb2, tensor_shape_pb2, types_pb2)
from tensorflow.core.protobuf import config_pb2, debug_pb2, named_tensor_pb2, tensorflow_server_pb2
try:
    from tensorflow.core.protobuf import error_codes_pb2
except ImportError:
    pass

POOL = descriptor_pool.Default()
SYNTAX_FIELD = 12


def embedded(library, name):
    """The FileDescriptorProto of the .proto file `name`, cut out of a C++ library; None if it is not there."""
    start = library.find(b"\x0a" + bytes([len(name)]) + name.encode())
    if start < 0:
        return None
    end, field = start, 0
    while field != SYNTAX_FIELD:  # the last field of a proto3 file
        tag, at = decoder._DecodeVarint(library, end)
        field = tag >> 3
        size, at = decoder._DecodeVarint(library, at)
        end = at + size
    return descriptor_pb2.FileDescriptorProto.FromString(library[start:end])


def load(*names):
    """Adds the messages of these .proto files to the pool; returns {name: class}."""
    classes = {}
    folder = sys.modules["tensorflow"].__path__[0]
    for path in sorted(glob.glob(os.path.join(folder, "libtensorflow_cc.so*"))):
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as library:
            for name in names:
                found = embedded(library, name)
                if found is None:
                    sys.exit("%s has no descriptor of %s" % (os.path.basename(path), name))
                POOL.AddSerializedFile(found.SerializeToString())
                get = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(POOL).GetPrototype
                classes.update((m.name, get(POOL.FindMessageTypeByName("tensorflow." + m.name))) for m in found.message_type)
        return classes
    sys.exit("no libtensorflow_cc in the tensorflow package")


M = load("tensorflow/core/protobuf/master.proto", "tensorflow/core/protobuf/worker.proto")
# Calls that Muster's tasks make of each other beside TensorFlow's.
M.update({name + kind: empty_pb2.Empty for name in ("Hello", "Status") for kind in ("Request", "Response")})


def request(method):
    return M[method.rsplit("/", 1)[1] + "Request"]


def reply(method):
    return M[method.rsplit("/", 1)[1] + "Response"]
