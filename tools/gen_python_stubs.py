#!/usr/bin/env python3
"""Writes type stubs (.pyi) beside the modules of a built package, for editors and type checkers.

    tools/gen_python_stubs.py PACKAGE TABLE

PACKAGE is the folder `muster` that the build has put together; TABLE is python/op_functions.txt, which says what op a
generated function calls, and so what it returns. Modules are imported and looked at, since some names of tf are made
while they are loaded: namespaces such as tf.math, functions made by other functions, parts of tf.contrib.
"""
import ast
import builtins
import enum
import importlib
import inspect
import keyword
import pathlib
import sys
import textwrap
import types

import gen_python_ops

HEADER = "# Made by tools/gen_python_stubs.py.\n"
# Programs, not modules to import.
PROGRAMS = ("_command", "_run", "_run_tasks")
# Special methods that say how an object can be used.
SPECIAL = frozenset("__%s__" % name for name in (
    "init call enter exit iter next len getitem setitem delitem contains bool int float index array add radd sub rsub mul "
    "rmul truediv rtruediv div rdiv floordiv rfloordiv mod rmod pow rpow matmul rmatmul and rand or ror xor rxor neg abs "
    "invert lt le gt ge").split())
# Modules of folders that are names of tf; other files of a folder are how it is made.
PUBLIC_MODULES = ("muster.data.experimental", "muster.nn.rnn_cell", "muster.train.queue_runner")
# Values of these types say no more than that.
PLAIN = (bool, int, float, str, bytes)


def modules_of(package):
    """The modules of the package's files, by name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts[-1] not in PROGRAMS:
            name = ".".join(parts)
            found[name] = importlib.import_module(name)
    return found


def public_names(module):
    """The names of a module of tf that programs may use."""
    names = dir(module) if "__dir__" in vars(type(module)) or "__dir__" in vars(module) else (
        vars(module).get("__all__") or dir(module))
    return sorted(name for name in set(names)
                  if not name.startswith("_") and not keyword.iskeyword(name) and _is_public(module, name))


def _is_public(module, name):
    value = getattr(module, name)
    if name in vars(module).get("__all__", ()):
        return True
    if isinstance(value, types.ModuleType):
        return _is_public_module(module, name, value)
    if name not in vars(module):  # made when it is asked for
        return True
    if not hasattr(module, "__file__") or _is_package(module):  # what it names, it shows
        return not isinstance(getattr(value, "__module__", None), str) or value.__module__.startswith("muster") or (
            _is_own(module, name, value))
    return _is_own(module, name, value)


def _is_public_module(module, name, value):
    if module.__name__ == "muster":
        return name in module._SUBMODULES or name in module._NAMESPACES or name in ("dtypes", "errors")
    if _is_package(module):
        return value.__name__ in PUBLIC_MODULES
    # Parts of tf.contrib, of tf.saved_model and of namespaces; not what a module only uses.
    return not hasattr(module, "__file__") or not hasattr(value, "__file__")


def _is_own(module, name, value):
    """Whether a module has defined a name itself, or has it from its table of ops."""
    sources = (module.__name__, "muster.generated." + module.__name__.rpartition(".")[2])
    return getattr(value, "__module__", None) in sources or name not in _imported(module)


def _is_package(module):
    return (getattr(module, "__file__", None) or "").endswith("__init__.py")


def stub_names(module):
    """The names of a module that its stub has: those that are public, and those that other stubs refer to."""
    names = set(public_names(module))
    if hasattr(module, "__file__") and not _is_package(module):
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("__"):
                names.add(name)
            elif not name.startswith("_") and not isinstance(value, types.ModuleType) and _is_own(module, name, value):
                names.add(name)
    return sorted(names)


def _imported(module, known={}):
    """Names that the import statements of a module's source bind."""
    if module.__name__ not in known:
        path, found = getattr(module, "__file__", None), set()
        if path and path.endswith(".py"):
            for node in ast.walk(ast.parse(pathlib.Path(path).read_text())):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    found.update((a.asname or a.name).partition(".")[0] for a in node.names)
        known[module.__name__] = found
    return known[module.__name__]


