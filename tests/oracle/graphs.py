"""From a case of the table to a program: the graph that both systems load, what is fed, and what is fetched in which step.

A program is a dict of plain values, so that it can cross to the interpreter that has TensorFlow:
  key      a hash of everything below: the result of a program depends on nothing else
  graph    a serialized GraphDef whose node names begin with the key, so that many can be joined to one graph
  feeds    [(node name, element type, array)]
  steps    [(tensor names to fetch, node names to run)], one run of the session each; the values of all are compared
  strided  whether the fed arrays are not contiguous in memory
  shares   whether it may be joined with others (not where building the graph is expected to fail)
  gradient None, or (ys, xs, [(element type, weights)]): the gradients of the weighted ys are compared instead
"""

import dataclasses
import hashlib
import pickle
from typing import Any

import numpy as np
from muster import _protos

import element_types as et

PRODUCER = 134  # TensorFlow 1.15
UNKNOWN = "unknown rank"  # as the value of a shape attribute
# These look at variables that may have no value.
NOT_READ = ("IsVariableInitialized", "VarIsInitializedOp")


@dataclasses.dataclass
class Typed:
    """An input whose element type is not the one that the op's definition asks for."""

    dtype: int
    values: Any


@dataclasses.dataclass
class Uninitialized:
    """A variable that nothing has been assigned to."""

    dtype: int
    shape: tuple = ()


@dataclasses.dataclass
class Case:
    op: str
    kind: str  # normal, empty, edge, error
    typing: str  # which required type it covers: "T=float", or "-" for an op without types
    attrs: dict
    inputs: list
    tolerance: tuple  # see compare.py
    note: str = ""
    shaped: bool = False  # placeholders have static shapes
    sliced: bool = False  # inputs are parts of larger tensors, so their memory starts anywhere
    gradient: bool = False
    text: bool = False  # an error's message is compared, not only its code
    fetch: list = None  # indices of the outputs to compare; None: all that can be fetched
    nodes: Any = None  # instead of one op: a function that builds the graph (see Builder)

    def __str__(self):
        note = f" {self.note}" if self.note else ""
        return f"{self.op}[{self.typing}] {self.kind}{note}{' gradient' if self.gradient else ''}"


class Builder:
    """Makes the nodes of one program."""

    def __init__(self, prefix, registry):
        self.prefix, self.registry = prefix, registry
        self.graph = _protos.get("tensorflow.GraphDef")()
        self.graph.versions.producer = PRODUCER
        self.feeds, self.initializers, self.readers = [], [], []
        self._count = 0

    def node(self, op, inputs=(), name=None, **attrs):
        """Adds a node and returns its name; inputs are tensor names, control inputs begin with ^."""
        self._count += 1
        name = f"{self.prefix}/{name or f'n{self._count}'}"
        node = self.graph.node.add(name=name, op=op)
        node.input.extend(inputs)
        definition = self.registry.ops.get(op)
        kinds = {a.name: a.type for a in definition.attr} if definition else {}
        for key, value in attrs.items():
            set_attr(node.attr[key], kinds.get(key), value)
        return name

    def const(self, values, dtype):
        array = et.carrier(values, dtype)
        return self.node("Const", dtype=dtype, value=(dtype, array))

    def feed(self, values, dtype, shaped=False, raw=False):
        array = values if raw else et.carrier(values, dtype)
        name = self.node("Placeholder", dtype=dtype, **({"shape": array.shape} if shaped else {}))
        self.feeds.append((name, dtype, array))
        return name

    def sliced_feed(self, values, dtype, shaped=False):
        """A feed of three times the values, of which the middle is taken."""
        array = et.carrier(values, dtype)
        name = self.feed(np.stack([array, array, array]), dtype, shaped, raw=True)
        one, two = self.const([1], et.INT32), self.const([2], et.INT32)
        return self.node("StridedSlice", [name, one, two, one], T=dtype, Index=et.INT32, shrink_axis_mask=1)

    def ref_variable(self, values, dtype):
        shape = values.shape if isinstance(values, Uninitialized) else np.shape(values)
        name = self.node("VariableV2", dtype=dtype, shape=shape)
        if not isinstance(values, Uninitialized):
            self.initializers.append(self.node("Assign", [name, self.feed(values, dtype)], T=dtype))
        self.readers.append(lambda: self.node("Identity", [name], T=dtype))
        return name

    def resource_variable(self, values, dtype):
        shape = values.shape if isinstance(values, Uninitialized) else np.shape(values)
        name = self.node("VarHandleOp", dtype=dtype, shape=shape, shared_name=f"{self.prefix}/v{self._count}")
        if not isinstance(values, Uninitialized):
            self.initializers.append(self.node("AssignVariableOp", [name, self.feed(values, dtype)], dtype=dtype))
        self.readers.append(lambda: self.node("ReadVariableOp", [name], dtype=dtype))
        return name


