"""Meta graphs: TensorFlow's files come in and go out unchanged; scopes, devices, contexts; graph.pbtxt to the byte."""
import os

import numpy as np
import pytest
from google.protobuf import text_format

import golden_cases
import muster as tf
from muster import _muster, _protos
from muster.graph import meta_graph

_META = golden_cases.folder("files") / "meta"


def _golden(name="model.ckpt-0.meta"):
    return tf.MetaGraphDef.FromString((_META / name).read_bytes())


_ITEMS = {"cond_context": "CondContextDef", "while_context": "WhileContextDef", "queue_runners": "QueueRunnerDef",
          "savers": "SaverDef"}


def _collection(proto, key):
    """The items of a collection; messages as messages, since maps inside them have no order."""
    collection = proto.collection_def[key]
    kind = collection.WhichOneof("kind")
    values = list(getattr(collection, kind).value)
    if key in _ITEMS:
        values = [_protos.get("tensorflow." + _ITEMS[key]).FromString(v) for v in values]
    elif kind == "bytes_list" and "variables" in key or key == "global_step":
        values = [_protos.get("tensorflow.VariableDef").FromString(v) for v in values]
    return kind, values


def _nodes(graph_def):
    """Nodes by name. Their order may differ around loops, as may the spelling of tensors that repeat one value."""
    found = {}
    for node in graph_def.node:
        copy = found[node.name] = type(node)()
        copy.CopyFrom(node)
        if copy.op == "Const":
            tensor = copy.attr["value"].tensor
            tensor.ParseFromString(_muster.tensor_proto(_muster.tensor_from_proto(tensor.SerializeToString())))
    return found


@pytest.mark.parametrize("name", ["model.ckpt-0.meta", "model.pbtxt"])
def test_tensorflows_file_comes_in_and_goes_out(name):
    golden = _golden()
    with tf.Graph().as_default() as graph:
        saver = tf.train.import_meta_graph(str(_META / name))
        assert len(tf.global_variables()) == 5 and len(tf.trainable_variables()) == 3
        assert tf.trainable_variables()[0] in tf.global_variables()  # one object in both
        w = [v for v in tf.global_variables() if v.name == "w/part_1:0"][0]
        assert w._get_save_slice_info().spec == "3 4 0,3:2,2"
        assert tf.get_collection("ints") == [5, -6] and tf.get_collection("strings") == [b"one", b"two"]
        assert tf.get_collection("tensors") == [graph.get_tensor_by_name("branch/Merge:0")]
        with tf.Session() as session:
            saver.restore(session, str(_META / "model.ckpt-0"))
            fed = {"x:0": np.ones([2, 3], np.float32)}
            assert session.run("branch/Merge:0", fed) == 72.0  # 3 turns of the loop over 2 x 4 sums of 1.5, twice
        out = saver.export_meta_graph()
    assert out.saver_def == golden.saver_def
    assert _nodes(out.graph_def) == _nodes(golden.graph_def)
    assert out.graph_def.versions == golden.graph_def.versions
    # Ours allow types that came later; names and arguments are the same.
    ops, theirs = ([(op.name, [a.name for a in op.input_arg], len(op.output_arg), op.is_stateful)
                    for op in proto.meta_info_def.stripped_op_list.op] for proto in (out, golden))
    assert ops == theirs
    assert out.meta_info_def.tensorflow_version == golden.meta_info_def.tensorflow_version
    assert sorted(out.collection_def) == sorted(golden.collection_def)
    for key in golden.collection_def:
        assert _collection(out, key) == _collection(golden, key), key


