"""Fixtures of the tests of launchers."""
import os

import pytest

PRESET = os.environ.get("MUSTER_BUILD", "release")


@pytest.fixture(scope="session")
def muster_program(root):
    path = os.path.join(root, "build", PRESET, "bin", "muster")
    if not os.path.exists(path):
        pytest.fail("%s is not built" % path)
    return path


@pytest.fixture(scope="session")
def digits(root):
    """The words of a short training on the digits."""
    return [os.path.join(root, "examples", "mnist_replica.py"), "--train_steps=60"]


@pytest.fixture(scope="session")
def deploy_python(root):
    """The interpreter with the Kubernetes schemas and the linter of Dockerfiles."""
    path = os.path.join(root, ".venv-deploy", "bin", "python")
    if not os.access(path, os.X_OK):
        pytest.skip("%s is not there: `make setup-cluster` makes it" % path)
    return path
