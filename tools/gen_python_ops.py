#!/usr/bin/env python3
"""Writes the functions of tf that are one op each, from python/op_functions.txt.

    tools/gen_python_ops.py TABLE FOLDER

FOLDER gets one module for each section of the table, and __init__.py.
"""
import ast
import collections
import pathlib
import re
import sys
import textwrap

WIDTH = 120
HEADER = '''"""Functions that hand their arguments to one op. tools/gen_python_ops.py has made them from op_functions.txt."""
'''

# One row: `parameters` are (name, default as written or None), `arguments` maps the op's names to the function's.
Row = collections.namedtuple("Row", ["section", "name", "parameters", "op", "arguments", "doc"])


class TableError(Exception):
    """A line of the table that breaks its rules."""


def _parameters(text):
    arguments = ast.parse("def f(%s): pass" % text).body[0].args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        raise TableError("only plain parameters are allowed")
    names = [a.arg for a in arguments.args]
    defaults = [None] * (len(names) - len(arguments.defaults)) + [_source(d) for d in arguments.defaults]
    return list(zip(names, defaults))


def _source(default):
    if isinstance(default, ast.Constant) and isinstance(default.value, str):
        return '"%s"' % default.value
    return ast.unparse(default)


def _row(section, head, doc):
    match = re.fullmatch(r"(\w+)\((.*)\) = (\w+)(?:\((.*)\))?", head)
    if match is None:
        raise TableError("a row reads `name(parameters) = Op` or `name(parameters) = Op(argument=parameter)`")
    name, parameters, op, renames = match.groups()
    parameters = _parameters(parameters)
    known = [p for p, _ in parameters]
    renamed = dict(pair.split("=") for pair in (renames or "").replace(" ", "").split(",") if pair)
    for parameter in renamed.values():
        if parameter not in known:
            raise TableError("%s has no parameter '%s'" % (name, parameter))
    names = {parameter: argument for argument, parameter in renamed.items()}
    arguments = {names.get(p, p): p for p in known}
    if not doc:
        raise TableError("%s has no docstring" % name)
    return Row(section, name, parameters, op, arguments, doc)


def read(path):
    """The rows of a table."""
    rows, section, head, doc, at = [], None, None, [], 0

    def end():
        if head is not None:
            if any(row.section == section and row.name == head.partition("(")[0] for row in rows):
                raise TableError("%s stands twice in [%s]" % (head.partition("(")[0], section))
            rows.append(_row(section, head, " ".join(doc)))

    try:
        for at, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
            if line.startswith("#") or not line.strip():
                continue
            if line.startswith(" "):
                if head is None:
                    raise TableError("a docstring without a function")
                doc.append(line.strip())
                continue
            end()
            head, doc = None, []
            if line.startswith("["):
                section = line.strip("[]")
            elif section is None:
                raise TableError("a function outside of every [section]")
            else:
                head = line
        end()
    except (TableError, SyntaxError) as error:
        raise TableError("%s: line %d or the row before it: %s" % (path, at, error)) from None
    return rows


def _wrapped(start, items, end):
    """start + items separated by commas + end, in lines of at most WIDTH columns."""
    one = start + ", ".join(items) + end
    if len(one) <= WIDTH:
        return [one]
    lines, indent = [start], " " * len(start)
    for number, item in enumerate(items):
        piece = item + (end if number + 1 == len(items) else ",")
        if lines[-1].strip() and len(lines[-1]) + len(piece) + 1 > WIDTH:
            lines.append(indent)
        lines[-1] += piece if lines[-1].endswith(("(", "[")) or not lines[-1].strip() else " " + piece
    return lines


def _function(row):
    parameters = [p if default is None else "%s=%s" % (p, default) for p, default in row.parameters]
    lines = _wrapped("def %s(" % row.name, parameters, "):")
    doc = textwrap.wrap(row.doc, WIDTH - 7)
    lines += ['    """%s"""' % doc[0]] if len(doc) == 1 else ['    """' + doc[0]] + ["    " + d for d in doc[1:]] + ['    """']
    # `name` first, then as the function has them.
    arguments = sorted(row.arguments.items(), key=lambda pair: pair[0] != "name")
    lines += _wrapped("    return call(", ['"%s"' % row.op] + ["%s=%s" % pair for pair in arguments], ")")
    return "\n".join(lines)


def module(rows):
    """The text of the module of one section."""
    names = sorted(row.name for row in rows)
    text = [HEADER.rstrip("\n")]
    if any(default and default.startswith("dtypes.") for row in rows for _, default in row.parameters):
        text.append("from muster import dtypes")
    text += ["from muster.graph.op_library import call", ""]
    text += _wrapped("__all__ = [", ['"%s"' % name for name in names], "]")
    return "\n".join(text) + "\n" + "".join("\n\n%s\n" % _function(row) for row in rows)


def main(table, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        rows = read(table)
    except TableError as error:
        sys.exit("gen_python_ops: %s" % error)
    sections = list(dict.fromkeys(row.section for row in rows))
    texts = {"__init__": '"""Modules that tools/gen_python_ops.py has made from op_functions.txt."""\n'}
    texts.update({section: module([row for row in rows if row.section == section]) for section in sections})
    for path in folder.glob("*.py"):
        if path.stem not in texts and path.read_text().startswith(HEADER):  # of a section that is gone
            path.unlink()
    for name, text in texts.items():
        path = folder / (name + ".py")
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
