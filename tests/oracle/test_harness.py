"""The harness itself: whatever is wrong with a result has to be reported."""

import copy
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cases  # noqa: E402
import compare  # noqa: E402
import coverage  # noqa: E402
import element_types as et  # noqa: E402
import graphs  # noqa: E402
import oracle  # noqa: E402
import registry  # noqa: E402
import runner  # noqa: E402


def _values(dtype, array):
    return "values", [(dtype, et.carrier(array, dtype))]


@pytest.mark.parametrize("dtype", [t for t in et.USABLE if t != et.STRING])
def test_one_changed_element_is_reported(dtype):
    array = np.arange(2, 8).reshape(2, 3) if dtype != et.BOOL else np.ones((2, 3))
    for tolerance in (compare.EXACT, compare.ELEMENTWISE, compare.SUM):
        right = _values(dtype, array)
        assert compare.difference(right, copy.deepcopy(right), tolerance) is None
        wrong = copy.deepcopy(right)
        changed = wrong[1][0][1]
        # Five percent, the sign, or the next integer: a wrong kernel, not a rounding.
        changed[1, 2] = et.carrier(array[1, 2] * 1.05 if dtype in et.EPSILON else array[1, 2] - 1, dtype)
        assert "1 of 6 elements differ" in compare.difference(right, wrong, tolerance)


def test_changed_strings_types_and_shapes_are_reported():
    right = _values(et.STRING, [b"a", b"b"])
    assert compare.difference(right, _values(et.STRING, [b"a", b"c"]), compare.EXACT)
    one = _values(et.FLOAT, [1.0, 2.0])
    assert "type double" in compare.difference(one, _values(et.DOUBLE, [1.0, 2.0]), compare.SUM)
    assert "shape [1, 2]" in compare.difference(one, _values(et.FLOAT, [[1.0, 2.0]]), compare.SUM)
    assert "type uint16" in compare.difference(
        _values(et.BFLOAT16, [1.0]), ("values", [(et.UINT16, et.carrier([1.0], et.BFLOAT16))]), compare.SUM)
    assert compare.difference(one, ("values", one[1] * 2), compare.SUM) == "2 outputs, TensorFlow has 1"


def test_nan_inf_and_signs_are_reported():
    one = _values(et.FLOAT, [1.0, np.nan, np.inf])
    for other in ([1.0, 1.0, np.inf], [np.nan, np.nan, np.inf], [1.0, np.nan, -np.inf], [1.0, np.nan, 3e38]):
        assert compare.difference(one, _values(et.FLOAT, other), compare.SUM)


def test_tolerances_are_those_of_the_type():
    one = np.float32(1)
    near, far = one + 4 * np.float32(2.0**-23), one + 5 * np.float32(2.0**-23)
    assert compare.difference(_values(et.FLOAT, [1]), _values(et.FLOAT, [near]), compare.ELEMENTWISE) is None
    assert compare.difference(_values(et.FLOAT, [1]), _values(et.FLOAT, [far]), compare.ELEMENTWISE)
    assert compare.difference(_values(et.DOUBLE, [1]), _values(et.DOUBLE, [1 + 1e-12]), compare.SUM)


def test_errors_are_reported():
    invalid = ("error", 3, "no", "run")
    assert compare.difference(invalid, ("error", 3, "another text", "build"), compare.EXACT) is None
    assert compare.difference(invalid, ("error", 11, "no", "run"), compare.EXACT)
    assert compare.difference(invalid, _values(et.FLOAT, [1.0]), compare.EXACT)
    assert compare.difference(_values(et.FLOAT, [1.0]), invalid, compare.EXACT)
    assert compare.difference(_values(et.FLOAT, [1.0]), ("crash", "exit -11"), compare.EXACT)
    # The right code for the wrong reason: the kernel does not exist.
    missing = ("error", 3, "No OpKernel was registered to support Op 'X'", "run")
    assert compare.difference(invalid, missing, compare.EXACT)


def _lists(tmp_path, gaps="", differences=""):
    (tmp_path / "gaps").write_text(gaps)
    (tmp_path / "differences").write_text(differences)
    return coverage.Entries(tmp_path / "gaps"), coverage.Entries(tmp_path / "differences")


def _case(kind="normal", note=""):
    return graphs.Case("Op", kind, "T=float", {}, [], compare.EXACT, note=note)


