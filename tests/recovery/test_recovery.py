"""Training while tasks die: real processes, killed and started again. The cases of TensorFlow 1.15's
semantics, with bounds where Muster promises to be better (docs/training.md)."""
import glob
import re
import time

import pytest
from trainer_cluster import SLACK


def rises(task, by=5, timeout=60):
    """The task makes progress from now on."""
    last = task.last_step() or 0
    return task.wait_for_step(last + by, timeout)


def stalls(task, seconds=2.0):
    """The task makes no step for a while."""
    time.sleep(1.5)  # steps under way
    before = len([e for e in task.drain() if e.step is not None])
    time.sleep(seconds)
    after = len([e for e in task.drain() if e.step is not None])
    assert before == after, "\n".join(e.line for e in task.events[-5:])


# --- Asynchronous
def test_a_worker_dies_and_comes_back(trainers):
    cluster = trainers(1, 2)
    cluster["worker 1"].wait_for_step(10)
    cluster["worker 1"].kill()
    rises(cluster["worker 0"])
    again = cluster.start("worker", 1)
    serving = again.wait_for("serving").time
    first = again.wait_for_step(1)
    assert first.step > 10
    assert first.time - serving < 1 * SLACK


def test_a_parameter_server_dies_and_comes_back(trainers):
    cluster = trainers(2, 2)
    chief, other = cluster["worker 0"], cluster["worker 1"]
    chief.wait_for_step(25)
    other.wait_for_step(25)
    died = cluster["ps 1"].kill()
    # Both get an error: no worker blocks.
    for worker in (chief, other):
        told = worker.wait_for("An error was raised", timeout=60)
        assert told.time - died < 5 * SLACK
    cluster.start("ps", 1).wait_for("serving")
    back = time.time()
    first = chief.wait_for(lambda e: e.step is not None, after=back)
    assert first.time - back < 3 * SLACK
    second = other.wait_for(lambda e: e.step is not None, after=back)
    assert second.time - first.time < 1 * SLACK  # TensorFlow: 30 s
    # From the last checkpoint on, which was not long ago, all variables together.
    assert 10 <= first.step
    rises(other)
    # Alone: what the other one adds between two reads would count as a difference.
    other.kill()
    chief.drain()
    values = rises(chief)
    assert abs(values.counters[0] - values.step) <= 2 and abs(values.counters[1] - values.step) <= 2


def test_the_chief_dies_and_rolls_back_when_it_returns(trainers):
    cluster = trainers(1, 2, "--save_steps", "50")
    cluster["worker 0"].wait_for_step(60)
    cluster["worker 0"].kill()
    other = cluster["worker 1"]
    rises(other, by=30)  # undisturbed
    reached = other.last_step()
    chief = cluster.start("worker", 0)
    assert chief.wait_for_step(0).step < reached
    rises(other)


def test_the_whole_cluster_restarts(trainers):
    cluster = trainers(1, 2)
    cluster["worker 0"].wait_for_step(30)
    for name in ("worker 0", "worker 1", "ps 0"):
        cluster[name].kill()
    with open(cluster.folder + "/checkpoint") as state:
        saved = int(re.search(r'^model_checkpoint_path: ".*-(\d+)"', state.read()).group(1))
    assert saved >= 10
    cluster.start("ps", 0)
    chief = cluster.start("worker", 0)
    assert saved <= chief.wait_for_step(0).step <= saved + 1
    # Old checkpoints are still deleted.
    rises(chief, by=80)
    assert len(glob.glob(cluster.folder + "/model.ckpt-*.index")) <= 5


def test_a_worker_that_comes_first_waits_for_the_model(trainers):
    cluster = trainers(1, 2, start_workers=False)
    other = cluster.start("worker", 1)
    other.wait_for("Waiting for model to be ready")
    time.sleep(1)
    chief = cluster.start("worker", 0)
    ready = chief.wait_for("session").time
    assert other.wait_for("session").time - ready < 1 * SLACK  # TensorFlow: up to 30 s


