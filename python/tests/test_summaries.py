"""Summaries and event files: golden events, TensorFlow 2.21's values, and what TensorBoard makes of them."""
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

import golden_cases
import muster as tf
import png_pixels
import summary_programs

_EVENTS = golden_cases.folder("files") / "events"
_HERE = pathlib.Path(__file__).resolve().parent


def _run(python, *arguments, **more):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([python, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment, timeout=180, **more)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode()


def _read(folder):
    path, = pathlib.Path(folder).glob("events.out.tfevents.*")
    return list(tf.train.summary_iterator(str(path)))


def _comparable(summary):
    """Values with pixels in the place of PNG files."""
    found = []
    for value in summary.value:
        pixels = None
        if value.HasField("image"):
            pixels = png_pixels.pixels(value.image.encoded_image_string).tolist()
            value = type(value).FromString(value.SerializeToString())
            value.image.encoded_image_string = b""
        found.append((value.SerializeToString(deterministic=True), pixels))
    return found


@pytest.fixture
def graph():
    tf.reset_default_graph()
    yield tf.get_default_graph()
    tf.reset_default_graph()


_IMAGES = {"i_u8_gray": 1, "i_pos": 3, "i_neg": 3, "i_nan": 3, "i_inf_rgba": 1, "i_tiny": 3, "i_half": 3}


def _golden_program(folder):
    """What generated the golden events."""
    with np.load(_EVENTS / "inputs.npz") as inputs:
        inputs = dict(inputs)
    for name, value in inputs.items():
        if name not in _IMAGES:
            tf.summary.histogram(name, tf.constant(value))
    for name, count in _IMAGES.items():
        tf.summary.image(name, tf.constant(inputs[name]), max_outputs=count)
    sound = np.sin(np.arange(40) / 4.0).astype(np.float32).reshape(1, 20, 2)
    tf.summary.audio("a", tf.constant(sound), 8000.0, max_outputs=1)
    with tf.name_scope("scope"):
        tf.summary.scalar("bad name:!", tf.constant(1.5, tf.float64))
        tf.summary.scalar("fam", tf.constant(3), family="family")
    tf.summary.scalar("s", tf.constant(0.1))
    tf.summary.scalar("s", tf.constant(2.0))
    tf.summary.text("txt", tf.constant("hello"))
    tf.summary.tensor_summary("tens", tf.constant([1.0, 2.0]))
    merged = tf.summary.merge_all()
    with tf.Session() as session:
        writer = tf.summary.FileWriter(folder, graph=tf.get_default_graph())
        out = session.run(merged)
        writer.add_summary(out, 5)
        writer.add_summary(out, 6)
        metadata = tf.RunMetadata()
        device = metadata.step_stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:CPU:0")
        device.node_stats.add(node_name="n", all_start_micros=10, all_end_rel_micros=4)
        writer.add_run_metadata(metadata, "step_5", 5)
        with pytest.raises(ValueError, match="The provided tag was already used for this event type"):
            writer.add_run_metadata(metadata, "step_5", 6)
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.START), 5)
        checkpoint = tf.SessionLog(status=tf.SessionLog.CHECKPOINT, checkpoint_path="events/model.ckpt-5")
        writer.add_session_log(checkpoint, 5)
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.STOP))
        event = tf.Event(wall_time=1.25, step=9)
        event.log_message.level = 20
        event.log_message.message = "message"
        writer.add_event(event)
        writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="direct", simple_value=4.5)]))
        writer.close()
        return writer, out


