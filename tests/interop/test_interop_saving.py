"""Checkpoints and meta graphs that one writes and the other reads: training goes on as if nothing had happened."""

import numpy as np
import pytest

import interop_saving

BOTH = [("stock", "muster"), ("muster", "stock")]


def _call(client, program, folder, target="", ps=0, **more):
    more = dict(dict(optimizer="adam", resource=False, steps=3), **more)
    return client.call(kind="saving", program=program, folder=str(folder), target=target, ps=ps, **more)


@pytest.fixture(scope="module")
def whole(clients, tmp_path_factory):
    """Losses of six steps without an interruption, all of it TensorFlow's."""
    known = {}

    def get(**what):
        key = tuple(sorted(what.items()))
        if key not in known:
            folder = tmp_path_factory.mktemp("whole")
            known[key] = _call(clients("stock"), "training", folder, **dict(what, steps=6))["losses"]
        return known[key]

    return get


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("optimizer", sorted(interop_saving.OPTIMIZERS))
@pytest.mark.parametrize("writer,reader", BOTH)
def test_every_optimizer(clients, whole, tmp_path, writer, reader, optimizer, resource):
    what = dict(optimizer=optimizer, resource=resource)
    first = _call(clients(writer), "training", tmp_path, **what)
    second = _call(clients(reader), "training", tmp_path, restore=first["path"], **what)
    np.testing.assert_allclose(first["losses"] + second["losses"], whole(**what), rtol=1e-5)
    assert second["path"].endswith("model.ckpt-6")


@pytest.mark.parametrize("before,after", [(2, 3), (3, 2), (2, 1), (1, 2)])
@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("writer,reader", BOTH)
def test_other_parts(clients, whole, tmp_path, writer, reader, before, after, resource):
    """Weights and their slots, saved in some parts and restored in others."""
    first = _call(clients(writer), "training", tmp_path, parts=before, resource=resource)
    second = _call(clients(reader), "training", tmp_path, restore=first["path"], parts=after, resource=resource)
    np.testing.assert_allclose(first["losses"] + second["losses"], whole(resource=False), rtol=1e-5)


@pytest.mark.parametrize("writer,reader", BOTH)
def test_sharded_locally(clients, whole, tmp_path, writer, reader):
    first = _call(clients(writer), "training", tmp_path, sharded=True)
    assert [f for f in first["files"] if "temp" in f] == []
    second = _call(clients(reader), "training", tmp_path, restore=first["path"])
    np.testing.assert_allclose(first["losses"] + second["losses"], whole(), rtol=1e-5)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("writer,reader", BOTH)
def test_the_others_graph(clients, whole, tmp_path, writer, reader, resource):
    """Only the files are handed on: the graph comes from the meta graph."""
    first = _call(clients(writer), "training", tmp_path, parts=2, resource=resource)
    losses = _call(clients(reader), "imported", tmp_path, restore=first["path"])
    np.testing.assert_allclose(first["losses"] + losses, whole(resource=False), rtol=1e-5)


@pytest.mark.parametrize("scope", [None, "inner/most"])
@pytest.mark.parametrize("writer,reader", BOTH + [("muster", "muster")])
def test_the_others_loops(clients, tmp_path, writer, reader, scope):
    """Loops and conditionals of a meta graph can be differentiated after importing it."""
    first = _call(clients(writer), "loops", tmp_path)
    second = _call(clients(reader), "loops", tmp_path, restore=first["path"], scope=scope)
    np.testing.assert_allclose(second["gradient"], first["gradient"], rtol=1e-5)
    assert np.abs(first["gradient"]).sum() > 0


@pytest.mark.parametrize("writer,reader", BOTH)
def test_every_type(clients, tmp_path, writer, reader):
    path = _call(clients(writer), "every_type", tmp_path)
    assert _call(clients(reader), "every_type", tmp_path, restore=path) == []


@pytest.mark.parametrize("client,servers", [("stock", "muster"), ("muster", "stock"), ("muster", "muster"),
                                            ("stock", "muster_ps"), ("muster", "muster_master")])
@pytest.mark.parametrize("sharded,resource", [(False, False), (True, False), (True, True)])
def test_on_servers(clusters, clients, whole, tmp_path, client, servers, sharded, resource):
    """The client's saver runs on servers of the other kind; what they write goes on locally."""
    cluster = clusters(servers)
    served = dict(target=cluster.targets["worker/0"], ps=1, sharded=sharded, resource=resource, parts=2)
    try:
        first = _call(clients(client), "training", tmp_path, **served)
        assert [f for f in first["files"] if "temp" in f] == []
    finally:
        clients(client).call(kind="reset", targets=cluster.targets)
    try:
        second = _call(clients(client), "training", tmp_path, restore=first["path"], **served)
    finally:
        clients(client).call(kind="reset", targets=cluster.targets)
    local = _call(clients("stock"), "training", tmp_path, restore=first["path"])
    expected = whole()
    np.testing.assert_allclose(first["losses"] + second["losses"], expected, rtol=1e-5)
    np.testing.assert_allclose(local["losses"], expected[3:], rtol=1e-5)
