"""TensorArray, the functions that loop over elements, and recurrent networks, against plain numpy."""
import numpy as np
import pytest


@pytest.fixture
def tf():
    import muster as tf

    with tf.Graph().as_default():
        yield tf


def _run(tf, fetches, feeds=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def test_tensor_array(tf):
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack([[1., 2.], [3., 4.], [5., 6.]])
    read, stacked, joined = array.read(1), array.gather([2, 0]), array.concat()
    assert stacked.get_shape().as_list() == [None, 2]
    read, stacked, joined = _run(tf, [read, stacked, joined])
    assert read.tolist() == [3, 4]
    assert stacked.tolist() == [[5, 6], [1, 2]]
    assert joined.tolist() == [1, 2, 3, 4, 5, 6]


def test_tensor_array_refuses_other_types_and_shapes(tf):
    with pytest.raises(ValueError, match="TensorArray dtype is float32 but Op is trying to write dtype int32"):
        tf.TensorArray(tf.float32, 1).write(0, tf.constant(1))
    with pytest.raises(ValueError, match="Inconsistent shapes"):
        tf.TensorArray(tf.float32, 2).write(0, [1.]).write(1, [1., 2.])


def test_map_fn_and_its_gradient(tf):
    x = tf.constant([1., 2., 3.])
    y, (g,) = tf.map_fn(lambda v: v * v, x), tf.gradients(tf.map_fn(lambda v: v * v, x), [x])
    y, g = _run(tf, [y, g])
    assert y.tolist() == [1, 4, 9]
    assert g.tolist() == [2, 4, 6]


def test_scan_and_folds(tf):
    x = tf.constant([1., 2., 3.])
    results = _run(tf, [tf.scan(lambda a, v: a + v, x), tf.scan(lambda a, v: a + v, x, reverse=True),
                        tf.foldl(lambda a, v: a - v, x), tf.foldr(lambda a, v: a - v, x)])
    assert [r.tolist() for r in results] == [[1, 3, 6], [6, 5, 3], -4, 0]


def _lstm(x, kernel, bias, units):
    c = h = np.zeros([x.shape[0], units], np.float32)
    outputs = []
    for t in range(x.shape[1]):
        i, j, f, o = np.split(np.concatenate([x[:, t], h], 1) @ kernel + bias, 4, axis=1)

        def sigmoid(v):
            return 1 / (1 + np.exp(-v))

        c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
        h = np.tanh(c) * sigmoid(o)
        outputs.append(h)
    return np.stack(outputs, 1), c, h


@pytest.mark.parametrize("dynamic", [True, False])
def test_lstm(tf, dynamic):
    x = np.linspace(-1, 1, 24).reshape(2, 3, 4).astype(np.float32)
    cell = tf.nn.rnn_cell.BasicLSTMCell(5)
    if dynamic:
        outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(x), dtype=tf.float32)
    else:
        outputs, state = tf.nn.static_rnn(cell, tf.unstack(tf.constant(x), axis=1), dtype=tf.float32)
        outputs = tf.stack(outputs, 1)
    assert [v.name for v in tf.global_variables()] == ["rnn/basic_lstm_cell/kernel:0", "rnn/basic_lstm_cell/bias:0"]
    outputs, state, (kernel, bias) = _run(tf, [outputs, state, cell.variables])
    expected, c, h = _lstm(x, kernel, bias, 5)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.c, c, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.h, h, rtol=1e-5, atol=1e-6)


def test_sequences_end(tf):
    x = np.ones([2, 3, 4], np.float32)
    outputs, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(2), tf.constant(x), sequence_length=[1, 3],
                                       dtype=tf.float32)
    outputs, state = _run(tf, [outputs, state])
    assert not outputs[0, 1:].any() and outputs[1].all()
    np.testing.assert_array_equal(state[0], outputs[0, 0])
    np.testing.assert_array_equal(state[1], outputs[1, 2])


def test_stacked_cells_keep_their_own_variables(tf):
    cells = [tf.nn.rnn_cell.GRUCell(3), tf.nn.rnn_cell.BasicRNNCell(2)]
    tf.nn.dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), tf.zeros([2, 3, 4]), dtype=tf.float32)
    assert [v.op.name for v in tf.trainable_variables()] == [
        "rnn/multi_rnn_cell/cell_0/gru_cell/gates/kernel", "rnn/multi_rnn_cell/cell_0/gru_cell/gates/bias",
        "rnn/multi_rnn_cell/cell_0/gru_cell/candidate/kernel", "rnn/multi_rnn_cell/cell_0/gru_cell/candidate/bias",
        "rnn/multi_rnn_cell/cell_1/basic_rnn_cell/kernel", "rnn/multi_rnn_cell/cell_1/basic_rnn_cell/bias"]
