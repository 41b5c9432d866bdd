"""Message classes of TensorFlow's protocol buffers, made at run time from a descriptor set.

    GraphDef = _protos.get("tensorflow.GraphDef")
    DT_FLOAT = _protos.enum("tensorflow.DataType").DT_FLOAT

The classes live in a descriptor pool of their own, so a TensorFlow in the same process, which
registers the same names in protobuf's default pool, does not clash with them. google.protobuf is
imported on first use.
"""

import functools
import os
import threading

_DESCRIPTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "muster_protos.bin")

# Held while the pool is filled or a class is made: protobuf promises thread safety for neither.
_lock = threading.RLock()


@functools.lru_cache(maxsize=None)
def _load_pool():
    from google.protobuf import descriptor_pb2, descriptor_pool

    try:
        with open(_DESCRIPTORS, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    except FileNotFoundError as error:
        raise ImportError(f"Muster's descriptor set is missing: {_DESCRIPTORS}") from error
    result = descriptor_pool.DescriptorPool()
    for file in files:  # imports come first
        result.AddSerializedFile(file.SerializeToString())
    return result


def pool():
    """The private descriptor pool."""
    with _lock:
        return _load_pool()


@functools.lru_cache(maxsize=None)
def _make_class(full_name):
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_load_pool().FindMessageTypeByName(full_name))


def get(full_name):
    """The class of a message, e.g. "tensorflow.GraphDef"; KeyError for an unknown name."""
    with _lock:
        return _make_class(full_name)


@functools.lru_cache(maxsize=None)
def _make_enum(full_name):
    from google.protobuf.internal import enum_type_wrapper

    return enum_type_wrapper.EnumTypeWrapper(_load_pool().FindEnumTypeByName(full_name))


def enum(full_name):
    """The values of an enum as attributes, and Name() and Value(); KeyError for an unknown name."""
    with _lock:
        return _make_enum(full_name)
