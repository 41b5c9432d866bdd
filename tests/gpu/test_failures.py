"""Tasks that die, and steps that are cancelled, while values go between a worker's card and a parameter server."""
import threading

import muster as tf
import pytest
from card_cluster import Cluster

SIZE = 1 << 18  # exact in float32 for some steps


@pytest.fixture
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.stop()


class Model:
    """Every step takes `x` from each of the variables, by gradients that the card computes."""

    def __init__(self):
        self.graph = tf.Graph()
        with self.graph.as_default():
            with tf.device("/job:ps/cpu:0"):
                self.variables = [tf.Variable(tf.zeros([size])) for size in (SIZE, 5, 5000, 64)]
                queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]])
            with tf.device("/job:worker/gpu:0"):
                self.x = tf.placeholder(tf.float32, [])
                products = [tf.reduce_sum(v * self.x) for v in self.variables]
                self.loss = tf.add_n(products)
                gradients = tf.gradients(self.loss, self.variables)
                with tf.device("/job:ps/cpu:0"):
                    taken = queue.dequeue()
                self.stuck = tf.add_n([self.loss, taken])
            with tf.device("/job:ps/cpu:0"):
                self.step = tf.group(*[tf.assign_sub(v, g) for v, g in zip(self.variables, gradients)])
            self.init = tf.global_variables_initializer()

    def train(self, session, steps, start=0):
        """Runs steps from the state in which the variables are -start, and checks every loss."""
        total = sum(int(v.shape[0]) for v in self.variables)
        for i in range(start, start + steps):
            value, _ = session.run([self.loss, self.step], {self.x: 1})
            # The variables are read before or while they change, each once.
            assert -total * (i + 1) <= value <= -total * i, (i, value)


def _fails_while(session, model, kill):
    """Steps run until `kill`, which ends a task, has made one of them fail: the error."""
    errors, steps = [], threading.Semaphore(0)

    def run():
        try:
            while True:
                session.run([model.loss, model.step], {model.x: 1})
                steps.release()
        except tf.errors.OpError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(8):
        assert steps.acquire(timeout=60)
    kill()
    thread.join(60)
    assert not thread.is_alive()
    return errors[0]


def _is_replayed(worker, model, session, steps_before):
    """Whether later steps are replayed; bytes that the card writes where the parameter server reads them, and reads where it has written."""
    model.train(session, 20, steps_before)
    before = worker.counts()
    model.train(session, 20, steps_before + 20)
    calls, replayed, written, read = worker.counts() - before
    return replayed >= 0.9 * calls and calls > 0, written, read


@pytest.mark.parametrize("dies", ["ps", "worker"])
def test_a_task_dies_while_values_are_under_way(cluster, dies):
    cluster.start("ps")
    cluster.start("worker")
    model = Model()
    for _ in range(2):
        with cluster.session(model.graph) as session:
            session.run(model.init)
            model.train(session, 5)
            error = _fails_while(session, model, cluster.tasks[dies, 0].kill)
            assert isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError)), error
        cluster.start(dies)
    with cluster.session(model.graph) as session:
        session.run(model.init)
        is_replayed, written, read = _is_replayed(cluster.tasks["worker", 0], model, session, 0)
        assert is_replayed
        assert written >= 20 * 4 * SIZE
        assert read >= 20 * 4 * SIZE


def test_a_cancelled_step_leaves_the_card_alive(cluster):
    cluster.start("ps")
    worker = cluster.start("worker")
    model = Model()
    with cluster.session(model.graph) as session:
        session.run(model.init)
        model.train(session, 5)
        for _ in range(3):
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run([model.stuck], {model.x: 1}, options=tf.RunOptions(timeout_in_ms=300))
        assert _is_replayed(worker, model, session, 5)[0]


# A driver that refuses to register memory costs a copy, nothing else.
def test_memory_that_cannot_be_registered_is_copied(cluster):
    cluster.start("ps")
    worker = cluster.start("worker", MUSTER_EMULATED_GPU_REGISTERS_NOTHING="1")
    model = Model()
    with cluster.session(model.graph) as session:
        session.run(model.init)
        is_replayed, written, read = _is_replayed(worker, model, session, 0)
        assert is_replayed
        assert written == read == 0
