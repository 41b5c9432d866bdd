"""Trainers as users of TensorFlow 1.x write them, run by `muster launch`; with one worker they print what they print on
TensorFlow 2.21."""
import os
import re
import subprocess

import pytest
from cluster_ports import free_ports

# What the programs print themselves; logs and warnings come through the same pipe.
_RESULT = re.compile(r"(?:kinds|places|loss|losses|nearest|uninitialized|saved|auc|graphs|worker|step) ?\b")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")

# Runs a script as worker 0; the parameter servers live in the same process.
_BESIDE = """
import json, os, runpy, sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
sys.modules["tensorflow"] = tf
script, ps, worker = sys.argv[1:4]
cluster = {"ps": ps.split(","), "worker": [worker]}
servers = [tf.train.Server(cluster, job_name="ps", task_index=i) for i in range(len(cluster["ps"]))]
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
sys.argv = [script] + sys.argv[4:]
code = 0
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as e:
    code = e.code or 0
sys.stdout.flush()
os._exit(code)
"""


def _path(root, name):
    return os.path.join(root, "tests", "cluster", "trainers", name + ".py")


def _launched(muster_program, root, name, ps, workers, *flags):
    """What each worker prints."""
    done = subprocess.run([muster_program, "launch", "--ps", str(ps), "--workers", str(workers), _path(root, name), *flags],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [_results(re.findall(r"^\[worker %d\] (.*)$" % i, done.stdout, re.M)) for i in range(workers)]


def _results(lines):
    return [line for line in lines if _RESULT.match(line)]


def _on_tensorflow(tf_python, root, name, ps, *flags):
    hosts = ["localhost:%d" % port for port in free_ports(ps + 1)]
    where = [",".join(hosts[:-1]), hosts[-1]]
    cluster = [] if name == "wide_deep" else ["--ps_hosts", where[0], "--worker_hosts", where[1], "--job_name", "worker",
                                              "--task_index", "0"]
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([tf_python, "-c", _BESIDE, _path(root, name), *where, *cluster, *flags], capture_output=True,
                          text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return _results(done.stdout.splitlines())


def _compare(mine, theirs):
    assert mine
    assert [_NUMBER.sub("#", line) for line in mine] == [_NUMBER.sub("#", line) for line in theirs]
    for a, b in zip(mine, theirs):
        assert [float(x) for x in _NUMBER.findall(a)] == pytest.approx(
            [float(x) for x in _NUMBER.findall(b)], rel=2e-3, abs=2e-3), (a, b)


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_word2vec(root, muster_program, tf_python, strategy):
    flags = ["--partition_strategy=" + strategy]
    mine, = _launched(muster_program, root, "word2vec", 2, 1, *flags)
    _compare(mine, _on_tensorflow(tf_python, root, "word2vec", 2, *flags))
    losses = [float(x) for x in re.findall(r"loss at step \d+: (\S+)", "\n".join(mine))]
    assert len(losses) == 3 and losses[-1] < losses[0]


def test_wide_and_deep(root, muster_program, tf_python, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    mine, = _launched(muster_program, root, "wide_deep", 2, 1, "--data_dir", str(tmp_path / "mine"))
    theirs = _on_tensorflow(tf_python, root, "wide_deep", 2, "--data_dir", str(tmp_path / "theirs"))
    _compare(mine, theirs)
    assert len(mine) == 4


def test_a3c(root, muster_program, tf_python, tmp_path):
    steps = ["--steps", "200"]  # few: agents magnify differences in the last digit
    mine, = _launched(muster_program, root, "a3c", 1, 1, "--log-dir", str(tmp_path / "mine"), *steps)
    _compare(mine, _on_tensorflow(tf_python, root, "a3c", 1, "--log-dir", str(tmp_path / "theirs"), *steps))
    assert mine[-1] == "graphs 0, checkpoints True"  # the program's own saver writes none


def test_a3c_with_two_workers(root, muster_program, tmp_path):
    first, second = _launched(muster_program, root, "a3c", 1, 2, "--log-dir", str(tmp_path), "--steps", "1500")
    for number, lines in enumerate((first, second)):
        reached = [int(x) for x in re.findall(r"worker %d reached (\d+)" % number, "\n".join(lines))]
        assert len(reached) == 1 and reached[0] >= 1500
    events = [name for name in os.listdir(tmp_path / "train_0") if name.startswith("events.out.tfevents.")]
    assert events


def test_an_estimator_with_two_workers(root, muster_program, tmp_path):
    first, _ = _launched(muster_program, root, "estimator", 2, 2, "--model_dir", str(tmp_path))
    found = re.search(r"^step (\d+) loss (\S+)$", "\n".join(first), re.M)
    assert int(found.group(1)) >= 200 and float(found.group(2)) < 1e-3


def test_parameter_servers_that_end_by_themselves(root, muster_program, tf_python):
    mine, = _launched(muster_program, root, "done_queue", 2, 1)
    _compare(mine, _on_tensorflow(tf_python, root, "done_queue", 2))
    assert _launched(muster_program, root, "done_queue", 2, 2) == [["worker 0 done"], ["worker 1 done"]]
