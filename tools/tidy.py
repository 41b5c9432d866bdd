#!/usr/bin/env python3
"""Reads the sources and reports where they break our conventions.

Errors make the exit status 1: an include that goes up, a word we do not use, a folder without a README or with too many files, a source
that is too long, a path of one machine, a file or folder at the root that is not known there, a link, a path, an identifier or a cited
section of a document that leads nowhere, a long source without a test of its name or a line that names its test. Remarks (sizes, names) are printed with --remarks and fail nothing.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import tidy_docs

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What each layer may include besides itself, lowest first. docs/ARCHITECTURE.md gives the reasons.
_BASE_TO_DEVICE = "base tensor device"
_BASE_TO_RUNTIME = "base tensor device params graph runtime"
_BASE_TO_TASK = f"{_BASE_TO_RUNTIME} transport collective task"
LAYERS = {
    "base": "",
    "tensor": "base",
    "device": "base tensor",
    "params": _BASE_TO_DEVICE,
    "checkpoint": "base tensor",
    "graph": _BASE_TO_DEVICE,
    "runtime": "base tensor device params graph",
    "ops": f"{_BASE_TO_RUNTIME} checkpoint",
    "transport": "base tensor device graph runtime",
    "collective": "base tensor device runtime transport",
    "task": f"{_BASE_TO_RUNTIME} transport collective",
    "worker": _BASE_TO_TASK,
    "master": "base tensor device graph transport task",
    "client": _BASE_TO_TASK,
    "train": f"{_BASE_TO_TASK} client checkpoint",
    "dashboard": "base",
}
LAYERS["server"] = " ".join(layer for layer in LAYERS if layer != "client")
LAYERS["cli"] = " ".join(LAYERS)
LAYERS = {layer: set(may_include.split()) for layer, may_include in LAYERS.items()}

# Headers directly in muster/ (the public surface, generated op functions) stand above the client.
PUBLIC_READERS = {"train", "server", "cli"}

CPP = {".h", ".cc"}
CODE = CPP | {".py", ".cmake", ".sh"}


class Rule(NamedTuple):
    pattern: str
    instead: str
    suffixes: frozenset = frozenset(CPP)
    except_in: str = "$^"  # paths in which the words are right


# Words that fail. C++ is searched without its comments and strings.
WORDS = [
    Rule(r"std::string_view|#include <string_view>", "use absl::string_view: packaged abseil takes no other"),
    Rule(r"absl::(Mutex\w*|CondVar|Notification|BlockingCounter)\b|#include \"absl/synchronization/",
         "use muster/base/mutex.h: ThreadSanitizer does not see abseil's", except_in=r"grpc/grpc_library\.cc$"),
    Rule(r"std::cout|std::cerr", "use LOG from muster/base/log.h, or print in cli/",
         except_in=r"muster/cli/|examples/|tools/|benchmarks/|muster/base/log\.cc|_(test|bench)\.cc$"),
    Rule(r"\bgetenv\b|\benviron\b|->envname\b", "add the variable to muster/base/settings.cc and hand its value down",
         except_in=r"muster/base/settings\.cc$|_(test|bench)\.cc$|tests/gpu/emulated_gpu\.cc$"),
    Rule(r"using namespace (?![\w:]*literals)", "name what you use"),
    Rule(r"\bthrow\b", "return absl::Status", except_in=r"python/bindings/|muster/tensor/tensor\.cc|_test\.cc$"),
]
MARKS = Rule(r"\b(TO" r"DO|FIX" r"ME|XXX)\b", "do it, or open an issue", frozenset(CODE))
MACHINE_PATHS = Rule(r"(?<![\w.$}\)])/(work|root|home|tmp)/", "no path of one machine; ask for a folder")
OUTSIDE = Rule(r"\.\./shared\b|(/|\"\.\.\",) \"shared\"", "the repository needs nothing beside it")

# Only conversion files, transport/grpc and transport/messages, the bindings and tests see proto classes.
MAY_SEE_PROTOS = re.compile(r"_proto\.(cc|h)$|_(test|bench|fuzz)\.cc$|_test\.h$|^muster/(transport/(grpc|messages)|cli)/|^python/bindings/|^tools/")

# Files and folders of the repository's root; anything else there was left by a program that ran there.
ROOT_FILES = set(".clang-format .clang-tidy .dockerignore .editorconfig .gitignore CHANGELOG.md CMakeLists.txt CMakePresets.json "
                 "CONTRIBUTING.md LICENSE Makefile README.md conftest.py pyproject.toml".split())
ROOT_FOLDERS = set(".ci benchmarks cmake data deploy docs examples muster python tests tools".split())
TRACKED_MIB = 20
ROOM_FILES = 42  # sources in one folder
ROOMS = ("muster/", "python/muster/")
NOT_ROOMS = ("python/muster/examples/",)  # TensorFlow's package fixes what is there

# Sources over FILE_LINES, each with the lines it may have at most and why it is not split yet. The list only shrinks.
LONG_FILES = {
}

AVOIDED_NAMES = set("util utils helper helpers common manager misc wrapper impl data info".split())
FILE_LINES, FUNCTION_LINES, README_LINES, COLUMNS = 600, 70, 30, 100

# Longer sources have a test of their name, or the README of their folder names the one that covers them. Ops are found by the oracle.
TESTED_LINES = 150
TESTED = ("muster/", "python/bindings/")
TESTED_ELSEWHERE = ("muster/ops/",)

# Sources whose identifiers documents name, and documents that name TensorFlow's, or past ones of ours.
NAMING = (".h", ".cc", ".py", ".proto", ".txt")
OTHER_NAMES = (tidy_docs.REFERENCES, "tests/golden/", "CHANGELOG.md")

# This checker and its test hold the words they look for; golden data is TensorFlow's.
UNCHECKED = re.compile(r"^tools/tidy(_docs)?\.py$|^tests/test_tidy(_docs)?\.py$|^tests/golden/|^data/|^LICENSE$")


def tracked_files(root):
    """Files that are or would be committed, relative to `root`, with '/'."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted(name for name in listed if name and (root / name).is_file())


