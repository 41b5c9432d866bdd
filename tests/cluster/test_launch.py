"""`muster launch`: a cluster of processes on this machine, its output, its end and its exit status."""
import os
import pty
import re
import signal
import subprocess
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
MUSTER = os.path.join(HERE, "..", "..", "build", "release", "bin", "muster")
PROGRAMS = os.path.join(HERE, "programs")

SCRIPT = """
import argparse, json, os, sys, time
import tensorflow as tf
parser = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name"):
    parser.add_argument("--" + name)
parser.add_argument("--task_index", type=int)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--fail_task", type=int, default=-1)
parser.add_argument("--serve_only", type=int, default=-1)
flags = parser.parse_args()
config = json.loads(os.environ["TF_CONFIG"])
assert config["cluster"]["ps"] == flags.ps_hosts.split(","), config
assert config["task"] == {"type": flags.job_name, "index": flags.task_index}, config
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
print("started %s %d" % (flags.job_name, flags.task_index))
if flags.job_name == "ps" or flags.serve_only == flags.task_index:
    server.join()
with tf.device("/job:ps/task:0"):
    step = tf.Variable(0, name="global_step", trainable=False, dtype=tf.int64)
advance = tf.assign_add(step, 1)
ready = tf.is_variable_initialized(step)
filters = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % flags.task_index])
with tf.Session(server.target, config=filters) as sess:
    if flags.task_index == 0:
        sess.run(step.initializer)
    while not sess.run(ready):
        time.sleep(0.05)
    value = 0
    while value < flags.steps:
        value = sess.run(advance)
        time.sleep(0.02)
        if flags.fail_task == flags.task_index and value > 5:
            print("about to fail")
            sys.exit(7)
    print("loss = %.4f" % (1 / value))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "trainer.py"
    path.write_text(SCRIPT)
    return str(path)


def launch(*words, **kwargs):
    return subprocess.run([MUSTER, "launch", *words], capture_output=True, text=True, timeout=120, **kwargs)


def left_over(script):
    return subprocess.run(["pgrep", "-f", script], capture_output=True, text=True).stdout


def test_runs_to_the_end_and_stops_the_parameter_servers(script):
    done = launch("--ps", "2", "--workers", "2", script)
    assert done.returncode == 0, done.stdout + done.stderr
    for task in ("ps 0", "ps 1", "worker 0", "worker 1"):
        assert "[%s] started %s" % (task, task) in done.stdout
    assert len(re.findall(r"\[worker \d\] loss = 0\.01", done.stdout)) == 2
    assert left_over(script) == ""


def test_failure_of_a_worker_is_the_result(script):
    done = launch("--workers", "2", script, "--steps", "100000", "--fail_task", "1")
    assert done.returncode == 7
    assert "worker 1 failed" in done.stdout
    assert re.search(r"worker 1 ended with status 7; its last lines:\n(.*\n)*\[worker 1\] about to fail", done.stderr)
    assert left_over(script) == ""


def test_worker_that_only_serves_does_not_keep_the_cluster(script):
    done = launch("--workers", "2", script, "--serve_only", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[worker 0] loss" in done.stdout
    assert left_over(script) == ""


def test_ctrl_c_is_forwarded(script):
    process = subprocess.Popen([MUSTER, "launch", "--workers", "2", script, "--steps", "1000000"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    while sum("started worker" in line for line in lines) < 2:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(re.findall(r"\[worker \d\] Interrupted", rest)) == 2, rest
    assert "Traceback" not in rest
    assert left_over(script) == ""


def test_progress_line_on_a_terminal(script):
    primary, secondary = pty.openpty()
    process = subprocess.Popen([MUSTER, "launch", "--workers", "2", script, "--steps", "150"], stdout=secondary)
    os.close(secondary)
    shown = b""
    while True:
        try:
            piece = os.read(primary, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(primary)
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert re.search(r"muster: step \d+/150  worker 0: \d+ steps/s  worker 1: \d+ steps/s", text), text[-2000:]
    assert "\033[" in text and "left" in text


@pytest.mark.parametrize("words, why", [((), "which script?"), (("no_such_script.py",), "cannot read script"),
                                        (("--pss", "2", "x.py"), "unknown flag --pss")])
def test_wrong_use_is_explained(words, why):
    done = launch(*words)
    assert done.returncode == 2
    assert why in done.stderr


@pytest.mark.parametrize("tasks, program, result", [
    ((1, 1), "hello.py", "[worker 0] b'Hello, distributed TensorFlow!'"),
    ((2, 1), "model_parallel.py", "loss 1.1552 -> 0.3617"),
    ((1, 2), "in_graph.py", "loss 1.1906 -> 0.1210"),
])
def test_programs(tasks, program, result):
    done = launch("--ps", str(tasks[0]), "--workers", str(tasks[1]), os.path.join(PROGRAMS, program))
    assert done.returncode == 0, done.stderr
    assert result in done.stdout
