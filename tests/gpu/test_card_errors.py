"""Errors of the emulated card that end all use of it."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time

import card

STEPS = """
import json
import muster as tf

with tf.device("/gpu:0"):
    v = tf.Variable(tf.ones([1000]))
    train = tf.assign(v, tf.tanh(v) * tf.exp(-v), name="update")
errors = []
with tf.Session() as session:
    try:
        session.run(v.initializer)
        for step in range(50):
            session.run(train.op)
    except tf.errors.OpError as error:
        errors.append([type(error).__name__, error.message])
    for _ in range(2):
        try:
            session.run(v)
        except tf.errors.OpError as error:
            errors.append([type(error).__name__, error.message])
try:
    with tf.Session() as session:
        session.run(v.initializer)
except tf.errors.OpError as error:
    errors.append([type(error).__name__, error.message])
print(json.dumps(errors))
"""


def _errors(**environment):
    done = subprocess.run([sys.executable, "-c", STEPS], env=card.environment(**environment), capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_programs_steps_end_with_the_error():
    found, log = _errors(MUSTER_EMULATED_GPU_FAILS_AT="60")
    assert len(found) == 4, found
    for kind, message in found:
        assert kind == "InternalError", found
        assert re.match(r"GPU 0 \(Emulated card\) failed: .*CUDA_ERROR_ILLEGAL_ADDRESS \(700\): an illegal memory access was "
                        r"encountered\. It comes from .*This process cannot use the card any more\.", message), message
    assert "unary" in found[0][1] and "MUSTER_GPU_WAIT=1 finds out which" in found[0][1], found
    assert log.count("CUDA_ERROR_ILLEGAL_ADDRESS") == 1, log


def test_waiting_names_the_function_and_the_node():
    found, log = _errors(MUSTER_EMULATED_GPU_FAILS_AT="60", MUSTER_GPU_WAIT="1")
    kind, message = found[0]
    assert kind == "InternalError"
    assert re.search(r"It comes from [a-z_/]+\.cu: [^;]*\. This process", message) and "[[{{node " in message, message
    assert log.count("CUDA_ERROR_ILLEGAL_ADDRESS") == 1, log


TRAINER = """
import argparse
import os
import numpy as np
import muster as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
parser.add_argument("--logdir")
flags = parser.parse_args()
if flags.task_index == WORKER:
    os.environ["MUSTER_EMULATED_GPU_FAILS_AT"] = "60"
    os.environ["MUSTER_EMULATED_GPU_FAILS_ONCE"] = flags.logdir + "/fails"
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
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
config = tf.ConfigProto(device_filters=["/job:ps", worker])
random = np.random.RandomState(flags.task_index)
with tf.train.MonitoredTrainingSession(server.target, is_chief=flags.task_index == 0, checkpoint_dir=flags.logdir + "/model",
                                       save_checkpoint_steps=5, hooks=[tf.train.StopAtStepHook(last_step=LAST)], config=config) as session:
    steps = 0
    while not session.should_stop():
        inputs = random.rand(16, 4)
        reached = session.run([step, train], {x: inputs, y: inputs.sum(1, keepdims=True)})[0]
        steps += 1
print("WORKER %d made %d steps up to %d" % (flags.task_index, steps, reached), flush=True)
"""


def _job(tmp_path, worker, last, *flags):
    path = tmp_path / "trainer.py"
    path.write_text(textwrap.dedent(TRAINER).replace("WORKER:", "%d:" % worker).replace("LAST", str(last)))
    (tmp_path / "fails").write_text("")
    card.emulated_only()
    done = subprocess.run([card.COMMAND, "launch", "--ps", "1", "--workers", "2", *flags, str(path), "--logdir", str(tmp_path)],
                          env=card.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    assert not (tmp_path / "fails").exists(), done.stdout  # the error has come
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout, done.stdout
    # Once, and perhaps in what the launcher repeats.
    ends = [line for line in done.stdout.splitlines() if "this task ends, since a device has failed: exit status 75" in line]
    assert len(ends) in (1, 2) and len(set(ends)) == 1, done.stdout
    return done


def test_a_task_ends_and_the_job_recovers(tmp_path):
    for worker in (1, 0):  # 0: the chief
        folder = tmp_path / str(worker)
        folder.mkdir()
        done = _job(folder, worker, 400, "--max-restarts", "2")
        assert done.returncode == 0, done.stdout
        assert len(re.findall(r"WORKER \d made", done.stdout)) == 2, done.stdout


def test_without_restarts_the_launch_has_its_exit_status(tmp_path):
    done = _job(tmp_path, 1, 100000)
    assert done.returncode == 75, done.stdout


def _worker_pid(launch, index):
    """The process of a worker; None while there is none."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == launch.pid and "--job_name=worker" in words and "--task_index=%d" % index in words:
            return int(path.name)
    return None


def _has_just_saved(folder):
    return any(time.time() - path.stat().st_mtime < 1 for path in folder.glob("model.ckpt-*.index"))


def test_workers_that_are_killed_come_back(tmp_path):
    path = tmp_path / "trainer.py"
    path.write_text(textwrap.dedent(TRAINER).replace("WORKER:", "-1:").replace("LAST", "3000"))
    with open(tmp_path / "said", "w+") as said:
        launch = subprocess.Popen([card.COMMAND, "launch", "--ps", "2", "--workers", "2", "--max-restarts", "4", str(path), "--logdir",
                                   str(tmp_path)], env=card.environment(), stdout=said, stderr=subprocess.STDOUT)
        try:
            for index, number in ((1, signal.SIGKILL), (0, signal.SIGKILL), (1, signal.SIGTERM)):
                end = time.monotonic() + 60
                pid = None
                while pid is None and launch.poll() is None and time.monotonic() < end:
                    time.sleep(0.1)
                    if _has_just_saved(tmp_path / "model"):
                        pid = _worker_pid(launch, index)
                if pid is not None:
                    os.kill(pid, number)
            code = launch.wait(timeout=200)
        finally:
            launch.kill()
            launch.wait()
        said.seek(0)
        text = said.read()
    assert code == 0 and len(re.findall(r"WORKER \d made", text)) == 2, text
    assert text.count("failed with status 137; it is started again") == 2, text
