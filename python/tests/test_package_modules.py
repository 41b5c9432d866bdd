"""The modules that the package names, to load them when they are first asked for, exist; its folders are small and say what
they hold."""
import importlib
import re

import muster as tf
import pytest
from muster.names import namespaces

NAMED = sorted(set(tf._MODULES + tf._LAZY_MODULES) | set(tf._SUBMODULES.values()))


@pytest.mark.parametrize("module", NAMED)
def test_module_exists(module):
    assert importlib.import_module("muster." + module)


@pytest.mark.parametrize("name", tf._NAMESPACES)
def test_namespace_is_whole(name):
    namespace = namespaces.module(name)
    for member in dir(namespace):
        assert getattr(namespace, member) is not None, member


def test_folders_are_small_and_say_what_they_hold(root):
    package = root / "python" / "muster"
    folders = [package] + [path for path in package.iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    assert len(folders) > 10
    for folder in folders:
        modules = list(folder.glob("*.py"))
        assert len(modules) <= 40, "%s holds %d modules: split it" % (folder, len(modules))
        assert (folder / "README.md").exists(), folder
        for module in modules:
            lines = len(module.read_text().splitlines())
            assert lines <= 600, "%s has %d lines: it holds two things" % (module, lines)


def test_the_readme_of_a_folder_names_what_is_there(root):
    for readme in (root / "python" / "muster").rglob("README.md"):
        for name in re.findall(r"`(\w+\.py)`", readme.read_text()):
            assert (readme.parent / name).exists(), "%s names %s" % (readme, name)
