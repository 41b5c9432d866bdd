"""tf.train.Saver: its nodes, what it writes, what it keeps, what it refuses."""
import json
import os
import time

import numpy as np
import pytest

import golden_cases
import muster as tf
from muster.train import saver as saver_module

_FILES = golden_cases.folder("files")


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def _nodes(prefix):
    return {op.name: op for op in tf.get_default_graph().get_operations() if op.name.startswith(prefix)}


def _started(session):
    session.run(tf.global_variables_initializer())


# --- Nodes. ---
def test_slices_and_resources_are_saved_by_their_values():
    tf.get_variable("p", [5, 2], partitioner=tf.fixed_size_partitioner(2))
    tf.get_variable("r", [3], use_resource=True)
    tf.get_variable("a", [1])
    tf.train.Saver()
    save = tf.get_default_graph().get_operation_by_name("save/SaveV2")
    assert [t.op.name for t in save.inputs[3:]] == ["a", "p/part_0/read", "p/part_1/read", "r/Read/ReadVariableOp"]
    names, slices = (list(t.op.get_attr("value").string_val) for t in save.inputs[1:3])
    assert names == [b"a", b"p", b"p", b"r"]
    assert slices == [b"", b"5 2 0,3:0,2", b"5 2 3,2:0,2", b""]
    assigned = [op.type for op in tf.get_default_graph().get_operation_by_name("save/restore_all").control_inputs]
    assert assigned == ["Assign", "Assign", "Assign", "AssignVariableOp"]


def test_sliced_resource_variables_are_read_on_the_host():
    with tf.device("/job:ps/task:1"):
        tf.get_variable("p", [4], partitioner=tf.fixed_size_partitioner(2), use_resource=True)
    tf.train.Saver()
    nodes = _nodes("save/")
    assert [t.op.name for t in nodes["save/SaveV2"].inputs[3:]] == ["save/Identity_1", "save/Identity_3"]
    assert nodes["save/Read/ReadVariableOp"].device == "/job:ps/task:1"
    assert nodes["save/Identity_1"].device == "/job:ps/task:1/device:CPU:0"


def test_reshape():
    v = tf.Variable(np.zeros([2, 3], np.float32), name="v")
    tf.train.Saver([v], reshape=True)
    nodes = _nodes("save/")
    assert nodes["save/Reshape/shape"].type == "Const" and nodes["save/Assign"].inputs[1].op.name == "save/Reshape"
    assert nodes["save/Assign"].get_attr("validate_shape") is False


def test_shards_by_device():
    for i, task in enumerate((1, 0, 1)):
        with tf.device("/job:ps/task:%d" % task):
            tf.Variable(0.0, name="v%d" % i)
    saver = tf.train.Saver(sharded=True)
    nodes = _nodes("save/")
    assert nodes["save/ShardedFilename"].device == "/job:ps/task:0/device:CPU:0"
    assert [t.op.name for t in nodes["save/SaveV2_1"].inputs[3:]] == ["v0", "v2"]
    assert nodes["save/MergeV2Checkpoints"].device == "/job:ps/task:1/device:CPU:0"
    assert [op.name for op in nodes["save/restore_all"].control_inputs] == ["save/restore_all/NoOp",
                                                                             "save/restore_all/NoOp_1"]
    assert saver.saver_def.save_tensor_name == "save/Identity:0" and saver.saver_def.sharded


def test_one_restore_per_variable_with_the_base_builder():
    tf.Variable(0.0, name="a")
    tf.Variable(0.0, name="b")
    tf.train.Saver(builder=saver_module.BaseSaverBuilder())
    assert {"save/RestoreV2", "save/RestoreV2_1"} <= set(_nodes("save/"))


def test_a_builder_of_the_script(tmp_path):
    calls = []

    class Builder(saver_module.BulkSaverBuilder):
        def save_op(self, filename_tensor, saveables):
            calls.append([s.name for s in saveables])
            return super(Builder, self).save_op(filename_tensor, saveables)

        def bulk_restore(self, filename_tensor, saveables, preferred_shard, restore_sequentially):
            calls.append(preferred_shard)
            return [t + 1 for t in super(Builder, self).bulk_restore(
                filename_tensor, saveables, preferred_shard, restore_sequentially)]

    v = tf.Variable(1.0, name="v")
    saver = tf.train.Saver(builder=Builder())
    assert calls == [["v"], -1]
    with tf.Session() as session:
        _started(session)
        saver.restore(session, saver.save(session, str(tmp_path / "m")))
        assert session.run(v) == 2.0


