"""What scaling.py measures, each in a process of its own: `scaling_steps.py muster:NAME SIZE`."""
import json
import sys
import time

import numpy as np

from cluster import Cluster, on_ps, on_worker
from side import main, tf
from timing import best_call

SIZE = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def _repeats(seconds, most):
    """How often a step of that length is timed: for about a second and a half."""
    return int(min(most, max(3, 1.5 / seconds)))


def _timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _later(call):
    """Seconds of the best step after some that are not timed."""
    return best_call(call, _repeats(min(_timed(call) for _ in range(3)), 1000))


def _nodes(chain, device):
    """A graph of SIZE nodes: one after the other, or all side by side."""
    with tf.device(device):
        x = tf.placeholder(tf.float32, [16])
        if chain:
            y = x
            for i in range(SIZE // 2):
                y = tf.tanh(y * (1 + i * 1e-4))
            return x, y
        return x, tf.add_n([tf.tanh(x * (i * 1e-4)) for i in range(SIZE // 2)])


def _graph(chain, device, make_session):
    with tf.Graph().as_default():
        tf.add_n([tf.tanh(tf.placeholder(tf.float32) * 0.5)])  # loads libraries outside of the measurement
    begin = time.perf_counter()
    x, y = _nodes(chain, device)
    build = time.perf_counter() - begin
    fed = np.linspace(-1, 1, 16).astype(np.float32)
    with make_session() as session:
        session.run(tf.no_op())
        return {"build": build, "first": _timed(lambda: session.run(y, {x: fed})),
                "later": _later(lambda: session.run(y, {x: fed}))}


def chain_local():
    return _graph(True, None, tf.Session)


def fan_local():
    return _graph(False, None, tf.Session)


def fan_on_ps():
    with Cluster() as cluster:
        return _graph(False, "/job:ps/task:0", cluster.session)


def transfer():
    """A tensor of SIZE bytes: pulled from the ps, where it changes before each step, and pushed to be added there."""
    shape = [SIZE // 4]
    with on_ps():
        variable = tf.Variable(tf.zeros(shape))
        change = tf.assign_add(variable, tf.ones(shape)).op
    with on_worker():
        mine = tf.Variable(tf.ones(shape))
        pull = tf.reduce_sum(tf.bitcast(tf.identity(variable), tf.int32))
    with on_ps():
        push = tf.assign_add(variable, mine).op
    with Cluster() as cluster, cluster.session() as session:
        session.run(tf.global_variables_initializer())
        repeats = _repeats(max(_timed(lambda: session.run(pull)) for _ in range(3)), 1000)
        return {"pull": best_call(lambda: session.run(pull), repeats, before=lambda _: session.run(change)),
                "push": best_call(lambda: session.run(push), repeats)}


def variables():
    """SIZE variables of 4 floats on the ps, updated there and summed up by the worker."""
    begin = time.perf_counter()
    with on_ps():
        delta = tf.placeholder(tf.float32, [])
        made = [tf.Variable(tf.zeros([4])) for _ in range(SIZE)]
        step = tf.fill([4], delta)
        change = [tf.assign_add(v, step).op for v in made]
    with on_worker():
        pull = tf.reduce_sum(tf.add_n([tf.identity(v) for v in made]))
    initialize = tf.global_variables_initializer()
    build = time.perf_counter() - begin
    with Cluster() as cluster, cluster.session() as session:
        session.run(tf.no_op())
        times = {"build": build, "initialize": _timed(lambda: session.run(initialize)),
                 "first": _timed(lambda: session.run(pull)), "pull": _later(lambda: session.run(pull))}
        session.run(change, {delta: 1.0})
        if session.run(pull) != 4 * SIZE:
            raise ValueError("the variables are not what they should be")
        times["update"] = _later(lambda: session.run(change, {delta: 1.0}))
        return times


def worker():
    """One of several workers: SECONDS of steps that read 8 variables of 4 KB, spread over all ps, and add to them."""
    spec, task, seconds = json.loads(sys.argv[3]), int(sys.argv[2]), float(sys.argv[4])
    server = tf.train.Server(spec, "worker", task)
    own = "/job:worker/task:%d" % task
    updates = []
    made = []
    for i in range(8):
        with tf.device("/job:ps/task:%d" % (i % len(spec["ps"]))):
            made.append(tf.Variable(tf.zeros([1024]), name="v%d" % i))
    with tf.device(own):
        mean = tf.add_n([tf.identity(v) for v in made]) * 0.125
        gradient = tf.tanh(mean) * 1e-3 + 1e-3
    for v in made:
        with tf.device(v.device):
            updates.append(tf.assign_add(v, gradient).op)
    config = tf.ConfigProto(device_filters=["/job:ps", own])
    with tf.Session(server.target, config=config) as session:
        if task == 0:
            session.run(tf.global_variables_initializer())
        print("connected", flush=True)
        sys.stdin.readline()  # all are there, and the variables have their values
        for _ in range(20):
            session.run(updates)
        print("ready", flush=True)
        sys.stdin.readline()
        count = 0
        begin = time.perf_counter()
        while time.perf_counter() < begin + seconds:
            session.run(updates)
            count += 1
        rate = count / (time.perf_counter() - begin)
        print(json.dumps({"value": rate}), flush=True)
        sys.stdin.readline()  # other workers may still be measuring
    return rate


if __name__ == "__main__":
    main(globals())