def set_attr(attr, kind, value):
    if kind is None:  # an attribute that the op does not have
        kind = {bool: "bool", int: "int", float: "float"}.get(type(value), "string")
    if kind.startswith("list("):
        attr.list.SetInParent()
        for item in value:
            _set_list_item(attr.list, kind[5:-1], item)
    elif kind == "shape":
        _set_shape(attr.shape, value)
    elif kind == "tensor":
        _set_tensor(attr.tensor, *value)
    elif kind == "string":
        attr.s = value if isinstance(value, bytes) else value.encode()
    else:
        setattr(attr, {"int": "i", "float": "f", "bool": "b", "type": "type"}[kind], value)


def _set_list_item(target, kind, item):
    if kind == "shape":
        _set_shape(target.shape.add(), item)
    elif kind == "tensor":
        _set_tensor(target.tensor.add(), *item)
    elif kind == "string":
        target.s.append(item if isinstance(item, bytes) else item.encode())
    else:
        getattr(target, {"int": "i", "float": "f", "bool": "b", "type": "type"}[kind]).append(item)


def _set_shape(proto, dims):
    proto.SetInParent()
    if dims == UNKNOWN:
        proto.unknown_rank = True
        return
    for size in dims:
        proto.dim.add(size=size)


def _set_tensor(proto, dtype, array):
    proto.dtype = dtype
    _set_shape(proto.tensor_shape, array.shape)
    if dtype == et.STRING:
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.tensor_content = np.ascontiguousarray(array).tobytes()


def argument_types(definition, attrs, args):
    """Per argument the list of element types it stands for (None: taken from the resource)."""
    defaults = {a.name: a.default_value for a in definition.attr}

    def value(name, field):
        if name in attrs:
            return attrs[name]
        default = defaults[name]
        return list(default.list.type) if field == "types" else getattr(default, field)

    for arg in args:
        if arg.type_list_attr:
            yield arg, list(value(arg.type_list_attr, "types"))
            continue
        dtype = arg.type or value(arg.type_attr, "type")
        yield arg, [dtype] * (value(arg.number_attr, "i") if arg.number_attr else 1)


def _resource_type(definition, attrs, given):
    """The element type of the variable behind a resource argument."""
    for name in ("T", "dtype"):
        if name in attrs:
            return attrs[name]
    return given.dtype if isinstance(given, (Typed, Uninitialized)) else et.FLOAT


def _connect(builder, case, definition):
    """The input tensors of the case's node, in order, and those that can be differentiated."""
    names, given = [], iter(case.inputs)
    missing = object()
    for arg, dtypes in argument_types(definition, case.attrs, definition.input_arg):
        for dtype in dtypes:
            value = next(given, missing)
            if value is missing:
                return names
            if arg.type == et.RESOURCE:
                kind = _resource_type(definition, case.attrs, value)
                values = value.values if isinstance(value, Typed) else value
                names.append(builder.resource_variable(values, kind))
                continue
            if isinstance(value, Typed):
                dtype, value = value.dtype, value.values
            if arg.is_ref:
                names.append(builder.ref_variable(value, dtype))
            else:
                names.append(builder.sliced_feed(value, dtype, case.shaped) if case.sliced else builder.feed(
                    value, dtype, case.shaped))
    for value in given:  # more than the op takes: an error case
        names.append(builder.feed(value.values, value.dtype))
    return names


