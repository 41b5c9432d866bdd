"""Fixtures of all Python tests."""

import os
import pathlib
import signal
import subprocess

import pytest

pytest_plugins = ["loud_skips"]
ROOT = pathlib.Path(__file__).resolve().parent

# A shell that starts the tests in the background lets them, and all they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _tensorflow_interpreter():
    path = os.environ.get("MUSTER_TF_PYTHON") or str(ROOT / ".venv-tf" / "bin" / "python")
    if not os.access(path, os.X_OK):
        return path, "no such program"
    found = subprocess.run(
        [path, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"])
    return path, None if found.returncode == 0 else "it has no tensorflow"


@pytest.fixture(scope="session")
def tf_python():
    """Path of the Python interpreter that has TensorFlow, the judge; it runs in a process of its own.

    Without one the test is skipped, which fails where CI is set (tests/loud_skips.py).
    """
    path, missing = _tensorflow_interpreter()
    if missing is None:
        return path
    pytest.skip(f"TensorFlow's interpreter {path} cannot be used ({missing}): not compared with TensorFlow")


@pytest.fixture(scope="session")
def root():
    """The folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def golden():
    """The folder of the values that TensorFlow 1.15.5 has produced; its README says what is where."""
    return ROOT / "tests" / "golden"
