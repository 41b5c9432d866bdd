"""Graphs that leave and come back: through our own importer, and from and to TensorFlow."""
import json
import subprocess

import numpy as np
import pytest

import golden_cases
import muster as tf
from muster import _muster

_CASES = golden_cases.load("graph_names.json")


def _build(code):
    with tf.Graph().as_default() as graph:
        exec(code, {"tf": tf})
    return graph


@pytest.mark.parametrize("index", range(len(_CASES)))
def test_own_round_trip(index):
    """What we export, imported without a prefix, exports as the same bytes' content."""
    first = _build(_CASES[index]["code"]).as_graph_def()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(first, name="")
    second = graph.as_graph_def()
    # The order may differ around loops; the nodes may not.
    assert {n.name: n for n in first.node} == {n.name: n for n in second.node}
    assert first.library == second.library


def test_arguments():
    source = tf.Graph()
    with source.as_default():
        a = tf.placeholder(tf.float32, [2], name="a")
        b = tf.multiply(a, 3.0, name="b")
        tf.add(b, 1.0, name="c")
    definition = source.as_graph_def()
    with tf.Graph().as_default() as graph:
        assert tf.import_graph_def(definition) is None
        assert graph.get_operations()[0].name == "import/a"
        c, b_op = tf.import_graph_def(definition, input_map={"a:0": [1.0, 2.0]}, return_elements=["c:0", "b"])
        assert c.name == "import_1/c:0" and b_op.name == "import_1/b"
        assert b_op.inputs[0].op.name.startswith("import_1/_inputs/")
        given = tf.constant([5.0, 6.0])
        d, = tf.import_graph_def(definition, input_map={"b": given}, return_elements=[b"c:0"], name="named")
        assert d.name == "named/c:0"
        with tf.name_scope("outer"):
            e, = tf.import_graph_def(definition, return_elements=["c:0"], name="inner")
        assert e.name == "outer/inner/c:0"
        with tf.Session() as session:
            assert session.run(c).tolist() == [4, 7]
            assert session.run(d).tolist() == [6, 7]
            assert session.run(e, {"outer/inner/a:0": [0, 1]}).tolist() == [1, 4]


def test_devices_of_imported_nodes():
    source = tf.Graph()
    with source.as_default():
        tf.constant(1, name="plain")
        with tf.device("/job:ps/task:3"):
            tf.constant(2, name="placed")
        with tf.device("/cpu:1"):
            tf.constant(3, name="partly")
        v = tf.Variable(0, name="v")
    assert v is not None
    definition = source.as_graph_def()
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:1"), tf.device(tf.DeviceSpec(device_type="CPU")):
        tf.import_graph_def(definition, name="i")
    where = {op.name: op.device for op in graph.get_operations()}
    assert where["i/plain"] == "/job:worker/task:1/device:CPU:*"
    assert where["i/placed"] == "/job:ps/task:3/device:CPU:*"
    assert where["i/partly"] == "/job:worker/task:1/device:CPU:1"
    assert where["i/v/Assign"] == where["i/v"]
    with tf.Graph().as_default() as graph, tf.device(lambda op: "/job:ps" if op.type == "VariableV2" else "/job:w"):
        tf.import_graph_def(definition, name="")
    where = {op.name: op.device for op in graph.get_operations()}
    assert where["v"] == "/job:ps" and where["plain"] == "/job:w"


def _no_op(**more):
    return tf.GraphDef(node=[dict(name="a", op="NoOp", **more)])


