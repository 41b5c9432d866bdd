"""Workers of an all-reduce that die, stop and come back; docs/allreduce.md promises what is asserted here."""
import signal
import time

import pytest
from trainer_cluster import SLACK, Trainers


@pytest.fixture
def workers(tmp_path, monkeypatch):
    # Calls to a stopped task fail after three seconds instead of thirty.
    monkeypatch.setenv("MUSTER_HEARTBEAT", "0.3")
    monkeypatch.setenv("MUSTER_WARN_AFTER", "1")
    monkeypatch.setenv("MUSTER_FAIL_AFTER", "3")
    made = []

    def start(count, *arguments):
        made.append(Trainers(tmp_path, 0, count, arguments, script="all_reduce_replica.py"))
        for i in range(count):
            made[-1].start("worker", i)
        return made[-1]

    yield start
    for cluster in made:
        cluster.end()


def group(of, members):
    return "All-reduce over %d of %d tasks" % (members, of)


def expect_steps_go_on(task, after, steps=20):
    """Every step is one update, and updates are never lost: w is the step, or the one before it was read."""
    first = task.wait_for(lambda e: e.step is not None, 120, after)
    task.wait_for_step(first.step + steps)
    for event in task.drain():
        if event.step is not None:
            low, high = event.counters
            assert low == high and abs(low - event.step) <= 1, event.line


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_killed_worker_is_left_out_and_let_in_again(workers, lost):
    cluster = workers(3)
    left = [i for i in range(3) if i != lost]
    for i in range(3):
        cluster["worker %d" % i].wait_for(group(3, 3))
    cluster["worker %d" % lost].wait_for_step(22)  # the others may report one or two less
    died = cluster["worker %d" % lost].kill()
    for i in left:
        again = cluster["worker %d" % i].wait_for(group(3, 2))
        assert again.time - died < 12 * SLACK
    before = cluster["worker %d" % left[0]].wait_for_step(0, after=died).step
    assert before >= 20
    expect_steps_go_on(cluster["worker %d" % left[0]], died)
    came = time.time()
    back = cluster.start("worker", lost)
    back.wait_for(group(3, 3))
    first = back.wait_for_step(0)
    assert first.step > before  # the model of the others, not a fresh one
    for i in range(3):
        expect_steps_go_on(cluster["worker %d" % i], came)


def test_a_stopped_worker_is_left_out(workers):
    cluster = workers(3)
    for i in range(3):
        cluster["worker %d" % i].wait_for(group(3, 3))  # a late one joins
        cluster["worker %d" % i].wait_for_step(10)
    stopped = time.time()
    cluster["worker 1"].process.send_signal(signal.SIGSTOP)
    for i in (0, 2):
        event = cluster["worker %d" % i].wait_for(group(3, 2))
        assert event.time - stopped < (3 + 12) * SLACK
        expect_steps_go_on(cluster["worker %d" % i], stopped)
    cluster["worker 1"].process.send_signal(signal.SIGCONT)
    woken = time.time()
    cluster["worker 1"].wait_for(group(3, 3))
    expect_steps_go_on(cluster["worker 1"], woken)


@pytest.mark.parametrize("left", [0, 1])
def test_nothing_is_lost_that_a_living_worker_has(workers, left):
    """The checkpoint is that of step 0: a worker that falls back to it loses all."""
    cluster = workers(3, "--save")
    for i in range(3):
        cluster["worker %d" % i].wait_for(group(3, 3))
    before = cluster["worker %d" % left].wait_for_step(20).step
    lost = [i for i in range(3) if i != left]
    for i in lost:
        died = cluster["worker %d" % i].kill()
    for i in lost:
        cluster.start("worker", i)
    for i in lost:
        cluster["worker %d" % i].wait_for(group(3, 3))
    assert cluster["worker %d" % left].wait_for_step(0, after=died).step >= before
    for i in range(3):
        expect_steps_go_on(cluster["worker %d" % i], died)
        assert all(e.step >= before for e in cluster["worker %d" % i].events if e.step is not None and e.time > died)


def test_workers_lost_while_a_group_forms_do_not_hold_up_the_others(workers):
    cluster = workers(3)
    for i in range(3):
        cluster["worker %d" % i].wait_for(group(3, 3))
        cluster["worker %d" % i].wait_for_step(10)
    cluster["worker 0"].process.send_signal(signal.SIGSTOP)
    # The others meet at worker 1, and one of them dies there.
    cluster["worker 2"].wait_for("Waiting for the other tasks of the all-reduce at /job:worker/replica:0/task:1")
    died = cluster["worker 2"].kill()
    cluster["worker 0"].process.send_signal(signal.SIGCONT)
    for i in (0, 1):
        event = cluster["worker %d" % i].wait_for(group(3, 2), after=died)
        assert event.time - died < 10 * SLACK
        expect_steps_go_on(cluster["worker %d" % i], died)


def test_one_of_two_goes_on_alone_and_all_end_together(workers):
    cluster = workers(2, "--steps", "400")
    for i in range(2):
        cluster["worker %d" % i].wait_for(group(2, 2))
        cluster["worker %d" % i].wait_for_step(10)
    cluster["worker 0"].kill()
    cluster["worker 1"].wait_for(group(2, 1))
    cluster.start("worker", 0).wait_for(group(2, 2))
    for i in range(2):
        cluster["worker %d" % i].wait_for("done")
        assert cluster["worker %d" % i].wait(20 * SLACK) == 0
    steps = [[e.step for e in cluster["worker %d" % i].events if e.step is not None] for i in range(2)]
    assert steps[0][-1] == steps[1][-1] >= 399  # read before or after the last update
