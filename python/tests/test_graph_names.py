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
    _check(_CASES[int(index)])


def test_no_attribute_that_115_does_not_know():
    """A 1.15 peer refuses a node with an attribute that its own op definition lacks."""
    import op_def_list

    known = {name: {attr["name"] for attr in op["attrs"]}
             for name, op in op_def_list.read_golden(golden_cases.folder("op_defs.txt").read_text()).items()}
    seen = 0
    codes = [case["code"] for case in _CASES]
    # Ops that gained attributes: matrix products, segments, pooling, batch norm, top-k.
    codes.append("x = tf.placeholder(tf.float32, [2, 4, 4, 2]); tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], 'SAME'); "
                 "tf.nn.fused_batch_norm(x, tf.ones([2]), tf.zeros([2])); tf.nn.top_k(x, 1); tf.matmul(x, x, transpose_b=True); "
                 "tf.gather_nd(x, [[0]]); tf.sparse_segment_sum(x, [0, 1], [0, 0])")
    for code in codes:
        for op in _build(code).get_operations():
            if op.type not in known:
                continue
            seen += 1
            unknown = [name for name in op.node_def.attr if not name.startswith("_") and name not in known[op.type]]
            assert not unknown, (code, op.name, op.type, unknown)
    assert seen > 500
