"""An optimizer is one file of muster/train/optimizers: all else about it is made from that file."""
import ast
import inspect
import json
import pathlib
import re
import subprocess

import pytest

import muster as tf
from muster import _muster
from muster.train.core_optimizer import CoreOptimizer

PACKAGE = pathlib.Path(tf.__file__).parent
# Sources of the folder that are no optimizers.
MACHINERY = {"definition", "optimizer", "slots", "decay", "moving_average"}
NAMES = _muster.optimizer_names()
# Parameters of TensorFlow 2.21 that 1.15 does not have.
NEWER = {("AdamOptimizer", "use_own_namescope_for_non_slot_vars"), ("FtrlOptimizer", "beta")}

SIGNATURES = """
import inspect, json, sys
import tensorflow.compat.v1 as tf
def plain(default):
    return "required" if default is inspect.Parameter.empty else default
print(json.dumps({name: [(p.name, plain(p.default)) for p in inspect.signature(getattr(tf.train, name)).parameters.values()]
                  for name in sys.argv[1:] if hasattr(tf.train, name)}))
"""


def _class(name):
    return getattr(tf.train, name + "Optimizer")


def _signature(name):
    return [(p.name, "required" if p.default is p.empty else p.default)
            for p in inspect.signature(_class(name)).parameters.values()]


def test_every_file_defines_an_optimizer(root):
    defined = []
    for path in (root / "muster" / "train" / "optimizers").glob("*.cc"):
        if path.stem.endswith("_test"):
            continue
        found = re.findall(r"^DEFINE_OPTIMIZER\((\w+)\)", path.read_text(), re.MULTILINE)
        assert len(found) == (path.stem not in MACHINERY), "%s: a file of an optimizer has one DEFINE_OPTIMIZER" % path.name
        defined += found
    assert sorted(defined) == sorted(NAMES) and len(NAMES) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_python_has_it_with_a_docstring(name):
    assert issubclass(_class(name), CoreOptimizer) and _class(name).__name__ == name + "Optimizer"
    documented = re.findall(r"^ {6}(\w+): \S+", _class(name).__doc__, re.MULTILINE)
    assert documented == [parameter for parameter, _ in _signature(name)]
    assert _class(name).__doc__.index("Args:") > 20


@pytest.mark.parametrize("name", NAMES)
def test_stub_has_its_signature(name):
    stub = ast.parse((PACKAGE / "generated" / "optimizers.pyi").read_text())
    cls = next(node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name + "Optimizer")
    init = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert [a.arg for a in init.args.args[1:]] == [parameter for parameter, _ in _signature(name)]
    assert len(init.args.defaults) == sum(default != "required" for _, default in _signature(name))


@pytest.mark.parametrize("name", NAMES)
def test_cpp_has_it(name):
    header = (PACKAGE.parent.parent / "generated" / "muster" / "optimizers.h").read_text()
    match = re.search(r"struct %sOptions {\n(.*?)\n};\n.*?explicit %sOptimizer\((.*?)\)\n" % (name, name), header, re.DOTALL)
    fields = re.findall(r"^  [\w:]+ (\w+) = ", match.group(1), re.MULTILINE)
    arguments = re.findall(r"Operand (\w+)", match.group(2))
    assert sorted(fields + arguments) == sorted(parameter for parameter, _ in _signature(name))


@pytest.mark.parametrize("name", NAMES)
def test_values_are_kept_where_subclasses_find_them(name):
    """`self._lr` of TensorFlow's Adam, and what it becomes, `self._lr_t`."""
    with tf.Graph().as_default():
        values = {parameter: default if default != "required" else 0.5 for parameter, default in _signature(name)}
        if "global_step" in values:
            values["global_step"] = tf.train.create_global_step()
        optimizer = _class(name)(**values)
        for parameter, attribute in dict(optimizer._tensors, **optimizer._settings).items():
            assert getattr(optimizer, attribute) is values[parameter]
        optimizer.minimize(tf.Variable([1.0]) * 2.0)
        tensor = optimizer._lr_t if hasattr(optimizer, "_lr") else optimizer._learning_rate_tensor
        assert isinstance(tensor, tf.Tensor) and tensor.op.type == "Const"


def test_signatures_are_tensorflows(tf_python):
    done = subprocess.run([tf_python, "-c", SIGNATURES] + [name + "Optimizer" for name in NAMES], capture_output=True, text=True,
                          timeout=120, check=True)
    theirs = json.loads(done.stdout)
    assert len(theirs) >= 10
    for full, signature in theirs.items():
        wanted = [tuple(pair) for pair in signature if (full, pair[0]) not in NEWER]
        assert _signature(full[:-len("Optimizer")]) == wanted, full


@pytest.mark.parametrize("make, error, text", [
    ("AdagradOptimizer(0.1, 0)", ValueError, "^initial_accumulator_value must be positive: 0$"),
    ("AdagradOptimizer(0.1, -0.5)", ValueError, "^initial_accumulator_value must be positive: -0.5$"),
    ("AdagradDAOptimizer(0.1, 0, 0.0)", ValueError, "^initial_gradient_squared_accumulator_value must be positive: 0.0$"),
    ("ProximalAdagradOptimizer(0.1, 0.0)", ValueError, "^initial_accumulator_value must be positive: 0.0$"),
    ("FtrlOptimizer(0.1, 0.5)", ValueError, "^learning_rate_power 0.500000 needs to be negative or zero$"),
    ("FtrlOptimizer(0.1, -0.5, -1)", ValueError, "^initial_accumulator_value -1.000000 needs to be positive or zero$"),
    ("FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=-1)", ValueError,
     "^l2_shrinkage_regularization_strength -1.000000 needs to be positive or zero$"),
    ("AdagradOptimizer(0.1, tf.constant(0.1))", TypeError, "must be real number, not Tensor"),
    ("AdagradOptimizer(0.1, None)", TypeError, "must be real number, not NoneType"),
    ("AdamOptimizer(name='')", ValueError, "^Must specify the optimizer name$"),
])
def test_values_that_are_refused(make, error, text):
    with tf.Graph().as_default(), pytest.raises(error, match=text):
        eval("tf.train." + make, {"tf": tf})


def test_the_core_refuses_names_that_it_does_not_know():
    with pytest.raises(ValueError, match="^no optimizer is called Adamm$"):
        _muster.optimizer_core("Adamm", "x", False, {})
    core = _muster.optimizer_core("Adam", "x", False, {})
    with tf.Graph().as_default() as graph, pytest.raises(ValueError, match="Optimizer x has no hyperparameter 'rho'"):
        core.prepare(graph._building_scope(), {"rho": 0.5})
