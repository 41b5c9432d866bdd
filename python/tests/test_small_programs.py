"""Single calls of programs written for TensorFlow 1.x that once failed."""
import os

import numpy as np
import pytest

import muster as tf


def test_constants_without_a_name():
    with tf.Graph().as_default():
        made = tf.constant([1, 2], tf.int32, shape=[2], name=None)
        assert made.name == "Const:0" and tf.constant(7.0, name=None).name == "Const_1:0"
        with tf.Session() as session:
            assert session.run(made).tolist() == [1, 2]


def test_sizes_of_kernels_may_be_dimensions():
    with tf.Graph().as_default():
        size = tf.Dimension
        x = tf.ones([1, 8, 8, 3])
        assert tf.layers.conv2d(x, 4, [size(3), size(2)]).shape.as_list() == [1, 6, 7, 4]
        assert tf.layers.conv2d(x, 4, x.get_shape()[1:3], strides=(size(2), size(1))).shape.as_list() == [1, 1, 1, 4]
        assert tf.layers.max_pooling2d(x, [size(2), size(2)], (size(2), 2)).shape.as_list() == [1, 4, 4, 3]
        assert tf.layers.conv1d(x[0], 4, [size(3)]).shape.as_list() == [8, 6, 4]
        assert tf.layers.separable_conv2d(x, 4, (size(3), size(3))).shape.as_list() == [1, 6, 6, 4]
        for wrong in ([size(3)], size(3), [size(None), 3], "ab", [3, None]):
            with pytest.raises(ValueError, match="The `kernel_size` argument must be a tuple of 2 integers. Received: "):
                tf.layers.conv2d(x, 4, wrong)


def test_a_string_that_an_attribute_does_not_take():
    with tf.Graph().as_default(), pytest.raises(
            ValueError, match="Attr 'padding' of 'Conv2D' Op passed string 'FOO' not in: \"SAME\", \"VALID\""):
        tf.nn.conv2d(tf.ones([1, 4, 4, 1]), tf.ones([2, 2, 1, 1]), [1, 1, 1, 1], "FOO")


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_files_named_by_urls(tmp_path, version):
    folder = "file://%s" % tmp_path
    with tf.Graph().as_default():
        v = tf.get_variable("v", [], initializer=tf.constant_initializer(3.0))
        saver = tf.train.Saver(write_version=getattr(tf.train.SaverDef, version))
        with tf.Session() as session:
            session.run(v.initializer)
            path = saver.save(session, folder + "/m", global_step=3)
            assert path == folder + "/m-3"
            session.run(tf.assign(v, 9.0))
            assert tf.train.latest_checkpoint(folder) == path and tf.train.checkpoint_exists(path)
            saver.restore(session, path)
            assert session.run(v) == 3.0
    assert 'model_checkpoint_path: "m-3"' in (tmp_path / "checkpoint").read_text()
    assert tf.train.NewCheckpointReader(path).get_tensor("v") == 3.0
    assert tf.train.list_variables(folder) == [("v", [])]
    assert not os.path.exists("file:")


def test_ops_that_read_and_write_files_named_by_urls(tmp_path):
    folder = "file://%s" % tmp_path
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.write_file(folder + "/a/b.txt", "hello"))
        read, found, line = session.run([tf.read_file(folder + "/a/b.txt"), tf.matching_files(folder + "/a/*"),
                                         tf.data.TextLineDataset(folder + "/lines.txt").make_one_shot_iterator().get_next()])
        assert (read, found.tolist(), line) == (b"hello", [(folder + "/a/b.txt").encode()], b"one")
        table = tf.contrib.lookup.index_table_from_file(folder + "/lines.txt")
        session.run(tf.tables_initializer())
        assert session.run(table.lookup(tf.constant(["two", "three"]))).tolist() == [1, -1]
        writer = tf.summary.FileWriter(folder + "/log")
        writer.add_summary(tf.Summary(), 1)
        writer.close()
    assert len(os.listdir(tmp_path / "log")) == 1


