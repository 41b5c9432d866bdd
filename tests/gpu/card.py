"""Python programs and their tasks with a card: the emulated one, or that of this machine with MUSTER_TEST_CARD=real."""
import os
import pathlib
import shlex
import subprocess
import sys
import textwrap
import unittest

import muster

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / os.environ.get("MUSTER_BUILD", "release")
LIBRARY = BUILD / "tests" / "libemulated_gpu.so"
# Of a packed build where MUSTER_COMMAND names it.
COMMAND = os.environ.get("MUSTER_COMMAND") or str(BUILD / "bin" / "muster")
# Compiled functions are kept between runs: a change of any source makes others.
CACHE = ROOT / "build" / "gpu_functions"
REAL = os.environ.get("MUSTER_TEST_CARD") == "real"


def environment(**more):
    """Of a process that has the card."""
    CACHE.mkdir(parents=True, exist_ok=True)
    CACHE.chmod(0o700)
    package = str(pathlib.Path(muster.__file__).parent.parent)  # unresolved, see tests/oracle/runner.py
    paths = [package] + [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != package]
    changed = {"MUSTER_CACHE": str(CACHE), "PYTHONPATH": os.pathsep.join(paths) if REAL else package, **more}
    if not REAL:
        changed["MUSTER_CUDA_DRIVER"] = str(LIBRARY)
        return {**os.environ, **changed}
    changed.setdefault("NVIDIA_TF32_OVERRIDE", "0")  # results are compared with those of the CPU
    if any(name.startswith("MUSTER_EMULATED") for name in more):
        raise unittest.SkipTest("only the emulated card can be told to do this")
    return {**os.environ, **changed}


def emulated_only():
    if REAL:
        raise unittest.SkipTest("this is about the emulated card")


def real_only():
    if not REAL:
        raise unittest.SkipTest("this needs a real card: make test-gpu")


def run(program, timeout=300, **more):
    """What the program prints."""
    assert REAL or LIBRARY.exists(), "%s is not built" % LIBRARY
    wrapper = shlex.split(os.environ.get("MUSTER_TEST_WRAPPER", ""))  # such as compute-sanitizer
    done = subprocess.run([*wrapper, sys.executable, "-c", textwrap.dedent(program)], env=environment(**more), capture_output=True,
                          text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
