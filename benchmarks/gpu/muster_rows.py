"""muster_rows.py OUTPUT [ROW...]: times workloads.py with Muster, writes {row: {"ms": ..., "loss": ...}}."""
import json
import os
import socket
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import muster as tf  # noqa: E402
from muster import _muster  # noqa: E402
import muster_models  # noqa: E402
import workloads  # noqa: E402


def _session():
    return tf.Session(config=tf.ConfigProto(allow_soft_placement=False))


def _layers(pixels, labels):
    sizes, at = workloads.Layers.sizes, pixels
    for i in range(len(sizes) - 1):
        w = tf.Variable(workloads.weights((sizes[i], sizes[i + 1]), i), name="w%d" % i)
        b = tf.Variable(tf.zeros([sizes[i + 1]]), name="b%d" % i)
        at = tf.matmul(at, w) + b
        if i + 2 < len(sizes):
            at = tf.nn.relu(at)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=at))


def _convolutions(pixels, labels):
    at = tf.reshape(pixels, [-1, 28, 28, 1])
    for i, (inputs, outputs) in enumerate([(1, 32), (32, 64)]):
        w = tf.Variable(workloads.weights((5, 5, inputs, outputs), i))
        b = tf.Variable(tf.zeros([outputs]))
        at = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(at, w, strides=[1, 1, 1, 1], padding="SAME"), b))
        at = tf.nn.max_pool(at, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    at = tf.reshape(at, [-1, 7 * 7 * 64])
    w1, b1 = tf.Variable(workloads.weights((7 * 7 * 64, 512), 2)), tf.Variable(tf.zeros([512]))
    w2, b2 = tf.Variable(workloads.weights((512, 10), 3)), tf.Variable(tf.zeros([10]))
    at = tf.matmul(tf.nn.relu(tf.matmul(at, w1) + b1), w2) + b2
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=at))


def _images_row(model, options, fed):
    data = workloads.images(options.batch)
    with tf.device("/gpu:0"):
        if fed:
            pixels = tf.placeholder(tf.float32, [options.batch, 784])
            labels = tf.placeholder(tf.int32, [options.batch])
        else:
            pixels, labels = tf.constant(data[0][0]), tf.Variable(data[0][1].astype(np.int64), trainable=False)
        loss = model(pixels, labels)
        train = tf.train.AdamOptimizer(options.rate).minimize(loss)
    with _session() as session:
        session.run(tf.global_variables_initializer())
        first = None

        def step(i):
            nonlocal first
            feed = {pixels: data[i % len(data)][0], labels: data[i % len(data)][1]} if fed else None
            value = session.run([loss, train], feed)[0]
            first = value if first is None else first

        ms = workloads.timed(step, lambda: None)
    return {"ms": ms, "loss": float(first)}


PS = """
import sys
import muster as tf
tf.train.Server({"ps": [sys.argv[1]], "worker": [sys.argv[2]]}, job_name="ps", task_index=0).join()
"""
COPY_RATE = 55e9  # bytes a second, each way


def _ps_row(model, options):
    """Variables on a parameter server without a GPU, gradients from a worker with one. `allowed_ms` is what comes to the local step:
    1.3 times the copies of variables and gradients and the optimizer alone, and 60 us."""
    ports = []
    for _ in range(2):
        with socket.socket() as taken:
            taken.bind(("localhost", 0))
            ports.append("localhost:%d" % taken.getsockname()[1])
    ps = subprocess.Popen([sys.executable, "-c", PS, *ports], env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    try:
        server = tf.train.Server({"ps": [ports[0]], "worker": [ports[1]]}, job_name="worker", task_index=0)
        data = workloads.images(options.batch)
        with tf.device(tf.train.replica_device_setter(ps_device="/job:ps/cpu:0", worker_device="/job:worker/gpu:0", ps_tasks=1)):
            pixels = tf.placeholder(tf.float32, [options.batch, 784])
            labels = tf.placeholder(tf.int32, [options.batch])
            loss = model(pixels, labels)
            train = tf.train.AdamOptimizer(options.rate).minimize(loss)
        variables = tf.trainable_variables()
        with tf.device("/job:ps/cpu:0"):
            alone = tf.train.AdamOptimizer(options.rate).apply_gradients([(tf.zeros_like(v) + 0.0, v) for v in variables])
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            feed = [{pixels: batch[0], labels: batch[1]} for batch in data]
            first = float(session.run(loss, feed[0]))
            ms = workloads.timed(lambda i: session.run([loss, train], feed[i % len(feed)]), lambda: None)
            optimizer = workloads.timed(lambda i: session.run(alone), lambda: None)
        size = 4 * sum(int(np.prod(v.shape.as_list())) for v in variables)
        return {"ms": ms, "loss": first, "optimizer_ms": optimizer, "copied_bytes": 2 * size,
                "allowed_ms": 1.3 * (2e3 * size / COPY_RATE + optimizer) + 0.06}
    finally:
        ps.kill()


def _dense(dtype):
    options = workloads.Dense
    random = np.random.RandomState(0)
    x = random.rand(options.batch, options.width).astype(np.float32)
    with tf.device("/gpu:0"):
        inputs = tf.Variable(x, trainable=False)
        at = tf.cast(inputs, dtype)
        for i in range(options.layers):
            w = tf.Variable(workloads.weights((options.width, options.width), i))
            at = tf.nn.relu(tf.matmul(at, tf.cast(w, dtype)))
        loss = tf.reduce_mean(tf.square(tf.cast(at, tf.float32)))
        train = tf.train.GradientDescentOptimizer(options.rate).minimize(loss)
    with _session() as session:
        session.run(tf.global_variables_initializer())
        first = float(session.run(loss))
        ms = workloads.timed(lambda i: session.run([loss, train]), lambda: None, warm_up=3)
    return {"ms": ms, "loss": first}


def _embedding():
    options = workloads.Embedding
    data = workloads.ids(options.rows, options.ids)
    with tf.device("/gpu:0"):
        table = tf.get_variable("table", [options.rows, options.columns], initializer=tf.ones_initializer())
        wanted = tf.placeholder(tf.int64, [options.ids])
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, wanted)))
        train = tf.train.AdagradOptimizer(options.rate).minimize(loss)
    with _session() as session:
        session.run(tf.global_variables_initializer())
        first = float(session.run(loss, {wanted: data[0]}))
        ms = workloads.timed(lambda i: session.run([loss, train], {wanted: data[i % len(data)]}), lambda: None)
    return {"ms": ms, "loss": first}


