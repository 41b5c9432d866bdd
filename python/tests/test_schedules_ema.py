"""Learning rate schedules and moving averages against the values of TensorFlow 1.15.5."""
import pytest

import golden_cases

_GOLDEN = golden_cases.load("schedules_ema.json")


def _close(got, expected, where):
    expected = float.fromhex(expected)
    assert abs(float(got) - expected) <= 1e-6 * max(1.0, abs(expected)), where


@pytest.mark.parametrize("case", _GOLDEN["learning_rate_schedules"], ids=lambda case: case["code"])
def test_schedule(case):
    import muster as tf

    with tf.Graph().as_default():
        step = tf.placeholder(tf.int32, [])
        rate = eval(case["code"], {"tf": tf, "gs": step})
        with tf.Session() as session:
            for at, expected in zip(case["global_step"], case["values"]):
                _close(session.run(rate, {step: at}), expected, "step %d" % at)


def test_noisy_schedule_stays_near_the_linear_one():
    """The noise is random and has no golden value; without variance nothing of it is left."""
    import muster as tf

    with tf.Graph().as_default():
        step = tf.placeholder(tf.int32, [])
        exact = tf.train.linear_cosine_decay(0.1, step, 10)
        quiet = tf.train.noisy_linear_cosine_decay(0.1, step, 10, initial_variance=0.0)
        noisy = tf.train.noisy_linear_cosine_decay(0.1, step, 10)
        with tf.Session() as session:
            for at in (0, 3, 10):
                values = session.run([exact, quiet, noisy], {step: at})
                assert values[1] == pytest.approx(values[0], rel=1e-5)
                assert abs(values[2] - values[0]) < 1.0


def _title(case):
    return "%s-%s-%s" % (case["averaged"], case["args"], case["num_updates_incremented_before_each_apply"])


@pytest.mark.parametrize("case", _GOLDEN["exponential_moving_average"], ids=_title)
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_exponential_moving_average(case, use_resource):
    import muster as tf

    with tf.Graph().as_default():
        v = tf.Variable(case["variable_initial"], name="v", use_resource=use_resource)
        n = tf.Variable(0, name="n", trainable=False)
        counted = case["num_updates_incremented_before_each_apply"]
        average = tf.train.ExponentialMovingAverage(num_updates=n if counted else None, **case["args"])
        averaged = v if case["averaged"] == "variable v" else v * 1.0
        update = average.apply([averaged])
        assert [w.op.name for w in tf.global_variables()] == case["global_variables"]
        shadow = average.average(averaged)
        assert average.average_name(averaged) == shadow.op.name
        value = tf.placeholder(tf.float32, [])
        assign, count = v.assign(value), n.assign_add(1)
        expected = case["average_after_init_and_each_apply"]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            _close(session.run(shadow), expected[0], "after initialization")
            for i, assigned in enumerate(case["assigned_before_each_apply"]):
                session.run(assign, {value: assigned})
                if counted:
                    session.run(count)
                session.run(update)
                _close(session.run(shadow), expected[i + 1], "after apply %d" % (i + 1))


def test_variables_to_restore():
    import muster as tf

    with tf.Graph().as_default():
        v, other = tf.Variable(1.0, name="v"), tf.Variable(2, name="other", trainable=False)
        average = tf.train.ExponentialMovingAverage(0.9)
        assert average.average_name(v) == "v/ExponentialMovingAverage"
        average.apply([v])
        assert tf.moving_average_variables() == [v]
        restored = average.variables_to_restore()
        assert restored == {"v/ExponentialMovingAverage": v, "other": other}


def test_weighted_moving_average():
    import muster as tf
    from muster.train import moving_averages

    with tf.Graph().as_default():
        value, weight = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        average = moving_averages.weighted_moving_average(value, 0.5, weight)
        assert [v.op.name for v in tf.global_variables()] == ["WeightedMovingAvg/value_x_weight",
                                                              "WeightedMovingAvg/weight"]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run(average, {value: 4.0, weight: 1.0}) == pytest.approx(4.0)
            # (0.25 * 4 * 1 + 0.5 * 2 * 3) / (0.25 * 1 + 0.5 * 3)
            assert session.run(average, {value: 2.0, weight: 3.0}) == pytest.approx(4.0 / 1.75)
