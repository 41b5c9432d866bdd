"""The API of graphs, sessions and control flow against TensorFlow 2.21: values, structures and classes of errors."""

import pickle
import subprocess

import api_cases
import numpy as np
import pytest

import muster as tf


@pytest.fixture(scope="module")
def answered(tf_python, tmp_path_factory):
    out = tmp_path_factory.mktemp("api") / "answers"
    done = subprocess.run([tf_python, api_cases.__file__, str(out)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    with open(out, "rb") as file:
        return pickle.load(file)


def _same(mine, theirs):
    assert type(mine) is type(theirs), (mine, theirs)
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for key in theirs:
            _same(mine[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs), (mine, theirs)
        for a, b in zip(mine, theirs):
            _same(a, b)
    elif isinstance(theirs, float):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=2e-4)
    else:
        assert mine == theirs


@pytest.mark.parametrize("name", api_cases.CASES)
def test_answers(answered, name):
    with tf.Graph().as_default():
        _same(api_cases.CASES[name](tf), answered[name])


def test_reset_closes_the_sessions_of_the_process():
    with tf.Graph().as_default():
        x = tf.constant(1)
        session = tf.Session()
        assert session.run(x) == 1
        tf.Session.reset("")
        with pytest.raises(RuntimeError, match="closed"):
            session.run(x)