def test_saveable_objects(tmp_path):
    class Doubled(saver_module.SaveableObject):
        def __init__(self, var, name):
            spec = saver_module.BaseSaverBuilder.SaveSpec(lambda: var * 2, "", name, dtype=var.dtype.base_dtype, device=var.device)
            super(Doubled, self).__init__(var, [spec], name)

        def restore(self, restored_tensors, restored_shapes):
            assert restored_shapes is None
            return tf.assign(self.op, restored_tensors[0] / 2)

    v = tf.Variable(3.0, name="v", collections=[])
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, Doubled(v, "twice"))
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(v.initializer)
        path = saver.save(session, str(tmp_path / "m"))
        session.run(v.assign(0.0))
        saver.restore(session, path)
        assert session.run(v) == 3.0
    with tf.Graph().as_default(), tf.Session() as session:
        twice = tf.Variable(0.0, name="twice")
        tf.train.Saver([twice]).restore(session, path)
        assert session.run(twice) == 6.0


# --- Arguments. ---
def test_what_is_refused():
    v = tf.Variable(1.0, name="v")
    for call, kind, text in (
            (lambda: tf.train.Saver([tf.constant(1.0)]), TypeError, "Variable to save is not a Variable: "),
            (lambda: tf.train.Saver({"a": tf.constant(1.0)}), TypeError, "Not a variable: "),
            (lambda: tf.train.Saver({1: v}), TypeError, "Name is not a string: 1"),
            (lambda: tf.train.Saver(v), TypeError, "Variables to save should be passed in a dict or a list"),
            (lambda: tf.train.Saver([v, v]), ValueError, "At least two variables have the same name: v"),
            (lambda: tf.train.Saver({"a": v, "b": v}), ValueError, "The same saveable will be restored with two names: b"),
            (lambda: tf.train.Saver([]), ValueError, "No variables to save"),
            (lambda: tf.train.Saver([v], defer_build=True), ValueError, "build cannot be deferred"),
            (lambda: tf.train.Saver(saver_def=tf.train.SaverDef()), ValueError, "must specify the save_tensor_name"),
            (lambda: tf.train.Saver(saver_def="x"), ValueError, "saver_def must be a saver_pb2.SaverDef"),
            (lambda: tf.train.Saver(defer_build=True).save(None, "x"), RuntimeError, "`build()` should be called before")):
        with pytest.raises(kind) as raised:
            call()
        assert text in str(raised.value)


def test_empty_and_deferred(tmp_path):
    empty = tf.train.Saver(allow_empty=True)
    later = tf.train.Saver(defer_build=True)
    v = tf.Variable(1.0, name="v")
    later.build()
    with tf.Session() as session:
        _started(session)
        assert empty.save(session, str(tmp_path / "e"), write_meta_graph=False) is None
        empty.restore(session, "nowhere")
        later.save(session, str(tmp_path / "l"))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "l.data-00000-of-00001", "l.index", "l.meta"]
    assert v is not None


def test_names_and_steps(tmp_path):
    v = tf.Variable(1.0, name="v")
    step = tf.Variable(7, name="step", dtype=tf.int64)
    saver, padded = tf.train.Saver({"other": v, "step": step}), tf.train.Saver(pad_step_number=True)
    folder = str(tmp_path)
    with tf.Session() as session:
        _started(session)
        assert saver.save(session, folder + "/a", global_step=step) == folder + "/a-7"
        assert saver.save(session, folder + "/a", global_step=np.int32(3)) == folder + "/a-3"
        assert padded.save(session, folder + "/a", global_step=12) == folder + "/a-00000012"
        for call, text in ((lambda: saver.save(session, folder + "/checkpoint"), "'latest_filename' collides with 'save_path'"),
                           (lambda: saver.save(session, folder + "/a", latest_filename="b/c"),
                            "'latest_filename' must not contain path components"),
                           (lambda: saver.save(session, folder + "/x/y/a"), "Parent directory of %s/x/y/a doesn't exist, "
                            "can't save." % folder),
                           (lambda: saver.restore(session, None), "Can't load save_path when it is None."),
                           (lambda: saver.restore(session, folder + "/none"),
                            "The passed save_path is not a valid checkpoint: %s/none" % folder)):
            with pytest.raises(ValueError, match=text):
                call()
        with pytest.raises(TypeError, match="'sess' must be a Session; 5"):
            saver.save(5, folder + "/a")
        saver.save(session, folder + "/one/a")  # the last folder is made
    assert os.path.exists(folder + "/one/a.index")