def _golden_program():
    """What generate/gen_misc.py did with TensorFlow 1.15.5."""
    step = tf.train.get_or_create_global_step()
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3, 4], initializer=tf.constant_initializer(0.5),
                        partitioner=tf.fixed_size_partitioner(2, axis=1))
    r = tf.get_variable("r", [4], use_resource=True, initializer=tf.zeros_initializer())
    tf.get_variable("loc", [], collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
    h = tf.matmul(x, w) + r
    _, acc = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + tf.reduce_sum(h)),
                           [tf.constant(0), tf.constant(0.0)], name="loop")
    c = tf.cond(acc > 0, lambda: acc * 2.0, lambda: acc - 1.0, name="branch")
    queue = tf.train.string_input_producer(["a.txt", "b.txt"], num_epochs=2, shuffle=False)
    tf.train.batch([queue.dequeue()], 2)
    tf.losses.add_loss(c)
    tf.summary.scalar("c", c)
    tf.train.ExponentialMovingAverage(0.9, step).apply([r])
    tf.train.GradientDescentOptimizer(0.1).minimize(c, global_step=step)
    for key, value in (("strings", "one"), ("strings", b"two"), ("ints", 5), ("ints", -6), ("floats", 0.25),
                       ("object", object()), ("tensors", c), ("ops", c.op), ("mixed", 1), ("mixed", "a"),
                       ("bools", True)):
        tf.add_to_collection(key, value)
    saver = tf.train.Saver(max_to_keep=3)
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    tf.global_variables_initializer()
    tf.local_variables_initializer()
    return saver


def test_our_program_writes_tensorflows_file():
    golden = _golden()
    with tf.Graph().as_default():
        ours = _golden_program().export_meta_graph()
    assert [n.name for n in ours.graph_def.node] == [n.name for n in golden.graph_def.node]
    mine, theirs = _nodes(ours.graph_def), _nodes(golden.graph_def)
    for name in theirs:
        assert mine[name] == theirs[name]
    assert ours.saver_def == golden.saver_def and ours.graph_def.versions == golden.graph_def.versions
    assert sorted(ours.collection_def) == sorted(golden.collection_def)
    for key in golden.collection_def:
        assert _collection(ours, key) == _collection(golden, key), key


def test_without_defaults():
    golden = _golden("stripped.meta")
    with tf.Graph().as_default():
        saver = tf.train.import_meta_graph(str(_META / "stripped.meta"))
        out = saver.export_meta_graph(strip_default_attrs=True)
    assert out.meta_info_def.stripped_default_attrs
    assert _nodes(out.graph_def) == _nodes(golden.graph_def)


def test_text_to_the_byte(tmp_path):
    """What TensorFlow wrote as text is what we write of it."""
    for path, kind in ((_META / "model.pbtxt", tf.MetaGraphDef),):
        text = path.read_text()
        proto = text_format.Parse(text, kind())
        written = tf.train.write_graph(proto, str(tmp_path / "made"), "out.pbtxt")
        assert written == str(tmp_path / "made" / "out.pbtxt")
        assert open(written).read() == text


def test_numbers_as_python_prints_them():
    rng = np.random.RandomState(1)
    values = [0.0, -0.0, 1.0, 0.1, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 9.999e-5, 1.5e300, 5e-324,
              float("inf"), float("-inf"), float("nan")]
    values += [float(v) for v in rng.randn(200) * 10.0 ** rng.randint(-30, 30, 200)]
    for value in values:
        proto = tf.AttrValue(f=value) if abs(value) < 1e38 or value != value or value in (
            float("inf"), float("-inf")) else tf.AttrValue(f=0)
        assert _muster.message_text("tensorflow.AttrValue", proto.SerializeToString()) == "f: %r\n" % proto.f


def _model():
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.get_variable("w", initializer=tf.constant([[1.0], [2.0]]))
    with tf.device("/device:CPU:0"):
        b = tf.get_variable("b", initializer=tf.constant([0.5]), use_resource=True)
    loop = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * tf.reduce_sum(w)), [0, tf.reduce_sum(x)])[1]
    choice = tf.cond(loop > 0, lambda: tf.while_loop(lambda a: a < 100.0, lambda a: a * 2.0, [loop]), lambda: loop * w[0, 0])
    return tf.identity(tf.reduce_sum(choice) + tf.reduce_sum(tf.matmul(x, w)) + b, name="y")