def test_constants_of_variants():
    proto = type(tf.make_tensor_proto(1))()
    proto.dtype = tf.variant.as_datatype_enum
    proto.tensor_shape.SetInParent()
    proto.variant_val.add(type_name="int", metadata=np.int32(7).tobytes())
    with tf.Graph().as_default():
        made = tf.constant(proto)
        assert (made.dtype, made.shape.as_list()) == (tf.variant, [])
        assert made.op.get_attr("value") == proto
        printed = tf.Print(made, [made])
        total = tf.add_n([made, made])
        with tf.Session() as session:
            session.run([printed.op, total.op, tf.zeros_like(made).op])


@pytest.mark.parametrize("served", [False, True])
def test_cost_models(served):
    """As TensorFlow: every third step of each kind is measured when its metadata is asked for."""
    server = tf.train.Server.create_local_server() if served else None
    config = tf.ConfigProto(graph_options=tf.GraphOptions(build_cost_model=3))
    with tf.Graph().as_default(), tf.Session(server.target if served else "", config=config) as session:
        a = tf.placeholder(tf.float32, [])
        b = tf.exp(a, name="b")
        c = tf.multiply(b, b, name="c")

        def measured(fetch):
            metadata = tf.RunMetadata()
            session.run(fetch, {a: 1.0}, options=tf.RunOptions(), run_metadata=metadata)
            if metadata.HasField("cost_graph"):
                nodes = {node.name: node for node in metadata.cost_graph.node}
                assert nodes["c"].output_info[0].dtype == tf.float32.as_datatype_enum
                assert nodes["c"].compute_cost > 0
                assert nodes["c"].input_info[0].preceding_node == nodes["b"].id
                assert len(metadata.step_stats.dev_stats) == (0 if served else 1)
            return metadata.HasField("cost_graph")

        assert [measured(c) for _ in range(7)] == [False, False, True, False, False, True, False]
        d = c + 1.0
        assert [measured(d) for _ in range(3)] == [False, False, True]
        session.run(c, {a: 1.0})  # counts without metadata
        assert measured(c)
    if served:
        server.stop()


def test_executors_that_do_not_exist():
    config = tf.ConfigProto()
    for name, known in (("", True), ("DEFAULT", True), ("SINGLE_THREADED_EXECUTOR", True), ("NO_SUCH", False)):
        config.experimental.executor_type = name
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            three = tf.constant(1) + 2
            if known:
                assert session.run(three) == 3
                continue
            with pytest.raises(tf.errors.NotFoundError, match="No executor factory registered .*: NO_SUCH Registered"):
                session.run(three)


def test_control_flow_v2_may_be_asked_for():
    tf.enable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf.Session() as session:
            v = tf.Variable(5.0)
            p = tf.placeholder(tf.bool, [])
            y = tf.cond(p, lambda: v * 2.0, lambda: v + 1.0)
            session.run(v.initializer)
            assert session.run([y] + tf.gradients(y, v), {p: True}) == [10.0, 2.0]
            assert session.run([y] + tf.gradients(y, v), {p: False}) == [6.0, 1.0]
    finally:
        tf.disable_control_flow_v2()


@pytest.mark.parametrize("producer, accepted", [(5, True), (20, True), (21, False), (134, False)])
def test_axes_of_any_shape_in_old_graphs(producer, accepted):
    graph_def = tf.GraphDef()
    graph_def.versions.producer = producer
    for name, value in (("x", [[7, 1]]), ("axes", [[0, 1]])):
        node = graph_def.node.add(name=name, op="Const")
        node.attr["dtype"].type = tf.int32.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
    for op in ("Sum", "Max", "Prod"):
        node = graph_def.node.add(name=op, op=op, input=["x", "axes"])
        node.attr["T"].type = tf.int32.as_datatype_enum
    with tf.Graph().as_default():
        if not accepted:
            with pytest.raises(ValueError, match="Shape must be at most rank 1 but is rank 2"):
                tf.import_graph_def(graph_def, name="")
            return
        tf.import_graph_def(graph_def, name="")
        with tf.Session() as session:
            assert session.run(["Sum:0", "Max:0", "Prod:0"]) == [8, 7, 7]


