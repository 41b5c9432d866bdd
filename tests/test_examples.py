"""The examples, as a user starts them."""
import os
import re
import subprocess

import pytest

PRESET = os.environ.get("MUSTER_BUILD", "release")


def _run(root, *words):
    done = subprocess.run(words, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def _binary(root, name):
    path = os.path.join(root, "build", PRESET, "bin", name)
    if not os.path.exists(path):
        pytest.fail("%s is not built" % path)
    return path


def _last_accuracy(output):
    return float(re.findall(r"test accuracy (\d\.\d+)", output)[-1])


def test_training_in_python_learns_digits(root):
    output = _run(root, _binary(root, "muster"), "run", "examples/mnist.py")
    assert _last_accuracy(output) >= 0.94  # what `make train` promises
    assert len(re.findall(r"^step ", output, re.M)) == 20  # progress is visible on the way


def test_training_in_cpp_learns_digits(root):
    output = _run(root, _binary(root, "mnist_cc"), "data/digits", "1500")
    assert _last_accuracy(output) >= 0.92  # its batches are not shuffled


def test_run_says_what_is_wrong(root):
    done = subprocess.run([_binary(root, "muster"), "run", "no/such/script.py"], cwd=root, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 2
    assert "no/such/script.py" in done.stdout
