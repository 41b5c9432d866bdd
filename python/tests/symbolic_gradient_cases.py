"""Graphs with SymbolicGradient, run by TensorFlow and by Muster: test_symbolic_gradient.py compares what they answer.

Run in TensorFlow's interpreter it writes the answers of TensorFlow as a pickle.
"""

import pickle
import sys

import numpy as np
from google.protobuf import text_format

_TYPES = {"f": "DT_FLOAT", "i": "DT_INT32", "s": "DT_STRING", "d": "DT_DOUBLE", "c": "DT_COMPLEX64"}
_ARRAYS = {"f": np.float32, "i": np.int32, "s": object, "d": np.float64, "c": np.complex64}
_T = "attr { key: 'T' value { type: %s } }"


def _function(name, inputs, outputs, nodes, ret):
    def args(kind, pairs):
        return " ".join("%s { name: '%s' type: %s }" % (kind, n, _TYPES[t]) for n, t in pairs)

    return "function { signature { name: '%s' %s %s } %s %s } " % (
        name, args("input_arg", inputs), args("output_arg", outputs), " ".join("node_def { %s }" % n for n in nodes),
        " ".join("ret { key: '%s' value: '%s' }" % item for item in ret))


def _node(name, op, inputs, attrs=_T % "DT_FLOAT"):
    return "name: '%s' op: '%s' %s %s" % (name, op, " ".join("input: '%s'" % i for i in inputs), attrs)


def _square(name, kind):
    return _function(name, [("x", kind)], [("y", kind)], [_node("m", "Mul", ["x", "x"], _T % _TYPES[kind])],
                     [("y", "m:z:0")])


_CALL = ("attr { key: 'Tin' value { list { type: DT_FLOAT } } } attr { key: 'Tout' value { list { type: DT_FLOAT } } } "
         "attr { key: 'f' value { func { name: 'Square1' } } }")
_LIBRARY = "library { %s gradient { function_name: 'Custom' gradient_func: 'CustomGradient' } }" % "".join([
    _square("Square1", "f"), _square("Square2", "d"), _square("Square3", "i"), _square("Square4", "c"),
    _function("Product", [("a", "f"), ("b", "f")], [("y", "f"), ("z", "f")],
              [_node("p", "MatMul", ["a", "b"]), _node("t", "Tanh", ["a"])], [("y", "p:product:0"), ("z", "t:y:0")]),
    _function("Unused", [("a", "f"), ("b", "f"), ("i", "i"), ("s", "s")], [("y", "f")], [_node("e", "Exp", ["a"])],
              [("y", "e:y:0")]),
    _function("Nested", [("a", "f"), ("b", "f")], [("y", "f")],
              [_node("q", "Square1", ["a"], ""), _node("r", "PartitionedCall", ["q:y:0"], _CALL),
               _node("m", "Mul", ["r:output:0", "b"])], [("y", "m:z:0")]),
    _function("Passed", [("a", "f"), ("b", "f")], [("x", "f"), ("y", "f"), ("z", "f")], [],
              [("x", "a"), ("y", "a"), ("z", "b")]),
    _function("Custom", [("a", "f")], [("y", "f")], [_node("e", "Exp", ["a"])], [("y", "e:y:0")]),
    _function("CustomGradient", [("a", "f"), ("dy", "f")], [("dx", "f")], [_node("s", "Sub", ["a", "dy"])],
              [("dx", "s:z:0")]),
])