@pytest.mark.parametrize("call, kind, text", [
    (lambda: tf.import_graph_def("x"), TypeError, "graph_def must be a GraphDef proto."),
    (lambda: tf.import_graph_def(_no_op(), input_map=[1]), TypeError,
     "input_map must be a dictionary mapping strings to Tensor objects."),
    (lambda: tf.import_graph_def(_no_op(), return_elements=[7]), TypeError, "return_elements must be a list of strings."),
    (lambda: tf.import_graph_def(_no_op(), return_elements=["a:b:0"]), ValueError, "to a tensor name."),
    (lambda: tf.import_graph_def(_no_op(), input_map={"a": 3}, name=""), ValueError, "requires a non-empty `name`"),
    (lambda: tf.import_graph_def(_no_op(), return_elements=["zz"]), ValueError,
     "Requested return node 'zz' not found in graph def"),
    (lambda: tf.import_graph_def(_no_op(), return_elements=["zz:0"]), ValueError, "zz"),
    (lambda: tf.import_graph_def(_no_op(), input_map={"zz:0": tf.constant(1)}), ValueError,
     r"Attempted to map inputs that were not found in graph_def: \[zz:0\]"),
    (lambda: tf.import_graph_def(_no_op(input=["^gone"])), ValueError, "gone"),
    (lambda: tf.import_graph_def(tf.GraphDef(node=[dict(name="a", op="NoSuchOp")])), tf.errors.NotFoundError,
     "Op type not registered 'NoSuchOp' in binary running on "),
])
def test_bad_calls(call, kind, text):
    with tf.Graph().as_default() as graph:
        with pytest.raises(kind, match=text):
            call()
        assert not [op for op in graph.get_operations() if op.type == "NoOp"]


def test_finalized():
    with tf.Graph().as_default() as graph:
        graph.finalize()
        with pytest.raises(RuntimeError, match="Graph is finalized and cannot be modified."):
            tf.import_graph_def(_no_op())


def test_text_and_binary():
    from google.protobuf import text_format

    with tf.Graph().as_default() as graph:
        tf.constant([b"\x00\xff", "text"], name="s")
        tf.constant(np.array([1.5, -2], np.float16), name="h")
    definition = graph.as_graph_def(add_shapes=True)
    assert text_format.Parse(str(definition), tf.GraphDef()) == definition
    assert tf.GraphDef.FromString(definition.SerializeToString()) == definition
    with tf.Graph().as_default():
        s, h = tf.import_graph_def(definition, return_elements=["s:0", "h:0"])
        assert s.shape.as_list() == [2]
        with tf.Session() as session:
            assert session.run(s).tolist() == [b"\x00\xff", b"text"]
            assert session.run(h).tolist() == [1.5, -2]


def test_frozen_graph():
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        v = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="v")
        r = tf.get_variable("r", initializer=[10.0, 20.0], use_resource=True)
        tf.add(tf.matmul(x, v), r, name="y")
        tf.assign_add(v, [[1.0, 1.0], [1.0, 1.0]], name="unneeded")
        session.run(tf.global_variables_initializer())
        frozen = tf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])
        kept = tf.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["y"], variable_names_blacklist=["v"])
        session.run("unneeded")
    assert not {"VariableV2", "VarHandleOp", "ReadVariableOp", "AssignAdd"} & {n.op for n in frozen.node}
    assert "VariableV2" in {n.op for n in kept.node}
    with tf.Graph().as_default(), tf.Session() as session:
        y, = tf.import_graph_def(frozen, return_elements=["y:0"], name="")
        assert session.run(y, {"x:0": [[1, 1]]}).tolist() == [[14, 26]]
    smaller = tf.graph_util.remove_training_nodes(frozen)
    assert "Identity" not in {n.op for n in smaller.node}
    with tf.Graph().as_default(), tf.Session() as session:
        y, = tf.import_graph_def(smaller, return_elements=["y:0"], name="")
        assert session.run(y, {"x:0": [[1, 1]]}).tolist() == [[14, 26]]


def test_sub_graph():
    with tf.Graph().as_default() as graph:
        a = tf.constant(1, name="a")
        with tf.control_dependencies([tf.no_op(name="before")]):
            tf.identity(a, name="b")
        tf.constant(2, name="c")
    definition = graph.as_graph_def()
    part = tf.graph_util.extract_sub_graph(definition, ["b"])
    assert [n.name for n in part.node] == ["a", "before", "b"]
    assert part.versions == definition.versions
    with pytest.raises(AssertionError, match="zz is not in graph"):
        tf.graph_util.extract_sub_graph(definition, ["zz"])
    with pytest.raises(TypeError, match="dest_nodes must be a list."):
        tf.graph_util.extract_sub_graph(definition, "b")
    assert tf.graph_util.must_run_on_cpu(graph.get_operation_by_name("a"))
    assert tf.graph_util.tensor_shape_from_node_def_name(graph, "a").as_list() == []


