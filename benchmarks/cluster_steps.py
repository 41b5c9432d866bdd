"""Steps between a ps process and this one. The data changes before every timed step, and its consumer reads all
of it: the bits of both sides, taken as integers, must have the same sum (modulo 2^32, whatever the order)."""
import numpy as np

import models
from cluster import Cluster, on_ps, on_worker
from side import main, tf
from timing import best_call, best_of


def _checksum(value):
    return tf.reduce_sum(tf.bitcast(value, tf.int32))


def _equal(ours, theirs):
    if ours != theirs:
        raise ValueError("checksums differ: %r and %r" % (ours, theirs))


def _null(outside):
    with on_ps():
        op = tf.no_op()
    with Cluster(outside) as cluster, cluster.session() as session:
        return best_of(lambda: session.run(op), 200, 10)


def null_outside():
    return _null(outside=True)


def null_from_worker():
    return _null(outside=False)


def _pull(shapes, repeats):
    """Variables of the ps, summed up by the worker; the checksum of the sum is part of the step."""
    with on_ps():
        delta = tf.placeholder(tf.float32, [])
        variables = [tf.Variable(tf.random_uniform(shape, seed=i)) for i, shape in enumerate(shapes)]
        # All of them are targets, so that the optimizer drops none.
        change = [tf.assign_add(v, tf.fill(shape, delta)).op for v, shape in zip(variables, shapes)]
        wanted = _checksum(variables[0] if len(shapes) == 1 else tf.add_n(variables))
    with on_worker():
        pulled = [tf.identity(v) for v in variables]
        found = _checksum(pulled[0] if len(shapes) == 1 else tf.add_n(pulled))
    with Cluster() as cluster, cluster.session() as session:
        session.run(tf.global_variables_initializer())
        return best_call(lambda: session.run(found), repeats,
                         before=lambda i: session.run(change, {delta: 1.0 + 0.25 * (i % 7)}),
                         after=lambda _, result: _equal(result, session.run(wanted)))


def pull_scalar():
    return _pull([[]], 1000)


def pull_1mb():
    return _pull([[1 << 18]], 200)


def pull_64mb():
    return _pull([[1 << 24]], 20)


def pull_64mb_tcp():
    return pull_64mb()


def pull_200():
    return _pull([[1024]] * 200, 50)


def _push(elements, repeats):
    """A value of the worker, added to a variable of the ps; the worker adds it to its own, untimed, to compare."""
    with on_ps():
        variable = tf.Variable(tf.zeros([elements]))
        wanted = _checksum(variable)
    with on_worker():
        delta = tf.placeholder(tf.float32, [])
        value = tf.Variable(tf.random_uniform([elements], seed=1))
        mirror = tf.Variable(tf.zeros([elements]))
        change = tf.assign_add(value, tf.fill([elements], delta)).op
        follow = tf.assign_add(mirror, value).op
        found = _checksum(mirror)
    with on_ps():
        push = tf.assign_add(variable, value).op
    with Cluster() as cluster, cluster.session() as session:
        session.run(tf.global_variables_initializer())

        def check(*_):
            session.run(follow)
            _equal(session.run(found), session.run(wanted))
        return best_call(lambda: session.run(push), repeats,
                         before=lambda i: session.run(change, {delta: 1.0 + 0.25 * (i % 7)}), after=check)


def push_1mb():
    return _push(1 << 18, 200)


def push_64mb():
    return _push(1 << 24, 20)


def push_64mb_tcp():
    return push_64mb()


def sparse_rows():
    """8192 rows of 64 to the worker, and half of each taken off its row: an embedding and its gradient."""
    rows, width, batch = 200000, 64, 8192
    with on_ps():
        table = tf.Variable(tf.random_uniform([rows, width], seed=1))
    with on_worker():
        indices = tf.placeholder(tf.int32, [batch])
    with on_ps():
        gathered = tf.gather(table, indices)
    with on_worker():
        update = gathered * 0.5
    with on_ps():
        step = tf.scatter_sub(table, indices, update).op
    rng = np.random.RandomState(0)
    repeats, warm_up = 50, 3
    fed = [rng.choice(rows, batch, replace=False).astype(np.int32) for _ in range(repeats + warm_up)]
    steps = iter(fed)
    with Cluster() as cluster, cluster.session() as session:
        session.run(tf.global_variables_initializer())
        mirror = session.run(table)
        best = best_call(lambda: session.run(step, {indices: next(steps)}), repeats, warm_up=warm_up)
        for chosen in fed:
            mirror[chosen] -= mirror[chosen] * np.float32(0.5)
        if not np.array_equal(mirror, session.run(table)):
            raise ValueError("the rows are not those that were wanted")
        return best


def _train(hidden, repeats, rounds):
    placeholders, train, _ = models.dense(hidden, "/job:ps/task:0", "/job:worker/task:0")
    feeds = models.batches(placeholders, 100)
    with Cluster() as cluster, cluster.session() as session:
        session.run(tf.global_variables_initializer())
        return best_of(lambda: session.run(train, next(feeds)), repeats, rounds)


def mnist_on_ps():
    return _train(100, 50, 10)


def wide_on_ps():
    return _train(4096, 5, 10)


if __name__ == "__main__":
    main(globals())
