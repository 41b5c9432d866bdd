"""Every op of required_ops.txt on TensorFlow and on Muster: values, types, shapes, error codes and gradients."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cases  # noqa: E402
import coverage  # noqa: E402
import differences  # noqa: E402
import oracle  # noqa: E402
import registry  # noqa: E402
import runner  # noqa: E402


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


# Their gradients are those of something else on purpose.
NO_SLOPE = {
    "StopGradient": "nothing flows back",
    "PreventGradient": "refuses",
    "FloorMod": "the slope jumps where the quotient does",
    "FloorDiv": "a staircase",
    "Sign": "a staircase", "Floor": "a staircase", "Ceil": "a staircase", "Round": "a staircase", "Rint": "a staircase",
    "TruncateDiv": "a staircase",
}


def test_gradients_agree_with_finite_differences(tf_python):
    known = registry.load(tf_python, runner.WORKER, oracle.FOLDER)
    table = [case for case in cases.all_cases(known) if case.op not in NO_SLOPE]
    slopes = differences.check(sys.executable, known, table)
    assert len(slopes) > 150
    wrong = differences.disagreement(slopes)
    assert not wrong, "\n".join(wrong)
