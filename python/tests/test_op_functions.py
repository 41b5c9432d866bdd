"""Functions that are one op each come from python/op_functions.txt, and from there only."""
import ast
import importlib
import inspect

import gen_python_ops
import numpy as np
import pytest

import muster as tf
from muster import _muster


@pytest.fixture(scope="module")
def rows(root):
    return gen_python_ops.read(root / "python" / "op_functions.txt")


def test_every_row_names_arguments_of_its_op(rows):
    assert len(rows) > 150
    for row in rows:
        definition = _muster.op_def(row.op)
        known = {a.name for a in definition.inputs} | {a.name for a in definition.attrs} | {"name"}
        assert set(row.arguments) <= known, row
        needed = {a.name for a in definition.inputs}
        assert needed <= set(row.arguments), row


def test_functions_have_the_signature_of_their_row(rows):
    for row in rows:
        function = getattr(importlib.import_module("muster.generated." + row.section), row.name)
        wanted = [(name, inspect.Parameter.empty if default is None else eval(default, {"dtypes": tf.dtypes}))
                  for name, default in row.parameters]
        assert [(p.name, p.default) for p in inspect.signature(function).parameters.values()] == wanted, row
        assert " ".join(function.__doc__.split()) == row.doc


def test_modules_show_the_functions_of_their_section(rows):
    for row in rows:
        if row.section not in ("image", "bitwise_ops"):
            room = "nn" if row.section in ("nn_ops", "conv_ops") else "ops"
            module = importlib.import_module("muster.%s.%s" % (room, row.section))
            assert getattr(module, row.name).__module__ == "muster.generated." + row.section, row
    assert tf.image.decode_png.__module__ == "muster.generated.image"
    assert tf.bitwise.invert.__module__ == "muster.generated.bitwise_ops"
    assert tf.identity.__name__ == "identity" and tf.floormod is tf.mod


def _only_passes_on(function):
    """Whether all that a function does is to hand its arguments to call("Op")."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if len(body) != 1 or not isinstance(body[0], ast.Return) or function.decorator_list:
        return False
    called = body[0].value
    if not isinstance(called, ast.Call) or not isinstance(called.func, ast.Name) or called.func.id != "call":
        return False
    names = [a.arg for a in function.args.args]
    passed = [k.value.id if isinstance(k.value, ast.Name) else None for k in called.keywords]
    return isinstance(called.args[0], ast.Constant) and sorted(names) == sorted(map(str, passed))


def test_no_function_of_one_op_is_written_by_hand(root):
    assert _only_passes_on(ast.parse("def f(a, name=None): return call('F', name=name, x=a)").body[0])
    assert not _only_passes_on(ast.parse("def f(a, name=None): return call('F', name=name, x=g(a))").body[0])
    found = ["%s: %s" % (path.relative_to(root), node.name)
             for path in (root / "python" / "muster").rglob("*.py")
             for node in ast.parse(path.read_text()).body
             if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and _only_passes_on(node)]
    assert not found, "make these rows of python/op_functions.txt: %s" % found


@pytest.mark.parametrize("text, error", [
    ("f(x) = F\n    Doc.\n", "a function outside of every"),
    ("[a]\nf(x)\n    Doc.\n", "a row reads"),
    ("[a]\nf(x) = F\n", "f has no docstring"),
    ("[a]\nf(x) = F(y=z)\n    Doc.\n", "f has no parameter 'z'"),
    ("[a]\nf(*x) = F\n    Doc.\n", "only plain parameters"),
    ("[a]\nf(x) = F\n    Doc.\nf(y) = G\n    Doc.\n", "f stands twice"),
    ("[a]\n    Doc.\n", "a docstring without a function"),
])
def test_rows_that_break_the_rules_are_refused(tmp_path, text, error):
    (tmp_path / "table.txt").write_text(text)
    with pytest.raises(gen_python_ops.TableError, match=error):
        gen_python_ops.read(tmp_path / "table.txt")


def test_number_of_segments():
    """It has been dropped once, by a function that looked as if it passed everything on."""
    data = tf.constant([[1.0], [2.0], [4.0]])
    functions = (tf.sparse_segment_sum, tf.sparse_segment_mean, tf.sparse_segment_sqrt_n)
    with tf.Session() as session:
        plain = session.run([f(data, [0, 1, 2], [0, 0, 1]) for f in functions])
        more = session.run([f(data, [0, 1, 2], [0, 0, 1], num_segments=4) for f in functions])
    for one, other in zip(plain, more):
        assert one.shape == (2, 1) and other.shape == (4, 1)
        np.testing.assert_array_equal(one, other[:2])
        np.testing.assert_array_equal(other[2:], np.zeros([2, 1]))