# Name -> (function, types of inputs, types of outputs, values).
CASES = {
    "scalar": ("Square1", "ff", "f", [3, 1]),
    "vector": ("Square1", "ff", "f", [[1, 2, 3], [1, 10, 100]]),
    "double": ("Square2", "dd", "d", [3, 1]),
    "integer": ("Square3", "ii", "i", [3, 1]),
    "complex": ("Square4", "cc", "c", [3 + 2j, 1]),
    "two_inputs": ("Product", "ffff", "ff", [np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4) * 0.1,
                                             np.ones((2, 4)), np.full((2, 3), 2)]),
    "without_gradient": ("Unused", "ffisf", "ffis", [1, [2, 3], [4, 5], "x", 2]),
    "nested": ("Nested", "fff", "ff", [2, 3, 1]),
    "passed_on": ("Passed", "fffff", "ff", [2, 3, 1, 10, 100]),
    "custom": ("Custom", "ff", "f", [2, 3]),
    "op": ("Mul", "fff", "ff", [2, 3, 10]),
    "unknown": ("Missing", "ff", "f", [2, 3]),
    "no_name": ("", "ff", "f", [2, 3]),
    "not_differentiable": ("Shape", "fi", "f", [2, []]),
    "of_itself": ("SymbolicGradient", "ff", "f", [2, 3]),
    "too_few": ("Square1", "f", "f", [3]),
    "too_many": ("Square1", "fff", "f", [3, 1, 2]),
    "wrong_type": ("Square1", "fd", "f", [3, 1]),
    "more_results": ("Square1", "ff", "ff", [3, 1]),
}


def _graph(tf, function, inputs, outputs, library=_LIBRARY):
    def types(letters):
        return "value { list { %s } }" % " ".join("type: " + _TYPES[t] for t in letters)

    text = library + "versions { producer: 134 }"
    for i, letter in enumerate(inputs):
        text += " node { name: 'x%d' op: 'Placeholder' attr { key: 'dtype' value { type: %s } } }" % (i, _TYPES[letter])
    attrs = _T % "DT_FLOAT" if function in ("Mul", "Shape") else ""
    text += (" node { name: 'gradient' op: 'SymbolicGradient' %s attr { key: 'Tin' %s } attr { key: 'Tout' %s } "
             "attr { key: 'f' value { func { name: '%s' %s } } } } node { name: 'other' op: 'NoOp' }") % (
                 " ".join("input: 'x%d'" % i for i in range(len(inputs))), types(inputs), types(outputs), function, attrs)
    return text_format.Parse(text, tf.GraphDef())


def answer(tf, name, config=None, target=""):
    """Values, or the name of the error."""
    function, inputs, outputs, values = CASES[name]
    library = "" if name == "op" else _LIBRARY
    with tf.Graph().as_default():
        tf.import_graph_def(_graph(tf, function, inputs, outputs, library), name="")
        with tf.Session(target, config=config) as session:
            session.run("other")  # a bad gradient is only an error of the steps that fetch it
            feeds = {"x%d:0" % i: np.array(v, _ARRAYS[inputs[i]]) for i, v in enumerate(values)}
            try:
                return [np.asarray(v) for v in session.run(["gradient:%d" % i for i in range(len(outputs))], feeds)]
            except tf.errors.OpError as error:
                return type(error).__name__


def through_calls(tf):
    """tf.gradients of calls: the nodes that it adds, and their values."""
    text = _LIBRARY + "versions { producer: 134 } node { name: 'a' op: 'Placeholder' %s } node { name: 'b' op: 'Placeholder' %s }" % (
        ("attr { key: 'dtype' value { type: DT_FLOAT } }",) * 2)
    text += "node { %s } node { %s }" % (_node("n", "Nested", ["a", "b"], ""), _node("c", "PartitionedCall", ["n"], _CALL))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(text_format.Parse(text, tf.GraphDef()), name="")
        gradients = tf.gradients([graph.get_tensor_by_name("c:0")], [graph.get_tensor_by_name(n) for n in ("a:0", "b:0")])
        # The ones that it starts from have other names in 1.15.
        nodes = [(op.name, [i.op.name for i in op.inputs if not i.op.name.startswith("gradients/")],
                  len(op.inputs), [o.dtype.name for o in op.outputs])
                 for op in graph.get_operations() if op.type == "SymbolicGradient"]
        with tf.Session() as session:
            return nodes, session.run(gradients, {"a:0": 2.0, "b:0": 3.0})


def main(out):
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    with open(out, "wb") as file:
        pickle.dump(({name: answer(tf, name) for name in CASES}, through_calls(tf)), file)


if __name__ == "__main__":
    main(sys.argv[1])