def test_golden_events_are_written(graph, tmp_path):
    before = int(time.time())
    writer, out = _golden_program(str(tmp_path))
    theirs = list(tf.train.summary_iterator(str(_EVENTS / "events.out.tfevents.1794730539.vm")))
    mine = _read(tmp_path)
    assert [e.WhichOneof("what") for e in mine] == [e.WhichOneof("what") for e in theirs]
    for ours, other in zip(mine, theirs):
        kind = ours.WhichOneof("what")
        assert ours.step == other.step
        assert before <= ours.wall_time or ours.wall_time == 1.25
        if kind == "summary":
            assert _comparable(ours.summary) == _comparable(other.summary)
        elif kind not in ("graph_def", "meta_graph_def"):
            assert getattr(ours, kind) == getattr(other, kind)
    assert mine[0].wall_time == int(mine[0].wall_time)
    graph_def = tf.GraphDef.FromString(mine[1].graph_def)
    assert [n.name for n in graph_def.node] == [n.name for n in tf.GraphDef.FromString(theirs[1].graph_def).node]
    assert all("_output_shapes" in n.attr for n in graph_def.node)
    meta_graph, other = (tf.MetaGraphDef.FromString(events[2].meta_graph_def) for events in (mine, theirs))
    assert meta_graph.graph_def == graph_def
    assert meta_graph.collection_def == other.collection_def
    assert [op.name for op in meta_graph.meta_info_def.stripped_op_list.op] == \
        [op.name for op in other.meta_info_def.stripped_op_list.op]
    with pytest.warns(UserWarning, match="Attempting to use a closed FileWriter"):
        writer.add_summary(out, 7)
    writer.reopen()
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="reopened", simple_value=1)]), 8)
    writer.close()
    _, second = sorted(tmp_path.iterdir())
    reopened = list(tf.train.summary_iterator(str(_EVENTS / "events.out.tfevents.1794730540.vm")))
    assert [e.summary for e in tf.train.summary_iterator(str(second))] == [e.summary for e in reopened]


def test_golden_events_are_read(graph):
    decoded = json.loads((_EVENTS / "decoded.json").read_text())
    events = list(tf.train.summary_iterator(str(_EVENTS / "events.out.tfevents.1794730539.vm")))
    assert [(e.wall_time, e.step, [e.WhichOneof("what")]) for e in events] == \
        [(e["wall_time"], e["step"], e["fields"]) for e in decoded]
    with np.load(_EVENTS / "image_pixels.npz") as expected:
        images = {v.tag: v.image for v in events[3].summary.value if v.HasField("image")}
        assert len(images) == len(expected.files)
        for key in expected.files:
            tag = key if key in images else key.replace("__", "/")
            found = png_pixels.pixels(images[tag].encoded_image_string)
            np.testing.assert_array_equal(found.reshape(expected[key].shape), expected[key])
    newer = list(tf.train.summary_iterator(str(golden_cases.folder("files") / "tf221" /
                                               "events.out.tfevents.1794730962.vm")))
    assert newer[0].file_version == "brain.Event:2" and len(newer) == 2


def test_values_are_tensorflows(graph, tf_python, tmp_path):
    inputs = summary_programs.arrays()
    np.savez(tmp_path / "inputs.npz", **inputs)
    theirs = json.loads(_run(tf_python, _HERE / "summary_programs.py", tmp_path / "inputs.npz"))
    mine = summary_programs.summaries(tf, inputs)
    assert sorted(mine) == sorted(theirs)
    for name, value in theirs.items():
        assert _comparable(tf.Summary.FromString(mine[name])) == \
            _comparable(tf.Summary.FromString(bytes.fromhex(value))), name


def test_bad_inputs_are_refused(graph):
    def given(value):
        return tf.placeholder_with_default(value, None)

    def zeros(*shape):
        return given(np.zeros(shape, np.float32))

    raw = tf.raw_ops
    cases = [
        (raw.ImageSummary(tag=given(["a", "b"]), tensor=zeros(1, 2, 2, 1)), "Tags must be a scalar"),
        (raw.ImageSummary(tag="a", tensor=zeros(1, 2, 2, 2)),
         r"Tensor must be 4-D with last dim 1, 3, or 4, not \[1,2,2,2\]"),
        (raw.ImageSummary(tag="a", tensor=zeros(1, 0, 2, 1)),
         r"input tensor must have non-zero dims. Found: \[1, 0, 2, 1\]."),
        (raw.ImageSummary(tag="a", tensor=given(np.zeros([1, 1, 1000001, 1], np.uint8))), "PNG encoding failed"),
        (raw.HistogramSummary(tag=given(["a"]), values=zeros(2)), "tags must be scalar"),
        (raw.ScalarSummary(tags=given(["a", "b"]), values=zeros(2, 1)), r"tags and values not the same shape: \[2\] != "),
        (raw.MergeSummary(inputs=[given(b"\xff\xff\xff")]), "Could not parse one of the summary inputs"),
        (raw.AudioSummaryV2(tag="a", tensor=zeros(3), sample_rate=1.), r"Tensor must be 3-D or 2-D, got: \[3\]"),
        (raw.AudioSummaryV2(tag=given(["a"]), tensor=zeros(3, 2), sample_rate=1.), "Tag must be a scalar"),
        (raw.AudioSummaryV2(tag="a", tensor=zeros(3, 2), sample_rate=0.), "sample_rate must be > 0"),
        (raw.AudioSummaryV2(tag="a", tensor=zeros(3, 2), sample_rate=float("inf")), r"sample_rate must be in \(0, 2"),
        (raw.AudioSummaryV2(tag="a", tensor=zeros(3, 2), sample_rate=given([1., 2.])), "sample_rate must be a scalar"),
        (raw.AudioSummaryV2(tag="a", tensor=zeros(1, 1, 70000), sample_rate=1.), r"num_channels must be in \(0, 2"),
        (raw.TensorSummaryV2(tag=given(["a"]), tensor=zeros(1), serialized_summary_metadata=""), "tag must be scalar"),
    ]
    with tf.Session() as session:
        for tensor, text in cases:
            with pytest.raises(tf.errors.OpError, match=text):
                session.run(tensor)


