"""What users and operators set, and what they get wrong."""
import json
import subprocess
import sys

import card

STEPS = """
import json
import numpy as np
import muster as tf
from muster import _muster

with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [8])
    v = tf.Variable(tf.zeros([8]))
    change = tf.assign(v, tf.tanh(v * 0.5 + x) * tf.exp(-x) + 0.25)
    later = tf.identity(change) * 2.0
values = []
with tf.Session() as session:
    session.run(v.initializer)
    for step in range(60):
        values.append(session.run(later, {x: np.full(8, step / 60, np.float32)}).view(np.int32).tolist())
report = _muster.gpu_reports()[0]
print(json.dumps([values, report["replayed_calls"], report["joined_calls"], report["calls"]]))
"""


def test_without_joining_the_bits_are_the_same():
    joined, plain = [json.loads(card.run(STEPS, MUSTER_GPU_FUSE=fuse)) for fuse in ("1", "0")]
    assert joined[0] == plain[0] and len({str(value) for value in plain[0]}) == 60
    assert plain[1] > 0 and plain[2] == 0, plain[1:]


def test_waiting_for_each_function_gives_the_same():
    plain, waiting = [json.loads(card.run(STEPS, MUSTER_GPU_FUSE="0", MUSTER_GPU_WAIT=wait)) for wait in ("0", "1")]
    assert plain[0] == waiting[0] and waiting[1] == 0


def test_availability_asks_for_a_capability():
    card.emulated_only()
    program = """
import json
import muster as tf
asked = [None, (3, 5), (9, 0), (9, 1), (10, 0)]
print(json.dumps([tf.test.is_gpu_available(min_cuda_compute_capability=each) for each in asked]))
"""
    assert json.loads(card.run(program)) == [True, True, True, False, False]


def test_visible_devices_that_are_none():
    program = """
import json
import muster as tf
with tf.Session() as session:
    print(json.dumps([[d.name[-5:] for d in session.list_devices()], float(session.run(tf.constant(1.0) + 1.0))]))
with tf.device("/gpu:0"):
    asked = tf.constant(1.0) + 1.0
with tf.Session() as session:
    try:
        session.run(asked)
        print(json.dumps("no error"))
    except tf.errors.InvalidArgumentError as error:
        print(json.dumps(error.message))
"""
    for visible in ("", "-1", "7", "x"):
        done = subprocess.run([sys.executable, "-c", program], env=card.environment(CUDA_VISIBLE_DEVICES=visible), capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        devices, error = map(json.loads, done.stdout.splitlines())
        assert devices == [["CPU:0"], 2.0] and "gpu" in error.lower(), done.stdout
        assert "no GPU will be used" not in done.stderr, done.stderr
    if not card.REAL:
        lines = card.run(program.split("with tf.device")[0], CUDA_VISIBLE_DEVICES="1,5,0", MUSTER_EMULATED_GPU_COUNT="2").splitlines()
        assert json.loads(lines[0])[0] == ["CPU:0", "GPU:0"]


def test_a_cache_that_cannot_be_written(tmp_path):
    program = """
import muster as tf
with tf.device("/gpu:0"):
    y = tf.sinh([1.0]) + tf.cosh([1.0])
with tf.Session() as session:
    assert abs(float(session.run(y)[0]) - 2.718281) < 1e-4
"""
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below", "missing/below"):
        card.run(program, MUSTER_CACHE=str(tmp_path / place))
    assert (tmp_path / "file").read_text() == "" and not (tmp_path / "missing").exists()


def test_no_descriptors_left():
    program = """
import json
import os
import resource
import muster as tf

with tf.device("/gpu:0"):
    known = tf.tanh([0.5])
    late = tf.asinh([0.5])
with tf.Session() as session:
    session.run(known)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    try:
        session.run(late)
        print(json.dumps("no error"))
    except tf.errors.OpError as error:
        print(json.dumps(error.message))
    print(json.dumps(float(session.run(known)[0])))
    for one in kept:
        os.close(one)
    print(json.dumps(float(session.run(known)[0])))
"""
    error, first, second = [json.loads(line) for line in card.run(program).splitlines()]
    assert abs(first - 0.4621) < 1e-3 and first == second and error