def without_comments(text):
    """C++ text with comments and the contents of string literals blanked; line numbers stay. Include lines stay."""
    token = re.compile(r'(?P<include>^[ \t]*#[ \t]*include[^\n]*)|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|//[^\n]*|/\*.*?\*/|'
                       r'"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])\'(?:\\.|[^\'\\\n])+\'', re.S | re.M)
    return token.sub(lambda m: m[0] if m["include"] else "\n" * m[0].count("\n"), text)


def layer_of(name):
    """The layer of 'muster/<layer>/...', '' for a file directly in muster/, None elsewhere."""
    parts = name.split("/")
    if parts[0] != "muster":
        return None
    return parts[1] if len(parts) > 2 else ""


def include_errors(name, text):
    """Includes that go up, and proto classes where domain types belong."""
    layer = layer_of(name)
    # Tests and benchmarks are linked with the whole library and may look at all of it.
    is_test = re.search(r"_(test|bench)\.cc$|_test\.h$", name)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', text, re.M):
        included = match[1]
        line = text.count("\n", 0, match.start()) + 1
        if included.endswith(".pb.h") and not MAY_SEE_PROTOS.search(name):
            yield f"{name}:{line}: includes {included}: proto classes belong in *_proto.cc and *_proto.h only"
        target = layer_of(included)
        if not layer or is_test or target is None or target == layer:
            continue
        if layer not in LAYERS:
            yield f"{name}:{line}: layer '{layer}' is not in the table of tools/tidy.py"
            return
        if target == "" and layer not in PUBLIC_READERS:
            yield f"{name}:{line}: {layer} may not include the public header {included}"
        elif target and target != "proto" and target not in LAYERS[layer]:
            allowed = ", ".join(other for other in LAYERS if other in LAYERS[layer]) or "nothing of ours"
            yield f"{name}:{line}: {layer} may not include {included}; it may include {allowed}"


