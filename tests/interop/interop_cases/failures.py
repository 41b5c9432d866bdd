"""What goes wrong: classes of errors, the op they name, deadlines, closing while a step runs."""

import threading
import time

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


def _bad_reshape(tf, device):
    x = tf.placeholder(tf.float32, [None], name="fed")
    with tf.device(device):
        return x, tf.reshape(x, [2, 3], name="bad")


@case
def a_kernel_error_names_its_op(tf, c):
    for device in (PS, WORKER, OTHER):
        with tf.Graph().as_default() as g:
            x, y = _bad_reshape(tf, device)
            with tf.device(PS if device != PS else OTHER):
                z = y + 1.0
            with c.session(graph=g) as s:
                e = raised(tf.errors.InvalidArgumentError, s.run, z, {x: np.zeros(4, "f")})
                assert "bad" in e.message, e
                if "node bad" in e.message or "Node: 'bad'" in str(e):
                    assert e.op is not None and e.op.name == "bad", e.op
                # The session lives on.
                assert s.run(z, {x: np.zeros(6, "f")}).shape == (2, 3)


@case
def classes_of_errors(tf, c):
    with tf.device(PS):
        zero = tf.placeholder(tf.int32, [])
        division = tf.constant(1) // zero
        checked = tf.check_numerics(tf.placeholder(tf.float32, [], name="number"), "not a number")
        gathered = tf.gather(tf.constant([1.0, 2.0]), tf.placeholder(tf.int32, [], name="index"))
        product = tf.matmul(tf.placeholder(tf.float32, None, name="left"), tf.placeholder(tf.float32, None, name="right"))
        with tf.control_dependencies([tf.Assert(tf.equal(zero, 1), ["no", zero])]):
            asserted = tf.identity(zero)
    with c.session() as s:
        raised(tf.errors.InvalidArgumentError, s.run, division, {zero: 0})
        e = raised(tf.errors.InvalidArgumentError, s.run, checked, {"number:0": np.nan})
        assert "not a number" in str(e)
        e = raised(tf.errors.InvalidArgumentError, s.run, gathered, {"index:0": 2})
        assert "is not in [0, 2)" in str(e), e
        raised(tf.errors.InvalidArgumentError, s.run, product, {"left:0": np.ones([2, 3]), "right:0": np.ones([2, 3])})
        e = raised(tf.errors.InvalidArgumentError, s.run, asserted, {zero: 3})
        assert "assertion failed" in str(e) and "3" in str(e), e
        assert s.run(asserted, {zero: 1}) == 1


@case
def a_placeholder_that_is_not_fed(tf, c):
    x = tf.placeholder(tf.float32, [2], name="hungry")
    with tf.device(PS):
        y = x * 2.0
    with c.session() as s:
        e = raised(tf.errors.InvalidArgumentError, s.run, y)
        assert "must feed" in str(e) and "hungry" in str(e), e


@case
def feeds_that_do_not_fit(tf, c):
    x = tf.placeholder(tf.float32, [2])
    with c.session() as s:
        raised(ValueError, s.run, x, {x: [1, 2, 3]})
        raised((ValueError, TypeError), s.run, x, {x: ["a", "b"]})
        raised((TypeError, ValueError), s.run, object())


@case
def things_of_another_graph(tf, c):
    with tf.Graph().as_default():
        foreign = tf.constant(1.0)
    mine = tf.constant(2.0)
    with c.session() as s:
        raised(ValueError, s.run, foreign)
        assert s.run(mine) == 2.0


@case
def an_error_and_success_at_the_same_time(tf, c):
    """One part fails on one task while another waits for it: all waiting parts are freed."""
    x = tf.placeholder(tf.float32, [None])
    with tf.device(PS):
        bad = tf.reshape(x, [2, 3])
    with tf.device(WORKER):
        waits = bad + 1.0
    with tf.device(OTHER):
        waits_too = tf.reduce_sum(waits) + tf.constant(1.0)
        fine = tf.reduce_sum(x)
    with c.session() as s:
        for _ in range(10):
            raised(tf.errors.InvalidArgumentError, s.run, [fine, waits_too], {x: np.zeros(5, "f")})
            assert s.run([fine, waits_too], {x: np.zeros(6, "f")}) == [0.0, 7.0]


@case
def errors_on_two_tasks(tf, c):
    x = tf.placeholder(tf.float32, [None])
    with tf.device(PS):
        a = tf.reshape(x, [2, 3])
    with tf.device(OTHER):
        b = tf.reshape(x, [3, 4])
    with c.session() as s:
        raised(tf.errors.InvalidArgumentError, s.run, [a, b], {x: np.zeros(5, "f")})


