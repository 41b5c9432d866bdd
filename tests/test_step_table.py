"""The ways of a step in docs/ARCHITECTURE.md are true: files and functions exist. tests/step_path measures whether they are complete."""
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "step_path"))
import step_table  # noqa: E402

# Of a local step, and of a step in a cluster. The latter may only shrink, down to the former.
MAX_STEMS = {step_table.LOCAL: 30, step_table.CLUSTER: 68}
MAX_LINES = {step_table.LOCAL: 7000, step_table.CLUSTER: 18300}


@pytest.mark.parametrize("title", [step_table.LOCAL, step_table.CLUSTER])
def test_functions_of_a_step_exist(title):
    rows = step_table.read_table(title)
    assert len(rows) > 5
    explained = dict(step_table.read_table(step_table.LOCAL))
    for stem, functions in rows:
        files = step_table.source_files(stem)
        assert files, "muster/%s does not exist" % stem
        text = "".join(open(path).read() for path in files)
        functions = functions or explained.get(stem)
        assert functions, "no row of %s names a function" % stem
        for function in functions:
            assert re.search(r"\b%s\b" % function, text), "muster/%s has no %s" % (stem, function)


@pytest.mark.parametrize("title", [step_table.LOCAL, step_table.CLUSTER])
def test_a_step_can_be_read(title):
    stems = [stem for stem, _ in step_table.read_table(title)]
    assert len(stems) == len(set(stems)) <= MAX_STEMS[title]
    assert step_table.size(stems) <= MAX_LINES[title]
