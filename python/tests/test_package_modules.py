"""The modules that the package names, to load them when they are first asked for, exist."""
import importlib

import muster as tf
import pytest
from muster import namespaces

NAMED = sorted(set(tf._MODULES + tf._LAZY_MODULES) | set(tf._SUBMODULES.values()))


@pytest.mark.parametrize("module", NAMED)
def test_module_exists(module):
    assert importlib.import_module("muster." + module)


@pytest.mark.parametrize("name", tf._NAMESPACES)
def test_namespace_is_whole(name):
    namespace = namespaces.module(name)
    for member in dir(namespace):
        assert getattr(namespace, member) is not None, member
