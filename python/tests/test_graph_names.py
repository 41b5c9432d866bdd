"""The nodes that Python code makes: names, order, inputs, colocation, collections and seeds, as TensorFlow 1.15.5."""
import pytest

import golden_cases

_CASES = golden_cases.load("graph_names.json")
_IDS = [str(i) for i in range(len(_CASES))]


def _build(code, seed=None):
    import muster as tf

    graph = tf.Graph()
    with graph.as_default():
        if seed is not None:
            tf.set_random_seed(seed)
        exec(code, {"tf": tf})
    return graph


def _describe(op):
    inputs = [t.op.name if t.value_index == 0 else t.name for t in op.inputs]
    inputs += ["^" + c.name for c in op.control_inputs]
    entry = [op.name, op.type, inputs]
    colocated = [g.decode()[len("loc:@"):] for g in op.colocation_groups()]
    colocated = [name for name in colocated if name != op.name]
    return entry + [colocated] if colocated else entry


def _check(case):
    graph = _build(case["code"])
    ours = [_describe(op) for op in graph.get_operations()]
    theirs = case["nodes"]
    for i, (mine, expected) in enumerate(zip(ours, theirs)):
        assert mine == expected, "node %d" % i
    assert [n[0] for n in ours[len(theirs):]] == []
    assert [n[0] for n in theirs[len(ours):]] == []
    for name, items in case.get("collections", {}).items():
        assert [item.name for item in graph.get_collection(name)] == items, name
    seeds = case.get("seeds_with_graph_seed_1")
    if seeds:
        graph = _build(case["code"], seed=1)
        found = {op.name: [op.get_attr("seed"), op.get_attr("seed2")] for op in graph.get_operations()
                 if op.name in seeds}
        assert found == seeds


@pytest.mark.parametrize("index", _IDS)
def test_nodes(index):
    golden_cases.check("graph_names", index, lambda: _check(_CASES[int(index)]))


def test_waiting_list():
    golden_cases.check_list("graph_names", _IDS)
