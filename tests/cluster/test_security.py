"""Who may connect: tokens and TLS, between tasks and from clients."""
import os
import subprocess
import sys

import pytest

CLIENT = """
import sys, muster as tf
with tf.device("/job:ps/task:0"):
    v = tf.Variable(20.0)
with tf.device("/job:worker/task:0"):
    y = v + 1.0
config = tf.ConfigProto(operation_timeout_in_ms=10000)
try:
    with tf.Session(sys.argv[1], config=config) as session:
        session.run(v.initializer)
        print(session.run(y))
except tf.errors.OpError as error:
    print(type(error).__name__)
"""


def _client(target, environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_TLS")}
    done = subprocess.run([sys.executable, "-c", CLIENT, target], env=dict(clean, **environment),
                          stdout=subprocess.PIPE, text=True, timeout=90)
    return done.stdout.strip()


def test_a_token_keeps_strangers_out(start_cluster, tmp_path):
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.write_text("a secret\n")
    wrong.write_text("another\n")
    cluster = start_cluster(flags=["--auth-token-file", str(token)], ps=1, worker=1)
    assert _client(cluster.target(), {"MUSTER_AUTH_TOKEN_FILE": str(token)}) == "21.0"
    assert _client(cluster.target(), {"MUSTER_AUTH_TOKEN_FILE": str(wrong)}) == "UnauthenticatedError"
    assert _client(cluster.target(), {}) == "UnauthenticatedError"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate for localhost that vouches for itself."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days",
                    "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, stderr=subprocess.PIPE, timeout=60)
    return {"MUSTER_TLS_CERT": cert, "MUSTER_TLS_KEY": key, "MUSTER_TLS_CA": cert}


def test_mutual_tls(start_cluster, certificate):
    cluster = start_cluster(environment=certificate, ps=1, worker=1)
    assert _client(cluster.target(), certificate) == "21.0"
    refused = _client(cluster.target(), {})
    assert refused.endswith("Error"), refused