def test_protos():
    with tf.name_scope("scope"):
        tf.Variable(1.0, name="v")
        saver = tf.train.Saver(max_to_keep=3)
    assert saver.as_saver_def() is saver.to_proto()
    assert saver.to_proto().max_to_keep == 3 and saver.to_proto().version == tf.train.SaverDef.V2
    assert saver.to_proto("scope").save_tensor_name == "save/control_dependency:0"
    assert saver.to_proto("elsewhere") is None
    again = tf.train.Saver.from_proto(saver.to_proto("scope"), import_scope="scope")
    assert again.saver_def == saver.saver_def


# --- What is kept. ---
def test_keeps_as_tensorflow_did(tmp_path, monkeypatch):
    """The run of golden/files/retention: two checkpoints, and one for ever every two seconds."""
    log = json.loads((_FILES / "retention" / "log.json").read_text())
    tf.get_variable("v", initializer=tf.constant([1.0, 2.0]))
    with tf.Session() as session:
        _started(session)
        # What is kept depends on tenths of a second: a busy machine gets more of them.
        for slower in (1, 3, 10):
            folder = tmp_path / str(slower)
            (folder / "retention").mkdir(parents=True)
            monkeypatch.chdir(folder)
            if _keeps_as_logged(session, log, slower):
                return
    pytest.fail("this machine is too busy to save in time")


def _keeps_as_logged(session, log, slower):
    """False where a checkpoint came too late to tell."""
    saver = tf.train.Saver(max_to_keep=2, keep_checkpoint_every_n_hours=slower * 2.0 / 3600)
    start = saver._next_checkpoint_time - slower * log[0]["next_checkpoint_time"]
    for entry in log:
        step = int(str(entry["after"]).split()[0])
        due = start + slower * entry["time"]
        time.sleep(max(0.0, due - time.time()))
        saver.save(session, "retention/model.ckpt", global_step=step)
        if time.time() - due > slower * 0.1:
            return False
        assert open("retention/checkpoint").read() == entry["checkpoint"]
        assert sorted(f for f in os.listdir("retention")) == entry["files"]
        assert saver.last_checkpoints == [path for path, _ in entry["last_checkpoints_with_time"]]
        assert abs(saver._next_checkpoint_time - start - slower * entry["next_checkpoint_time"]) < 0.01 * slower
    return True


def test_state_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("retention_one")
    tf.get_variable("v", initializer=tf.constant(1.0))
    savers = [("a", "state_keep_all", tf.train.Saver(max_to_keep=0), (1, 2)),
              ("b", "state_keep_one", tf.train.Saver(max_to_keep=1), (1, 2)),
              ("pad", "state_pad", tf.train.Saver(pad_step_number=True), (12,))]
    with tf.Session() as session:
        _started(session)
        for name, state, saver, steps in savers:
            for step in steps:
                saver.save(session, "retention_one/" + name, global_step=step, latest_filename=state,
                           write_meta_graph=False)
            assert open("retention_one/" + state).read() == (_FILES / "retention_one" / state).read_text()
        assert sorted(os.listdir("retention_one")) == sorted(os.listdir(_FILES / "retention_one"))
        relative = tf.train.Saver(save_relative_paths=True)
        relative.save(session, str(tmp_path / "abs" / "m"), global_step=1, write_meta_graph=False)
    assert open("abs/checkpoint").read().splitlines()[0] == "model_checkpoint_path: \"m-1\""
    os.rename("abs", "moved")
    assert tf.train.latest_checkpoint("moved") == "moved/m-1"


