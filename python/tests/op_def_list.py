"""Op definitions as plain data, to compare our registry with TensorFlow's definition by definition.

As a program: op_def_list.py OUT writes the ops of this interpreter's TensorFlow to OUT as a serialized OpList.
"""

import json
import pathlib
import re
import sys

FLAGS = (
    "is_stateful",
    "is_commutative",
    "is_aggregate",
    "allows_uninitialized_input",
    "is_distributed_communication",
)
_GOLDEN_FLAGS = dict(zip("SCAU", FLAGS))


def _type_name(number, data_types):
    name = data_types.Name(number)[len("DT_") :].lower()
    return {"half": "float16"}.get(name, name)


def _value(attr, data_types):
    """An AttrValue as something that compares and prints well."""
    kind = attr.WhichOneof("value")
    if kind is None:
        return None
    value = getattr(attr, kind)
    if kind == "type":
        return _type_name(value, data_types)
    if kind == "list":
        fields = [(field.name, list(elements)) for field, elements in value.ListFields()]
        if not fields:
            return []
        ((name, elements),) = fields
        if name == "type":
            return [_type_name(number, data_types) for number in elements]
        return [_plain(element) for element in elements]
    return _plain(value)


def _plain(value):
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (bool, int, float)):
        return value
    if type(value).__name__ == "TensorShapeProto":
        return "unknown_rank" if value.unknown_rank else [dim.size for dim in value.dim]
    # The two encodings of a tensor compare as equal only after decoding.
    if type(value).__name__ == "TensorProto":
        shape = [dim.size for dim in value.tensor_shape.dim]
        content = list(value.tensor_content) or [number % 256 for number in value.int_val]
        return [value.dtype, shape, content]
    return str(value)


def _arg(arg, data_types):
    text = arg.type_list_attr or arg.type_attr or _type_name(arg.type, data_types)
    if arg.number_attr:
        text = f"{arg.number_attr}*{text}"
    return f"{arg.name}:Ref({text})" if arg.is_ref else f"{arg.name}:{text}"


def describe(op, data_types):
    """All of an OpDef but summary, description, experimental_full_type and handle_data.

    Those four are documentation and hints for the eager runtime; no graph depends on them.
    """
    return {
        "inputs": [_arg(arg, data_types) for arg in op.input_arg],
        "outputs": [_arg(arg, data_types) for arg in op.output_arg],
        "control outputs": list(op.control_output),
        "attrs": [
            {
                "name": attr.name,
                "type": attr.type,
                "has default": attr.HasField("default_value"),
                "default": _value(attr.default_value, data_types),
                "minimum": attr.minimum if attr.has_minimum else None,
                "allowed": _value(attr.allowed_values, data_types),
            }
            for attr in op.attr
        ],
        "flags": [flag for flag in FLAGS if getattr(op, flag)],
        "deprecation": [op.deprecation.version, op.deprecation.explanation],
    }


def read_golden(text):
    """{op: description} of the lines of op_defs.txt, in the form of describe()."""
    ops = {}
    for line in text.splitlines():
        if line.startswith("  in  ") or line.startswith("  out "):
            op["inputs" if line.startswith("  in") else "outputs"] = (
                [] if line[6:] == "-" else line[6:].split(", ")
            )
        elif line.startswith("  attr "):
            op["attrs"].append(_read_golden_attr(line[len("  attr ") :]))
        elif line.strip():
            match = _OP.match(line)
            assert match, f"cannot read: {line}"
            op = ops[match["name"]] = {
                "attrs": [],
                "flags": [_GOLDEN_FLAGS[flag] for flag in match["flags"] or ""],
                "deprecated at": int(match["deprecated"] or 0),
            }
    return ops


_OP = re.compile(r"(?P<name>\w+)(?: \[(?P<flags>[SCAU]+)\])?(?: deprecated>=(?P<deprecated>\d+))?$")
_ATTR = re.compile(
    r"(?P<name>\w+):(?P<type>[\w()]+)(?: in \[(?P<allowed>[^]]*)\])?"
    r"(?: >= (?P<minimum>-?\d+))?(?: = (?P<default>.*))?$",
    re.DOTALL,
)


def _read_golden_attr(line):
    match = _ATTR.match(line)
    assert match, f"cannot read: {line}"
    kind, allowed, default = match["type"], match["allowed"], match["default"]
    if allowed is not None:
        allowed = json.loads(f"[{allowed}]") if '"' in allowed else allowed.split(",")
    if default is not None and kind != "type" and default != "unknown_rank" and kind != "tensor":
        default = json.loads(default)
    if kind == "tensor" and default is not None:
        default = [4, [4], [int(n) for n in re.findall(r"int_val: (\d+)", default)]]
    return {
        "name": match["name"],
        "type": kind,
        "has default": match["default"] is not None,
        "default": default,
        "minimum": None if match["minimum"] is None else int(match["minimum"]),
        "allowed": allowed,
    }


def dump_tensorflow(path):
    from tensorflow.python.client import pywrap_tf_session

    ops = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    pathlib.Path(path).write_bytes(ops)


if __name__ == "__main__":
    dump_tensorflow(sys.argv[1])
