"""A skipped test fails in CI, and is reported at the end of other runs."""
import os
import pathlib
import subprocess
import sys

import loud_skips
import pytest

HERE = pathlib.Path(__file__).resolve().parent

WAYS = {
    "call": "def test_a():\n    pytest.skip('no such thing')\n",
    "mark": "@pytest.mark.skipif(True, reason='no such thing')\ndef test_a():\n    pass\n",
    "fixture": "@pytest.fixture\ndef thing():\n    pytest.skip('no such thing')\n\ndef test_a(thing):\n    pass\n",
    "module": "pytest.skip('no such thing', allow_module_level=True)\n",
    "import": "pytest.importorskip('no_such_thing')\n",
    "expected": "def test_a():\n    pytest.xfail('no such thing')\n",
    "xfail": "@pytest.mark.xfail(reason='no such thing')\ndef test_a():\n    assert False\n",
    "parametrize": "@pytest.mark.parametrize('x', [])\ndef test_a(x):\n    pass\n",
}


def run(tmp_path, text, in_ci):
    (tmp_path / "test_it.py").write_text("import pytest\n\n" + text + "\n\ndef test_other():\n    pass\n")
    environment = dict(os.environ, PYTHONPATH=str(HERE), CI="true" if in_ci else "")
    return subprocess.run([sys.executable, "-m", "pytest", "-p", "loud_skips", "-p", "no:cacheprovider", "."], cwd=tmp_path,
                          env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("way", WAYS)
def test_a_skip_fails_in_ci(tmp_path, way):
    done = run(tmp_path, WAYS[way], in_ci=True)
    assert done.returncode != 0 and "does not list" in done.stdout, done.stdout


def test_elsewhere_it_is_said_aloud(tmp_path):
    done = run(tmp_path, WAYS["call"], in_ci=False)
    assert done.returncode == 0 and "NOT TESTED: no such thing" in done.stdout.splitlines(), done.stdout


def test_so_is_what_a_test_leaves_out(tmp_path):
    done = run(tmp_path, "def test_a(untested):\n    untested('the whole of it')\n", in_ci=True)
    assert done.returncode == 0 and "NOT TESTED: the whole of it" in done.stdout.splitlines(), done.stdout


def test_what_is_allowed_exists_and_has_a_reason(root):
    for test, why in loud_skips.ALLOWED.items():
        path, _, name = test.partition("::")
        assert why and "def %s(" % name in (root / path).read_text(encoding="utf-8"), test
