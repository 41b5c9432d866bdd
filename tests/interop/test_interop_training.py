"""Training gives the same losses whether TensorFlow, Muster or both of them serve."""

import numpy as np
import pytest

PROGRAMS = [("dense", "adam", False), ("dense", "adam", True), ("convolutions", "adam", False),
            ("recurrent", "adam", False), ("embedding", "adam", False), ("dense", "momentum", False),
            ("dense", "rmsprop", False), ("embedding", "adagrad", False), ("embedding", "gradient_descent", True)]
SERVERS = ["muster", "muster_ps", "muster_master"]


@pytest.fixture(scope="module")
def judge(clusters, clients):
    """Losses of a cluster where everything is TensorFlow's."""
    known = {}

    def get(model, optimizer, resource):
        key = (model, optimizer, resource)
        if key not in known:
            known[key] = _train(clusters("stock"), clients("stock"), *key)
            assert known[key][-1] < known[key][0]
        return known[key]

    return get


def _train(cluster, client, model, optimizer, resource):
    try:
        return client.call(kind="train", target=cluster.targets["worker/0"], model=model, optimizer=optimizer,
                           resource=resource)
    finally:
        client.call(kind="reset", targets=cluster.targets)


@pytest.mark.parametrize("model,optimizer,resource", PROGRAMS)
@pytest.mark.parametrize("servers", SERVERS)
def test_losses_of_a_stock_client(clusters, clients, judge, servers, model, optimizer, resource):
    got = _train(clusters(servers), clients("stock"), model, optimizer, resource)
    np.testing.assert_allclose(got, judge(model, optimizer, resource), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model,optimizer,resource", PROGRAMS[:5])
@pytest.mark.parametrize("servers", ["stock", "muster_ps", "muster_master", "muster"])
def test_losses_of_a_muster_client(clusters, clients, judge, servers, model, optimizer, resource):
    got = _train(clusters(servers), clients("muster"), model, optimizer, resource)
    np.testing.assert_allclose(got, judge(model, optimizer, resource), rtol=1e-5, atol=1e-5)
