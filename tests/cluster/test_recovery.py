"""Training goes on when tasks die: real processes, killed without warning, asynchronous and synchronous."""
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time

import pytest
from conftest import Task, _die_with_parent
from cluster_ports import free_ports

SECONDS = 60  # no event of a test takes longer


class Worker(object):
    """A process of recovery_trainer.py; its events are read as they come."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        preexec_fn=_die_with_parent)
        self.events, self._waiting, self.errors = [], queue.Queue(), []
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._waiting.put(json.loads(line))
        self._waiting.put(None)

    def _read_errors(self):
        self.errors.extend(self.process.stderr)

    def next(self, *kinds, where=lambda event: True, timeout=SECONDS):
        """The next event of these kinds; those before it are kept in `events`."""
        end = time.time() + timeout
        while True:
            try:
                event = self._waiting.get(timeout=max(0, end - time.time()))
            except queue.Empty:
                raise AssertionError("no %s came; last events %s; stderr:\n%s" % (
                    kinds, self.events[-3:], "".join(self.errors)[-3000:]))
            assert event is not None, "the worker ended: %s" % "".join(self.errors)[-3000:]
            self.events.append(event)
            if event["event"] in kinds and where(event):
                return event

    def drain(self):
        """Takes what has come so far; gives the newest event."""
        while not self._waiting.empty():
            event = self._waiting.get()
            if event is not None:
                self.events.append(event)
        return self.events[-1]

    def wait(self):
        assert self.process.wait(SECONDS) == 0, "".join(self.errors)[-3000:]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Training(object):
    """One run: ps tasks, and workers started one by one."""

    def __init__(self, program, root, folder, ps=1, workers=2, **options):
        ports = ["localhost:%d" % port for port in free_ports(ps + workers)]
        self.cluster = {"ps": ports[:ps], "worker": ports[ps:]}
        self._program, self._script = program, os.path.join(root, "tests", "cluster", "recovery_trainer.py")
        self._options = dict(options, cluster=self.cluster, folder=str(folder))
        self._folder = folder
        self.ps, self._all = [None] * ps, []
        for number in range(ps):
            self.start_ps(number)
        self.workers = [None] * workers

    def start_ps(self, number):
        spec = ";".join("%s=%s" % (job, ",".join(tasks)) for job, tasks in self.cluster.items())
        self.ps[number] = Task([self._program, "serve", "--cluster", spec, "--job", "ps", "--task", str(number)])
        self._all.append(self.ps[number])
        return time.time()

    def start_worker(self, number):
        options = json.dumps(dict(self._options, task=number))
        self.workers[number] = Worker([self._program, "run", self._script, options])
        self._all.append(self.workers[number])
        return self.workers[number]

    def start_all(self):
        return [self.start_worker(number) for number in range(len(self.workers))]

    def newest_checkpoint(self):
        """The step of the newest checkpoint."""
        return int(re.search(r'model_checkpoint_path: ".*-(\d+)"', (self._folder / "checkpoint").read_text()).group(1))

    def close(self):
        for task in self._all:
            task.kill()


@pytest.fixture
def train(muster_program, root, tmp_path):
    trainings = []

    def start(**options):
        trainings.append(Training(muster_program, root, tmp_path, **options))
        return trainings[-1]

    yield start
    for training in trainings:
        training.close()


def _at_least(step):
    return lambda event: event["step"] >= step


def test_a_worker_dies_and_comes_back(train):
    run = train(last_step=10000)
    chief, other = run.start_all()
    other.next("step", where=_at_least(5))
    other.kill()
    at = chief.drain()["step"]
    chief.next("step", where=_at_least(at + 10))
    back = run.start_worker(1)
    assert back.next("session")["step"] >= at + 10  # nothing was lost


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_a_ps_dies_and_comes_back(train, sync):
    run = train(last_step=120, sync=sync, ps=2)
    workers = run.start_all()
    for worker in workers:
        worker.next("step", where=_at_least(45))
    run.ps[0].kill()
    killed = time.time()
    time.sleep(1)
    for worker in workers:
        worker.drain()
    saved = run.newest_checkpoint()
    listens = run.start_ps(0)
    again = [worker.next("session") for worker in workers]
    steps = [worker.next("step") for worker in workers]
    chief = again[0]
    assert 20 <= saved <= chief["step"] < saved + 15  # an asynchronous worker may be ready first and count on
    # TensorFlow's other workers sleep up to 30 s after the chief is ready.
    assert steps[1]["time"] - max(steps[0]["time"], listens) < 3
    assert steps[0]["time"] - listens < 5 and listens - killed < 10
    ends = [worker.next("stop") for worker in workers]
    for worker in workers:
        worker.next("closed")
        worker.wait()
    assert ends[0]["step"] >= 120
    if sync:  # whole updates only: both variables, on two ps, have seen the same number
        values = ends[0]["values"]
        assert abs(values[0] - values[1]) <= 1, values


def test_a_lost_ps_is_noticed_at_once(train):
    run = train(last_step=10000, workers=1)
    chief, = run.start_all()
    chief.next("step", where=_at_least(5))
    run.ps[0].kill()
    killed = time.time()
    while not any("An error was raised" in line or "CreateSession still waiting" in line for line in chief.errors):
        assert time.time() - killed < 5
        time.sleep(0.05)


def test_a_chief_dies_and_comes_back(train):
    run = train(last_step=10000)
    chief, other = run.start_all()
    chief.next("step", where=_at_least(45))
    chief.kill()
    at, saved = other.drain()["step"], run.newest_checkpoint()
    other.next("step", where=_at_least(at + 20))  # not disturbed
    again = run.start_worker(0).next("session")
    assert saved <= again["step"] < at + 15  # back to the last checkpoint, and what the other does meanwhile
    other.drain()
    assert other.next("step")["step"] < at + 20  # the values jump under it


def test_a_synchronous_run_ends_at_once(train):
    run = train(last_step=20, sync=True)
    workers = run.start_all()
    for worker in workers:
        stop, closed = worker.next("stop"), worker.next("closed")
        assert closed["time"] - stop["time"] < 2  # TensorFlow's chief: 120 s
        assert stop["step"] >= 20
        worker.wait()


def test_a_killed_worker_stalls_a_synchronous_run_until_it_is_back(train):
    # Without first tokens both workers are in step, and each holds a token between its runs.
    run = train(last_step=10000, sync=True, tokens=0, pause=0.3)
    chief, other = run.start_all()
    other.next("step", where=_at_least(5))
    time.sleep(0.1)  # it sleeps between two runs now
    other.kill()
    time.sleep(1)
    chief.drain()
    time.sleep(1)
    stalled = chief.drain()
    back = run.start_worker(1)
    back.next("step")
    assert chief.next("step", where=_at_least(stalled["step"] + 3))
    assert not any("Error" in line for line in chief.errors)


def test_a_lone_chief_trains_on_its_first_tokens(train):
    run = train(last_step=10, sync=True, tokens=-1)
    chief = run.start_worker(0)
    stop = chief.next("stop")
    runs = sum(event["event"] == "step" for event in chief.events)
    assert stop["step"] >= 10 and runs >= 2 * stop["step"]  # two batches per update
