"""The graphs of the sample programs as workers build them, before their sessions start, against TensorFlow 1.15.5's.

The functions here are the graph-building parts of the programs; servers and training loops are tested elsewhere.
"""
import math

import pytest

import golden_cases

_GOLDEN = golden_cases.load("program_graphs.json")
_ATTRS = ("seed", "seed2", "shared_name", "_class")


def _hello(tf):
    tf.constant("Hello, distributed TensorFlow!")


def _model_parallel(tf):
    with tf.device("/job:ps/task:0"):
        weights_1 = tf.Variable(tf.truncated_normal([16, 32], stddev=0.3, seed=1), name="weights_1")
        biases_1 = tf.Variable(tf.zeros([32]), name="biases_1")
    with tf.device("/job:ps/task:1"):
        weights_2 = tf.Variable(tf.truncated_normal([32, 1], stddev=0.3, seed=2), name="weights_2")
        biases_2 = tf.Variable(tf.zeros([1]), name="biases_2")
    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [None, 16])
        y = tf.placeholder(tf.float32, [None, 1])
        layer_1 = tf.nn.relu(tf.matmul(x, weights_1) + biases_1)
        prediction = tf.matmul(layer_1, weights_2) + biases_2
        loss = tf.reduce_mean(tf.square(prediction - y))
        tf.train.GradientDescentOptimizer(0.05).minimize(loss)


def _in_graph(tf):
    with tf.device("/job:ps/task:0"):
        w = tf.get_variable("w", [8, 3], initializer=tf.random_normal_initializer(stddev=0.1, seed=7))
        b = tf.get_variable("b", [3], initializer=tf.zeros_initializer())
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    x = tf.placeholder(tf.float32, [None, 8])
    labels = tf.placeholder(tf.int64, [None])
    shards_x, shards_y = tf.split(x, 2), tf.split(labels, 2)
    gradients, losses = [], []
    for i in range(2):
        with tf.device("/job:worker/task:%d" % i), tf.name_scope("replica_%d" % i):
            logits = tf.nn.xw_plus_b(shards_x[i], w, b)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=shards_y[i], logits=logits))
            losses.append(loss)
            gradients.append(optimizer.compute_gradients(loss, [w, b]))
    with tf.device("/job:ps/task:0"):
        averaged = [(tf.add_n([g for g, _ in pair]) / 2, pair[0][1]) for pair in zip(*gradients)]
        optimizer.apply_gradients(averaged)
        tf.add_n(losses) / 2


def _cluster(tf):
    return tf.train.ClusterSpec({"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]})


def _trainer(tf, sync, task=0):
    setter = tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % task, cluster=_cluster(tf))
    with tf.device(setter):
        x = tf.placeholder(tf.float32, [None, 20])
        y = tf.placeholder(tf.int64, [None])
        hidden = tf.layers.dense(x, 32, activation=tf.nn.relu)
        logits = tf.layers.dense(hidden, 4)
        loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
        tf.summary.scalar("loss", loss)
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdagradOptimizer(0.05)
        hooks = [tf.train.StopAtStepHook(last_step=300)]
        if sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2, total_num_replicas=2)
            hooks.append(optimizer.make_session_run_hook(task == 0))
        optimizer.minimize(loss, global_step=global_step)
    # What MonitoredTrainingSession does before it opens a session.
    for hook in hooks:
        hook.begin()
    tf.train.Scaffold().finalize()


def _distributed(tf, sync, folder, task=0):
    setter = tf.train.replica_device_setter(worker_device="/job:worker/task:%d/gpu:0" % task, ps_device="/job:ps/cpu:0",
                                            cluster=_cluster(tf))
    with tf.device(setter):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        hid_w = tf.Variable(tf.truncated_normal([28 * 28, 100], stddev=1.0 / 28), name="hid_w")
        hid_b = tf.Variable(tf.zeros([100]), name="hid_b")
        sm_w = tf.Variable(tf.truncated_normal([100, 10], stddev=1.0 / math.sqrt(100)), name="sm_w")
        sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
        x = tf.placeholder(tf.float32, [None, 28 * 28])
        y_ = tf.placeholder(tf.float32, [None, 10])
        hid = tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b))
        y = tf.nn.softmax(tf.nn.xw_plus_b(hid, sm_w, sm_b))
        cross_entropy = -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
        optimizer = tf.train.AdamOptimizer(0.01)
        if sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2, total_num_replicas=2,
                                                       name="mnist_sync_replicas")
        optimizer.minimize(cross_entropy, global_step=global_step)
        if sync and task == 0:
            optimizer.get_chief_queue_runner()
            optimizer.get_init_tokens_op()
        init_op = tf.global_variables_initializer()
        tf.train.Supervisor(is_chief=task == 0, logdir=str(folder), init_op=init_op, recovery_wait_secs=1,
                            global_step=global_step)