def test_norms_of_complex_numbers_and_integers():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([[3 + 4j, 1j, -2], [0, 1, 1]], tf.complex128)
        np.testing.assert_allclose(session.run(tf.math.reduce_euclidean_norm(x, axis=1)), [30 ** 0.5, 2 ** 0.5])
        assert session.run(tf.math.reduce_euclidean_norm(tf.constant([[3, 4], [2, 2]]), axis=1)).tolist() == [5, 2]
        y = tf.constant([3.0, 4.0])
        gradient = tf.gradients(tf.math.reduce_euclidean_norm(y), y)[0]
        np.testing.assert_allclose(session.run(gradient), [0.6, 0.8])


def test_dense_tables_with_vectors_as_keys():
    with tf.Graph().as_default(), tf.Session() as session:
        def keys(values):
            return tf.constant(values, tf.int64)

        table = tf.contrib.lookup.MutableDenseHashTable(tf.int64, tf.int64, [-1, -1], keys([-1, -1]), keys([-2, -2]),
                                                        initial_num_buckets=4)
        session.run(table.insert(keys([[0, 1], [1, 2], [1, 3]]), keys([[2, 2], [3, 3], [4, 4]])))
        found = table.lookup(keys([[0, 1], [1, 0], [1, 3]]))
        assert found.shape.as_list() == [3, 2]
        assert session.run(found).tolist() == [[2, 2], [-1, -1], [4, 4]]
        session.run(table.remove(keys([[1, 2], [3, 1]])))
        assert session.run(table.size()) == 2
        exported = session.run(table.export())
        assert [part.shape for part in exported] == [(4, 2), (4, 2)]
        session.run(table.insert(keys([[i, i] for i in range(20)]), keys([[i, 0] for i in range(20)])))
        assert session.run([table.size(), table.lookup(keys([[7, 7]]))])[1].tolist() == [[7, 0]]
        fed = tf.placeholder(tf.int64)
        for wrong, text in (([[1, 2, 3]], "must end with the table's key shape"), (5, "must end with the table's key shape"),
                            ([1, 2], r"Expected key shape \[2,2\] got \[2\]"), ([[-1, -1]], "empty_key"),
                            ([[-2, -2]], "deleted_key")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                session.run(table.lookup(fed), {fed: wrong})
        for empty, deleted, text in (([-1, -1], [-2], "must have same shape"), ([1, 2], [1, 2], "cannot be equal")):
            table = tf.contrib.lookup.MutableDenseHashTable(tf.int64, tf.int64, -1, keys(empty), keys(deleted))
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                session.run(table.size())


def test_changes_in_place_are_seen_by_whoever_reads_later():
    from muster.ops import inplace_ops

    with tf.Graph().as_default(), tf.Session() as session:
        fed = tf.placeholder(tf.float32, [2, 2])
        x = fed * 2.0
        y = inplace_ops.alias_inplace_add(x, 0, [1.0, 1.0])
        copied = inplace_ops.inplace_update(fed, [1], [[9.0, 9.0]])
        with tf.control_dependencies([y, copied]):
            after = [tf.identity(t) for t in (fed, x, y, copied)]
        ones = np.ones([2, 2], np.float32)
        for _ in range(2):
            got = [value.tolist() for value in session.run(after, {fed: ones})]
            assert got == [[[1, 1], [1, 1]], [[3, 3], [2, 2]], [[3, 3], [2, 2]], [[1, 1], [9, 9]]]
        assert (ones == 1).all()