def test_names_of_before_1_0(graph, tmp_path):
    one = tf.scalar_summary("a tag: as it is", tf.constant(2.0))
    other = tf.histogram_summary("h", tf.constant([1.0]), name="named")
    tf.image_summary("i", tf.zeros([1, 2, 2, 1]), max_images=1)
    merged = tf.merge_all_summaries()
    assert [one.op.name, other.op.name, merged.op.name] == ["ScalarSummary", "named", "MergeSummary/MergeSummary"]
    assert tf.merge_summary([one, other]).op.type == "MergeSummary"
    with tf.Session() as session:
        value = tf.Summary.FromString(session.run(merged))
        writer = tf.train.SummaryWriter(str(tmp_path), session.graph_def)
    assert [v.tag for v in value.value] == ["a tag: as it is", "h", "i/image"]
    writer.add_summary(value, 1)
    writer.close()
    assert [e.WhichOneof("what") for e in _read(tmp_path)][-1] == "summary"
    assert tf.summary.merge_all("no such collection") is None


def test_a_writer_per_folder(graph, tmp_path):
    folder = str(tmp_path / "a" / "b")
    writer = tf.summary.FileWriterCache.get(folder)
    assert writer is tf.summary.FileWriterCache.get(folder) and writer.get_logdir() == folder
    with tf.summary.FileWriter(str(tmp_path / "c"), filename_suffix=".end") as other:
        assert list((tmp_path / "c").glob("*.end"))
        other.flush()
    writer.add_summary(tf.Summary())
    tf.summary.FileWriterCache.clear()
    with pytest.warns(UserWarning, match="closed FileWriter"):
        writer.flush()
    assert writer is not tf.summary.FileWriterCache.get(folder)
    tf.summary.FileWriterCache.clear()
    with pytest.raises(TypeError, match="The passed graph must be an instance of `Graph`"):
        tf.summary.FileWriter(folder, graph="no graph")
    with pytest.raises(TypeError, match="meta_graph_def must be type MetaGraphDef"):
        tf.summary.FileWriter(folder).add_meta_graph(tf.GraphDef())


def test_a_deleted_folder_ends_nothing(graph, tmp_path):
    folder = tmp_path / "logs"
    writer = tf.summary.FileWriter(str(folder), max_queue=2)
    writer.add_summary(tf.Summary(), 1)
    writer.flush()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    for step in range(50):
        writer.add_summary(tf.Summary(), step)
        writer.flush()
    writer.close()
    writer.reopen()
    writer.add_summary(tf.Summary(), 7)
    writer.close()
    assert [e.step for e in _read(folder)] == [0, 7]


def test_the_end_of_a_program_loses_nothing(tmp_path):
    program = ("import muster as tf\nw = tf.summary.FileWriter(%r)\n"
               "for i in range(30): w.add_summary(tf.Summary(), i)\n" % str(tmp_path))
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert len(_read(tmp_path)) == 31