def _lower_op(builder, case):
    definition = builder.registry.ops[case.op]
    inputs = _connect(builder, case, definition)
    name = builder.node(case.op, inputs, name="op", **case.attrs)
    fetches, at = [], 0
    for arg, dtypes in argument_types(definition, case.attrs, definition.output_arg):
        for dtype in dtypes:
            if dtype not in (et.RESOURCE, et.VARIANT) and (case.fetch is None or at in case.fetch):
                fetches.append((f"{name}:{at}", dtype))
            at += 1
    steps = [([], builder.initializers)] if builder.initializers else []
    steps.append(([f for f, _ in fetches], [name]))
    if builder.readers and case.op not in NOT_READ:
        steps.append(([f"{read()}:0" for read in builder.readers], []))
    return inputs, fetches, steps


def program(case, registry):
    """Lowers a case."""
    identity = (case.op, case.kind, sorted(case.attrs.items(), key=lambda kv: kv[0]), case.inputs, case.sliced,
                case.gradient, case.note, case.fetch, case.typing, case.shaped)
    key = "c" + hashlib.sha256(pickle.dumps(identity)).hexdigest()[:16]
    builder = Builder(key, registry)
    gradient = None
    if case.nodes is not None:
        steps = case.nodes(builder, case)
        if builder.initializers:
            steps = [([], builder.initializers)] + steps
        inputs, fetches = [f[0] for f in builder.feeds], [(f, None) for f in steps[-1][0]]
    else:
        inputs, fetches, steps = _lower_op(builder, case)
    if case.gradient:
        gradient = _gradient(builder, case, inputs, fetches)
    removed = registry.ops[case.op].deprecation.version
    if removed:  # the op exists in older graphs only
        builder.graph.versions.producer = min(PRODUCER, removed - 1)
    result = {
        "graph": builder.graph.SerializeToString(deterministic=True), "feeds": builder.feeds, "steps": steps,
        "strided": case.sliced, "shares": case.kind != "error" and not case.gradient and not removed,
        "gradient": gradient,
    }
    result["key"] = hashlib.sha256(pickle.dumps(sorted(result.items(), key=lambda kv: kv[0]))).hexdigest()[:24]
    return result


def _gradient(builder, case, inputs, fetches):
    """ys, xs and weights: which outputs are floats is known, how large they are only after a run. The weights are the
    outputs' own shape through a fed scalar, so that no shape has to be known: grad = 0.5 + 0.25 * y'."""
    dtypes = {name: dtype for name, dtype, _ in builder.feeds}
    xs = [f"{name}:0" for name in inputs if dtypes.get(name) in et.FLOATS + et.COMPLEXES]
    ys, weights = [], []
    for name, dtype in fetches:
        if dtype in et.FLOATS + et.COMPLEXES:
            # A product with a fixed tensor of the same shape weights every element differently.
            shape = builder.node("Shape", [name], T=dtype)
            count = builder.node("Size", [name], T=dtype)
            ramp = builder.node("Range", [builder.const(0, et.INT32), count, builder.const(1, et.INT32)], Tidx=et.INT32)
            ramp = builder.node("FloorMod", [ramp, builder.const(7, et.INT32)], T=et.INT32)
            ramp = builder.node("Cast", [ramp], SrcT=et.INT32, DstT=dtype)
            ramp = builder.node("Add", [ramp, builder.feed(0.5, dtype)], T=dtype)
            ramp = builder.node("Reshape", [ramp, shape], T=dtype, Tshape=et.INT32)
            weighted = builder.node("Mul", [name, builder.node("StopGradient", [ramp], T=dtype)], T=dtype)
            all_axes = builder.node("Range", [builder.const(0, et.INT32), builder.node("Rank", [name], T=dtype),
                                              builder.const(1, et.INT32)], Tidx=et.INT32)
            ys.append(builder.node("Sum", [weighted, all_axes], T=dtype, Tidx=et.INT32) + ":0")
            weights.append((dtype, et.carrier(1, dtype)))
    return ys, xs, weights
