"""A node that runs after an update of a reference variable sees it, whichever read of the variable it uses."""
import json
import os
import subprocess

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


def test_both_branches_hand_a_read_on():
    """The variable changes after the branch was taken and before its result is used."""
    with tf.Graph().as_default():
        v = tf.Variable(1.0)
        p = tf.placeholder(tf.bool, [])
        read = tf.identity(v)
        chosen = tf.cond(p, lambda: tf.identity(read), lambda: tf.identity(read))
        with tf.control_dependencies([chosen]):
            update = tf.assign(v, 5.0)
        with tf.control_dependencies([update]):
            used = chosen + 10.0
        for branch in (True, False):
            with tf.Session() as sess:
                sess.run(v.initializer)
                assert sess.run(used, {p: branch}) == 15.0


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


def _fetched(tf, target):
    """What v, v.value() and a training step show of the step that changes v, several times over."""
    values = []
    with tf.Graph().as_default():
        v = tf.get_variable("v", [4], initializer=tf.zeros_initializer(), use_resource=False)
        steps = tf.train.get_or_create_global_step()
        updates = [tf.assign_add(v, [1.0] * 4), tf.assign(v, v + 2.0), tf.scatter_add(v, [0, 3], [1.0, 5.0]),
                   tf.train.GradientDescentOptimizer(0.5).minimize(-tf.reduce_sum(v), global_step=steps)]
        fetches = [v, v.value(), v.read_value(), steps]
        with tf.Session(target) as sess:
            sess.run(tf.global_variables_initializer())
            for update in updates:
                for _ in range(5):
                    values.append([x.tolist() for x in sess.run([fetches, getattr(update, "op", update)])[0]])
    return values


_BESIDE = """
import json, sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
sys.path.insert(0, sys.argv[1])
sys.modules["muster"] = tf
import test_reads_after_updates as cases
print("\\n" + json.dumps(cases._fetched(tf, tf.train.Server.create_local_server().target)))
"""


def test_variables_of_the_own_task_are_fetched_as_in_tensorflow(tf_python):
    """Fetches of reference variables are certain in TensorFlow where the session's own task keeps them: they come from
    the variable's memory when the step is over. With resource variables and on other tasks it is a race."""
    done = subprocess.run([tf_python, "-c", _BESIDE, os.path.dirname(os.path.abspath(__file__))], capture_output=True,
                          text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert _fetched(tf, "") == theirs
    server = tf.train.Server.create_local_server()
    try:
        assert _fetched(tf, server.target) == theirs
    finally:
        server.stop()


def test_a_partial_run_does_not_wait_for_what_it_is_fed_later():
    server = tf.train.Server.create_local_server()
    try:
        with tf.Graph().as_default():
            v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=False)
            x = tf.placeholder(tf.float32, [])
            update = tf.assign_add(v, x)
            with tf.Session(server.target) as sess:
                sess.run(v.initializer)
                step = sess.partial_run_setup([v, update.op], [x])
                assert sess.partial_run(step, v) == 0.0
                sess.partial_run(step, update.op, {x: 2.0})
                assert sess.run([v, update.op], {x: 3.0})[0] == 5.0
    finally:
        server.stop()
