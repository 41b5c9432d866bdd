"""Our op definitions against those of TensorFlow 2.21 (exactly) and 1.15.5 (as far as it knows them)."""

import re
import subprocess

import pytest

import op_def_list


@pytest.fixture(scope="module")
def data_types():
    from muster import _protos

    return _protos.enum("tensorflow.DataType")


def _parse(data, data_types):
    from muster import _protos

    ops = _protos.get("tensorflow.OpList").FromString(data).op
    return {op.name: op_def_list.describe(op, data_types) for op in ops}


@pytest.fixture(scope="module")
def ours(data_types):
    from muster import _muster

    return _parse(_muster.op_list(), data_types)


@pytest.fixture(scope="module")
def theirs(tf_python, data_types, tmp_path_factory):
    out = tmp_path_factory.mktemp("tf") / "op_list.bin"
    command = [tf_python, op_def_list.__file__, str(out)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return _parse(out.read_bytes(), data_types)


@pytest.fixture(scope="module")
def golden_ops(golden):
    return op_def_list.read_golden((golden / "op_defs.txt").read_text(encoding="utf-8"))


def _differences(name, op, expected):
    for field in expected:
        if field != "attrs" and op[field] != expected[field]:
            yield f"{name}: {field} {op[field]}, TensorFlow has {expected[field]}"
    names = [attr["name"] for attr in op["attrs"]]
    expected_names = [attr["name"] for attr in expected["attrs"]]
    if names != expected_names:
        yield f"{name}: attrs {names}, TensorFlow has {expected_names}"
        return
    for attr, other in zip(op["attrs"], expected["attrs"]):
        for field in other:
            # True and 1 are different defaults.
            if (type(attr[field]), attr[field]) != (type(other[field]), other[field]):
                where = f"{name}: attr {attr['name']}: {field}"
                yield f"{where} {attr[field]!r}, TensorFlow has {other[field]!r}"


# Its graphs are refused where an op was deprecated at or below this version.
PRODUCER_OF_1_15 = 134

# Ops of our own that no client sees; TensorFlow has none of them.
OUR_OWN = {"MusterJoinGroup", "MusterNoteLeader", "MusterGroupLeader", "MusterGroupAwaited", "MusterEndpoint",
           "MusterEnterGroup", "MusterShardQueue", "MusterInitShardQueue", "MusterShardQueueIsInitialized",
           "MusterWorkerIdentity", "MusterShardTake", "MusterShardDone", "MusterShardReturn", "MusterShardRenew",
           "MusterShardReport", "MusterShardState", "MusterRestoreShardState", "MusterFusedElementwise", "MusterSumRows",
           "MusterBatchNormReluGrad", "MusterReluBiasGrad", "MusterProductAndColumns",
           "_MusterPack", "_MusterUnpack", "_MusterCopyToHost", "_MusterCopyToDevice"}


def test_definitions_equal_tensorflows(ours, theirs):
    unknown = sorted(set(ours) - set(theirs) - OUR_OWN)
    assert not unknown, f"ops that TensorFlow does not have: {unknown}"
    problems = [
        line
        for name in sorted(set(ours) & set(theirs))
        for line in _differences(name, ours[name], theirs[name])
    ]
    assert not problems, "\n".join(problems)


def _reads_as(arg, old, op):
    """Whether an argument is the old one, or lets a type attribute decide whose default is the old type."""
    defaults = {attr["name"]: attr["default"] for attr in op["attrs"] if attr["type"] == "type"}
    kind = re.search(r"\w+(?=\)?$)", arg)[0]
    return arg == old or (defaults.get(kind) and re.sub(rf"\b{kind}(?=\)?$)", defaults[kind], arg) == old)


def _lost_since_1_15(name, op, old):
    """Why graphs of 1.15.5 could not be read with our definition."""
    for field in ("inputs", "outputs"):
        pairs = zip(op[field], old[field])
        if len(op[field]) != len(old[field]) or not all(_reads_as(*pair, op) for pair in pairs):
            yield f"{name}: {field} {op[field]}, 1.15.5 had {old[field]}"
    if old["deprecated at"] == 0 and 0 < op["deprecation"][0] <= PRODUCER_OF_1_15:
        yield f"{name}: deprecated at {op['deprecation'][0]}"
    attrs = {attr["name"]: attr for attr in op["attrs"]}
    for expected in old["attrs"]:
        attr = attrs.pop(expected["name"], None)
        where = f"{name}: attr {expected['name']}"
        if attr is None:
            yield f"{where} is gone"
            continue
        if attr["type"] != expected["type"]:
            yield f"{where}: type {attr['type']}, 1.15.5 had {expected['type']}"
        if expected["has default"] and not _same_default(attr, expected):
            yield f"{where}: default {attr['default']!r}, 1.15.5 had {expected['default']!r}"
        if attr["allowed"] is not None and expected["allowed"] is None:
            yield f"{where}: values restricted to {attr['allowed']}"
        if attr["allowed"] is not None and set(expected["allowed"] or ()) - set(attr["allowed"]):
            lost = sorted(set(expected["allowed"]) - set(attr["allowed"]))
            yield f"{where}: no longer allowed: {lost}"
        if attr["minimum"] is not None and (
            expected["minimum"] is None or attr["minimum"] > expected["minimum"]
        ):
            yield f"{where}: minimum {attr['minimum']}, 1.15.5 had {expected['minimum']}"
    for name_of_new, attr in attrs.items():
        if not attr["has default"]:
            yield f"{name}: new attr {name_of_new} has no default"


def _same_default(attr, expected):
    if not attr["has default"]:
        return False
    if expected["type"] == "float":
        return abs(attr["default"] - expected["default"]) <= 1e-7 * abs(expected["default"])
    return attr["default"] == expected["default"]


# Types of T that 2.21 no longer allows, and so neither do we.
_GONE_TYPES = {
    **dict.fromkeys(["Acos", "Asin", "Atan", "Tan"], ["int32", "int64"]),
    **dict.fromkeys(["ArgMax", "ArgMin", "Max", "Min"], ["complex128", "complex64"]),
}


def test_definitions_hold_those_of_1_15(ours, golden_ops):
    known = sorted(set(ours) & set(golden_ops))
    problems = {line for name in known for line in _lost_since_1_15(name, ours[name], golden_ops[name])}
    expected = {
        f"{name}: attr T: no longer allowed: {types}"
        for name, types in _GONE_TYPES.items()
        if name in ours
    }
    assert problems == expected


def test_no_op_of_1_15_is_missing(ours, golden_ops):
    assert not sorted(set(golden_ops) - set(ours))


def test_golden_file_is_read_whole(golden_ops):
    assert len(golden_ops) > 400
    conv = golden_ops["Conv2D"]
    assert conv["inputs"] == ["input:T", "filter:T"]
    (padding,) = [attr for attr in conv["attrs"] if attr["name"] == "padding"]
    assert padding["allowed"] == ["SAME", "VALID", "EXPLICIT"]
    assert golden_ops["Placeholder"]["attrs"][1]["default"] == "unknown_rank"


def test_comparison_sees_every_kind_of_difference(golden_ops):
    add = golden_ops["MatMul"]

    def changed(**fields):
        attrs = [dict(attr) for attr in add["attrs"]]
        attrs[0].update(fields)
        return {**add, "attrs": attrs}

    assert not list(_differences("MatMul", add, add))
    assert list(_differences("MatMul", {**add, "inputs": ["a:T"]}, add))
    assert list(_differences("MatMul", {**add, "attrs": add["attrs"][::-1]}, add))
    for field, value in (("default", 0), ("type", "int"), ("minimum", 3), ("allowed", ["x"])):
        assert list(_differences("MatMul", changed(**{field: value}), add)), field