def _wide_and_deep():
    options = workloads.WideAndDeep
    random = np.random.RandomState(0)
    numbers = [random.rand(options.batch, options.numbers).astype(np.float32) for _ in range(workloads.BATCHES)]
    labels = [random.randint(0, 2, (options.batch, 1)).astype(np.float32) for _ in range(workloads.BATCHES)]
    data = [np.stack(columns, 1) for columns in zip(*[workloads.ids(options.rows, options.batch, seed)
                                                      for seed in range(options.tables)])]
    with tf.device("/gpu:0"):
        given = tf.placeholder(tf.float32, [options.batch, options.numbers])
        wanted = tf.placeholder(tf.int64, [options.batch, options.tables])
        truth = tf.placeholder(tf.float32, [options.batch, 1])
        parts = [given]
        for i in range(options.tables):
            table = tf.Variable(workloads.weights((options.rows, options.columns), i))
            parts.append(tf.nn.embedding_lookup(table, wanted[:, i]))
        at = tf.concat(parts, 1)
        for i, size in enumerate(options.sizes):
            w = tf.Variable(workloads.weights((int(at.shape[1]), size), 100 + i))
            at = tf.matmul(at, w) + tf.Variable(tf.zeros([size]))
            if i + 1 < len(options.sizes):
                at = tf.nn.relu(at)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=truth, logits=at))
        train = tf.train.AdagradOptimizer(options.rate).minimize(loss)
    with _session() as session:
        session.run(tf.global_variables_initializer())

        def feed(i):
            i %= workloads.BATCHES
            return {given: numbers[i], wanted: data[i], truth: labels[i]}

        first = float(session.run(loss, feed(0)))
        ms = workloads.timed(lambda i: session.run([loss, train], feed(i)), lambda: None)
    return {"ms": ms, "loss": first}


def _copies():
    x = np.random.rand(64 << 20).astype(np.float32)  # 256 MB
    with tf.device("/gpu:0"):
        given = tf.placeholder(tf.float32, [x.size])
        kept = tf.Variable(x, trainable=False)
        first = tf.identity(given)[:1] + 0
        back = tf.identity(kept)
    with _session() as session:
        session.run(tf.global_variables_initializer())
        up = workloads.timed(lambda i: session.run(first, {given: x}), lambda: None, warm_up=3)
        down = workloads.timed(lambda i: session.run(back), lambda: None, warm_up=3)
    return {"ms": up, "up_gb_per_s": x.nbytes / up / 1e6, "down_gb_per_s": x.nbytes / down / 1e6}


ROWS = {
    "layers_fed": lambda: _images_row(_layers, workloads.Layers, True),
    "layers_resident": lambda: _images_row(_layers, workloads.Layers, False),
    "convolutions_fed": lambda: _images_row(_convolutions, workloads.Convolutions, True),
    "convolutions_resident": lambda: _images_row(_convolutions, workloads.Convolutions, False),
    "layers_ps": lambda: _ps_row(_layers, workloads.Layers),
    "convolutions_ps": lambda: _ps_row(_convolutions, workloads.Convolutions),
    "dense_tf32": lambda: _dense(tf.float32),
    "dense_bfloat16": lambda: _dense(tf.bfloat16),
    "embedding": _embedding,
    "wide_and_deep": _wide_and_deep,
    "copies": _copies,
    **muster_models.ROWS,
}


def _counts():
    """What cards were asked for so far."""
    return {name: sum(report[name] for report in _muster.gpu_reports()) for name in ("calls", "replayed_calls", "joined_calls", "graphs")}


def main(output, *rows):
    results = {}
    for row in rows or ROWS:
        before = _counts()
        with tf.Graph().as_default():
            try:
                results[row] = ROWS[row]()
                results[row].update((name, count - before[name]) for name, count in _counts().items())
            except Exception as error:  # one row must not hide the others
                results[row] = {"error": "%s: %s" % (type(error).__name__, str(error)[:600])}
        print(row, results[row], flush=True)
        with open(output, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
