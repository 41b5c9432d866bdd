"""Public names of TensorFlow that Muster does not have: using one is an error, and programs that look first do not find it."""
import json
import subprocess
import sys

import pytest

import muster as tf
from muster.names import missing_names

# Prints the public names below tf.compat.v1 and tf. Keras is loaded late there and is not asked for what it has.
LIST_NAMES = """
import json, os, types
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as v2, tensorflow.compat.v1 as v1

names = set()

def walk(module, path, seen, late):
    if id(module) in seen:
        return
    seen.add(id(module))
    for name in dir(module):
        full = path + name
        if name.startswith("_") or full == "compat" or path == "raw_ops.":
            continue
        value = None if full in late else getattr(module, name)
        if isinstance(value, types.ModuleType) and "._api." not in value.__name__:
            continue
        names.add(full)
        if isinstance(value, types.ModuleType):
            walk(value, full + ".", seen, late)

walk(v1, "", set(), ("keras", "layers", "nn.rnn_cell"))
walk(v2, "", set(), ("keras", "losses", "metrics", "optimizers", "initializers"))
print(json.dumps(sorted(names)))
"""

# Reads names and prints those that are absent, each with what asking for it and what importing it says.
ASK = """
import json, sys
from muster.names import alias
alias.install()
import tensorflow

answers = {}
for full in json.load(sys.stdin):
    at, parent = tensorflow, "tensorflow"
    for name in full.split("."):
        try:
            at = getattr(at, name)
        except AttributeError as error:
            absent = (parent + "." + name).partition(".")[2]
            try:
                exec("from %s import %s" % (parent, name))
                imported = "imported"
            except ImportError as import_error:
                imported = str(import_error)
            answers[absent] = [str(error), imported, hasattr(at, name), getattr(at, name, "default")]
            break
        parent += "." + name
print(json.dumps(answers))
"""


def _printed(python, code, *, given=None):
    done = subprocess.run([python, "-c", code], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_missing_name_says_so(tf_python):
    names = _printed(tf_python, LIST_NAMES)
    assert len(names) > 2000 and "train.Saver" in names and "function" in names
    answers = _printed(sys.executable, ASK, given=json.dumps(names))
    assert "function" in answers and "signal" in answers and "train.Saver" not in answers
    for name, (asked, imported, there, default) in answers.items():
        assert asked.startswith("tf.%s is not available: " % name), (name, asked)
        assert "%s is not available: " % name in imported, (name, imported)
        assert not there and default == "default", name


def test_the_list_names_nothing_that_is_there():
    for module, names in missing_names.NAMES.items():
        at = tf
        for part in filter(None, module.split(".")):
            at = getattr(at, part)
        there = [name for name in names.split() if hasattr(at, name)]
        assert not there, "take these of tf.%s out of missing_names.py" % module


@pytest.mark.parametrize("probe", [
    "hasattr(tf, 'function')", "hasattr(tf, 'keras')", "getattr(tf, 'GradientTape', None)", "hasattr(tf.train, 'Checkpoint')",
    "hasattr(tf.math, 'erfinv')", "hasattr(tf.saved_model.constants, 'DEBUG_DIRECTORY')", "hasattr(tf.compat, 'v2')",
    "hasattr(tf.contrib, 'tpu')", "hasattr(tf.raw_ops, 'Nothing')"])
def test_programs_that_look_first_do_not_find_it(probe):
    assert not eval(probe, {"tf": tf})  # noqa: S307 (our own text)