def test_differentiated_after_import():
    """Loops and conditionals are known again: gradients through them can still be built."""
    fed = {"x:0": [[1.0, 2.0]]}
    with tf.Graph().as_default(), tf.Session() as session:
        y = _model()
        proto = tf.train.export_meta_graph(clear_devices=True)
        gradient = tf.gradients(y, tf.global_variables()[0])[0]
        session.run(tf.global_variables_initializer())
        expected = session.run(gradient, fed)
    for scope in (None, "again"):
        with tf.Graph().as_default() as graph, tf.Session() as session:
            tf.train.import_meta_graph(proto, import_scope=scope)
            prefix = scope + "/" if scope else ""
            gradient = tf.gradients(graph.get_tensor_by_name(prefix + "y:0"), tf.global_variables()[0])[0]
            session.run(tf.global_variables_initializer())
            np.testing.assert_allclose(session.run(gradient, {prefix + "x:0": fed["x:0"]}), expected)


def test_scope_and_devices(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.device("/device:CPU:0"):
            v = tf.Variable([1.0, 2.0], name="v")
        saver = tf.train.Saver()
        session.run(v.initializer)
        path = saver.save(session, str(tmp_path / "m"))
    with tf.Graph().as_default() as graph, tf.Session() as session:
        saver = tf.train.import_meta_graph(path + ".meta", clear_devices=True, import_scope="a/b")
        assert graph.get_operation_by_name("a/b/v").device == ""
        assert saver.saver_def.filename_tensor_name == "a/b/save/Const:0"
        saver.restore(session, path)
        assert session.run("a/b/v:0").tolist() == [1, 2]
        second = tf.train.import_meta_graph(path + ".meta", import_scope="a/b")
        assert second.saver_def.filename_tensor_name == "a/b_1/save/Const:0"
        second.restore(session, path)
        assert session.run("a/b_1/v:0").tolist() == [1, 2]


def test_part_of_a_graph():
    with tf.Graph().as_default() as graph:
        outside = tf.constant(2.0, name="outside")
        with tf.name_scope("inner"):
            v = tf.Variable(1.0, name="v")
            tf.multiply(v, outside, name="y")
            tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0], name="loop")
        proto, exported = meta_graph.export_scoped_meta_graph(export_scope="inner")
        assert list(exported) == ["v:0"]
        assert "y" in [n.name for n in proto.graph_def.node] and "outside" not in [n.name for n in proto.graph_def.node]
        assert list(proto.collection_def["unbound_inputs"].bytes_list.value) == [b"$unbound_inputs_outside"]
        with pytest.raises(ValueError, match="Graph contains unbound inputs: \\$unbound_inputs_outside. Must provide these"):
            meta_graph.import_scoped_meta_graph(proto)
        imported = meta_graph.import_scoped_meta_graph(
            proto, import_scope="copy", input_map={"$unbound_inputs_outside": tf.constant(10.0)})
        assert imported["v:0"].name == "copy/v:0"
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run("copy/y:0") == 10.0
            assert session.run("copy/loop/Exit:0") == 3
    assert graph is not None


def test_extra_savers_are_left_out():
    with tf.Graph().as_default():
        tf.Variable(1.0, name="v")
        savers = [tf.train.Saver(), tf.train.Saver()]
        for saver in savers:
            tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
        proto = savers[1].export_meta_graph(clear_extraneous_savers=True)
    names = {n.name for n in proto.graph_def.node}
    assert "save_1/SaveV2" in names and "save/SaveV2" not in names
    assert len(proto.collection_def["savers"].bytes_list.value) == 1


def test_no_variables():
    with tf.Graph().as_default():
        tf.constant(1.0, name="c")
        proto = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        assert tf.train.import_meta_graph(proto) is None


def test_what_cannot_be_written_is_left_out(tmp_path):
    with tf.Graph().as_default():
        tf.constant(1.0)
        for key, value in (("object", object()), ("mixed", 1), ("mixed", "a"), (5, "x"), ("bools", True)):
            tf.add_to_collection(key, value)
        proto = tf.train.export_meta_graph(str(tmp_path / "g.meta"))
    assert list(proto.collection_def) == ["bools"]
    assert tf.MetaGraphDef.FromString((tmp_path / "g.meta").read_bytes()) == proto


@pytest.mark.parametrize("content, text", [(b"\xff\xff\xff", "Cannot parse file"), (None, "does not exist")])
def test_bad_files(tmp_path, content, text):
    if content is not None:
        (tmp_path / "m").write_bytes(content)
    with tf.Graph().as_default(), pytest.raises(IOError, match=text):
        tf.train.import_meta_graph(os.fspath(tmp_path / "m"))


