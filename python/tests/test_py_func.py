"""tf.py_func: Python functions as nodes."""
import gc

import muster as tf
import numpy as np
import pytest
from muster.ops import script_ops


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def test_values_of_several_types():
    x = tf.placeholder(tf.float32)
    doubled = tf.py_func(lambda a: (a * 2).astype(np.float32), [x], tf.float32)
    several = tf.py_func(lambda a, b: [np.int64(len(b)), b"x" + b, u"h\u00e9"], [x, tf.constant("abc")],
                         [tf.int64, tf.string, tf.string])
    nothing = tf.py_func(lambda: None, [], [])
    with tf.Session() as sess:
        assert list(sess.run(doubled, {x: [1, 2]})) == [2, 4]
        assert sess.run(several, {x: 0}) == [3, b"xabc", u"h\u00e9".encode("utf-8")]
        assert sess.run(nothing) is None
    assert doubled.op.type == "PyFunc" and doubled.shape.ndims is None


@pytest.mark.parametrize("raised, expected", [(ValueError, tf.errors.InvalidArgumentError),
                                              (StopIteration, tf.errors.OutOfRangeError),
                                              (KeyError, tf.errors.UnknownError),
                                              (NotImplementedError, tf.errors.UnimplementedError)])
def test_exceptions_fail_the_step(raised, expected):
    def fail():
        raise raised("because")

    with tf.Session() as sess:
        with pytest.raises(expected, match="%s: .*because" % raised.__name__):
            sess.run(tf.py_func(fail, [], tf.float32))


def test_wrong_results_are_named():
    with tf.Session() as sess:
        with pytest.raises(tf.errors.InvalidArgumentError, match="0-th value returned by pyfunc_.* is double, but expects"):
            sess.run(tf.py_func(lambda: 1.5, [], tf.int64))
        with pytest.raises(tf.errors.InvalidArgumentError, match="returns 2 values, but expects to see 1"):
            sess.run(tf.py_func(lambda: (1.5, 2.5), [], tf.float64))


def test_functions_live_as_long_as_their_graph():
    gc.collect()
    before = len(script_ops._functions)
    graph = tf.Graph()
    with graph.as_default():
        tf.py_func(lambda: 1.0, [], tf.float64)
    assert len(script_ops._functions) == before + 1
    del graph
    gc.collect()
    assert len(script_ops._functions) == before