class Stub(object):
    """The text of one stub."""

    def __init__(self, module, returns):
        self._module, self._returns = module, returns
        self._imports, self._lines = set(), []
        self._names = stub_names(module)
        for name in self._names:
            self._add(name, getattr(module, name))

    def text(self):
        lines = [HEADER.rstrip()]
        if any("Any" in line for line in self._lines):
            self._imports.add("from typing import Any as Any")
        lines += sorted(self._imports) + [""] if self._imports else []
        return "\n".join(lines + self._lines) + "\n"

    def _add(self, name, value):
        if isinstance(value, types.ModuleType):
            return self._add_module(name, value)
        home = getattr(value, "__module__", None)
        if inspect.isfunction(value) or inspect.isclass(value):
            if isinstance(home, str) and home.startswith("muster.") and home != self._module.__name__:
                found = _name_in(sys.modules.get(home), name, value)
                if found is not None:
                    self._imports.add("from %s import %s as %s" % (home, found, name))
                    return
        if inspect.isclass(value) and isinstance(home, str) and home.startswith("muster"):
            if value.__name__ != name and value.__name__ in self._names:
                self._lines.append("%s = %s" % (name, value.__name__))
            else:
                self._lines += self._class(name, value)
        elif inspect.isfunction(value):
            self._lines += self._function(name, value, self._returns.get(value))
        else:
            self._lines.append("%s: %s" % (name, self._type(value)))

    def _add_module(self, name, value):
        target = stub_name(value)
        if target is None:
            self._lines.append("%s: Any" % name)
        elif target == "muster":
            self._imports.add("import muster as %s" % name)
        else:
            parent, _, leaf = target.rpartition(".")
            self._imports.add("from %s import %s as %s" % (parent, leaf, name))

    def _type(self, value):
        kind = type(value)
        if isinstance(value, PLAIN):
            return "Any" if kind.__name__ in self._names else kind.__name__
        if (kind.__module__ or "").startswith("muster.") and _name_in(sys.modules.get(kind.__module__), kind.__name__, kind):
            if kind.__module__ != self._module.__name__:
                self._imports.add("from %s import %s as %s" % (kind.__module__, kind.__name__, kind.__name__))
            return kind.__name__
        return "Any"

    def _function(self, name, function, result=None, indent=""):
        result = result or "Any"
        for word in ("Tensor", "Operation"):
            if word in result and word not in self._names:
                self._imports.add("from muster.graph.graph_elements import %s as %s" % (word, word))
        return ["%sdef %s(%s) -> %s: ..." % (indent, name, parameters(function), result)]

    def _class(self, name, cls, indent=""):
        inner = indent + "    "
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            self._imports.add("from typing import NamedTuple as NamedTuple")
            lines = [inner + "%s: Any" % field for field in cls._fields]
            bases = ["NamedTuple"]
        else:
            bases = [base for base in (self._base(base) for base in cls.__bases__) if base]
            lines = self._members(cls, inner)
        head = "%sclass %s%s:" % (indent, name, "(%s)" % ", ".join(bases) if bases else "")
        return [head + " ..."] if not lines else [head] + lines

    def _base(self, base):
        if base is object:
            return None
        home = base.__module__
        if home == "builtins":
            return base.__name__ if hasattr(builtins, base.__name__) and base.__name__ not in self._names else None
        if home == self._module.__name__:
            return base.__name__ if base.__name__ in self._names else None
        if home.startswith("muster."):
            self._imports.add("from %s import %s as %s" % (home, base.__name__, base.__name__))
            return base.__name__
        if home in ("enum", "unittest.case", "threading", "collections"):
            root = home.partition(".")[0]
            self._imports.add("import %s" % root)
            return "%s.%s" % (root, base.__name__)
        return None

    def _members(self, cls, indent):
        lines, seen = [], set()
        for name, value in vars(cls).items():
            if name.startswith("_") and name not in SPECIAL or keyword.iskeyword(name):
                continue
            seen.add(name)
            if isinstance(value, staticmethod):
                if inspect.isfunction(value.__func__):
                    lines += [indent + "@staticmethod"] + self._function(name, value.__func__, indent=indent)
                else:
                    lines.append("%s%s: Any" % (indent, name))
            elif isinstance(value, classmethod):
                lines += [indent + "@classmethod"] + self._function(name, value.__func__, indent=indent)
            elif isinstance(value, property):
                lines += [indent + "@property", "%sdef %s(self) -> Any: ..." % (indent, name)]
                if value.fset is not None:
                    lines += ["%s@%s.setter" % (indent, name), "%sdef %s(self, value: Any) -> None: ..." % (indent, name)]
            elif inspect.isfunction(value):
                lines += self._function(name, value, "None" if name == "__init__" else None, indent=indent)
            elif inspect.isclass(value) and value.__qualname__.startswith(cls.__qualname__ + "."):
                lines += self._class(name, value, indent)
            elif issubclass(cls, enum.Enum) and isinstance(value, cls):
                lines.append("%s%s = %r" % (indent, name, value.value))
            else:
                lines.append("%s%s: Any" % (indent, name))
        lines += ["%s%s: Any" % (indent, name) for name in _instance_attributes(cls) if name not in seen
                  and not any(name in vars(base) for base in cls.__mro__)]
        return lines