# --- With TensorFlow, in a process of its own. ---
_PRODUCE = r"""
import json, os, sys
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
folder = sys.argv[1]
expected = {}

def model():
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    w = tf.constant(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, name="w")
    h = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), tf.constant([1., -5., .5], name="b")), name="h")
    i = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 2.), [0, tf.reduce_sum(h)], name="loop")
    c = tf.cond(i[1] > 10., lambda: tf.strings.join(["big", "ger"]), lambda: tf.constant("small"), name="choice")
    return x, h, [tf.identity(i[1], "doubled"), tf.identity(c, "said"), tf.nn.softmax(h, name="soft"),
                  tf.argmax(h, 1, name="best")]

fed = np.ones((2, 4), np.float32)
tf.disable_control_flow_v2()
with tf.Graph().as_default() as graph, tf.Session() as session:
    x, h, outputs = model()
    names = [t.name for t in outputs]
    expected["model"] = {n: v.tolist() if hasattr(v, "tolist") else v.decode()
                         for n, v in zip(names, session.run(outputs, {x: fed}))}
    open(folder + "/model.pb", "wb").write(graph.as_graph_def(add_shapes=True).SerializeToString())
    # Defaults left out, as a Saver can.
    stripped = tf.train.export_meta_graph(graph=graph, strip_default_attrs=True).graph_def
    open(folder + "/stripped.pb", "wb").write(stripped.SerializeToString())
    # What Grappler has made of it.
    metadata = tf.RunMetadata()
    value = session.run(h, {x: fed}, options=tf.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    expected["fused"] = value.tolist()
    assert len(metadata.partition_graphs) == 1
    open(folder + "/fused.pb", "wb").write(metadata.partition_graphs[0].SerializeToString())
json.dump(expected, open(folder + "/expected.json", "w"))
"""

_CONSUME = r"""
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
folder = sys.argv[1]
definition = tf.GraphDef.FromString(open(folder + "/ours.pb", "rb").read())
with tf.Graph().as_default() as graph, tf.Session() as session:
    tf.import_graph_def(definition, name="")
    session.run("init")
    results = [float(session.run(["train", "loss:0"], {"x:0": [[1., 2.]], "y:0": [[3.]]})[1]) for _ in range(3)]
    back = graph.as_graph_def()
nodes = {n.name: n for n in back.node}
# TensorFlow adds attributes that are newer than 1.15; those that we wrote are as they were.
same = len(nodes) == len(definition.node) and all(
    nodes[n.name].op == n.op and nodes[n.name].input == n.input and all(
        nodes[n.name].attr[key] == n.attr[key] for key in n.attr) for n in definition.node)
json.dump({"results": results, "same": same}, open(folder + "/answer.json", "w"))
"""