_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator
events = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={"histograms": 0, "images": 0, "scalars": 0})
events.Reload()
tags = events.Tags()
print(json.dumps({
    "tags": {k: v for k, v in tags.items()},
    "loss": [(e.step, e.value) for e in events.Scalars("loss")],
    "histogram": [(e.step, e.histogram_value.num, e.histogram_value.max) for e in events.Histograms("h")],
    "image": [(e.step, e.width, e.height, e.encoded_image_string.hex()) for e in events.Images("i/image")],
    "nodes": [n.name for n in events.Graph().node],
    "run_metadata": len(events.RunMetadata("step_1").step_stats.dev_stats)}))
"""


def test_tensorboard_shows_what_was_written(graph, tf_python, tmp_path):
    found = subprocess.run([tf_python, "-c", "import tensorboard"], stderr=subprocess.PIPE)
    if found.returncode != 0:
        pytest.skip("%s has no tensorboard (tools/setup.sh --tests): files were not shown to it" % tf_python)
    x = tf.placeholder(tf.float32, [], name="x")
    tf.summary.scalar("loss", x * 2)
    tf.summary.histogram("h", tf.stack([x, x + 1]))
    tf.summary.image("i", tf.reshape(tf.range(12.0), [1, 3, 4, 1]), max_outputs=1)
    merged = tf.summary.merge_all()
    with tf.Session() as session, tf.summary.FileWriter(str(tmp_path), session.graph) as writer:
        for step in range(1, 4):
            metadata = tf.RunMetadata()
            out = session.run(merged, {x: step}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
                              run_metadata=metadata)
            writer.add_summary(out, step)
            writer.add_run_metadata(metadata, "step_%d" % step, step)
        names = [n.name for n in graph.as_graph_def().node]
    shown = json.loads(_run(tf_python, "-c", _TENSORBOARD, tmp_path))
    assert shown["tags"]["scalars"] == ["loss"] and shown["tags"]["graph"]
    assert shown["loss"] == [[1, 2.0], [2, 4.0], [3, 6.0]]
    assert shown["histogram"] == [[1, 2.0, 2.0], [2, 2.0, 3.0], [3, 2.0, 4.0]]
    assert [image[:3] for image in shown["image"]] == [[1, 4, 3], [2, 4, 3], [3, 4, 3]]
    assert png_pixels.pixels(bytes.fromhex(shown["image"][0][3]))[2, 3, 0] == 255
    assert shown["nodes"] == names
    assert shown["run_metadata"] >= 1


_THEIR_EVENTS = """
import json, sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
path, = tf.gfile.Glob(sys.argv[1] + "/mine/*")
print(json.dumps([e.SerializeToString().hex() for e in tf.train.summary_iterator(path)]))
with tf.Graph().as_default() as g, tf.Session() as session:
    out = session.run(tf.summary.scalar("x", tf.constant(1.5)))
    with tf.summary.FileWriter(sys.argv[1] + "/theirs", g) as writer:
        writer.add_summary(out, 3)
"""


def test_tensorflow_reads_ours_and_we_read_its(graph, tf_python, tmp_path):
    with tf.summary.FileWriter(str(tmp_path / "mine")) as writer:
        writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="t", simple_value=2.5)]), 11)
    read = json.loads(_run(tf_python, "-c", _THEIR_EVENTS, tmp_path))
    assert [tf.Event.FromString(bytes.fromhex(e)) for e in read] == _read(tmp_path / "mine")
    theirs = _read(tmp_path / "theirs")
    assert [e.WhichOneof("what") for e in theirs] == ["file_version", "graph_def", "meta_graph_def", "summary"]
    assert theirs[-1].step == 3 and theirs[-1].summary.value[0].simple_value == 1.5


def test_paths_below_tensorflow_python():
    from muster.names import alias

    alias.install()
    from tensorflow.python.summary import summary_iterator
    from tensorflow.python.summary.writer import event_file_writer, writer, writer_cache

    assert writer.FileWriter is tf.summary.FileWriter
    assert writer_cache.FileWriterCache is tf.summary.FileWriterCache
    assert event_file_writer.EventFileWriter is tf.summary.EventFileWriter
    assert summary_iterator.summary_iterator is tf.train.summary_iterator
    assert tf.summary.SummaryDescription and tf.summary.TaggedRunMetadata and tf.summary.Event
