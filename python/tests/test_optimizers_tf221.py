"""Twenty steps of every optimizer end where TensorFlow 2.21's end, slots included."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import optimizer_runs


@pytest.fixture(scope="module")
def theirs(tf_python):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    environment.pop("PYTHONPATH", None)
    program = pathlib.Path(optimizer_runs.__file__).resolve()
    done = subprocess.run([tf_python, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                          timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("run", optimizer_runs.RUNS, ids=optimizer_runs.title)
def test_twenty_steps(run, theirs):
    import muster as tf

    ours, other = optimizer_runs.trajectory(tf, run), theirs[optimizer_runs.title(run)]
    assert set(ours) == set(other)
    for name, steps in other.items():
        for step, expected in enumerate(steps):
            expected, got = np.array(expected), np.array(ours[name][step])
            limit = 4e-6 * np.maximum(1, np.abs(expected))
            assert (np.abs(got - expected) <= limit).all(), "%s after step %d: %s, not %s" % (name, step + 1, got, expected)