@pytest.fixture(scope="module")
def produced(tf_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("from_tensorflow")
    subprocess.run([tf_python, "-c", _PRODUCE, str(folder)], check=True, capture_output=True, timeout=100)
    return folder


def _load(path):
    return tf.GraphDef.FromString(path.read_bytes())


@pytest.mark.parametrize("file", ["model.pb", "stripped.pb"])
def test_graph_of_tensorflow(produced, file):
    expected = json.loads((produced / "expected.json").read_text())["model"]
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(_load(produced / file), name="")
        values = session.run(list(expected), {"x:0": np.ones((2, 4), np.float32)})
        back = graph.as_graph_def()
    for (name, wanted), value in zip(expected.items(), values):
        if isinstance(wanted, str):
            assert value == wanted.encode(), name
        else:
            np.testing.assert_allclose(value, wanted, rtol=1e-6, err_msg=name)
    # Defaults that were left out are filled in, and nothing else changes.
    original = {n.name: n for n in _load(produced / "model.pb").node}
    assert set(original) == {n.name for n in back.node}
    for node in back.node:
        wanted = original[node.name]
        assert (node.op, list(node.input), node.device) == (wanted.op, list(wanted.input), wanted.device)
        newer = {attr.name for attr in _muster.op_def(node.op).attrs if attr.since_2x}
        for key, value in wanted.attr.items():
            if not key.startswith("_") and key not in newer:
                assert node.attr[key] == value, (node.name, key)


def test_graph_rewritten_by_grappler(produced):
    definition = _load(produced / "fused.pb")
    assert "_FusedMatMul" in {n.op for n in definition.node}
    # The ends of a partition have names and ops that only a runtime may use.
    kept = tf.GraphDef(versions=definition.versions)
    for node in definition.node:
        if node.op == "_Arg":
            kept.node.add(name="x", op="Placeholder").attr["dtype"].CopyFrom(node.attr["T"])
        elif node.op != "_Retval":
            copy = kept.node.add()
            copy.CopyFrom(node)
            copy.device = ""
            copy.input[:] = ["x" if i.startswith("_arg_x") else i for i in node.input]
    expected = json.loads((produced / "expected.json").read_text())["fused"]
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(kept, name="")
        np.testing.assert_allclose(session.run("h:0", {"x:0": np.ones((2, 4), np.float32)}), expected, rtol=1e-6)


_FUSED = {
    "_MklSwish": (lambda x, *_: x * tf.sigmoid(x), []),
    "_MklFusedMish": (lambda x, *_: x * tf.tanh(tf.nn.softplus(x)), []),
    "_FusedDepthwiseConv2dNative": (lambda x, f, b: tf.nn.leaky_relu(
        tf.nn.depthwise_conv2d(x, f, [1, 1, 1, 1], "SAME") + b, 0.25), ["filter", "bias"]),
}


@pytest.mark.parametrize("op", _FUSED)
def test_ops_that_only_grappler_makes(op):
    """TensorFlow 2.21 as a master sends them to workers of any kind."""
    meaning, extra = _FUSED[op]
    random = np.random.RandomState(1)
    values = {"x": random.randn(2, 5, 4, 3) * 10, "filter": random.randn(3, 2, 3, 2), "bias": random.randn(6)}
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = [tf.constant(values[name], tf.float32, name=name) for name in ["x"] + extra]
        definition = tf.GraphDef()
        for tensor in inputs:
            definition.node.add().CopyFrom(tensor.op.node_def)
        node = definition.node.add(name="fused", op=op, input=[t.op.name for t in inputs])
        node.attr["T"].type = tf.float32.as_datatype_enum
        if extra:
            node.attr["num_args"].i = 1
            node.attr["strides"].list.i[:] = [1, 1, 1, 1]
            node.attr["padding"].s = b"SAME"
            node.attr["fused_ops"].list.s[:] = [b"BiasAdd", b"LeakyRelu"]
            node.attr["leakyrelu_alpha"].f = 0.25
        fused, = tf.import_graph_def(definition, return_elements=["fused:0"])
        wanted = meaning(*inputs)
        assert fused.shape == wanted.shape
        np.testing.assert_allclose(*session.run([fused, wanted]), rtol=2e-5, atol=1e-5)
        if extra:
            node.input[2] = "filter"
            short, = tf.import_graph_def(definition, return_elements=["fused:0"], name="short")
            with pytest.raises(tf.errors.InvalidArgumentError, match="needs a bias of shape"):
                session.run(short)


def test_our_graph_in_tensorflow(tf_python, tmp_path):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        y = tf.placeholder(tf.float32, [None, 1], name="y")
        w = tf.get_variable("w", [2, 1], initializer=tf.ones_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y) + 0.5, name="loss")
        tf.train.GradientDescentOptimizer(0.01).minimize(loss, name="train")
        tf.global_variables_initializer()
        (tmp_path / "ours.pb").write_bytes(graph.as_graph_def().SerializeToString())
        session.run("init")
        ours = [float(session.run(["train", "loss:0"], {x: [[1, 2]], y: [[3.0]]})[1]) for _ in range(3)]
    subprocess.run([tf_python, "-c", _CONSUME, str(tmp_path)], check=True, capture_output=True, timeout=100)
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["same"]
    np.testing.assert_allclose(ours, answer["results"], rtol=1e-5)
