"""Trainers of clusters in which some tasks run stock TensorFlow 2.21 and the others Muster."""
import glob
import os
import subprocess

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("tf_python")

EVERYONE = ("ps", "worker")
# Which tasks run stock TensorFlow.
ONE_WORKER = {"stock_workers": ("worker",), "stock_ps": ("ps",), "no_stock": ()}
TWO_WORKERS = {"stock_workers": ("worker",), "stock_ps": ("ps",), "stock_chief": ("worker 0",),
               "muster_chief": ("ps", "worker 1")}
END_SECONDS = 200


@pytest.fixture
def train(trainers, tmp_path):
    """train(workers, stock, *arguments, folder=): runs a cluster to its end; its tasks, which have all ended well."""
    started = []

    def run(workers, stock, *arguments, folder="model"):
        cluster = trainers(1, workers, *arguments, stock=stock, script="mixed_trainer.py", folder=folder,
                           start_workers=False)
        # One after the other: TensorFlow looks every 30 s only whether the chief has made the model. All begin together.
        begin = tmp_path / ("%s_%d_begins" % (folder, len(started)))
        started.append(begin)
        tasks = []
        for i in range(workers):
            tasks.append(cluster.start("worker", i, "--begin_when", str(begin)))
            tasks[-1].wait_for(lambda e: e.words[:1] == ["session"], END_SECONDS)
        begin.touch()
        for task in tasks:
            task.wait_for("done", END_SECONDS)
            assert task.wait(END_SECONDS) == 0, task.events[-20:]
        cluster.end()
        return tasks

    return run


def losses(task):
    """The loss of each step."""
    return {int(e.words[1]): float(e.words[2]) for e in task.drain() if e.words[:1] == ["loss"]}


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def judge(train, known):
    """The losses of one worker in a cluster of TensorFlow's own."""
    def get(*arguments):
        if arguments not in known:
            known[arguments] = losses(train(1, EVERYONE, *arguments, folder="judge")[0])
        return known[arguments]

    return get


READER = """
import sys
import tensorflow.compat.v1 as tf
for line in sys.stdin:
    events = [e for name in line.split() for e in tf.train.summary_iterator(name)]
    print(*[e.step for e in events if any(v.tag == "loss" for v in e.summary.value)], flush=True)
"""


@pytest.fixture(scope="module")
def scalar_summaries(tf_python):
    """scalar_summaries(folder): the steps of which there is a loss, as TensorFlow reads the events; one process for all."""
    reader = subprocess.Popen([tf_python, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)

    def read(folder):
        reader.stdin.write(" ".join(sorted(glob.glob(os.path.join(str(folder), "events.out.tfevents.*")))) + "\n")
        reader.stdin.flush()
        line = reader.stdout.readline()
        assert line, "TensorFlow could not read the events"
        return sorted(int(word) for word in line.split())

    yield read
    reader.kill()
    reader.communicate()


def compare(found, wanted):
    assert sorted(found) == sorted(wanted)
    np.testing.assert_allclose([found[s] for s in sorted(found)], [wanted[s] for s in sorted(wanted)],
                               rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stock", sorted(ONE_WORKER))
@pytest.mark.parametrize("arguments", [("--optimizer=adagrad",), ("--optimizer=adam", "--resource"),
                                       ("--optimizer=adam", "--sync")], ids=["adagrad", "adam", "sync"])
def test_one_worker_meets_the_losses_of_tensorflow(train, judge, scalar_summaries, tmp_path, stock, arguments):
    wanted = judge(*arguments)
    assert sorted(wanted) == list(range(1, 101)) and wanted[100] < wanted[1] / 2
    compare(losses(train(1, ONE_WORKER[stock], *arguments)[0]), wanted)
    assert os.path.exists(str(tmp_path / "model" / "model.ckpt-100.index"))
    steps = scalar_summaries(tmp_path / "model")
    # Which of two steps the hook reads beside a running update is chance, with TensorFlow alone too.
    assert steps[0] == 1 and 10 <= len(steps) <= 13 and steps == sorted(set(steps))


@pytest.mark.parametrize("first,second", [(("worker",), ("ps",)), (("ps",), ("worker",)), (EVERYONE, ()),
                                          ((), EVERYONE)],
                         ids=["muster_ps_then_worker", "muster_worker_then_ps", "stock_then_muster",
                              "muster_then_stock"])
def test_the_checkpoint_of_one_is_continued_by_the_other(train, judge, first, second):
    wanted = judge("--optimizer=adam", "--resource")
    found = losses(train(1, first, "--optimizer=adam", "--resource", "--last_step=50")[0])
    assert max(found) == 50
    more = losses(train(1, second, "--optimizer=adam", "--resource")[0])
    assert min(more) == 51
    found.update(more)
    compare(found, wanted)


@pytest.mark.parametrize("stock", sorted(TWO_WORKERS))
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_two_workers_learn_together(train, judge, stock, sync):
    arguments = ("--optimizer=adam",) + (("--sync",) if sync else ())
    workers = train(2, TWO_WORKERS[stock], *arguments)
    found = [losses(task) for task in workers]
    own = judge(*arguments)
    chief = found[0]
    assert chief[max(chief)] < own[1] / 2
    if sync:
        # Two tokens for each step; mostly one for each worker, but the faster one may take both.
        assert len(set(found[0]) | set(found[1])) >= 99
        assert len(found[0]) >= 50 and len(found[1]) >= 50
