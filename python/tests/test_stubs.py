"""Type stubs: every public name is in them, with the parameters that it has."""
import ast
import functools
import inspect
import json
import pathlib
import subprocess

import gen_python_stubs
import public_api
import pytest

import muster as tf
from test_missing_names import LIST_NAMES

PACKAGE = pathlib.Path(tf.__file__).parent


@functools.lru_cache(maxsize=None)
def _names(module):
    """What the top level of a stub binds: name -> statement; None for a module without a stub."""
    folder, found = PACKAGE.joinpath(*module.split(".")[1:]), {}
    path = folder / "__init__.pyi" if (folder / "__init__.pyi").exists() else folder.with_suffix(".pyi")
    if not module.startswith("muster") or not path.exists():
        return None
    for node in ast.parse(path.read_text(), filename=str(path)).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found[node.targets[0].id] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            found.update({a.asname or a.name: (module, a.name) for a in node.names})
    return found


def _definition(name, statement):
    """The statement that defines a name, which may be an import from another stub."""
    while isinstance(statement, tuple):
        module, name = statement
        # A module, or a name of Python itself.
        if module is None or _names(module) is None or _names(module + "." + name) is not None:
            return None
        assert name in _names(module), "%s is imported from %s, whose stub does not have it" % (name, module)
        statement = _names(module)[name]
    return statement


def _parameters(arguments):
    names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    defaults = len(arguments.defaults) + sum(d is not None for d in arguments.kw_defaults)
    return names, bool(arguments.vararg), bool(arguments.kwarg), defaults


def _parameters_of(function):
    found = list(inspect.signature(function).parameters.values())
    plain = [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return ([p.name for p in plain], any(p.kind is p.VAR_POSITIONAL for p in found),
            any(p.kind is p.VAR_KEYWORD for p in found), sum(p.default is not p.empty for p in plain))


MODULES = public_api.modules()


@pytest.mark.parametrize("path", sorted(MODULES))
def test_public_names_are_in_the_stub(path):
    module = MODULES[path]
    stub = _names(gen_python_stubs.stub_name(module))
    for name in gen_python_stubs.public_names(module):
        assert name in stub, "%s.%s" % (path, name)
        value, definition = getattr(module, name), _definition(name, stub[name])
        if inspect.isfunction(value):
            assert isinstance(definition, ast.FunctionDef), (path, name)
            assert _parameters(definition.args) == _parameters_of(value), "%s.%s" % (path, name)
        elif inspect.isclass(value) and isinstance(definition, ast.ClassDef):
            methods = {n.name: n for n in definition.body if isinstance(n, ast.FunctionDef)}
            for member, method in vars(value).items():
                if inspect.isfunction(method) and not member.startswith("_") and not hasattr(value, "_fields"):
                    assert _parameters(methods[member].args) == _parameters_of(method), "%s.%s.%s" % (path, name, member)


def test_stubs_have_what_tensorflow_has(tf_python):
    """By TensorFlow's list of names, whatever the generator takes for public."""
    listed = json.loads(subprocess.run([tf_python, "-c", LIST_NAMES], capture_output=True, text=True, timeout=120, check=True).stdout)
    checked = 0
    for full in listed:
        parent, _, name = full.rpartition(".")
        path = "tf." + parent if parent else "tf"
        if path in MODULES and hasattr(MODULES[path], name):
            assert name in _names(gen_python_stubs.stub_name(MODULES[path])), full
            checked += 1
    assert checked > 1400


def test_results_of_ops_have_types():
    stub = _names("muster.generated.array_ops")
    assert ast.unparse(stub["identity"].returns) == "Tensor"
    assert ast.unparse(stub["shape_n"].returns) == "list[Tensor]"
    assert ast.unparse(_names("muster.generated.control_flow_ops")["no_op"].returns) == "Operation"


def test_type_checkers_find_the_stubs():
    """py.typed says that the package has types (PEP 561)."""
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_muster.pyi").exists()
