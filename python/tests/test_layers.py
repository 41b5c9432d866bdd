"""tf.layers, tf.losses and tf.metrics beyond what the golden graphs show."""
import numpy as np
import pytest


@pytest.fixture
def tf():
    import muster as tf

    with tf.Graph().as_default():
        yield tf


def test_a_layer_used_twice_shares_its_variables(tf):
    x = tf.ones([2, 3])
    layer = tf.layers.Dense(4, name="d")
    layer(x), layer(x)
    assert [v.name for v in tf.global_variables()] == ["d/kernel:0", "d/bias:0"]
    tf.layers.dense(x, 4, name="d", reuse=True)
    assert len(tf.global_variables()) == 2
    with pytest.raises(ValueError, match="Variable d/kernel already exists, disallowed"):
        tf.layers.dense(x, 4, name="d")


def test_regularizers_become_losses(tf):
    tf.layers.dense(tf.ones([1, 2]), 1, kernel_initializer=tf.ones_initializer(), kernel_regularizer=tf.nn.l2_loss)
    assert [loss.op.name for loss in tf.losses.get_regularization_losses()] == ["dense/kernel/Regularizer/L2Loss"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(tf.losses.get_total_loss()) == 1.0


@pytest.mark.parametrize("shape", [[4, 3], [2, 2, 2, 3]])
@pytest.mark.parametrize("static", [True, False])
def test_batch_normalization_learns_its_moments(tf, shape, static):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    training = True if static else tf.placeholder_with_default(True, [])
    y = tf.layers.batch_normalization(tf.constant(x), momentum=0.5, training=training)
    axes = tuple(range(len(shape) - 1))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        got = session.run(y)
        np.testing.assert_allclose(got, (x - x.mean(axes)) / np.sqrt(x.var(axes) + 1e-3), rtol=1e-4, atol=1e-5)
        session.run(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
        mean = session.run([v for v in tf.global_variables() if "moving_mean" in v.name][0])
        np.testing.assert_allclose(mean, x.mean(axes) * 0.5, rtol=1e-5)


def test_metrics_accumulate(tf):
    labels, predictions = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.int32, [None])
    value, update = tf.metrics.accuracy(labels, predictions)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run(update, {labels: [1, 2], predictions: [1, 1]}) == 0.5
        assert session.run(update, {labels: [1, 2], predictions: [1, 2]}) == 0.75
        assert session.run(value) == 0.75


def test_auc_of_a_perfect_and_a_random_order(tf):
    scores = tf.placeholder(tf.float32, [4])
    value, update = tf.metrics.auc(tf.constant([0, 0, 1, 1]), scores)
    for given, expected in (([.1, .2, .8, .9], 1.0), ([.5, .5, .5, .5], 0.5)):
        with tf.Session() as session:
            session.run(tf.local_variables_initializer())
            session.run(update, {scores: given})
            assert abs(session.run(value) - expected) < 1e-3


def test_weights_that_do_not_fit(tf):
    with pytest.raises(ValueError, match="weights can not be broadcast to values"):
        tf.losses.mean_squared_error(tf.zeros([2, 3]), tf.ones([2, 3]), weights=[1., 2.])
    weights = tf.placeholder_with_default([[1., 2.]], None)
    loss = tf.losses.mean_squared_error(tf.zeros([2, 3]), tf.ones([2, 3]), weights=weights)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="can not be broadcast"):
        session.run(loss)