def test_recovers_what_was_kept(tmp_path):
    tf.Variable(1.0, name="v")
    folder = str(tmp_path)
    with tf.Session() as session:
        _started(session)
        first = tf.train.Saver(max_to_keep=2)
        for step in (1, 2):
            first.save(session, folder + "/m", global_step=step, write_meta_graph=False)
        second = tf.train.Saver(max_to_keep=2)
        second.recover_last_checkpoints([folder + "/m-1", folder + "/gone", folder + "/m-2"])
        assert second.last_checkpoints == [folder + "/m-1", folder + "/m-2"]
        times = [t for _, t in second._last_checkpoints]
        assert all(abs(t - os.stat(p + ".index").st_mtime) < 1e-3 for t, p in zip(times, second.last_checkpoints))
        second.save(session, folder + "/m", global_step=3, write_meta_graph=False)
        assert not os.path.exists(folder + "/m-1.index") and os.path.exists(folder + "/m-2.index")
        third = tf.train.Saver(max_to_keep=1)
        third.set_last_checkpoints([folder + "/m-2"])
        assert third._last_checkpoints == [(folder + "/m-2", float("inf"))]
        third.set_last_checkpoints_with_time([(folder + "/m-2", 1.0)])
        third.save(session, folder + "/m", global_step=4, write_meta_graph=False)
        assert not os.path.exists(folder + "/m-2.index")


@pytest.mark.parametrize("sharded", [False, True])
def test_the_old_format(tmp_path, sharded):
    v = tf.Variable([1.0, 2.0], name="v")
    tf.get_variable("p", [4], initializer=tf.zeros_initializer(), partitioner=tf.fixed_size_partitioner(2))
    saver = tf.train.Saver(write_version=tf.train.SaverDef.V1, sharded=sharded, max_to_keep=1)
    with tf.Session() as session:
        _started(session)
        first = saver.save(session, str(tmp_path / "m"), global_step=1)
        assert first == str(tmp_path / "m-1") + ("-?????-of-00001" if sharded else "")
        session.run(v.assign([3.0, 4.0]))
        path = saver.save(session, str(tmp_path / "m"), global_step=2)
        assert sorted(os.listdir(tmp_path)) == ["checkpoint", "m-2" + ("-00000-of-00001" if sharded else ""), "m-2.meta"]
        session.run(v.assign([0.0, 0.0]))
        saver.restore(session, path)
        assert session.run(v).tolist() == [3, 4]
        assert tf.train.latest_checkpoint(str(tmp_path)) == path


# --- Files that do not fit. ---
def test_damaged_files(tmp_path):
    v = tf.Variable(np.arange(6, dtype=np.float32), name="v")
    saver = tf.train.Saver([v])
    with tf.Session() as session:
        _started(session)
        path = saver.save(session, str(tmp_path / "m"), write_meta_graph=False)
        data = tmp_path / "m.data-00000-of-00001"
        good = data.read_bytes()
        data.write_bytes(bytes([good[0] ^ 1]) + good[1:])
        with pytest.raises(tf.errors.DataLossError, match="Checksum does not match: stored"):
            saver.restore(session, path)
        data.write_bytes(good[:-3])
        with pytest.raises(tf.errors.OutOfRangeError, match="Read less bytes than requested"):
            saver.restore(session, path)
        index = tmp_path / "m.index"
        index.write_bytes(index.read_bytes()[:-1] + b"x")
        with pytest.raises(tf.errors.DataLossError, match="not an sstable \\(bad magic number\\)"):
            saver.restore(session, path)
        assert session.run(v).tolist() == [0, 1, 2, 3, 4, 5]


def test_other_parts(tmp_path):
    """Saved in two parts, restored in three and as one."""
    values = np.arange(14, dtype=np.float32).reshape(7, 2)
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(2)):
            tf.get_variable("w", initializer=tf.constant(values))
        _started(session)
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    for parts in (1, 3):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", [7, 2], partitioner=tf.fixed_size_partitioner(parts) if parts > 1 else None)
            tf.train.Saver({"w": w}).restore(session, path)
            assert session.run(tf.convert_to_tensor(w)).tolist() == values.tolist()


def test_from_threads(tmp_path):
    import threading

    tf.Variable(1.0, name="v")
    saver = tf.train.Saver(max_to_keep=3)
    with tf.Session() as session:
        _started(session)
        threads = [threading.Thread(target=lambda i=i: [
            saver.save(session, str(tmp_path / "m"), global_step=i * 10 + k, write_meta_graph=False) for k in range(5)])
            for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    kept = saver.last_checkpoints
    assert len(kept) == 3 and all(os.path.exists(p + ".index") for p in kept)
    assert len([f for f in os.listdir(tmp_path) if f.endswith(".index")]) == 3
    assert tf.train.latest_checkpoint(str(tmp_path)) in kept
