"""Our protocol buffers against those of an installed TensorFlow, and the classes made from them.

MUSTER_DESCRIPTORS: the descriptor set to test; by default that of the installed package.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
from google.protobuf import descriptor_pb2

import proto_dump

_HERE = pathlib.Path(__file__).resolve().parent
_MODULE = _HERE.parent / "muster" / "_protos.py"


def _descriptor_path():
    path = os.environ.get("MUSTER_DESCRIPTORS")
    if not path:
        spec = importlib.util.find_spec("muster")
        assert spec, "neither MUSTER_DESCRIPTORS nor an installed muster package"
        path = os.path.join(spec.submodule_search_locations[0], "muster_protos.bin")
    return os.path.abspath(path)


def _load_module():
    """Our _protos, without the package around it (whose import would load the runtime)."""
    spec = importlib.util.spec_from_file_location("muster_protos_under_test", _MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._DESCRIPTORS = _descriptor_path()
    return module


@pytest.fixture(scope="module")
def protos():
    return _load_module()


@pytest.fixture(scope="module")
def our_files():
    data = pathlib.Path(_descriptor_path()).read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    return {file.name: file for file in files if not file.name.startswith("google/protobuf/")}


@pytest.fixture(scope="module")
def theirs(tf_python, our_files, tmp_path_factory):
    out = tmp_path_factory.mktemp("tf") / "descriptors.json"
    command = [tf_python, str(_HERE / "proto_dump.py"), str(out), *our_files]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(out.read_text(encoding="utf-8"))


def _read_gaps():
    gaps = {}
    for line in (_HERE / "proto_known_gaps.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.strip().partition(" ")
            assert reason.strip(), f"gap without a reason: {name}"
            assert name not in gaps, f"gap listed twice: {name}"
            gaps[name] = reason.strip()
    return gaps


def _compare(ours, theirs, gaps):
    """Lines that say how `ours` differs from `theirs` beyond `gaps`; keys are full names."""

    def covered_by(name):
        return [gap for gap in gaps if name == gap or name.startswith(gap + ".")]

    missing = sorted(set(theirs) - set(ours))
    used = {gap for name in missing for gap in covered_by(name)}
    problems = [f"missing: {name}: {theirs[name]}" for name in missing if not covered_by(name)]
    problems += [f"extra: {name}: {ours[name]}" for name in sorted(set(ours) - set(theirs))]
    problems += [
        f"different: {name}: {ours[name]}, TensorFlow has {theirs[name]}"
        for name in sorted(set(ours) & set(theirs))
        if ours[name] != theirs[name]
    ]
    problems += [f"no longer a gap: {gap}" for gap in sorted(set(gaps) - used)]
    return problems


def _merge(files):
    return {name: text for described in files for name, text in described.items()}


def test_all_messages_equal_tensorflows(our_files, theirs):
    # Files that only declare services have no counterpart: TensorFlow puts them in another package.
    # Files under muster/ are between our own tasks.
    described = {name: proto_dump.describe(file) for name, file in our_files.items() if not name.startswith("muster/")}
    unknown = sorted(name for name in described if described[name] and name not in theirs["files"])
    assert not unknown, "files TensorFlow does not have"
    expected = _merge(theirs["files"].values())
    problems = _compare(_merge(described.values()), expected, _read_gaps())
    # A message must also be in the file in which TensorFlow keeps it.
    problems += [
        f"moved to {file}: {name}"
        for file, names in described.items()
        for name in names
        if name in expected and name not in theirs["files"].get(file, {})
    ]
    assert not problems, "\n".join(problems)


def test_packages_and_paths_cover_the_protocol(our_files, theirs):
    names = _merge(proto_dump.describe(file) for file in our_files.values())
    for name in ("GraphDef", "RunStepRequest", "RunGraphResponse", "MetaGraphDef", "Event"):
        assert f"tensorflow.{name}" in names
    methods = {
        f"/{file.package}.{service.name}/{method.name}"
        for file in our_files.values()
        for service in file.service
        for method in service.method
    }
    assert methods == set(theirs["methods"])


def test_comparison_sees_every_kind_of_difference(our_files):
    tensor = our_files["tensorflow/core/framework/tensor.proto"]
    expected = proto_dump.describe(tensor)
    name = "tensorflow.TensorProto.float_val"

    def problems_after(change, gaps=()):
        changed = descriptor_pb2.FileDescriptorProto.FromString(tensor.SerializeToString())
        message = changed.message_type[0]
        index = [field.name for field in message.field].index("float_val")
        change(message, message.field[index], index)
        return _compare(proto_dump.describe(changed), expected, gaps)

    def drop(message, field, index):
        del message.field[index]

    def renumber(message, field, index):
        field.number = 500

    def retype(message, field, index):
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE

    def relabel(message, field, index):
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL

    def unpack(message, field, index):
        field.options.packed = False

    def put_in_oneof(message, field, index):
        message.oneof_decl.add(name="either")
        field.oneof_index = 0

    def add(message, field, index):
        message.field.add(name="new", number=501, type=field.type, label=field.label)

    assert problems_after(lambda *_: None) == []
    assert problems_after(drop)[0].startswith(f"missing: {name}")
    for change in (renumber, retype, relabel, unpack):
        assert [line.split(":")[:2] for line in problems_after(change)] == [
            ["different", f" {name}"]
        ]
    assert len(problems_after(put_in_oneof)) == 2
    assert problems_after(add)[0].startswith("extra: tensorflow.TensorProto.new")
    assert problems_after(drop, {name: "why not"}) == []
    assert problems_after(lambda *_: None, {name: "why not"}) == [f"no longer a gap: {name}"]


def test_messages_round_trip(protos):
    graph = protos.get("tensorflow.GraphDef")()
    node = graph.node.add(name="a", op="Const")
    node.attr["dtype"].type = protos.enum("tensorflow.DataType").DT_FLOAT
    node.attr["value"].tensor.CopyFrom(
        protos.get("tensorflow.TensorProto")(dtype=1, float_val=[1.5])
    )
    again = protos.get("tensorflow.GraphDef").FromString(graph.SerializeToString())
    assert again == graph
    assert again.node[0].attr["value"].tensor.float_val == [1.5]
    assert node.attr["value"].WhichOneof("value") == "tensor"


def test_any_packs_messages_of_the_pool(protos):
    reply = protos.get("tensorflow.RecvBufResponse")()
    reply.transport_options.Pack(protos.get("tensorflow.RecvBufRespExtra")(tensor_content=[b"xy"]))
    assert reply.transport_options.type_url == "type.googleapis.com/tensorflow.RecvBufRespExtra"


def test_every_message_has_a_class(protos, our_files):
    for file in our_files.values():
        for message in file.message_type:
            cls = protos.get(f"{file.package}.{message.name}")
            assert cls.FromString(cls().SerializeToString()) == cls()


def test_classes_are_made_once_and_enums_know_their_names(protos):
    assert protos.get("tensorflow.NodeDef") is protos.get("tensorflow.NodeDef")
    assert protos.enum("tensorflow.error.Code").Name(5) == "NOT_FOUND"
    assert protos.enum("tensorflow.error.Code").Value("ABORTED") == 10


def test_unknown_names_raise_key_error(protos):
    with pytest.raises(KeyError, match="NoSuchMessage"):
        protos.get("tensorflow.NoSuchMessage")
    with pytest.raises(KeyError, match="NoSuchEnum"):
        protos.enum("tensorflow.NoSuchEnum")


def test_missing_descriptor_set_is_named(tmp_path):
    module = _load_module()
    module._DESCRIPTORS = str(tmp_path / "gone.bin")
    with pytest.raises(ImportError, match="gone.bin"):
        module.get("tensorflow.GraphDef")


def _run(python, script):
    prelude = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('p', {str(_MODULE)!r})\n"
        "p = importlib.util.module_from_spec(spec); spec.loader.exec_module(p)\n"
        f"p._DESCRIPTORS = {_descriptor_path()!r}\n"
    )
    run = subprocess.run(
        [python, "-c", prelude + script], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr


def test_import_is_lazy_and_the_default_pool_stays_clean():
    _run(
        sys.executable,
        "assert 'google.protobuf' not in sys.modules\n"
        "p.get('tensorflow.GraphDef')\n"
        "from google.protobuf import descriptor_pool\n"
        "try: descriptor_pool.Default().FindMessageTypeByName('tensorflow.GraphDef')\n"
        "except KeyError: pass\n"
        "else: raise AssertionError('registered in the default pool')\n",
    )


def test_lives_beside_tensorflow(tf_python):
    _run(
        tf_python,
        "p.get('tensorflow.GraphDef')\n"
        "from tensorflow.core.framework import graph_pb2\n"
        "theirs = graph_pb2.GraphDef()\n"
        "theirs.node.add(name='a', op='NoOp').attr['x'].i = 3\n"
        "ours = p.get('tensorflow.GraphDef').FromString(theirs.SerializeToString())\n"
        "assert type(ours) is not type(theirs)\n"
        "assert ours.node[0].attr['x'].i == 3\n"
        "assert ours.SerializeToString() == theirs.SerializeToString()\n",
    )
