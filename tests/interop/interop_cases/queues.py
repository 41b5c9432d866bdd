"""Queues, accumulators, barriers and staging areas on a ps: shared, waiting, closing, cancelled."""

import threading
import time

import numpy as np

from interop_cases import OTHER, PS, WORKER, case, raised


class _Waiting(object):
    """A step on a thread of its own."""

    def __init__(self, session, fetch, **words):
        self.value = self.error = None
        self._run = lambda: session.run(fetch, **words)
        self._thread = threading.Thread(target=self._main)
        self._thread.start()
        time.sleep(0.2)

    def _main(self):
        try:
            self.value = self._run()
        except Exception as error:
            self.error = error

    @property
    def waits(self):
        return self._thread.is_alive()

    def end(self):
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self


@case
def elements_pass_through_a_ps(tf, c):
    with tf.device(PS):
        q = tf.FIFOQueue(4, [tf.float32, tf.string], [[2], []], shared_name="passing")
    with tf.device(WORKER):
        put = q.enqueue_many((tf.constant([[1., 2.], [3., 4.]]) * 2., ["a", "b"]))
    with tf.device(OTHER):
        got = [tf.identity(t) for t in q.dequeue()]
    with c.session() as s:
        s.run(put)
        assert s.run(q.size()) == 2
        for numbers, text in (([2, 4], b"a"), ([6, 8], b"b")):
            found = s.run(got)
            assert found[0].tolist() == numbers and found[1] == text


@case
def a_shared_queue_joins_two_masters(tf, c):
    with tf.device(PS):
        q = tf.FIFOQueue(-1, tf.int64, [[]], shared_name="tokens")
    put, get = q.enqueue_many(tf.fill([3], np.int64(7))), q.dequeue()
    with c.session() as one, c.session("worker/1") as other:
        waiting = _Waiting(other, get)
        assert waiting.waits
        one.run(put)
        assert waiting.end().value == 7
        assert other.run(q.size()) == 2
        one.run(q.close())
        assert other.run(q.dequeue_up_to(5)).tolist() == [7, 7]
        error = raised(tf.errors.OutOfRangeError, other.run, get)
        assert "FIFOQueue 'tokens' is closed and has insufficient elements (requested 1, current size 0)" in str(error)
        assert "FIFOQueue 'tokens' is closed." in str(raised(tf.errors.CancelledError, one.run, put))


@case
def private_queues_are_of_one_session(tf, c):
    with tf.device(PS):
        q = tf.FIFOQueue(5, tf.int32, [[]])
    put, size = q.enqueue(1), q.size()
    with c.session() as one, c.session() as other:
        one.run(put)
        one.run([put])
        assert one.run(size) == 2
        assert other.run(size) == 0


@case
def a_step_that_is_out_of_time_takes_nothing(tf, c):
    with tf.device(PS):
        q = tf.FIFOQueue(5, tf.int32, [[]], shared_name="timed")
    get, many, put = q.dequeue(), q.dequeue_many(3), q.enqueue_many([[1, 2, 3]])
    with c.session() as s:
        start = time.time()
        raised(tf.errors.DeadlineExceededError, s.run, get, options=tf.RunOptions(timeout_in_ms=300))
        assert time.time() - start < 15
        time.sleep(3)  # a cancelled attempt leaves the queue of waiters within a second
        s.run(put)
        assert s.run(many).tolist() == [1, 2, 3]


@case
def closing_a_session_ends_what_waits(tf, c):
    with tf.device(PS):
        q = tf.FIFOQueue(5, tf.int32, [[]], shared_name="left")
    get, put = q.dequeue(), q.enqueue(4)
    s = c.session()
    s.run(q.size())
    waiting = _Waiting(s, get)
    s.close()
    # The last: on a busy machine it may not have begun.
    assert isinstance(waiting.end().error, (tf.errors.CancelledError, tf.errors.AbortedError, RuntimeError)), waiting.error
    with c.session() as s:
        s.run(put)
        assert s.run(get) == 4


@case
def random_order_is_seeded(tf, c):
    with tf.device(PS):
        q = tf.RandomShuffleQueue(30, 2, tf.int32, [[]], seed=5, shared_name="shuffled")
    orders = []
    for _ in range(2):
        with c.session() as s:
            s.run(q.enqueue_many([list(range(20))]))
            orders.append(s.run(q.dequeue_many(10)).tolist())
            s.run(q.close())
            assert sorted(s.run(q.dequeue_up_to(30)).tolist() + orders[-1]) == list(range(20))
        c.reset()
    assert orders[0] == orders[1]


@case
def gradients_meet_on_a_ps(tf, c):
    with tf.device(PS):
        dense = tf.ConditionalAccumulator(tf.float32, [2], shared_name="dense")
        sparse = tf.SparseConditionalAccumulator(tf.float32, [4, 1], shared_name="sparse")
    x = tf.placeholder(tf.float32, [2])
    with tf.device(WORKER):
        apply = dense.apply_grad(x * 2., local_step=3)
        rows = sparse.apply_grad(tf.constant([1, 3]), tf.constant([[1.], [5.]]), local_step=3)
    with c.session() as one, c.session("worker/1") as other:
        one.run([dense.set_global_step(3), sparse.set_global_step(3)])
        stale = dense.apply_grad([1., 1.], local_step=2)
        waiting = _Waiting(one, dense.take_grad(2))
        other.run(stale)
        other.run(apply, {x: [1, 2]})
        assert waiting.waits
        assert one.run(dense.num_accumulated()) == 1
        other.run(apply, {x: [3, 0]})
        assert waiting.end().value.tolist() == [4, 2]
        other.run(apply, {x: [3, 0]})  # the accumulator is a step further now
        assert one.run(dense.num_accumulated()) == 0
        other.run([rows])
        one.run([rows])
        indices, values, shape = one.run(sparse.take_grad(2))
        assert indices.tolist() == [1, 3] and values.tolist() == [[1], [5]] and shape.tolist() == [4, 1]
        error = raised(tf.errors.InvalidArgumentError, one.run, dense.take_grad(0))
        assert "Argument num_required must be positive, but was 0" in str(error)


@case
def staged_values_stay_on_their_task(tf, c):
    raw = tf.raw_ops
    area = dict(shared_name="staged", dtypes=[tf.float32])
    with tf.device(OTHER):
        put = raw.Stage(values=[tf.constant([1., 2.]) + 1.], shared_name="staged")
        get, size = raw.Unstage(**area), raw.StageSize(**area)
    with c.session() as s:
        waiting = _Waiting(s, get)
        assert waiting.waits
        s.run(put)
        assert waiting.end().value[0].tolist() == [2, 3]
        assert s.run(size) == 0


@case
def a_barrier_joins_components(tf, c):
    raw = tf.raw_ops
    with tf.device(PS):
        b = raw.Barrier(component_types=[tf.float32, tf.int32], shapes=[[], []], shared_name="joined")
        first = raw.BarrierInsertMany(handle=b, keys=["x", "y"], values=[1., 2.], component_index=0)
        second = raw.BarrierInsertMany(handle=b, keys=["y", "x"], values=[20, 10], component_index=1)
        take = raw.BarrierTakeMany(handle=b, num_elements=2, component_types=[tf.float32, tf.int32])
    with c.session() as s:
        waiting = _Waiting(s, take)
        s.run(first)
        assert waiting.waits
        s.run(second)
        _, keys, (numbers, integers) = waiting.end().value
        found = sorted(zip(keys.tolist(), numbers.tolist(), integers.tolist()))
        assert found == [(b"x", 1, 10), (b"y", 2, 20)]