def test_without_filters_a_worker_waits_for_the_others(trainers):
    cluster = trainers(1, 2, "--no_filters", start_workers=False)
    chief = cluster.start("worker", 0)
    chief.wait_for("CreateSession still waiting for response from worker: /job:worker/replica:0/task:1")
    cluster.start("worker", 1)
    chief.wait_for_step(3)


# --- Synchronous
def test_synchronous_training_ends_soon(trainers):
    cluster = trainers(2, 2, "--sync", "--last_step", "30")
    for name in ("worker 0", "worker 1"):
        task = cluster[name]
        task.wait_for("loop ended")
        ended = time.time()
        assert task.wait(60) == 0
        assert time.time() - ended < 2 * SLACK  # TensorFlow: 120 s


@pytest.mark.parametrize("flags", [(), ("--style", "supervisor"), ("--style", "supervisor", "--no_stop")],
                         ids=["monitored", "supervisor", "exit"])
def test_the_others_go_on_when_a_worker_has_ended(trainers, flags):
    """It returns its token. In TensorFlow they wait for ever, also in a last step that began with an older global step."""
    cluster = trainers(1, 2, "--sync", "--num_tokens", "0", *flags, start_workers=False)
    chief = cluster.start("worker", 0)
    other = cluster.start("worker", 1, "--own_steps", "5")
    assert other.wait(60) == 0
    chief.drain()
    rises(chief, by=10)


def test_a_worker_with_a_token_dies(trainers):
    cluster = trainers(1, 2, "--sync", start_workers=False)
    chief = cluster.start("worker", 0)
    other = cluster.start("worker", 1, "--hold_at", "8")
    other.wait_for("holds")  # between runs
    other.kill()
    stalls(chief, 3)
    again = cluster.start("worker", 1)
    again.wait_for_step(9)
    rises(chief)


def test_a_worker_that_waits_for_a_token_dies(trainers):
    """Its gradient counts and its token stays: the other goes on alone."""
    cluster = trainers(1, 2, "--sync", "--num_tokens", "0", start_workers=False)
    chief = cluster.start("worker", 0, "--slow", "3", "--pause", "0")
    other = cluster.start("worker", 1)
    chief.wait_for_step(2)
    other.wait_for(lambda e: e.words[:1] == ["run"], after=time.time())
    time.sleep(1)  # it has given its gradient and waits for the chief's
    other.kill()
    rises(chief, by=3)


def test_backup_workers(trainers):
    cluster = trainers(1, 3, "--sync", "--aggregate", "2", "--total", "3", "--pause", "0.05")
    chief = cluster["worker 0"]
    for i in range(3):
        cluster["worker %d" % i].wait_for_step(10)
    cluster["worker 1"].kill()
    rises(chief, by=10)
    time.sleep(2)  # a surplus of tokens builds up
    cluster["worker 2"].kill()
    rises(chief, by=10)


def test_fewer_workers_than_gradients(trainers):
    """Each worker gives several gradients for one update."""
    cluster = trainers(1, 1, "--sync", "--aggregate", "3", "--total", "1", "--num_tokens", "2")
    event = cluster["worker 0"].wait_for_step(4)
    assert event.counters[0] in (event.step - 1, event.step, event.step + 1)


def test_a_chief_alone(trainers):
    cluster = trainers(1, 2, "--sync", start_workers=False)
    chief = cluster.start("worker", 0)
    chief.wait_for_step(10)  # on its initial tokens
    chief.kill()


def test_a_chief_without_tokens_waits(trainers):
    cluster = trainers(1, 2, "--sync", "--num_tokens", "0", start_workers=False)
    chief = cluster.start("worker", 0)
    chief.wait_for(lambda e: e.words[:1] == ["run"])
    stalls(chief)
    cluster.start("worker", 1)
    chief.wait_for_step(3)


def test_the_chief_of_synchronous_training_dies(trainers):
    cluster = trainers(1, 2, "--sync")
    chief, other = cluster["worker 0"], cluster["worker 1"]
    other.wait_for_step(15)
    chief.kill()
    stalls(other)
    again = cluster.start("worker", 0)
    again.wait_for_step(5)
    rises(other)


