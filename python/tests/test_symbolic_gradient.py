"""SymbolicGradient: derivatives of functions, as TensorFlow 2.21 computes them."""

import pickle
import subprocess

import numpy as np
import pytest
import symbolic_gradient_cases as cases

import muster as tf


@pytest.fixture(scope="module")
def answered(tf_python, tmp_path_factory):
    out = tmp_path_factory.mktemp("gradients") / "answers"
    done = subprocess.run([tf_python, cases.__file__, str(out)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    with open(out, "rb") as file:
        return pickle.load(file)


def _compare(mine, theirs):
    if isinstance(theirs, str):
        assert mine == theirs
        return
    assert not isinstance(mine, str), mine
    for got, expected in zip(mine, theirs, strict=True):
        if expected.dtype.kind in "SO":
            assert got.tolist() == expected.tolist()
            continue
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", cases.CASES)
def test_answers(answered, name, optimize):
    config = tf.ConfigProto()
    if not optimize:
        config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    _compare(cases.answer(tf, name, config), answered[0][name])


@pytest.mark.parametrize("name", cases.CASES)
def test_answers_of_a_server(answered, name):
    server = tf.train.Server.create_local_server()
    _compare(cases.answer(tf, name, target=server.target), answered[0][name])


def test_gradients_of_calls(answered):
    nodes, values = cases.through_calls(tf)
    their_nodes, their_values = answered[1]
    assert nodes == their_nodes
    np.testing.assert_allclose(values, their_values, rtol=1e-6)


def test_recursion_ends():
    text = """library { function {
        signature { name: 'Again' input_arg { name: 'a' type: DT_FLOAT } output_arg { name: 'y' type: DT_FLOAT } }
        node_def { name: 'q' op: 'Again' input: 'a' } ret { key: 'y' value: 'q:y:0' } } }
      node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'gradient' op: 'SymbolicGradient' input: 'x' input: 'x'
        attr { key: 'Tin' value { list { type: DT_FLOAT type: DT_FLOAT } } }
        attr { key: 'Tout' value { list { type: DT_FLOAT } } } attr { key: 'f' value { func { name: 'Again' } } } }"""
    with tf.Graph().as_default():
        tf.import_graph_def(cases.text_format.Parse(text, tf.GraphDef()), name="")
        with tf.Session() as session, pytest.raises(tf.errors.ResourceExhaustedError, match="nested"):
            session.run("gradient:0", {"x:0": 1.0})
