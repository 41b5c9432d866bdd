"""What documents name exists: the targets of links, their headings, paths and identifiers in backquotes, cited sections.

Used by tools/tidy.py.
"""

import fnmatch
import pathlib
import posixpath
import re

REFERENCES = "docs/reference/"

_LINK = re.compile(r"(?<!!)\[[^][]*\]\(([^()\s]+)\)|!\[[^][]*\]\(([^()\s]+)\)")
_BACKQUOTED = re.compile(r"`([^`\s]+)`")
# A path from the root in a comment or a text, where it names a file that people read or run.
_MENTIONED = re.compile(r"(?<![\w./\\{}$-])((?:docs|tests|tools|python|muster|benchmarks|examples)/[\w./-]+\.(?:md|py|sh|txt))\b(?![\w/]|\.\w)")
_SECTION = re.compile(r"§ ?(\d+(?:\.\d+)*)")
# Names in backquotes: CamelCase words, alone or qualified; "..." stands for the rest of a long one.
_IDENTIFIER = re.compile(r"`((?:\w+(?:::|\.))*\w+)(\.\.\.)?(?:\(\))?`")
_TYPE = re.compile(r"\b(?:class|struct|enum|using|namespace)[ \t]+(?:class[ \t]+)?(?:[A-Z_]{4,}(?:\([^)]*\))?[ \t]+)?(?:\w+::)*(\w+)")
_FOREIGN = {"std", "absl", "LockSupport", "Thread", "PascalCase"}  # of other libraries, and a word
# A module of the Python package, as comments of the bindings name it.
_MODULE = re.compile(r"(?<![\w.\"/])muster\.([a-z]\w*(?:\.\w+)*)")


def _prose(text):
    """Markdown with its code blocks blanked; line numbers stay."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.S | re.M)


def headings(text):
    """The headings of a document, without their marks."""
    return [re.sub(r"[`*]", "", title).strip() for title in re.findall(r"^#+[ \t]+(.*)$", _prose(text), re.M)]


def anchors(text):
    """The names by which links reach the headings of a document."""
    found = set()
    for title in headings(text):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}-{number}"
        found.add(unique)
    return found


def sections(text):
    """The numbers with which the headings of a reference begin."""
    return {number for title in headings(text) for number in re.findall(r"^(\d+(?:\.\d+)*)", title)}


def _folders(names):
    return {str(parent) for name in names for parent in pathlib.PurePosixPath(name).parents}


def _line(text, position):
    return text.count("\n", 0, position) + 1


def link_errors(name, text, documents, names):
    """Links to files that are not there, or to headings that their document does not have.

    `documents` holds the text of every Markdown file, `names` all files.
    """
    prose, folders = _prose(text), _folders(names)
    for match in _LINK.finditer(prose):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        where = f"{name}:{_line(prose, match.start())}: the link to {target}"
        if path not in names and path not in folders:
            yield f"{where} leads nowhere: there is no {path}"
        elif anchor and anchor not in anchors(documents.get(path, "")):
            yield f"{where} leads nowhere: {path} has no heading with that anchor"


def path_errors(name, text, names):
    """Paths from the root, in backquotes, that name nothing."""
    folders = _folders(names)
    roots = {folder for folder in folders if "/" not in folder and folder != "."}
    prose = _prose(text)
    for match in _BACKQUOTED.finditer(prose):
        path = match[1]
        if path.partition("/")[0] not in roots or "/" not in path or not re.fullmatch(r"[\w./*?-]+", path):
            continue
        path = path.rstrip("/")
        if path in names or path in folders or any(fnmatch.fnmatchcase(there, path) for there in names | folders):
            continue
        yield f"{name}:{_line(prose, match.start())}: there is no {path}"


def known_identifiers(sources):
    """(all words, all types of C++) of {name: text of a source}."""
    words, types = set(), set(_FOREIGN)
    for name, text in sources.items():
        words.update(re.findall(r"\w+", text))
        if name.endswith((".h", ".cc")):
            types.update(_TYPE.findall(text))
    return words | _FOREIGN, types


def identifier_errors(name, text, known):
    """CamelCase names in backquotes that no source has, and qualifiers that are not types. `known`: known_identifiers()."""
    words, types = known
    prose = _prose(text)
    for match in _IDENTIFIER.finditer(prose):
        missing = [word for word in re.findall(r"(\w+)::", match[1]) if word not in types]
        for word in re.findall(r"\b[A-Z]+[a-z]\w*", match[1]):
            is_cut = match[2] and match[1].endswith(word)
            if word not in words and not (is_cut and any(other.startswith(word) for other in words)):
                missing.append(word)
        for word in dict.fromkeys(missing):
            yield f"{name}:{_line(prose, match.start())}: the sources have no {word}"


def heading_errors(name, text):
    """Lines that look like a heading and are none: a space is missing after the marks."""
    prose = _prose(text)
    for match in re.finditer(r"^#+[^#\s]", prose, re.M):
        yield f"{name}:{_line(prose, match.start())}: no heading without a space after '#'"


def module_errors(name, text, names):
    """Modules of the Python package that C++ names and that are not there."""
    for match in _MODULE.finditer(text):
        modules = {match[1], match[1].rpartition(".")[0]} - {""}  # the last word may be a name in its module
        paths = {"python/muster/" + module.replace(".", "/") for module in modules}
        if not names & {path + end for path in paths for end in (".py", "/__init__.py")}:
            yield f"{name}:{_line(text, match.start())}: there is no module {match[0]}"


def mention_errors(name, text, names):
    """Files from the root that a comment or a text of the code names and that are not there."""
    for match in _MENTIONED.finditer(text):
        if match[1] not in names:
            yield f"{name}:{_line(text, match.start())}: there is no {match[1]}"


def citation_errors(name, text, references):
    """Sections, and quoted headings, that the cited reference does not have.

    `references` holds the documents of docs/reference by name. A section belongs to the reference named before it in
    the same line or the two before; in a reference, to the reference itself.
    """
    own = name[len(REFERENCES):-len(".md")] if name.startswith(REFERENCES) else None
    lines = text.split("\n")
    named = re.compile("|".join(map(re.escape, references)) or "$^")
    for number, line in enumerate(lines):
        for match in _SECTION.finditer(line):
            before = "\n".join(lines[max(0, number - 2):number] + [line[:match.start()]])
            cited = (named.findall(before) or [own])[-1]
            if cited is None:
                yield f"{name}:{number + 1}: §{match[1]} of which reference? {REFERENCES} has {', '.join(sorted(references))}"
            elif match[1] not in sections(references.get(cited, "")):
                yield f"{name}:{number + 1}: {REFERENCES}{cited}.md has no section {match[1]}"
        for match in re.finditer(rf'({named.pattern}): "([^"]+)"', line):
            if not any(match[2] in title for title in headings(references[match[1]])):
                yield f'{name}:{number + 1}: {REFERENCES}{match[1]}.md has no heading "{match[2]}"'