def test_a_parameter_server_of_synchronous_training_dies(trainers):
    cluster = trainers(2, 2, "--sync")
    chief, other = cluster["worker 0"], cluster["worker 1"]
    other.wait_for_step(15)
    cluster["ps 1"].kill()
    cluster.start("ps", 1).wait_for("serving")
    back = time.time()
    chief.wait_for(lambda e: e.step is not None, timeout=60, after=back)
    other.wait_for(lambda e: e.step is not None, timeout=60, after=back)
    values = rises(chief, by=10)
    # What was left on the other server does not break the updates: all variables saw the same.
    assert abs(values.counters[0] - values.counters[1]) <= 1, values.line


def test_a_server_dies_while_the_chief_waits_for_a_token(trainers):
    """The server without the tokens: the chief's step has done its part there."""
    cluster = trainers(2, 2, "--sync", "--num_tokens", "0", "--hold_at", "10", start_workers=False)
    chief, other = cluster.start("worker", 0, "--hold_at", "1000000"), cluster.start("worker", 1)
    other.wait_for("holds")
    stalls(chief, 1.0)
    dies = time.time()
    cluster["ps 1"].kill()
    cluster.start("ps", 1)
    raised = chief.wait_for("An error was raised", timeout=60, after=dies)
    assert raised.time - dies < 5 * SLACK
    other.kill()
    cluster.start("worker", 1, "--hold_at", "1000000")
    rises(chief, by=5)


def test_a_server_dies_while_a_supervised_chief_waits_for_a_token(trainers):
    cluster = trainers(2, 2, "--sync", "--num_tokens", "0", "--style", "supervisor", "--recovery_wait_secs", "1",
                       start_workers=False)
    chief, other = cluster.start("worker", 0), cluster.start("worker", 1, "--hold_at", "8")
    other.wait_for("holds")
    stalls(chief, 1.0)
    died = cluster["ps 1"].kill()
    assert chief.wait(60) != 0
    assert time.time() - died < 5 * SLACK
    assert any("Unavailable" in e.line or "Aborted" in e.line for e in chief.drain())


def test_a_missing_chief_hook_is_reported(trainers):
    cluster = trainers(1, 2, "--sync", "--no_hook")
    chief = cluster["worker 0"]
    chief.wait_for("make_session_run_hook", timeout=60)
    assert chief.wait(60) != 0


# --- Supervisor
def test_a_supervised_worker_is_told_of_a_dead_server(trainers):
    cluster = trainers(1, 2, "--style", "supervisor", "--recovery_wait_secs", "1")
    cluster["worker 0"].wait_for_step(10)
    cluster["worker 1"].wait_for_step(10)
    died = cluster["ps 0"].kill()
    for name in ("worker 0", "worker 1"):
        assert cluster[name].wait(60) != 0
        assert time.time() - died < 10 * SLACK
        assert any("Unavailable" in e.line or "Aborted" in e.line for e in cluster[name].drain())


def test_synchronous_supervisors_end_soon(trainers):
    cluster = trainers(1, 2, "--sync", "--style", "supervisor", "--last_step", "30")
    for name in ("worker 0", "worker 1"):
        task = cluster[name]
        task.wait_for("loop ended")
        ended = time.time()
        assert task.wait(60) == 0
        assert time.time() - ended < 2 * SLACK


def test_a_worker_one_step_ahead_is_released(trainers):
    """The chief leaves after its last step; a worker that has begun another would wait for its token for ever."""
    cluster = trainers(1, 2, "--sync", "--num_tokens", "0", start_workers=False)
    # So slowly that none could take the other's token too: without initial tokens no worker could go on then.
    chief = cluster.start("worker", 0, "--last_step", "20", "--pause", "0.1")
    other = cluster.start("worker", 1, "--own_steps", "21", "--pause", "0.1")
    assert chief.wait(120) == 0
    ended = time.time()
    assert other.wait(60) == 0
    assert time.time() - ended < 2 * SLACK
