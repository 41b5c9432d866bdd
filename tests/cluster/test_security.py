"""Access control: tokens and TLS, between tasks and from clients."""
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
MUSTER = os.path.join(HERE, "..", "..", "build", "release", "bin", "muster")

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


def test_all_reduce_of_tasks_with_tls(certificate):
    """The connections between ranks are encrypted with a secret that comes over the servers' own."""
    script = os.path.join(HERE, "..", "recovery", "all_reduce_replica.py")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_TLS")}
    done = subprocess.run([MUSTER, "launch", "--ps", "0", "--workers", "2", script, "--steps", "5"],
                          env=dict(clean, **certificate), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    # Every step adds one on both ranks, whatever the number of ranks.
    for worker in range(2):
        steps = re.findall(r"\[worker %d\] \S+ step (\d+) (\d+) (\d+)$" % worker, done.stdout, re.MULTILINE)
        assert steps and int(steps[-1][0]) >= 4, done.stdout
        assert all(least == most for _, least, most in steps), done.stdout
