"""docs/operations.md lists the environment variables that muster/base/settings.cc reads, and those that the package reads."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
_LITERALS = r'(?:"(?:[^"\\]|\\.)*"\s*)+'


def _joined(literals):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


def _read_by_settings():
    """{name: (accepted, default, used by, meaning)} of the table in settings.cc."""
    text = (ROOT / "muster" / "base" / "settings.cc").read_text(encoding="utf-8")
    constants = {name: _joined(value) for name, value in re.findall(rf"constexpr char (k\w+)\[\] = ({_LITERALS});", text)}
    cell = rf"({_LITERALS}|k\w+)"
    rows = re.findall(r"\{\s*" + r",\s*".join([cell] * 5) + r"\}", text[text.index("kVariables[]"):])
    cells = [[constants[value] if value in constants else _joined(value) for value in row] for row in rows]
    return {name: tuple(others) for name, *others in cells}


def _documented(heading):
    """The same of the table below a heading of docs/operations.md."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text[text.index(heading):]
    section = section[:section.find("\n##", 1)]
    rows = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
            for line in section.split("\n") if line.startswith("| `")]
    return {name: tuple(others) for name, *others in rows}


def test_every_variable_of_the_library_is_documented():
    read = _read_by_settings()
    assert len(read) > 40
    assert _documented("### Of the library and the command") == read


def test_every_variable_of_the_package_is_documented():
    names = set()
    for path in (ROOT / "python" / "muster").rglob("*.py"):
        names.update(re.findall(r"os\.(?:environ(?:\.get)?|getenv)[(\[]\s*\"(\w+)\"", path.read_text(encoding="utf-8")))
    assert names, "the package reads TF_CONFIG"
    documented = set(_documented("### Of the Python package")) | set(_read_by_settings())
    assert names <= documented
    assert set(_documented("### Of the Python package")) <= names
