"""The conventions hold in this checkout, and the checker finds each violation."""

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
    ("muster/graph/proto/graph_proto.cc", '#include "graph.pb.h"'),
    ("muster/graph/graph_test.cc", '#include "muster/client/session.h"'),
    ("muster/cli/main.cc", '#include "muster/train/saving/saver.h"'),
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
    ("muster/cli/a.cc", 'std::getenv("X");'),
    ("python/bindings/a.cc", 'getenv("X");'),
    ("muster/cli/a.cc", 'option->envname("X");'),
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
    ("muster/base/settings.cc", 'std::getenv("X");'),
    ("muster/base/a_test.cc", 'std::getenv("X");'),
    ("python/bindings/a.cc", "using namespace nb::literals;"),
    ("tools/a.py", "url = 'https://example.org/home/x'"),
])
def test_accepts_word(name, text):
    assert not list(tidy.word_errors(name, text))


def test_refuses_long_files(monkeypatch):
    monkeypatch.setattr(tidy, "LONG_FILES", {"muster/a/long.cc": (700, "a reason")})
    texts = {"muster/a/long.cc": "x;\n" * 700, "muster/a/whole.cc": "x;\n" * 600, "tools/a.py": "x\n" * 900}
    assert not list(tidy.length_errors(texts))
    assert list(tidy.length_errors(texts | {"python/muster/b.py": "x\n" * 601})) == [
        "python/muster/b.py: 601 lines, more than 600; split it by subject"]
    # The list only shrinks: neither may a file on it grow, nor stay there once it is short or gone.
    assert len(list(tidy.length_errors(texts | {"muster/a/long.cc": "x;\n" * 701}))) == 1
    assert len(list(tidy.length_errors(texts | {"muster/a/long.cc": "x;\n" * 600}))) == 1
    assert len(list(tidy.length_errors({}))) == 1


def test_asks_for_readme(tmp_path, monkeypatch):
    monkeypatch.setattr(tidy, "LONG_FILES", {})
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "muster" / "base").mkdir(parents=True)
    (tmp_path / "muster" / "base" / "log.h").write_text("#pragma once\n")
    assert "has no README.md" in tidy.errors(tmp_path)[0]
    (tmp_path / "muster" / "base" / "README.md").write_text("# base\n")
    assert not tidy.errors(tmp_path)


def test_asks_for_rooms_that_one_can_survey():
    names = {f"muster/graph/rewrite/pass_{i}.cc" for i in range(tidy.ROOM_FILES)} | {"muster/graph/rewrite/README.md"}
    assert not list(tidy.room_errors(names))
    found = list(tidy.room_errors(names | {"muster/graph/rewrite/one_more.cc"}))
    assert found == [f"muster/graph/rewrite: holds {tidy.ROOM_FILES + 1} files, more than {tidy.ROOM_FILES}; split it by subject"]


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


LONG = "int a;\n" * (tidy.TESTED_LINES + 1)
TABLE = "# graph\n\n## Tests\n\n| Source | Test |\n|---|---|\n| `b.cc`, `c.cc` | `b_test.cc`, `tests/test_b.py` |\n"
EMPTY_ROW = "# graph\n\n## Tests\n\n| Source | Test |\n|---|---|\n| `a.cc` | |\n"


@pytest.mark.parametrize("files, expected", [
    ({"muster/graph/a.cc": LONG, "muster/graph/a_test.cc": ""}, None),
    ({"muster/graph/a.cc": LONG, "muster/graph/place/a_test.cc": ""}, None),
    ({"muster/graph/a.cc": LONG, "muster/base/a_test.cc": ""}, "muster/graph/a.cc: has no a_test.cc"),
    ({"muster/graph/a.cc": "int a;\n" * tidy.TESTED_LINES}, None),
    ({"muster/ops/math/a.cc": LONG}, None),
    ({"python/bindings/a.cc": LONG}, "python/bindings/a.cc: has no a_test.cc"),
    ({"muster/graph/a_test.cc": LONG}, None),
    ({"muster/graph/b.cc": LONG, "muster/graph/c.cc": LONG, "muster/graph/b_test.cc": "", "tests/test_b.py": "",
      "muster/graph/README.md": TABLE}, None),
    ({"muster/graph/b.cc": "", "muster/graph/c.cc": LONG, "tests/test_b.py": "", "muster/graph/README.md": TABLE},
     "muster/graph/README.md: b.cc is covered by b_test.cc, which does not exist"),
    ({"muster/graph/b.cc": LONG, "muster/graph/b_test.cc": "", "tests/test_b.py": "", "muster/graph/README.md": TABLE},
     "muster/graph/README.md: its tests cover c.cc, which does not exist"),
    ({"muster/graph/a.cc": LONG, "muster/graph/README.md": EMPTY_ROW}, "muster/graph/a.cc: has no a_test.cc"),
])
def test_asks_for_a_test_that_can_be_found(files, expected):
    found = list(tidy.test_errors(files, set(files)))
    assert bool(found) == (expected is not None), found
    assert expected is None or any(error.startswith(expected) for error in found), found


def test_measures_functions():
    body = "  x();\n" * 80
    assert list(tidy.long_functions(f"int F(int a) {{\n{body}}}\n")) == [(1, 82)]
    assert not list(tidy.long_functions(f"int F(int a) {{\n  x();\n}}\nnamespace a {{\n{body}}}\n"))
