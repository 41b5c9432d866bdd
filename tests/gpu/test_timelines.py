"""What a traced step says of the card."""
import json

import card

PROGRAM = """
import json
import numpy as np
import muster as tf
from muster.session import timeline

x = tf.placeholder(tf.float32, [64, 32])
with tf.device("/gpu:0"):
    w = tf.Variable(tf.ones([32, 16]))
    y = tf.tanh(tf.matmul(x, w, name="product"), name="squash")
    train = tf.assign_add(w, tf.ones([32, 16]), name="change")
feed = {x: np.ones([64, 32], np.float32)}

def traced(session):
    metadata = tf.RunMetadata()
    value = session.run([y, train], feed, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)[0]
    return value, metadata.step_stats
"""


def _lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith(("[", "{"))]


def test_kernels_and_copies_have_their_times():
    program = PROGRAM + """
with tf.Session() as session:
    session.run(w.initializer)
    for _ in range(6):
        before = session.run([y, train], feed)[0]
    value, stats = traced(session)
    rows = {d.device: [[n.node_name, n.all_start_micros, n.all_end_rel_micros, n.timeline_label] for n in d.node_stats]
            for d in stats.dev_stats}
    print(json.dumps(rows))
    nodes = {n.node_name: n for d in stats.dev_stats for n in d.node_stats if d.device.endswith("task:0/device:GPU:0")}
    print(json.dumps([[m.allocator_name, m.total_bytes] for m in nodes["squash"].memory]))
    print(json.dumps([nodes["squash"].all_start_micros]))
    events = json.loads(timeline.Timeline(stats).generate_chrome_trace_format())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    print(json.dumps([e["args"]["name"] + ":" + e["args"]["op"] for e in events
                      if e["ph"] == "X" and "/stream:all" in names[e["pid"]]]))
    for _ in range(6):
        value = session.run([y, train], feed)[0]
    print(json.dumps([bool(np.isfinite(value).all())]))
"""
    rows, memory, squash, shown, after = _lines(card.run(program))
    kernels = {row[0]: row for row in rows["/device:GPU:0/stream:all"]}
    assert {"squash:Tanh", "change:AssignAdd", "product:MatMul"} <= set(kernels), rows
    assert "unary" in kernels["squash:Tanh"][3] and "grid:" in kernels["squash:Tanh"][3]
    copies = [row[3] for row in rows["/device:GPU:0/memcpy"]]
    assert any(text.startswith("MEMCPYHtoD 8192 bytes") for text in copies), copies
    assert any(text.startswith("MEMCPYDtoH 4096 bytes") for text in copies), copies
    # Beside the nodes, in the order of the stream.
    assert kernels["product:MatMul"][1] <= kernels["squash:Tanh"][1] and all(row[2] > 0 for row in kernels.values())
    assert abs(kernels["squash:Tanh"][1] - squash[0]) < 60e6, (kernels, squash)
    assert memory == [["GPU_0_bfc", 4096]]
    assert "squash:Tanh" in shown
    assert after == [True]


def test_steps_of_tasks_are_traced_too():
    program = PROGRAM + """
server = tf.train.Server.create_local_server()
with tf.Session(server.target) as session:
    session.run(w.initializer)
    for _ in range(3):
        value, stats = traced(session)
    print(json.dumps({d.device: [n.node_name for n in d.node_stats] for d in stats.dev_stats}))
"""
    rows = _lines(card.run(program))[0]
    streams = [device for device in rows if device.endswith("/device:GPU:0/stream:all")]
    assert len(streams) == 1 and "squash:Tanh" in rows[streams[0]], rows


def test_explanations_say_why_not_on_a_gpu():
    program = """
import muster as tf

with tf.device("/cpu:0"):
    asked = tf.constant([1.0]) + 1.0
text = tf.string_join(["a", "b"])
half = tf.raw_ops.ResourceScatterMul
table = tf.Variable(tf.ones([2, 2], tf.float16), use_resource=True)
scaled = half(resource=table.handle, indices=[1], updates=tf.ones([1, 2], tf.float16))
placed = tf.tanh([1.0])
with tf.Session() as session:
    for node in (asked.op, text.op, scaled, table.handle.op, placed.op):
        print("WHY " + session.explain_placement(node)[0])
"""
    why = [line[4:] for line in card.run(program).splitlines() if line.startswith("WHY ")]
    assert why[0].endswith("; not on a GPU: CPU was asked for"), why
    assert why[1].endswith("; not on a GPU: there is no kernel of StringJoin for it"), why
    assert "there is no kernel of ResourceScatterMul for it with dtype=half" in why[2], why
    assert "; not on a GPU: with " in why[3] and "ResourceScatterMul for it with dtype=half" in why[3], why
    assert "not on a GPU" not in why[4], why