def word_errors(name, text):
    """Words we do not use, each with what to write instead."""
    suffix = pathlib.PurePosixPath(name).suffix
    searched = without_comments(text) if suffix in CPP else text
    everywhere = [rule._replace(suffixes=frozenset({suffix})) for rule in (MACHINE_PATHS, OUTSIDE)]
    for rule, content in [(rule, searched) for rule in WORDS] + [(rule, text) for rule in [MARKS] + everywhere]:
        if suffix not in rule.suffixes or re.search(rule.except_in, name):
            continue
        for match in re.finditer(rule.pattern, content):
            line = content.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: '{match[0].strip()}': {rule.instead}"


def room_errors(names):
    """Folders with sources that have no README, or too many files."""
    files = collections.Counter(name.rpartition("/")[0] for name in names
                                if name.startswith(ROOMS) and name.endswith((".h", ".cc", ".py")))
    for folder, count in sorted(files.items()):
        if folder == "muster" or folder.startswith(NOT_ROOMS):
            continue
        if f"{folder}/README.md" not in names:
            yield f"{folder}: has no README.md (purpose, main types, what it must not know)"
        if count > ROOM_FILES:
            yield f"{folder}: holds {count} files, more than {ROOM_FILES}; split it by subject"


def covered_sources(readme):
    """{source: tests} of the table in the section "Tests" of a README, as written there."""
    section = re.search(r"^## Tests$(.*?)(?=^## |\Z)", readme, re.M | re.S)
    covered = {}
    for sources, tests in re.findall(r"^\|([^|\n]*)\|([^|\n]*)\|$", section[1] if section else "", re.M):
        for source in re.findall(r"`([^`]+)`", sources):
            covered[source] = re.findall(r"`([^`]+)`", tests)
    return covered


def test_errors(texts, names):
    """Long sources without a test that can be found, and tables that name a source or a test that does not exist.

    A test can be found when it is called x_test.cc and is in the layer of x.cc, or when the README of the folder names it.
    """
    readmes = {name.rpartition("/")[0]: covered_sources(text) for name, text in texts.items()
               if name.startswith(TESTED) and name.endswith("/README.md")}
    for folder, covered in readmes.items():
        for source, tests in covered.items():
            if f"{folder}/{source}" not in names:
                yield f"{folder}/README.md: its tests cover {source}, which does not exist"
            for test in tests:
                if test not in names and f"{folder}/{test}" not in names:
                    yield f"{folder}/README.md: {source} is covered by {test}, which does not exist"
    namesakes = {(layer_of(name), name.rpartition("/")[2]) for name in names if name.endswith("_test.cc")}
    for name, text in texts.items():
        folder, _, file = name.rpartition("/")
        if not name.startswith(TESTED) or name.startswith(TESTED_ELSEWHERE) or not file.endswith(".cc"):
            continue
        stem = file.removesuffix(".cc")
        if re.search(r"_(test|bench|main)$", stem) or text.count("\n") <= TESTED_LINES:
            continue
        if (layer_of(name), f"{stem}_test.cc") not in namesakes and not readmes.get(folder, {}).get(file):
            yield f"{name}: has no {stem}_test.cc, and no line in the section Tests of {folder}/README.md"


def length_errors(texts):
    """Sources that hold more than one thing, by their length, and entries of LONG_FILES that are not needed any more."""
    lengths = {name: len(text.splitlines()) for name, text in texts.items()
               if name.startswith(("muster/", "python/muster/")) and name.endswith((".h", ".cc", ".py"))}
    for name, length in lengths.items():
        limit = LONG_FILES.get(name, (FILE_LINES, ""))[0]
        if length > limit:
            yield f"{name}: {length} lines, more than {limit}; split it by subject"
    for name in LONG_FILES:
        if lengths.get(name, 0) <= FILE_LINES:
            yield f"{name}: is not longer than {FILE_LINES} lines; take it off LONG_FILES of tools/tidy.py"


def stray_errors(names):
    """Files and folders at the root that are not known there."""
    for name in names:
        if "/" not in name and name not in ROOT_FILES:
            yield f"{name}: a stray file at the root; remove it, or add it to ROOT_FILES of tools/tidy.py"
    for folder in sorted({name.partition("/")[0] for name in names if "/" in name} - ROOT_FOLDERS):
        yield f"{folder}: a stray folder at the root; remove it, or add it to ROOT_FOLDERS of tools/tidy.py"


