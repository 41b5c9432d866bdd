"""Graphs with functions that TensorFlow 2.21 has built: Muster answers what TensorFlow answers."""

import pickle
import subprocess

import function_programs
import numpy as np
import pytest

import muster as tf


@pytest.fixture(scope="module")
def answered(tf_python, tmp_path_factory):
    out = tmp_path_factory.mktemp("functions") / "cases"
    done = subprocess.run([tf_python, function_programs.__file__, str(out)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    with open(out, "rb") as file:
        return {name: (graph_def, runs) for name, graph_def, runs in pickle.load(file)}


@pytest.mark.parametrize("where", ["local", "not optimized", "served"])
@pytest.mark.parametrize("name", function_programs.PROGRAMS)
def test_answers(answered, name, where):
    serialized, runs = answered[name]
    server = tf.train.Server.create_local_server() if where == "served" else None
    config = tf.ConfigProto()
    if where == "not optimized":
        config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    with tf.Graph().as_default():
        tf.import_graph_def(tf.GraphDef.FromString(serialized), name="")
        with tf.Session(server.target if server else "", config=config) as session:
            for fetches, feeds, expected in runs:
                if isinstance(expected, str):
                    with pytest.raises(getattr(tf.errors, expected)):
                        session.run(fetches, feeds)
                    continue
                got = session.run(fetches, feeds)
                if not isinstance(fetches, list):
                    got, expected = [got], [expected]
                for mine, theirs in zip(got, expected, strict=True):
                    if isinstance(theirs, (bytes, type(None))):
                        assert mine == theirs
                    else:
                        assert np.asarray(mine).dtype == np.asarray(theirs).dtype
                        np.testing.assert_allclose(mine, theirs, rtol=1e-5, err_msg=f"{fetches} {feeds}")
    if server:
        server.stop()


def test_fed_outputs_of_functional_nodes(answered):
    """TensorFlow's readers do not see a value fed for a loop's output once the loop is lowered; ours do."""
    with tf.Graph().as_default():
        tf.import_graph_def(tf.GraphDef.FromString(answered["while_node_itself"][0]), name="")
        with tf.Session() as session:
            assert session.run("loop/Identity_2:0", {"n:0": 4, "loop:2": 77}) == 77
            handle = session.partial_run_setup(["loop/Identity_2:0"], ["loop:2"])
            assert session.partial_run(handle, "loop/Identity_2:0", {"loop:2": 5}) == 5


def test_graph_grows_between_runs(answered):
    with tf.Graph().as_default():
        tf.import_graph_def(tf.GraphDef.FromString(answered["while_counts"][0]), name="a")
        with tf.Session() as session:
            assert session.run("a/out:0", {"a/n:0": 3}) == 3
            tf.import_graph_def(tf.GraphDef.FromString(answered["nested_branches"][0]), name="b")
            assert session.run("b/y:0", {"b/x:0": [2.0]}).tolist() == [4.0]
            assert session.run("a/out:0", {"a/n:0": 4}) == 4


def test_functions_that_are_not_there(answered):
    graph_def = tf.GraphDef.FromString(answered["branch_of_constants"][0])
    del graph_def.library.function[:]
    with tf.Graph().as_default():
        tf.import_graph_def(graph_def, name="")
        with tf.Session() as session, pytest.raises(tf.errors.NotFoundError, match="is not defined"):
            session.run("number:0", {"p:0": True})


def test_functions_that_do_not_fit(answered):
    graph_def = tf.GraphDef.FromString(answered["branch_of_constants"][0])
    for function in graph_def.library.function:
        if "true" in function.signature.name:
            function.ret[function.signature.output_arg[0].name] = "nowhere:output:0"
    with tf.Graph().as_default():
        tf.import_graph_def(graph_def, name="")
        with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="nowhere"):
            session.run("number:0", {"p:0": True})
