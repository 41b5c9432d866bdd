"""The conventions hold in this checkout, and the checker finds what it is there to find."""

import pathlib
import subprocess

import pytest
import tidy

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_checkout_is_tidy():
    found = tidy.errors(ROOT)
    assert not found, "\n".join(found)


def test_table_has_no_cycle():
    order = list(tidy.LAYERS)
    for layer, may_include in tidy.LAYERS.items():
        assert layer not in may_include
        for other in may_include - {layer}:
            assert layer not in tidy.LAYERS[other], f"{layer} and {other} may include each other"
            assert order.index(other) < order.index(layer)


@pytest.mark.parametrize("name, line", [
    ("muster/tensor/shape.cc", '#include "muster/graph/graph.h"'),
    ("muster/graph/fold.h", '#include "muster/runtime/executor.h"'),
    ("muster/client/session.cc", '#include "muster/ops/op.h"'),
    ("muster/graph/graph.h", '#include "graph.pb.h"'),
    ("muster/runtime/step.cc", '#include "muster/muster.h"'),
    ("muster/unheard_of/a.cc", '#include "muster/base/log.h"'),
])
def test_refuses_include(name, line):
    assert list(tidy.include_errors(name, f"// A comment.\n{line}\n"))[0].startswith(f"{name}:2: ")


@pytest.mark.parametrize("name, line", [
    ("muster/ops/math/add.cc", '#include "muster/runtime/kernel_context.h"'),
    ("muster/graph/graph_proto.cc", '#include "graph.pb.h"'),
    ("muster/graph/graph_test.cc", '#include "muster/client/session.h"'),
    ("muster/cli/main.cc", '#include "muster/train/saver.h"'),
    ("muster/base/log.cc", '#include "absl/strings/str_cat.h"'),
    ("python/bindings/session.cc", '#include "muster/client/session.h"'),
])
def test_accepts_include(name, line):
    assert not list(tidy.include_errors(name, line))


@pytest.mark.parametrize("name, text", [
    ("muster/base/a.h", "void F(std::string_view s);"),
    ("muster/base/a.h", "absl::Mutex mutex_;"),
    ("muster/base/a.cc", 'std::cout << "x";'),
    ("muster/base/a.cc", "using namespace std;"),
    ("muster/base/a.cc", "// TODO: later"),
    ("tools/a.py", "# FIXME"),
    ("tools/a.py", 'open("/home/me/x")'),
    ("Makefile", "cp x /tmp/y"),
    ("tests/test_a.py", '# The programs lie in ../shared.'),
    ("tests/test_a.py", 'folder = ROOT.parent / "shared" / "data"'),
])
def test_refuses_word(name, text):
    assert len(list(tidy.word_errors(name, text))) == 1


@pytest.mark.parametrize("name, text", [
    ("muster/base/a.h", "void F(absl::string_view s);  // not std::string_view"),
    ("muster/base/a.h", 'const char* kText = "std::cout";'),
    ("muster/cli/main.cc", 'std::cout << "x";'),
    ("python/bindings/a.cc", "using namespace nb::literals;"),
    ("tools/a.py", "url = 'https://example.org/home/x'"),
])
def test_accepts_word(name, text):
    assert not list(tidy.word_errors(name, text))


def test_asks_for_readme(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "muster" / "base").mkdir(parents=True)
    (tmp_path / "muster" / "base" / "log.h").write_text("#pragma once\n")
    assert "has no README.md" in tidy.errors(tmp_path)[0]
    (tmp_path / "muster" / "base" / "README.md").write_text("# base\n")
    assert not tidy.errors(tmp_path)


def test_finds_what_programs_leave_at_the_root():
    assert not list(tidy.stray_errors(["README.md", "muster/base/.index", "docs/x.md"]))
    assert [error.split(":")[0] for error in tidy.stray_errors([".index", "core", "README.md"])] == [".index", "core"]
    assert [error.split(":")[0] for error in tidy.stray_errors(["out/x.txt", "docs/x.md"])] == ["out"]


def test_finds_a_checkout_that_is_too_large(tmp_path):
    with open(tmp_path / "large.bin", "wb") as file:
        file.truncate((tidy.TRACKED_MIB << 20) - 10)
    (tmp_path / "small.txt").write_text("x" * 10)
    assert not list(tidy.size_errors(tmp_path, ["large.bin", "small.txt"]))
    (tmp_path / "small.txt").write_text("x" * 11)
    assert "the largest is large.bin" in list(tidy.size_errors(tmp_path, ["large.bin", "small.txt"]))[0]


def test_the_readme_of_the_tests_names_every_folder():
    readme = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    folders = {name.split("/")[1] for name in tidy.tracked_files(ROOT) if name.startswith("tests/") and name.count("/") > 1}
    assert not [folder for folder in sorted(folders) if f"`tests/{folder}`" not in readme]


def test_measures_functions():
    body = "  x();\n" * 80
    assert list(tidy.long_functions(f"int F(int a) {{\n{body}}}\n")) == [(1, 82)]
    assert not list(tidy.long_functions(f"int F(int a) {{\n  x();\n}}\nnamespace a {{\n{body}}}\n"))
