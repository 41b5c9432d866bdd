"""Files that are compiled together declare no name twice, and every file is compiled once."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "cmake" / "unity.py"

_spec = importlib.util.spec_from_file_location("unity", SCRIPT)
unity = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(unity)

HELPER = "namespace {\n\nint Twice(int x) { return 2 * x; }\n\n}  // namespace\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(**files):
        for name, text in files.items():
            (tmp_path / name.replace("_h", ".h").replace("_cc", ".cc")).write_text(text)

    return write


def _groups(*files):
    return unity.groups_of(files)[""]


def test_files_are_compiled_together(write):
    write(a_cc="int A() { return 1; }\n", b_cc=HELPER)
    assert _groups("b.cc", "a.cc") == [["a.cc", "b.cc"]]


@pytest.mark.parametrize("other", [
    HELPER,
    "int Twice(int x);\n",
    "namespace {\nclass Twice {\n};\n}  // namespace\n",
    "namespace {\nconstexpr int Twice = 2;\n}  // namespace\n",
    "namespace {\nusing Twice = int;\n}  // namespace\n",
    "namespace {\ntemplate <typename T>\nstd::vector<std::pair<int, T>> Twice(T x) {\n}\n}  // namespace\n",
    "static int Twice(int x) { return x; }\n",
])
def test_a_name_that_both_declare_keeps_them_apart(write, other):
    write(a_cc=HELPER, b_cc=other)
    assert _groups("a.cc", "b.cc") == [["a.cc"], ["b.cc"]]


def test_a_name_of_a_header_keeps_them_apart(write):
    write(low_h="int Twice(int x);\n", high_h='#include "low.h"\n', a_cc=HELPER, b_cc='#include "high.h"\n',
          c_cc="int C() { return 3; }\n")
    assert _groups("a.cc", "b.cc", "c.cc") == [["a.cc", "c.cc"], ["b.cc"]]


def test_what_stands_in_functions_and_classes_is_nobody_elses(write):
    write(a_cc=HELPER, b_cc="class B {\n  int Twice(int x);\n};\nint F() {\n  int Twice = 2;\n  return Twice;\n}\n")
    assert _groups("a.cc", "b.cc") == [["a.cc", "b.cc"]]


def test_groups_are_bounded(write):
    write(a_cc="\n" * unity.LINES, b_cc="\n")
    assert _groups("a.cc", "b.cc") == [["a.cc"], ["b.cc"]]


def test_every_source_of_ours_is_compiled_once(tmp_path):
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "muster").rglob("*.cc")]
    printed = subprocess.run([sys.executable, SCRIPT, tmp_path, *files], cwd=ROOT, check=True, text=True, capture_output=True).stdout
    compiled = []
    for source in printed.strip().split(";"):
        compiled += unity.INCLUDE.findall(pathlib.Path(source).read_text()) if source.startswith("/") else [source]
    assert sorted(compiled) == sorted(files)


def test_a_source_that_stays_the_same_is_not_written_again(write, tmp_path):
    write(a_cc="int A();\n", b_cc="int B();\n")
    command = [sys.executable, SCRIPT, "out", "a.cc", "b.cc"]
    written, = subprocess.run(command, check=True, text=True, capture_output=True).stdout.split()
    before = (tmp_path / written).stat().st_mtime_ns
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / written).stat().st_mtime_ns == before
