"""Clusters whose workers have a card and whose parameter servers have none."""
import json
import subprocess
import sys

import card
import numpy as np
import pytest

sys.path.insert(0, str(card.ROOT / "tests" / "cluster"))

from cluster_ports import free_ports  # noqa: E402

TRAINER = """
import argparse, json
import muster
import numpy as np
import tensorflow as tf
parser = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name"):
    parser.add_argument("--" + name)
parser.add_argument("--task_index", type=int)
parser.add_argument("--sync", action="store_true")
flags, _ = parser.parse_known_args()
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
if flags.job_name == "ps":
    server.join()
worker = "/job:worker/task:%d" % flags.task_index
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker + "/gpu:0", ps_device="/job:ps/cpu:0")):
    step = tf.train.get_or_create_global_step()
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    w1 = tf.Variable(np.linspace(-1, 1, 32).reshape(4, 8).astype(np.float32))
    w2 = tf.Variable(np.linspace(1, -1, 8).reshape(8, 1).astype(np.float32))
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.matmul(x, w1)), w2) - y))
    optimizer = tf.train.AdamOptimizer(0.05)
    hooks = [tf.train.StopAtStepHook(last_step=120)]
    if flags.sync:
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, len(cluster.job_tasks("worker")))
        hooks.append(optimizer.make_session_run_hook(flags.task_index == 0))
    train = optimizer.minimize(loss, global_step=step)
random = np.random.RandomState(flags.task_index)
values = []
def counts():
    report = muster._muster.gpu_reports()[0]
    return [report["calls"], report["replayed_calls"]]
before = None
# A worker may be done before the other one has started.
config = tf.ConfigProto(device_filters=["/job:ps", worker])
with tf.train.MonitoredTrainingSession(server.target, is_chief=flags.task_index == 0, hooks=hooks, config=config) as session:
    raw = session._tf_sess()
    print("DEVICES " + json.dumps([d.name for d in raw.list_devices()]))
    metadata = tf.RunMetadata()
    given = {x: [[1, 2, 3, 4]], y: [[1]]}
    raw.run(loss, given, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    print("NODES " + json.dumps({d.device: [n.node_name for n in d.node_stats] for d in metadata.step_stats.dev_stats}))
    while not session.should_stop():
        if len(values) == 20:
            before = counts()
        inputs = random.rand(16, 4)
        values.append(float(session.run([loss, train], {x: inputs, y: inputs.sum(1, keepdims=True)})[0]))
if before is not None:
    print("REPLAYED " + json.dumps([after - then for after, then in zip(counts(), before)] + [len(values) - 20]))
print("LOSSES " + json.dumps([np.mean(values[:5]), np.mean(values[-5:]), len(values)]))
"""


def _launched(path, workers, *flags):
    try:
        done = subprocess.run([card.COMMAND, "launch", "--ps", "1", "--workers", str(workers), str(path), *flags], env=card.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    except subprocess.TimeoutExpired as late:
        pytest.fail("the cluster does not end; so far: %s" % (late.output or b"").decode())
    assert done.returncode == 0, done.stdout

    def found(word):
        return [json.loads(line.split(word, 1)[1]) for line in done.stdout.splitlines() if word in line]

    return {word: found(word) for word in ("DEVICES ", "NODES ", "LOSSES ", "REPLAYED ")}, done.stdout


@pytest.mark.parametrize("flags", [(), ("--sync",)], ids=["async", "sync"])
def test_workers_compute_on_their_cards(tmp_path, flags):
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER)
    found, text = _launched(path, 2, *flags)
    assert len(found["LOSSES "]) == 2, text
    on_cards = {name for names in found["DEVICES "] for name in names if "GPU" in name}
    assert on_cards == {"/job:worker/replica:0/task:%d/device:GPU:0" % i for i in (0, 1)}, found
    for nodes in found["NODES "]:
        on_card = [name for device, names in nodes.items() if "GPU" in device for name in names]
        assert any("MatMul" in name for name in on_card), nodes
    # One worker may have made nearly all of the steps before the other had started.
    trained = [(first, last) for first, last, steps in found["LOSSES "] if steps > 20]
    assert trained and all(last < first / 2 for first, last in trained), found


# Variables come from the parameter server in whatever order, and yet later steps are the same for the card.
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("flags", [(), ("--sync",)], ids=["async", "sync"])
def test_steps_of_workers_are_replayed(tmp_path, workers, flags):
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER)
    found, text = _launched(path, workers, *flags)
    rates = [replayed / calls for calls, replayed, steps in found["REPLAYED "] if steps > 20]
    assert rates and min(rates) >= 0.95, text


def test_collectives_of_two_cards():
    cluster = {"worker": ["127.0.0.1:%d" % port for port in free_ports(2)]}
    orders = [{"rank": rank, "cluster": cluster, "leader": "/job:worker/replica:0/task:0", "kind": "muster", "device": "gpu:0"}
              for rank in range(2)]
    ranks = [subprocess.Popen([sys.executable, str(card.ROOT / "tests" / "interop" / "collective_rank.py"), json.dumps(order)],
                              env=card.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for order in orders]
    try:
        assert [rank.stdout.readline() for rank in ranks] == ["ready\n"] * 2
        for rank in ranks:
            rank.stdin.write("run\n")
            rank.stdin.flush()
        first, second = [json.loads(rank.stdout.readline()) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert first == second and "error" not in first, first

    def value(rank, count):
        return (np.arange(count) * 7 + rank * 3) % 11

    assert first["Add Id float32 1000"] == (value(0, 1000) + value(1, 1000)).tolist()
    assert first["Add Div float64 40"] == ((value(0, 40) + value(1, 40)) / 2).tolist()
    assert first["gather int32"] == value(0, 12).tolist() + value(1, 12).tolist()
    assert first["broadcast int64 1"] == value(1, 9).tolist()