def test_contexts_that_do_not_fit():
    with tf.Graph().as_default():
        _model()
        proto = tf.train.export_meta_graph()
    for key, kind in (("while_context", "WhileContextDef"), ("cond_context", "CondContextDef")):
        broken = tf.MetaGraphDef()
        broken.CopyFrom(proto)
        context = _protos.get("tensorflow." + kind).FromString(broken.collection_def[key].bytes_list.value[0])
        context.pivot_name = "gone:0"
        broken.collection_def[key].bytes_list.value[0] = context.SerializeToString()
        with tf.Graph().as_default(), pytest.raises(ValueError, match="names 'gone:0', which is not an output"):
            tf.train.import_meta_graph(broken)


_BROKEN_CONTEXTS = r"""
import random
import muster as tf
from muster import _protos

def model():
    w = tf.get_variable("w", initializer=tf.constant([[1.0], [2.0]]))
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    loop = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * tf.reduce_sum(w)), [0, tf.reduce_sum(x)])[1]
    choice = tf.cond(loop > 0, lambda: tf.while_loop(lambda a: a < 100.0, lambda a: a * 2.0, [loop]),
                     lambda: loop * w[0, 0])
    return tf.identity(tf.reduce_sum(choice) + tf.reduce_sum(tf.matmul(x, w)), name="y")

with tf.Graph().as_default() as graph:
    model()
    proto = tf.train.export_meta_graph()
    names = [t.name for op in graph.get_operations() for t in op.outputs]

def contexts(proto):
    yield proto
    for nested in proto.nested_contexts:
        for found in contexts(getattr(nested, nested.WhichOneof("ctxt"))):
            yield found

def damage(context):
    kind = random.randrange(4)
    if kind == 0:
        fields = [f.name for f in context.DESCRIPTOR.fields if f.name.endswith("_name")]
        setattr(context, random.choice(fields), random.choice(names))
    elif kind == 1 and context.values_def.values:
        at = random.randrange(len(context.values_def.values))
        context.values_def.values[at] = random.choice(names)
    elif kind == 2 and context.values_def.values:
        del context.values_def.values[random.randrange(len(context.values_def.values))]
    elif kind == 3:
        context.values_def.external_values[random.choice(names)] = random.choice(names)

random.seed(5)
outcomes = set()
for _ in range(150):
    broken = tf.MetaGraphDef()
    broken.CopyFrom(proto)
    for key, kind in (("while_context", "WhileContextDef"), ("cond_context", "CondContextDef")):
        values = broken.collection_def[key].bytes_list.value
        for i in range(len(values)):
            context = _protos.get("tensorflow." + kind).FromString(values[i])
            for _ in range(random.randrange(3)):
                damage(random.choice(list(contexts(context))))
            values[i] = context.SerializeToString()
    with tf.Graph().as_default() as graph:
        try:
            tf.train.import_meta_graph(broken)
            tf.gradients(graph.get_tensor_by_name("y:0"), tf.global_variables()[0])
            outcomes.add("fine")
        except (ValueError, KeyError, tf.errors.OpError) as e:
            outcomes.add(type(e).__name__)
print(sorted(outcomes))
"""


def test_damaged_contexts_crash_nothing():
    import subprocess
    import sys

    said = subprocess.run([sys.executable, "-c", _BROKEN_CONTEXTS], capture_output=True, text=True, timeout=200,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert said.returncode == 0, said.stderr
    assert "ValueError" in said.stdout


def test_debug_info_says_who_made_the_nodes(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable(1.0, name="v")  # made here
        saver = tf.train.Saver()
        session.run(tf.global_variables_initializer())
        saver.save(session, str(tmp_path / "m"), global_step=3, save_debug_info=True)
        saver.export_meta_graph(str(tmp_path / "other.meta"), save_debug_info=True)
    for name in ("m-3.debug", "other.debug"):
        info = _protos.get("tensorflow.GraphDebugInfo").FromString((tmp_path / name).read_bytes())
        innermost = info.traces["v/read@"].file_line_cols[0]
        assert innermost.code.endswith("# made here") and info.files[innermost.file_index] == __file__
