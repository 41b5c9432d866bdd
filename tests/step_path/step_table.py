"""What docs/ARCHITECTURE.md says about the code that a step passes."""
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOCAL = "The way of a local step"
CLUSTER = "The way of a step in a cluster"


def source_files(stem):
    """The header and the source of a stem ("client/session"), as far as they exist."""
    paths = [os.path.join(ROOT, "muster", stem + extension) for extension in (".h", ".cc")]
    return [path for path in paths if os.path.exists(path)]


def read_table(title):
    """[(stem, [function])] of a section's table, in the order of the rows.

    A row may name several files instead of functions: those are in the table of a local step, and come without functions.
    """
    with open(os.path.join(ROOT, "docs", "ARCHITECTURE.md")) as document:
        section = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % title, document.read(), re.MULTILINE | re.DOTALL)
    assert section, "docs/ARCHITECTURE.md has no section '%s'" % title
    rows = []
    for line in section[1].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not cells[1].startswith("`"):
            continue
        stems = re.findall(r"`([\w/]+)`", cells[1])
        functions = re.findall(r"`([\w:~]+)`", cells[2]) if len(stems) == 1 else []
        rows += [(stem, functions) for stem in stems]
    return rows


def size(stems):
    """The number of lines of all files of the stems."""
    return sum(sum(1 for _ in open(path)) for stem in stems for path in source_files(stem))
