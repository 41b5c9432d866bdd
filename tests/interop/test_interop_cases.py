"""Every case of interop_cases with the pairs of clients and clusters that mix Muster and TensorFlow.

    stock client, muster          a user's program that knows nothing of Muster
    stock client, muster_ps       a TensorFlow master cuts the graph, a Muster ps keeps the variables
    stock client, muster_master   a Muster master drives TensorFlow's workers
    stock client, stock           the judge: a case that fails here is wrong
    muster client, stock          Muster's client at TensorFlow's master
    muster client, muster_ps      the same with Muster behind it
"""

import pytest

import interop_cases

PAIRS = [("stock", "muster"), ("stock", "muster_ps"), ("stock", "muster_master"), ("stock", "stock"), ("muster", "stock"),
         ("muster", "muster_ps")]


def _parameters():
    for client, cluster in PAIRS:
        for name, case in interop_cases.all_cases().items():
            if (case.only is None or cluster in case.only) and case.client in (None, client):
                yield pytest.param(client, cluster, name, id="%s-on-%s-%s" % (client, cluster, name))


@pytest.mark.parametrize("client,cluster,name", list(_parameters()))
def test_case(clusters, clients, client, cluster, name):
    servers = clusters(cluster)
    call = {"kinds": servers.kinds, "targets": servers.targets}
    try:
        clients(client).call(kind="case", case=name, **call)
    except AssertionError as e:
        raise AssertionError("%s\nservers: %s" % (e, servers.said()[-3000:])) from None
    finally:
        clients("stock").call(kind="reset", **call)