def test_texts_are_compared_where_asked():
    theirs = ("error", 3, "Graph execution error:\n\nDetected at node 'c/op'\nNode: 'c/op'\nno\n\t [[{{node c/op}}]]", "run")
    assert compare.difference(theirs, ("error", 3, "no\n\t [[node c/op]]", "run"), compare.EXACT, with_text=True) is None
    assert compare.difference(theirs, ("error", 3, "yes", "run"), compare.EXACT, with_text=True)
    built = ("error", 3, "no for '{{node c/op}} = Add[T=DT_FLOAT](x, y)' with input shapes: [], [].", "build")
    ours = ("error", 3, "no for 'c/op' (op: 'Add') with input shapes: [], [].", "build")
    assert compare.difference(built, ours, compare.EXACT, with_text=True) is None


def test_a_missing_case_is_a_problem_unless_it_is_listed(tmp_path):
    key = ("Op", "T=float", "normal")
    problems, _ = coverage.judge([key], {}, *_lists(tmp_path))
    assert problems == ["Op T=float normal: no case"]
    assert coverage.judge([key], {}, *_lists(tmp_path, "Op * normal why"))[0] == []
    good = {key: [(_case(), None)]}
    assert coverage.judge([key], good, *_lists(tmp_path))[0] == []
    assert "not a gap any more" in coverage.judge([key], good, *_lists(tmp_path, "Op * normal why"))[0][0]


def test_a_failing_case_is_a_problem_unless_it_is_listed(tmp_path):
    key = ("Op", "T=float", "normal")
    bad = {key: [(_case(note="one two"), "differs"), (_case(), None)]}
    assert len(coverage.judge([key], bad, *_lists(tmp_path))[0]) == 1
    assert coverage.judge([key], bad, *_lists(tmp_path, "", "Op T=float normal:one_two why"))[0] == []
    assert len(coverage.judge([key], bad, *_lists(tmp_path, "", "Op T=float normal:other why"))[0]) == 2
    good = {key: [(_case(note="one two"), None)]}
    assert len(coverage.judge([key], good, *_lists(tmp_path, "", "Op T=float normal:one_two why"))[0]) == 1
    assert coverage.judge([key], good, *_lists(tmp_path, "", "Op T=float normal:one_two by chance: why"))[0] == []
    with pytest.raises(ValueError):
        _lists(tmp_path, "Op T=float normal")


@pytest.fixture(scope="module")
def small(tf_python):
    """The programs of a few ops with Muster's and TensorFlow's results."""
    known = registry.load(tf_python, runner.WORKER, oracle.FOLDER)
    table = cases.all_cases(known, ["Sub", "Reverse"])
    programs = [graphs.program(case, known) for case in table]
    return table, programs, runner.run(tf_python, "tensorflow", programs), known


def test_a_perturbed_kernel_does_not_pass(small, tf_python):
    """Muster is asked for Add where TensorFlow computes Sub: every case with values has to be reported."""
    table, programs, expected, known = small
    swapped = []
    for case, program in zip(table, programs):
        graph = program["graph"].replace(b"Sub", b"Add") if case.op == "Sub" else program["graph"]
        swapped.append(dict(program, graph=graph))
    actual = runner.run(sys.executable, "muster", swapped)
    reported = compared = 0
    for case, program in zip(table, programs):
        if case.op == "Sub" and case.kind == "normal" and not case.gradient:
            compared += 1
            reported += compare.difference(expected[program["key"]], actual[program["key"]], case.tolerance) is not None
    assert compared > 50 and reported == compared


def test_gradients_are_values(small):
    table, programs, expected, _ = small
    found = [expected[p["key"]] for case, p in zip(table, programs) if case.gradient]
    assert found and all(kind == "values" and all(value is not None for _, value in values) for kind, values in found)


def test_a_crash_costs_one_case(small, tmp_path):
    """A worker that dies in one program gives the results of all others."""
    _, programs, _, _ = small
    programs = programs[:50]
    dying = tmp_path / "worker.py"
    dying.write_text(runner.WORKER.read_text().replace(
        "def _run_one(system, built, program):",
        f"def _run_one(system, built, program):\n    if program['key'] == {programs[7]['key']!r}:\n        os.abort()"))
    results = runner.run(sys.executable, "muster", programs, script=dying)
    assert len(results) == 50
    assert [key for key, result in results.items() if result[0] == "crash"] == [programs[7]["key"]]
