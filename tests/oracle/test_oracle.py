"""Every op of required_ops.txt on TensorFlow and on Muster: values, types, shapes, error codes and gradients."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import coverage  # noqa: E402
import oracle  # noqa: E402


@pytest.fixture(scope="module")
def evaluated(tf_python):
    return oracle.evaluate(tf_python)


def test_every_case_agrees_with_tensorflow(evaluated):
    needed, outcomes, _ = evaluated
    problems, _ = coverage.judge(needed, outcomes, coverage.known_gaps(), coverage.known_differences())
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:100])


def test_the_table_is_not_empty(evaluated):
    needed, outcomes, count = evaluated
    assert count > 10000
    assert {kind for _, _, kind in outcomes} == {"normal", "empty", "edge", "error"}
    gradients = [case for found in outcomes.values() for case, _ in found if case.gradient]
    assert len(gradients) > 300
