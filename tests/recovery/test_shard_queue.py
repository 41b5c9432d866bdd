"""Workers that take shards of the data die, and so does the task that keeps the queue: every shard is done, and the account
says which were perhaps done twice. docs/training.md promises what is asserted here."""
import collections
import json

import pytest
from trainer_cluster import SLACK


def shard_of(event):
    return int(event.words[1]), int(event.words[2])


def last_account(worker, timeout=120):
    """(the account, how often each shard of each epoch was trained on) at the end of a worker."""
    report = json.loads(worker.wait_for(lambda e: e.words[:1] == ["report"], timeout).line.split(" ", 2)[2])
    times = [int(word) for word in worker.wait_for(lambda e: e.words[:1] == ["times"], timeout).words[1:]]
    assert worker.wait(30 * SLACK) == 0
    shards = report["shards"]
    assert len(times) == shards * report["epochs"]
    return report, {(i // shards, i % shards): count for i, count in enumerate(times)}


def expect_adds_up(report):
    assert report["done"] == report["shards"] * report["epochs"], report
    assert report["handed"] + report["late"] == (
        report["done"] + report["repeated"] + report["returned"] + len(report["held"])), report
    assert sum(worker["done"] for worker in report["workers"]) == report["done"], report
    assert len(report["returned_shards"]) == report["returned"]
    assert len(report["repeated_shards"]) == report["repeated"]


@pytest.mark.parametrize("first,second", [(2, 5), (7, 1)])
def test_shards_of_killed_workers_are_handed_out_again(trainers, tmp_path, first, second):
    cluster = trainers(1, 3, start_workers=False, script="shard_worker.py")
    begin = tmp_path / "begin"
    chief = cluster.start("worker", 0, "--begin_when", str(begin))
    lost = cluster.start("worker", 1, "--hold_after", str(first))
    restarted = cluster.start("worker", 2, "--hold_after", str(second))
    held_by_lost = shard_of(lost.wait_for("holds"))
    held_by_restarted = shard_of(restarted.wait_for("holds"))
    begin.touch()
    chief.wait_for("finished")
    lost.kill()
    restarted.kill()
    again = cluster.start("worker", 2)
    report, times = last_account(chief)
    assert again.wait(60 * SLACK) == 0
    expect_adds_up(report)
    returned = collections.defaultdict(list)
    for event in report["returned_shards"]:
        returned[(event["epoch"], event["index"])].append((event["worker"], event["why"]))
    assert returned[held_by_lost][0] == ("/job:worker/replica:0/task:1", "lease ended")
    # Its new life said so at once, unless that took longer than the lease.
    worker, why = returned[held_by_restarted][0]
    assert worker == "/job:worker/replica:0/task:2" and why in ("worker restarted", "lease ended")
    # Shards that were not lost with a worker were trained on exactly once; none was left out.
    for shard, count in times.items():
        assert count == 1 or (count > 1 and shard in returned), (shard, count, report)
    finished = {shard_of(e) for task in (chief, lost, restarted, again) for e in task.drain()
                if e.words[:1] == ["finished"]}
    assert finished == set(times)
    # All took part.
    assert {w["worker"][-1] for w in report["workers"] if w["done"]} == {"0", "1", "2"}


@pytest.mark.parametrize("killed", ["ps 0", "worker 0"])
def test_a_restored_queue_hands_out_what_the_checkpoint_has_not_seen_done(trainers, killed):
    cluster = trainers(1, 3, "--shards", "60", script="shard_worker.py")
    chief = cluster["worker 0"]
    for _ in range(4):
        chief.wait_for("finished")
    cluster[killed].kill()
    job, index = killed.split()
    cluster.start(job, int(index))
    report, times = last_account(cluster["worker 0"])
    for i in (1, 2):
        assert cluster["worker %d" % i].wait(60 * SLACK) == 0
    expect_adds_up(report)
    assert report["restored"] >= 1
    # In the model that is left every shard was trained on: none was done before the restore and lost with it.
    assert min(times.values()) >= 1, (times, report)
