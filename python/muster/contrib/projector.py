"""tf.contrib.tensorboard.plugins.projector: tells TensorBoard which variables are embeddings."""
import functools
import os

from muster import _protos, file_io

PROJECTOR_FILENAME = "projector_config.pbtxt"

_FILE = "tensorflow/contrib/tensorboard/plugins/projector/projector_config.proto"
# Message -> fields, numbered from 1: (name, type, repeated).
_MESSAGES = {
    "SpriteMetadata": (("image_path", "string", False), ("single_image_dim", "uint32", True)),
    "EmbeddingInfo": (("tensor_name", "string", False), ("metadata_path", "string", False),
                      ("bookmarks_path", "string", False), ("tensor_shape", "uint32", True),
                      ("sprite", "SpriteMetadata", False), ("tensor_path", "string", False)),
    "ProjectorConfig": (("model_checkpoint_path", "string", False), ("embeddings", "EmbeddingInfo", True),
                        ("model_checkpoint_dir", "string", False)),
}


@functools.lru_cache(maxsize=None)
def _add_messages():
    from google.protobuf import descriptor_pb2

    field_proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package="tensorflow", syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, (name, kind, repeated) in enumerate(fields, 1):
            field = message.field.add(
                name=name, number=number,
                label=field_proto.LABEL_REPEATED if repeated else field_proto.LABEL_OPTIONAL)
            if kind in _MESSAGES:
                field.type = field_proto.TYPE_MESSAGE
                field.type_name = ".tensorflow." + kind
            else:
                field.type = field_proto.TYPE_STRING if kind == "string" else field_proto.TYPE_UINT32
    _protos.pool().AddSerializedFile(file.SerializeToString())


def __getattr__(name):
    if name not in _MESSAGES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    _add_messages()
    return _protos.get("tensorflow." + name)


def __dir__():
    return sorted(set(globals()) | set(_MESSAGES))


def visualize_embeddings(summary_writer, config):
    """Writes `config` where TensorBoard looks for it: beside the events of the writer."""
    from google.protobuf import text_format

    logdir = summary_writer.get_logdir()
    if logdir is None:
        raise ValueError("Summary writer must have a logdir")
    file_io.write_string_to_file(os.path.join(logdir, PROJECTOR_FILENAME), text_format.MessageToString(config))
