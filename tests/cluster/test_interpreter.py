"""Which Python `muster run` and `muster launch` start scripts with."""
import os
import subprocess
import sys
import sysconfig

import pytest

SCRIPT = "import sys, tensorflow as tf\nprint('prefix', sys.prefix, tf.Session().run(tf.constant(7)))\n"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture(scope="module")
def make_environment(tmp_path_factory):
    """make_environment(name): a virtual environment; with `with_packages` it finds the packages of the tests' own environment."""

    def make(name, with_packages):
        folder = tmp_path_factory.mktemp("environments") / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
        if with_packages:
            version = "python%d.%d" % sys.version_info[:2]
            # Not addsitedir: Muster itself must come from the command.
            (folder / "lib" / version / "site-packages" / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        return str(folder)

    return make


@pytest.fixture(scope="module")
def full(make_environment):
    return make_environment("full", True)


@pytest.fixture(scope="module")
def bare(make_environment):
    return make_environment("bare", False)


@pytest.fixture
def muster(muster_program, tmp_path):
    """muster(words, VARIABLE=value...): without the variables that this test is about unless they are given."""

    def run(*words, **variables):
        kept = {name: value for name, value in os.environ.items()
                if name not in ("VIRTUAL_ENV", "MUSTER_PYTHON", "MUSTER_INSTALLED_PYTHON", "PYTHONPATH")}
        return subprocess.run([muster_program, *words], env=dict(kept, **variables), cwd=tmp_path, capture_output=True, text=True,
                              timeout=60)

    return run


def _prefix(done):
    assert done.returncode == 0, done.stdout + done.stderr
    line, = [line for line in done.stdout.splitlines() if "prefix " in line]
    assert line.endswith(" 7")
    return line.split("prefix ")[1][:-2]


def test_the_activated_environment_runs_scripts(muster, script, full):
    assert _prefix(muster("run", script)) != full
    done = muster("run", script, VIRTUAL_ENV=full)
    assert _prefix(done) == full and done.stderr == ""
    assert _prefix(muster("launch", "--ps", "0", "--workers", "1", script, VIRTUAL_ENV=full)) == full


def test_who_asks_for_another_gets_it(muster, script, full, bare):
    python = full + "/bin/python"
    assert _prefix(muster("run", "--python", python, script, VIRTUAL_ENV=bare)) == full
    assert _prefix(muster("run", script, VIRTUAL_ENV=bare, MUSTER_PYTHON=python)) == full
    assert _prefix(muster("launch", "--python", python, "--ps", "0", script, MUSTER_PYTHON="/no/such/python")) == full
    # That of the command that pip installs gives way to an environment that is activated later.
    assert _prefix(muster("run", script, MUSTER_INSTALLED_PYTHON=python)) == full
    done = muster("run", script, MUSTER_INSTALLED_PYTHON=sys.executable, VIRTUAL_ENV=full)
    assert _prefix(done) == full and done.stderr == ""
    done = muster("run", "--python", "/no/such/python", script)
    assert done.returncode == 127 and "cannot start '/no/such/python'" in done.stderr


def test_an_environment_that_cannot_is_named(muster, script, full, bare, tmp_path):
    done = muster("run", script, VIRTUAL_ENV=bare, MUSTER_INSTALLED_PYTHON=full + "/bin/python")
    assert _prefix(done) == full
    assert done.stderr == ("muster: the activated virtual environment's %s/bin/python cannot: it has no numpy, protobuf, ml_dtypes; "
                           "using %s/bin/python\n" % (bare, full))
    absent = str(tmp_path / "absent")
    done = muster("run", script, VIRTUAL_ENV=absent)
    assert _prefix(done) and "%s/bin/python cannot: there is no such program" % absent in done.stderr


def test_none_that_can_is_an_error(muster, script, bare, tmp_path):
    old = tmp_path / "bin" / "python3"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho it is Python 2.7, for which this Muster is not built\n")
    old.chmod(0o755)
    done = muster("run", script, VIRTUAL_ENV=bare, MUSTER_INSTALLED_PYTHON=str(tmp_path / "gone"), PATH=str(old.parent))
    assert done.returncode == 2 and done.stdout == ""
    assert ("muster run: no Python can run Muster: the activated virtual environment's %s/bin/python cannot: it has no numpy, "
            "protobuf, ml_dtypes; PATH's %s cannot: it is Python 2.7, for which this Muster is not built. Install what is missing, or "
            "name another one with --python\n" % (bare, old)) == done.stderr
