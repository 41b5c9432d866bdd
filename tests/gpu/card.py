"""Python programs and their tasks with the emulated card."""
import os
import pathlib
import subprocess
import sys
import textwrap

import muster

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / os.environ.get("MUSTER_BUILD", "release") / "tests" / "libemulated_gpu.so"
# Compiled functions are kept between runs: a change of any source makes others.
CACHE = ROOT / "build" / "gpu_functions"


def environment(**more):
    """Of a process that has the card."""
    CACHE.mkdir(parents=True, exist_ok=True)
    CACHE.chmod(0o700)
    package = str(pathlib.Path(muster.__file__).parent.parent)  # unresolved, see tests/oracle/runner.py
    return {**os.environ, "MUSTER_CUDA_DRIVER": str(LIBRARY), "MUSTER_CACHE": str(CACHE), "PYTHONPATH": package, **more}


def run(program, timeout=300, **more):
    """What the program prints."""
    assert LIBRARY.exists(), "%s is not built" % LIBRARY
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment(**more), capture_output=True, text=True,
                          timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
