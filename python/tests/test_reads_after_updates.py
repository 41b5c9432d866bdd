"""A node that runs after an update of a reference variable sees it, whichever read of the variable it uses."""
import muster as tf


def run(fetches, times=1):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return [sess.run(fetches) for _ in range(times)]


def test_tokens_hold_the_step_that_was_incremented():
    with tf.Graph().as_default():
        step = tf.Variable(0, trainable=False)
        update = tf.assign_add(step, 1)
        with tf.control_dependencies([update]):
            tokens = tf.fill([2], step)
        assert [list(t) for t in run(tokens, 5)] == [[i, i] for i in range(1, 6)]


def test_every_way_of_updating_is_seen():
    with tf.Graph().as_default():
        v = tf.Variable([1.0, 2.0])
        results = []
        for update in (tf.assign(v, [5.0, 6.0]), tf.scatter_update(v, [0], [9.0]), tf.assign_sub(v, [1.0, 1.0])):
            with tf.control_dependencies([update]):
                results.append(v * 2)
        with tf.Session() as sess:
            sess.run(v.initializer)
            assert list(sess.run(results[0])) == [10, 12]
            assert list(sess.run(results[1])) == [18, 12]
            assert list(sess.run(results[2])) == [16, 10]


def test_other_nodes_see_one_value():
    with tf.Graph().as_default():
        v = tf.Variable([1.0, 2.0])
        before = v + 0
        with tf.control_dependencies([before]):
            update = tf.assign_add(v, [1.0, 1.0])
        with tf.control_dependencies([update]):
            after = v + 0
        first, second = run([before, after])[0]
        assert (list(first), list(second)) == ([1, 2], [2, 3])


def test_a_fetched_variable_shows_the_step():
    """sess.run([train_op, global_step]) gives the new step, as in TensorFlow, whatever the order of the fetches."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        w = tf.Variable(1.0)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(w * w, global_step=step)
        assert [s for _, s in run([train, step], 3)] == [1, 2, 3]
        assert [s for s, _ in run([step, train], 3)] == [1, 2, 3]
        assert [s for _, s in run([train, step.value()], 3)] == [1, 2, 3]


def test_an_update_that_may_not_run_is_not_waited_for():
    with tf.Graph().as_default():
        v = tf.Variable(5)
        p = tf.placeholder(tf.bool, [])
        maybe = tf.cond(p, lambda: tf.identity(v.assign_add(1)), lambda: tf.constant(0))
        loop = tf.while_loop(lambda i: i < 3, lambda i: i + tf.cast(v.assign_add(1) > 0, tf.int32), [0])
        with tf.Session() as sess:
            sess.run(v.initializer)
            assert sess.run([maybe, v], {p: False}) == [0, 5]
            sess.run([maybe, v], {p: True})
            assert sess.run(v) == 6
            sess.run([loop, v])
            assert sess.run(v) == 9
