"""Sessions that stay open between calls, while the test kills tasks under them."""

import threading

_open = {}


class _Endless(object):
    def __init__(self, tf, session, fetch):
        self.outcome = None
        self._thread = threading.Thread(target=self._run, args=(tf, session, fetch))
        self._thread.start()

    def _run(self, tf, session, fetch):
        self.outcome = _outcome(tf, session, fetch)

    def wait(self):
        self._thread.join(90)
        return self.outcome if not self._thread.is_alive() else "still running"


def _outcome(tf, session, fetch):
    try:
        session.run(fetch)
        return "ok"
    except tf.errors.OpError as e:
        return type(e).__name__


def open_session(tf, client, call):
    device = call.get("device", "/job:ps/task:0")
    graph = tf.Graph()
    with graph.as_default():
        with tf.device(device):
            v = tf.Variable(0.0, use_resource=False)
            start = tf.constant(0)
        with tf.device("/job:worker/task:0"):
            add = tf.assign_add(v, 1.0)

        def body(i):
            with tf.device(device):
                return i + 1

        with tf.device("/job:worker/task:0"):
            endless = tf.while_loop(lambda i: i >= 0, body, [start])
        init = v.initializer
    session = tf.Session(call["target"], graph=graph, config=tf.ConfigProto(operation_timeout_in_ms=60000))
    _open[call["name"]] = {"session": session, "add": add, "endless": endless}
    session.run(init)
    return float(session.run(add))


def try_step(tf, client, call):
    one = _open[call["name"]]
    return _outcome(tf, one["session"], one["add"])


def start_endless(tf, client, call):
    one = _open[call["name"]]
    one["running"] = _Endless(tf, one["session"], one["endless"])


def end_endless(tf, client, call):
    return _open[call["name"]]["running"].wait()


def close(tf, client, call):
    session = _open.pop(call["name"])["session"]
    # TensorFlow's masters wait for dead tasks; the test does not wait for them.
    threading.Thread(target=lambda: _outcome_of_close(tf, session), daemon=True).start()


def _outcome_of_close(tf, session):
    try:
        session.close()
    except tf.errors.OpError:
        pass
