"""Describes protocol buffers as plain data, to compare ours with TensorFlow's line by line.

As a program (run by TensorFlow's interpreter): proto_dump.py OUT NAME..., where each NAME is a
.proto file of ours; writes what the installed TensorFlow knows of those files to OUT as JSON.
"""

import glob
import importlib
import importlib.util
import json
import mmap
import os
import re
import sys

from google.protobuf import descriptor_pb2

_Field = descriptor_pb2.FieldDescriptorProto
# Field numbers of FileDescriptorProto. A single field seen twice means that another file has begun.
_VARINT_FIELDS = {10, 11, 14}
_LENGTH_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}
_SINGLE_FIELDS = {1, 2, 8, 9, 12, 14}
_METHOD = re.compile(rb"/tensorflow\.(?:Master|Worker)Service/[A-Za-z]+")


def _describe_field(field, message, syntax):
    repeated = field.label == _Field.LABEL_REPEATED
    parts = [_Field.Label.Name(field.label)[6:].lower(), _Field.Type.Name(field.type)[5:].lower()]
    parts += [field.type_name] if field.type_name else []
    parts += [f"= {field.number}"]
    if field.HasField("oneof_index"):
        parts.append(f"oneof {message.oneof_decl[field.oneof_index].name}")
    if field.proto3_optional:
        parts.append("proto3_optional")
    if field.HasField("default_value"):
        parts.append(f"default {field.default_value}")
    can_pack = repeated and field.type not in (
        _Field.TYPE_STRING,
        _Field.TYPE_BYTES,
        _Field.TYPE_MESSAGE,
    )
    if can_pack and (
        field.options.packed if field.options.HasField("packed") else syntax == "proto3"
    ):
        parts.append("packed")
    return " ".join(parts)


def _describe_enum(enum, scope, out):
    name = f"{scope}.{enum.name}"
    alias = " with aliases" if enum.options.allow_alias else ""
    reserved = sorted((r.start, r.end) for r in enum.reserved_range)
    out[name] = f"enum{alias} reserved {reserved} {sorted(enum.reserved_name)}"
    for value in enum.value:
        out[f"{name}.{value.name}"] = f"value {value.number}"


def _describe_message(message, scope, syntax, out):
    name = f"{scope}.{message.name}"
    kind = "map entry" if message.options.map_entry else "message"
    oneofs = sorted(oneof.name for oneof in message.oneof_decl)
    reserved = sorted((r.start, r.end) for r in message.reserved_range)
    out[name] = f"{kind} oneofs {oneofs} reserved {reserved} {sorted(message.reserved_name)}"
    for field in message.field:
        out[f"{name}.{field.name}"] = _describe_field(field, message, syntax)
    for nested in message.nested_type:
        _describe_message(nested, name, syntax, out)
    for enum in message.enum_type:
        _describe_enum(enum, name, out)


def describe(file):
    """{full name: text} of all messages, fields, enums and enum values of a FileDescriptorProto."""
    syntax = file.syntax or "proto2"
    out = {}
    for message in file.message_type:
        _describe_message(message, file.package, syntax, out)
    for enum in file.enum_type:
        _describe_enum(enum, file.package, out)
    return {name: f"{text} ({syntax})" for name, text in out.items()}


def _varint(data, at):
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return result, at


def _end_of_file_descriptor(data, at):
    """End of the FileDescriptorProto at `at`: before the first thing that cannot belong to it."""
    seen = set()
    while at < len(data):
        tag, value_at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number in seen and number in _SINGLE_FIELDS:
            break
        seen.add(number)
        if number in _VARINT_FIELDS and wire_type == 0:
            _, at = _varint(data, value_at)
        elif number in _LENGTH_FIELDS and wire_type == 2:
            size, value_at = _varint(data, value_at)
            at = value_at + size
        else:
            break
    return at


def _file_in_library(data, name):
    """The FileDescriptorProto of that name which the library's generated code holds, or None."""
    start = data.find(b"\n" + bytes([len(name)]) + name.encode() + b"\x12")
    if start < 0:
        return None
    return descriptor_pb2.FileDescriptorProto.FromString(
        data[start : _end_of_file_descriptor(data, start)]
    )


def _file_in_module(name):
    """The FileDescriptorProto of that name which TensorFlow's Python modules hold, or None."""
    module_name = name[: -len(".proto")].replace("/", ".") + "_pb2"
    if not module_name.startswith("tensorflow."):
        return None
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError:
        return None
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def dump_tensorflow(names):
    """{"files": {name: describe(file)}, "methods": [path...]} of this interpreter's TensorFlow."""
    folder = importlib.util.find_spec("tensorflow").submodule_search_locations[0]
    files = {}
    methods = set()
    for path in sorted(glob.glob(os.path.join(folder, "libtensorflow_*.so*"))):
        with open(path, "rb") as library, mmap.mmap(
            library.fileno(), 0, access=mmap.ACCESS_READ
        ) as data:
            for name in names:
                file = _file_in_library(data, name)
                if file is not None:
                    files[name] = describe(file)
            methods.update(path.decode() for path in _METHOD.findall(data))
    for name in names:
        file = _file_in_module(name)
        if file is not None:
            described = describe(file)
            if files.setdefault(name, described) != described:
                raise ValueError(f"TensorFlow's module and library disagree on {name}")
    return {"files": files, "methods": sorted(methods)}


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as out_file:
        json.dump(dump_tensorflow(sys.argv[2:]), out_file)