def _name_in(module, name, value):
    """What a module calls a value, or None."""
    if module is None:
        return None
    for candidate in [name, getattr(value, "__name__", None)] + sorted(vars(module)):
        if candidate and not candidate.startswith("_") and vars(module).get(candidate) is value:
            return candidate
    return None


def _instance_attributes(cls):
    """Public names that the methods of a class assign to self."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return []
    return sorted({node.attr for node in ast.walk(tree)
                   if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_")
                   and isinstance(node.value, ast.Name) and node.value.id == "self"})


def parameters(function):
    """The parameters of a function as a stub has them: defaults are `...`."""
    try:
        signature = inspect.signature(function, follow_wrapped=True)
    except (TypeError, ValueError):
        return "*args: Any, **kwargs: Any"
    parts, positional_only, star = [], False, False
    for p in signature.parameters.values():
        if positional_only and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        positional_only = p.kind is p.POSITIONAL_ONLY
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        prefix = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(prefix + p.name + ("" if p.default is p.empty else "=..."))
    if positional_only:
        parts.append("/")
    return ", ".join(parts)


def stub_name(module):
    """The name under which a module has a stub: of a file, of a namespace (tf.math) or of a part of tf.contrib; or None."""
    name = module.__name__
    if name.startswith("tensorflow."):
        name = "muster." + name.partition(".")[2]
    return name if name == "muster" or name.startswith("muster.") else None


def virtual_modules(modules):
    """Modules below tf that have no file: namespaces, and the parts of tf.contrib and tf.estimator."""
    found, at = {}, [modules["muster"]]
    seen = set()
    while at:
        module = at.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        for name in public_names(module):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) and stub_name(value):
                if stub_name(value) not in modules:
                    found[stub_name(value)] = value
                at.append(value)
    return found


def results(table):
    """What the functions of the table return: function -> annotation."""
    from muster import _muster

    made = {}
    for row in gen_python_ops.read(table):
        function = getattr(importlib.import_module("muster.generated." + row.section), row.name)
        outputs = _muster.op_def(row.op).outputs
        if not outputs:
            made[function] = "Operation"
        elif len(outputs) == 1:
            is_list = outputs[0].number_attr or outputs[0].type_list_attr
            made[function] = "list[Tensor]" if is_list else "Tensor"
    return made


def main(package, table):
    package = pathlib.Path(package)
    sys.path.insert(0, str(package.parent))
    modules = modules_of(package)
    # `import muster.contrib` gives what stands for the module, whatever its file has defined.
    modules.update(virtual_modules(modules))
    returns = results(table)
    written = set()
    for name, module in modules.items():
        parts = name.split(".")[1:]
        folder = package.joinpath(*parts)
        path = folder / "__init__.pyi" if folder.is_dir() or any(n.startswith(name + ".") for n in modules) else folder.with_suffix(".pyi")
        path.parent.mkdir(exist_ok=True)
        text = Stub(module, returns).text()
        ast.parse(text, filename=str(path))
        written.add(path)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for stale in set(package.rglob("*.pyi")) - written:
        if stale.name != "_muster.pyi":  # made by nanobind
            stale.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
