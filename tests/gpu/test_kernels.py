"""Which kernels there are for GPUs, and that all their functions compile."""
import os
import subprocess

import kernel_list
import pytest


def test_the_list_of_missing_kernels_is_true():
    found = kernel_list.missing(kernel_list.of_muster(), kernel_list.ops_of_muster())
    known = kernel_list.known()
    assert sorted(set(found) - set(known)) == [], "kernels are missing that the list does not name"
    assert sorted(set(known) - set(found)) == [], "these are there: take them out of the list (kernel_list.py --write)"
    assert sorted(name for name in found if (known[name] == kernel_list.NO_OP) != (found[name] == kernel_list.NO_OP)) == []


@pytest.fixture(scope="module")
def nvrtc():
    """The folder of NVIDIA's compiler, which needs no GPU."""
    found = [path.parent for path in (kernel_list.ROOT / ".venv-nvrtc").glob("lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.*")]
    if not found:
        pytest.skip("NVIDIA's compiler is not in .venv-nvrtc: the functions for GPUs are not compiled")
    return str(found[0])


def test_every_function_compiles(nvrtc):
    done = subprocess.run([str(kernel_list.program()), "compile", "90"], env=dict(os.environ, MUSTER_CUDA_PATH=nvrtc),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_a_function_that_does_not_compile_is_named(tmp_path):
    done = subprocess.run([str(kernel_list.program()), "compile", "1"],
                          env=dict(os.environ, MUSTER_CUDA_PATH=str(tmp_path), MUSTER_CUDA_DRIVER="/nowhere"),
                          capture_output=True, text=True)
    assert done.returncode == 1