@case
def an_error_inside_a_loop(tf, c):
    def body(i, a):
        with tf.device(WORKER):
            a = a + 1.0
        with tf.device(PS):
            a = tf.gather([10.0, 20.0, 30.0], i) + a * 0.0
        return i + 1, a

    with tf.device(OTHER):
        r = tf.while_loop(lambda i, a: i < 5, body, [tf.constant(0), tf.constant(0.0)])
    with c.session() as s:
        raised(tf.errors.InvalidArgumentError, s.run, r)
        assert s.run(tf.constant(1.0)) == 1.0


def _endless(tf):
    def body(i):
        with tf.device(WORKER):
            return i + 1

    with tf.device(PS):
        return tf.while_loop(lambda i: i >= 0, body, [tf.constant(0)])


@case
def a_deadline_of_a_step(tf, c):
    r = _endless(tf)
    with c.session() as s:
        start = time.time()
        raised(tf.errors.DeadlineExceededError, s.run, r, options=tf.RunOptions(timeout_in_ms=500))
        assert time.time() - start < 15
        assert s.run(tf.constant(1.0)) == 1.0


@case
def a_deadline_of_the_session(tf, c):
    r = _endless(tf)
    with c.session(operation_timeout_in_ms=2000) as s:
        raised(tf.errors.DeadlineExceededError, s.run, r)


@case(client="stock", only=("muster", "muster_master", "stock"))
def closing_ends_a_running_step(tf, c):
    r = _endless(tf)
    s = c.session()
    s.run(tf.constant(0))
    seen = []

    def run():
        try:
            begins.set()
            s.run(r)
        except tf.errors.OpError as e:
            seen.append(e)

    begins = threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    begins.wait()
    time.sleep(1)
    s.close()
    thread.join(60)
    assert not thread.is_alive(), "the step goes on"
    assert len(seen) == 1 and isinstance(seen[0], (tf.errors.CancelledError, tf.errors.AbortedError)), seen


@case
def an_op_that_nobody_has_a_kernel_for(tf, c):
    with tf.device("/job:ps/task:0/device:GPU:0"):
        x = tf.constant(1.0) + 2.0
    with c.session() as s:
        e = raised(tf.errors.InvalidArgumentError, s.run, x)
        assert "GPU" in str(e), e


@case
def a_device_that_does_not_exist(tf, c):
    for device in ("/job:ps/task:7", "/job:nobody"):
        with tf.Graph().as_default() as g:
            with tf.device(device):
                x = tf.constant(1.0)
            with c.session(graph=g) as s:
                e = raised(tf.errors.InvalidArgumentError, s.run, x)
                assert "nobody" in str(e) or "task:7" in str(e), e


@case
def a_session_that_was_reset_says_so(tf, c):
    s = c.session()
    x = tf.constant(1.0)
    assert s.run(x) == 1.0
    tf.Session.reset(c.target)
    raised((tf.errors.AbortedError, tf.errors.CancelledError), s.run, x)
    try:
        s.close()
    except tf.errors.OpError:
        pass
    with c.session() as again:
        assert again.run(x) == 1.0


@case
def a_long_message(tf, c):
    with tf.device(PS):
        x = tf.placeholder(tf.float32, [])
        checked = tf.check_numerics(x, "m" * 20000)
    with c.session() as s:
        e = raised(tf.errors.InvalidArgumentError, s.run, checked, {x: np.inf})
        assert "m" * 3000 in str(e)


@case
def second_runs_after_failed_ones(tf, c):
    with tf.device(PS):
        v = tf.Variable(0.0, use_resource=False)
    x = tf.placeholder(tf.float32, [None])
    with tf.device(WORKER):
        y = tf.reduce_sum(tf.reshape(x, [2]))
    add = tf.assign_add(v, y)
    with c.session() as s:
        s.run(v.initializer)
        for i in range(10):
            raised(tf.errors.InvalidArgumentError, s.run, add, {x: np.ones(3, "f")})
            s.run(add, {x: np.ones(2, "f")})
        assert s.run(v) == 20.0


@case(client="stock")
def a_bad_node_fails_its_own_steps_only(tf, c):
    """A node that passes the client's checks and fails the server's does not affect steps that do not run it."""
    sums = {axis: tf.sparse.reduce_sum(tf.SparseTensor([[0, 0]], [1.0], [2, 3]), axis) for axis in (-3, 2)}
    good = tf.constant(7) + 1
    with c.session() as s:
        for axis, bad in sums.items():
            e = raised(tf.errors.InvalidArgumentError, s.run, bad)
            assert "Invalid reduction dimension %d" % axis in str(e), e
        assert s.run(good) == 8


@case(client="stock")
def watches_without_listeners(tf, c):
    options = tf.RunOptions()
    options.debug_options.debug_tensor_watch_opts.add(node_name="watched", debug_ops=["DebugIdentity"])
    watched = tf.constant(3, name="watched")
    with c.session() as s:
        assert s.run(watched, options=options) == 3