_PROGRAMS = {
    "hello": lambda tf, folder: _hello(tf),
    "model_parallel": lambda tf, folder: _model_parallel(tf),
    "in_graph": lambda tf, folder: _in_graph(tf),
    "trainer_async": lambda tf, folder, task=0: _trainer(tf, False, task),
    "trainer_sync": lambda tf, folder, task=0: _trainer(tf, True, task),
    "distributed_async": lambda tf, folder, task=0: _distributed(tf, False, folder, task),
    "distributed_sync": lambda tf, folder, task=0: _distributed(tf, True, folder, task),
}
_LISTS = sorted(path.name[:-len(".txt")] for path in golden_cases.folder("graphs").glob("*.worker?.txt"))


def _describe(op, wanted):
    """The node as the golden file has it; of the attributes those that it gives."""
    node = op.node_def
    attrs = {}
    for name in _ATTRS:
        if name in node.attr:
            value = node.attr[name]
            kind = value.WhichOneof("value")
            attrs[name] = [s.decode() for s in value.list.s] if kind == "list" else (
                value.s.decode() if kind == "s" else value.i)
    given = wanted[4] if len(wanted) > 4 else {}
    attrs = {name: value for name, value in attrs.items() if name in given or value not in ("", [])}
    entry = [node.name, node.op, list(node.input), node.device]
    return entry + [attrs] if attrs else entry


def _check(program, folder):
    import muster as tf

    graph = tf.Graph()
    with graph.as_default():
        _PROGRAMS[program](tf, folder)
    operations, wanted = graph.get_operations(), _GOLDEN[program]
    for i, (op, expected) in enumerate(zip(operations, wanted)):
        assert _describe(op, expected) == expected, "node %d" % i
    assert [op.name for op in operations[len(wanted):]] == []
    assert [entry[0] for entry in wanted[len(operations):]] == []


@pytest.mark.parametrize("program", sorted(_PROGRAMS))
def test_nodes(program, tmp_path):
    _check(program, tmp_path)


def _item_name(item):
    return item.name if hasattr(item, "name") else type(item).__name__


def _check_list(name, folder):
    """One line per node, `name op device`, and the collections, per worker."""
    import muster as tf
    from muster.graph import meta_graph

    program, worker = name.rsplit(".worker", 1)
    build = _PROGRAMS[program.replace(".", "_")]
    graph = tf.Graph()
    with graph.as_default():
        build(tf, folder) if worker == "0" else build(tf, folder, int(worker))
        if program in ("in_graph", "model_parallel"):
            tf.global_variables_initializer()  # They make it when the session is open.
    files = golden_cases.folder("graphs")
    lines = ["%s %s %s" % (op.name, op.type, op.device or "-") for op in graph.get_operations()]
    assert lines == (files / (name + ".txt")).read_text().splitlines()
    collections = files / (name + ".collections.txt")
    wanted = collections.read_text().splitlines() if collections.exists() else []
    wanted = [line for line in wanted if not line.endswith(": ")]  # asked for, but nothing is in them
    meta_graph.add_contexts(graph)
    assert ["%s: %s" % (key, " ".join(_item_name(item) for item in graph.get_collection(key)))
            for key in sorted(graph.get_all_collection_keys()) if graph.get_collection(key)] == wanted


@pytest.mark.parametrize("name", _LISTS)
def test_lists(name, tmp_path):
    _check_list(name, tmp_path)


def test_every_program_is_built():
    assert set(_PROGRAMS) == set(_GOLDEN)
