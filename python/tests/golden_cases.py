"""Golden cases and the list of those that wait for parts which do not exist yet."""
import json
import pathlib

import pytest

_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"


def load(name):
    with open(_TESTS / "golden" / name, encoding="utf-8") as f:
        return json.load(f)


def folder(name):
    return _TESTS / "golden" / name


def waiting(kind):
    """{case: reason} of tests/golden_waiting.txt."""
    found = {}
    for line in (_TESTS / "golden_waiting.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            file, case, reason = (part.strip() for part in line.split("|", 2))
            if file == kind:
                assert reason, line
                found[case] = reason
    return found


def check(kind, case, function):
    """Runs a case; one that waits has to fail, and leaves the list when it no longer does."""
    reason = waiting(kind).get(case)
    if reason is None:
        function()
        return
    try:
        function()
    except BaseException as e:  # noqa: B902  (what is missing may raise anything)
        if isinstance(e, KeyboardInterrupt):
            raise
        pytest.xfail(reason)
    pytest.fail("%s case %r passes: take it out of tests/golden_waiting.txt" % (kind, case))


def check_list(kind, cases):
    """Every entry of the list names a case."""
    unknown = set(waiting(kind)) - set(cases)
    assert not unknown, "tests/golden_waiting.txt names no such %s cases: %s" % (kind, sorted(unknown))