def size_errors(root, names):
    """A checkout that is too large."""
    sizes = {name: (root / name).stat().st_size for name in names}
    if sum(sizes.values()) > TRACKED_MIB << 20:
        largest = max(sizes, key=sizes.get)
        yield f"the files are {sum(sizes.values()) >> 20} MiB in all, of {TRACKED_MIB} at most; the largest is {largest}"


def read_texts(root, names):
    """{name: text} of the files that are text and ours."""
    texts = {}
    for name in names:
        if UNCHECKED.search(name) and not name.endswith(".md"):
            continue
        try:
            texts[name] = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return texts


def document_errors(texts, names):
    """Links, paths, citations and identifiers that lead nowhere."""
    documents = {name: text for name, text in texts.items() if name.endswith(".md")}
    references = {pathlib.PurePosixPath(name).stem: text for name, text in documents.items()
                  if name.startswith(tidy_docs.REFERENCES)}
    known = tidy_docs.known_identifiers({name: text for name, text in texts.items() if name.endswith(NAMING)})
    for name, text in documents.items():
        yield from tidy_docs.link_errors(name, text, documents, names)
        yield from tidy_docs.path_errors(name, text, names)
        yield from tidy_docs.heading_errors(name, text)
        if not name.startswith(OTHER_NAMES):
            yield from tidy_docs.identifier_errors(name, text, known)
    for name, text in texts.items():
        if UNCHECKED.search(name):
            continue
        yield from tidy_docs.citation_errors(name, text, references)
        if name not in documents:
            yield from tidy_docs.mention_errors(name, text, names)
        if name.startswith("python/bindings/"):
            yield from tidy_docs.module_errors(name, text, names)


def errors(root=ROOT):
    names = tracked_files(root)
    texts = read_texts(root, names)
    found = list(room_errors(set(names))) + list(stray_errors(names)) + list(size_errors(root, names))
    found += document_errors(texts, set(names))
    found += test_errors(texts, set(names))
    found += length_errors(texts)
    for name, text in texts.items():
        if UNCHECKED.search(name):
            continue
        if pathlib.PurePosixPath(name).suffix in CPP:
            found.extend(include_errors(name, text))
        found.extend(word_errors(name, text))
    return found


def long_functions(text):
    """(line, length) of functions over the limit, by the indentation that clang-format gives them."""
    lines = text.split("\n")
    for start, line in enumerate(lines):
        head = re.match(r"^( {0,4})(?!namespace|class|struct|enum|extern|union|\s|}|#|//).*[({,].*\{$", line)
        if not head or re.match(r"^\s*(if|for|while|switch|do|else|case|return)\b", line):
            continue
        for end in range(start + 1, len(lines)):
            if re.match(rf"^{head[1]}\}}", lines[end]):
                if end - start + 1 > FUNCTION_LINES:
                    yield start + 1, end - start + 1
                break


def remarks(root=ROOT):
    """Things that stand out but may be right: sizes, names that say little."""
    names = tracked_files(root)
    for name in names:
        path = pathlib.PurePosixPath(name)
        if path.name == "README.md" and layer_of(name):
            length = len((root / name).read_text().partition("\n## Tests\n")[0].splitlines())
            if length > README_LINES:
                yield f"{name}: {length} lines; a layer's README has at most {README_LINES}"
        if path.suffix not in CPP:
            continue
        text = (root / name).read_text(encoding="utf-8")
        lines = text.splitlines()
        for line, length in long_functions(text):
            yield f"{name}:{line}: a function of {length} lines; look for the idea that wants a name"
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS and "#include" not in line and "http" not in line:
                yield f"{name}:{number}: {len(line)} columns; run make format"
        avoided = AVOIDED_NAMES & set(path.stem.split("_"))
        if avoided:
            yield f"{name}: '{avoided.pop()}' says little; name the one job it has"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remarks", action="store_true", help="print what stands out, too")
    options = parser.parse_args()
    found = errors()
    for error in found:
        print(error)
    noted = list(remarks())
    for remark in noted if options.remarks else []:
        print(f"remark: {remark}")
    print(f"tidy: {len(found)} errors, {len(noted)} remarks" + ("" if options.remarks else " (--remarks shows them)"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
