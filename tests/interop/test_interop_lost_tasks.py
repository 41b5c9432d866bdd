"""Tasks that die and come back, where the master and the lost task are of different kinds."""

import time

import pytest

LOST = {
    "muster_ps_of_stock_master": {"ps/0": "muster", "worker/0": "stock", "worker/1": "stock"},
    "stock_ps_of_muster_master": {"ps/0": "stock", "worker/0": "muster", "worker/1": "muster"},
    "muster_ps_of_muster_master": {"ps/0": "muster", "worker/0": "muster", "worker/1": "muster"},
}


@pytest.mark.parametrize("name", list(LOST))
def test_a_lost_ps_fails_steps_and_comes_back(start_cluster, clients, name):
    cluster = start_cluster(LOST[name])
    client = clients("stock")
    target = cluster.targets["worker/0"]
    assert client.call(kind="open", name=name, target=target) == 1.0
    cluster.tasks["ps/0"].end()
    start = time.time()
    assert client.call(kind="try", name=name) in ("UnavailableError", "AbortedError")
    assert time.time() - start < 15
    cluster.restart("ps/0")
    # The old session fails, since its variables are gone.
    assert client.call(kind="try", name=name) in ("UnavailableError", "AbortedError", "FailedPreconditionError")
    client.call(kind="close", name=name)
    assert client.call(kind="open", name=name, target=target) == 1.0
    assert client.call(kind="try", name=name) == "ok"
    client.call(kind="close", name=name)


@pytest.mark.parametrize("name", list(LOST))
def test_a_step_that_runs_when_the_ps_is_lost(start_cluster, clients, name):
    cluster = start_cluster(LOST[name])
    client = clients("stock")
    assert client.call(kind="open", name=name, target=cluster.targets["worker/0"]) == 1.0
    client.call(kind="start_endless", name=name)
    time.sleep(1)
    cluster.tasks["ps/0"].end()
    assert client.call(kind="end_endless", name=name) in ("UnavailableError", "AbortedError")
    client.call(kind="close", name=name)


def test_a_muster_worker_lost_in_a_stock_cluster(start_cluster, clients):
    cluster = start_cluster({"ps/0": "stock", "worker/0": "stock", "worker/1": "muster"})
    client = clients("stock")
    target = cluster.targets["worker/0"]
    assert client.call(kind="open", name="w", target=target, device="/job:worker/task:1") == 1.0
    cluster.tasks["worker/1"].end()
    assert client.call(kind="try", name="w") in ("UnavailableError", "AbortedError")
    cluster.restart("worker/1")
    client.call(kind="close", name="w")
    assert client.call(kind="open", name="w", target=target, device="/job:worker/task:1") == 1.0
    client.call(kind="close", name="w")
