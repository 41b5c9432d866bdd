"""The nodes of small programs, built by Muster and by TensorFlow 2.21, differ only as graph_differences_tf221.txt says.

Muster's nodes are those of 1.15; a later TensorFlow has changed some. A line of that file is

    program | node | Muster | TensorFlow | reason

with shell patterns for program and node. The columns of Muster and TensorFlow are the op, `in: a, b` where only inputs
differ, or `-` where the node does not exist; both are `order` for a node that comes at another place among the others.
"""
import fnmatch
import json
import os
import pathlib
import subprocess

import pytest

import graph_programs

_NAMES = [program.__name__ for program in graph_programs.PROGRAMS]
_HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def theirs(tf_python):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([tf_python, str(_HERE / "graph_programs.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ours():
    import muster as tf

    return graph_programs.nodes(tf)


def _known():
    entries = []
    for line in (_HERE / "graph_differences_tf221.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            entry = tuple(part.strip() for part in line.split("|"))
            assert len(entry) == 5 and all(entry), line
            entries.append(entry)
    return entries


def _differences(mine, other):
    """[(node, Muster, TensorFlow)], in the words of the list."""
    by_name = {name: (op, inputs) for name, op, inputs in mine}
    found = [(name, op, "-") for name, op, _ in mine if name not in {n for n, _, _ in other}]
    for name, op, inputs in other:
        if name not in by_name:
            found.append((name, "-", op))
            continue
        my_op, my_inputs = by_name[name]
        if my_op != op:
            found.append((name, my_op, op))
        if my_inputs != inputs:
            found.append((name, ("in: " + ", ".join(my_inputs)).strip(), ("in: " + ", ".join(inputs)).strip()))
    return found


def _matches(entry, program, difference):
    return (fnmatch.fnmatchcase(program, entry[0]) and fnmatch.fnmatchcase(difference[0], entry[1])
            and fnmatch.fnmatchcase(difference[1], entry[2]) and fnmatch.fnmatchcase(difference[2], entry[3]))


@pytest.mark.parametrize("program", _NAMES)
def test_nodes(program, ours, theirs):
    mine, other = ours[program], theirs[program]
    known = _known()
    unknown = [d for d in _differences(mine, other) if not any(_matches(entry, program, d) for entry in known)]
    assert not unknown, "\n".join(" | ".join((program,) + d) for d in unknown)


def _same_order(mine, other, moved):
    """Whether the nodes that both have come in the same order, without those that the entries `moved` name."""
    common = {n[0] for n in mine} & {n[0] for n in other}
    common = {n for n in common if not any(fnmatch.fnmatchcase(n, entry[1]) for entry in moved)}
    return [n[0] for n in mine if n[0] in common] == [n[0] for n in other if n[0] in common]


def _moved(program):
    return [entry for entry in _known() if entry[2] == "order" and fnmatch.fnmatchcase(program, entry[0])]


@pytest.mark.parametrize("program", _NAMES)
def test_order(program, ours, theirs):
    assert _same_order(ours[program], theirs[program], _moved(program))


def test_every_known_difference_is_there(ours, theirs):
    found = [(program, d) for program in _NAMES for d in _differences(ours[program], theirs[program])]
    for entry in _known():
        if entry[2] == "order":
            programs = [p for p in _NAMES if fnmatch.fnmatchcase(p, entry[0])]
            there = any(not _same_order(ours[p], theirs[p], [e for e in _moved(p) if e != entry]) for p in programs)
        else:
            there = any(_matches(entry, program, d) for program, d in found)
        assert there, "no longer different: %s" % (entry,)
