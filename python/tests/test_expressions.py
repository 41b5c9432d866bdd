"""Functions that trainers of TensorFlow 1.x use have TensorFlow's values."""
import pickle
import subprocess

import expression_programs
import numpy as np
import pytest

import muster as tf


@pytest.fixture(scope="module")
def expected(tf_python, tmp_path_factory):
    path = tmp_path_factory.mktemp("expressions") / "values"
    done = subprocess.run([tf_python, expression_programs.__file__, str(path)], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads(path.read_bytes())


def compare(mine, theirs):
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for m, t in zip(mine, theirs):
            compare(m, t)
        return
    assert np.asarray(mine).dtype == np.asarray(theirs).dtype
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(expression_programs.EXPRESSIONS))
def test_value(expected, name):
    compare(expression_programs.evaluate(tf, expression_programs.EXPRESSIONS[name]), expected[name])
