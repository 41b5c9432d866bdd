"""The oracle's cases of ops that have kernels for GPUs, on the emulated card, against TensorFlow.

One type of each size takes part, since g++ compiles every function of every type; all with MUSTER_ORACLE_FULL=1.
"""
import os
import pathlib
import sys

import card
import kernel_list
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))

import on_gpu  # noqa: E402
import oracle  # noqa: E402

FULL = os.environ.get("MUSTER_ORACLE_FULL") == "1"
TYPES = {"float", "half", "int64", "int32", "bool", "complex64"}


@pytest.fixture(scope="module")
def outcomes(tf_python):
    ops = sorted({op for op, _ in kernel_list.of_muster()})
    saved = {name: os.environ.get(name) for name in ("MUSTER_CUDA_DRIVER", "MUSTER_CACHE")}
    os.environ.update({name: card.environment()[name] for name in saved})
    try:
        wanted = None if FULL else lambda case: case.kind != "error" and all(
            part.split("=")[1] in TYPES for part in case.typing.split(",") if "=" in part)
        return oracle.evaluate(tf_python, ops, only=wanted)[1]
    finally:
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def test_ops_agree_with_tensorflow(outcomes):
    problems = on_gpu.problems(outcomes)
    assert not problems, "%d problems:\n" % len(problems) + "\n".join(problems[:100])
    assert sum(map(len, outcomes.values())) > 1000
