"""Runs programs of the oracle on one of the two systems; a process of its own, in either interpreter.

    python worker.py tensorflow|muster PROGRAMS RESULTS
    python worker.py registry OUT        (TensorFlow's op definitions and kernels)

PROGRAMS is a pickled list of programs (graphs.py says what is in one). Results are appended to RESULTS one by one, each
after a mark that its program was begun, so that the parent can tell which one brought the process down.
"""

import os
import pickle
import sys

import numpy as np

BFLOAT16, STRING = 14, 7
GROUP = 40  # programs per graph and session
MESSAGE = 400


class Failed(Exception):
    """A program ended with a status."""

    def __init__(self, code, message, stage):
        super().__init__(message)
        self.result = ("error", code, str(message)[:MESSAGE], stage)


def _strided(array):
    """The same values in memory that is not contiguous."""
    if array.ndim == 0:
        return array
    wide = np.empty(array.shape[:-1] + (2 * array.shape[-1],), array.dtype)
    wide[..., ::2] = array
    wide[..., 1::2] = array
    return wide[..., ::2]


def _dense(values, indices, shape):
    """What an IndexedSlices stands for."""
    shape = list(values.shape) if shape is None else [int(d) for d in shape]
    dense = np.zeros(shape, values.dtype)
    np.add.at(dense, indices, values)
    return dense


class TensorFlow:
    def __init__(self):
        import ml_dtypes
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        self.tf, self.bfloat16 = tf, ml_dtypes.bfloat16
        self.config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        self.config.graph_options.optimizer_options.opt_level = -1
        self.config.graph_options.rewrite_options.disable_meta_optimizer = True

    def build(self, graph_def):
        graph = self.tf.Graph()
        try:
            with graph.as_default():
                self.tf.import_graph_def(self.tf.GraphDef.FromString(graph_def), name="")
            return graph, self.tf.Session(graph=graph, config=self.config)
        except self.tf.errors.OpError as e:
            raise Failed(e.error_code, e.message, "build")
        except (ValueError, TypeError) as e:
            raise Failed(3, e, "build")

    def close(self, built):
        built[1].close()

    def _feed(self, array, dtype, strided):
        array = _strided(array) if strided else array
        return array.view(self.bfloat16) if dtype == BFLOAT16 else array

    def _value(self, tensor, value):
        dtype = tensor.dtype.base_dtype.as_datatype_enum
        if dtype == STRING:
            return dtype, np.asarray(value, object)
        value = np.asarray(value)
        return dtype, value.view(np.uint16) if dtype == BFLOAT16 else value

    def run(self, built, program):
        graph, session = built
        try:
            feeds = {graph.get_tensor_by_name(name + ":0"): self._feed(array, dtype, program["strided"])
                     for name, dtype, array in program["feeds"]}
            if program["gradient"]:
                return self._gradients(graph, session, program["gradient"], feeds)
            values = []
            for fetches, targets in program["steps"]:
                tensors = [graph.get_tensor_by_name(name) for name in fetches]
                operations = [graph.get_operation_by_name(name) for name in targets]
                found = session.run([tensors, operations], feeds)[0]
                values.extend(self._value(t, v) for t, v in zip(tensors, found))
            return "values", values
        except self.tf.errors.OpError as e:
            raise Failed(e.error_code, e.message, "run")

    def _gradients(self, graph, session, gradient, feeds):
        ys, xs, weights = gradient
        with graph.as_default():
            try:
                weight_tensors = [self.tf.placeholder(self.tf.as_dtype(dtype)) for dtype, _ in weights]
                found = self.tf.gradients([graph.get_tensor_by_name(y) for y in ys],
                                          [graph.get_tensor_by_name(x) for x in xs], grad_ys=weight_tensors)
            except LookupError as e:
                raise Failed(5, e, "gradients")
        feeds.update({t: self._feed(array, dtype, False) for t, (dtype, array) in zip(weight_tensors, weights)})
        values = []
        for g in found:
            if g is None:
                values.append((0, None))
            elif isinstance(g, self.tf.IndexedSlices):
                shape = session.run(g.dense_shape, feeds) if g.dense_shape is not None else None
                values.append((g.dtype.as_datatype_enum, _dense(*session.run([g.values, g.indices], feeds), shape)))
            else:
                values.append(self._value(g, session.run(g, feeds)))
        return "values", values


class Muster:
    def __init__(self):
        import muster
        from muster import _muster

        self.m, self.errors = _muster, muster.errors

    def build(self, graph_def):
        graph = self.m.Graph()
        try:
            nodes = self.m.import_graph_def(graph, graph_def, "", [], [], [], [], "", b"")[2]
            return graph, self.m.new_session(graph, optimize=False), {node.name: node for node in nodes}
        except self.errors.OpError as e:
            raise Failed(e.error_code, e.message, "build")
        except (ValueError, TypeError) as e:
            raise Failed(3, e, "build")

    def close(self, built):
        built[1].close()

    def _output(self, nodes, name):
        node, _, index = name.partition(":")
        return nodes[node].output(int(index or 0))

    def _value(self, output, value):
        return output.dtype % 100, np.asarray(value, object if output.dtype % 100 == STRING else None)

    def _run(self, session, feeds, fetches, targets):
        plan = session.prepare([output for output, _ in feeds], fetches, targets)
        return session.run(plan, [array for _, array in feeds])

    def run(self, built, program):
        graph, session, nodes = built
        try:
            feeds = [(nodes[name].output(0), _strided(array) if program["strided"] else array)
                     for name, dtype, array in program["feeds"]]
            if program["gradient"]:
                return self._gradients(graph, session, nodes, program["gradient"], feeds)
            values = []
            for fetches, targets in program["steps"]:
                outputs = [self._output(nodes, name) for name in fetches]
                found = self._run(session, feeds, outputs, [nodes[name] for name in targets])
                values.extend(self._value(o, v) for o, v in zip(outputs, found))
            return "values", values
        except self.errors.OpError as e:
            raise Failed(e.error_code, e.message, "run")

    def _gradients(self, graph, session, nodes, gradient, feeds):
        ys, xs, weights = gradient
        scope = self.m.Scope(graph)
        weight_outputs = [scope.add("Placeholder", [], {"dtype": dtype}, "").output(0) for dtype, _ in weights]
        try:
            found = self.m.gradients(scope, [self._output(nodes, y) for y in ys], [self._output(nodes, x) for x in xs],
                                     weight_outputs, [], "gradients", False, False, 0, False)
        except LookupError as e:
            raise Failed(5, e, "gradients")
        feeds = feeds + [(o, array) for o, (_, array) in zip(weight_outputs, weights)]
        values = []
        for g in found:
            if g is None:
                values.append((0, None))
            elif isinstance(g, tuple):
                parts = [p for p in g if p is not None]
                got = self._run(session, feeds, parts, [])
                values.append((parts[0].dtype % 100, _dense(got[0], got[1], got[2] if len(got) > 2 else None)))
            else:
                values.append(self._value(g, self._run(session, feeds, [g], [])[0]))
        return "values", values


def _run_one(system, built, program):
    try:
        return system.run(built, program)
    except Failed as e:
        return e.result
    except Exception as e:  # what the other side's Python layer refuses is a result like any other
        return "error", -1, f"{type(e).__name__}: {e}"[:MESSAGE], "python"


def _alone(system, program):
    try:
        built = system.build(program["graph"])
    except Failed as e:
        return e.result
    except Exception as e:
        return "error", -1, f"{type(e).__name__}: {e}"[:MESSAGE], "build"
    result = _run_one(system, built, program)
    system.close(built)
    return result


def run_all(system, programs, results):
    def emit(*entry):
        pickle.dump(entry, results)
        results.flush()

    for start in range(0, len(programs), GROUP):
        group = programs[start:start + GROUP]
        shared = [p for p in group if p["shares"]]
        emit("begin", None)
        try:
            built = system.build(b"".join(p["graph"] for p in shared)) if shared else None
        except Failed:
            built = None
        for program in group:
            emit("begin", program["key"])
            result = _run_one(system, built, program) if built and program["shares"] else _alone(system, program)
            emit("end", program["key"], result)
        if built:
            system.close(built)


def dump_registry(path):
    from tensorflow.python.framework import kernels, op_def_registry
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    buffer = pywrap_tf_session.TF_GetAllOpList()
    ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(buffer))
    del op_def_registry
    registered = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == "CPU" and not kernel.label:
            entry = {c.name: list(c.allowed_values.list.type) for c in kernel.constraint}
            registered.setdefault(kernel.op, []).append(entry)
    with open(path, "wb") as file:
        pickle.dump((ops.SerializeToString(), registered), file)


def main(argv):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    # oneDNN's variants of the kernels report bad inputs as ABORTED, or not at all; the plain ones are the judge.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    if argv[1] == "registry":
        dump_registry(argv[2])
        return
    system = TensorFlow() if argv[1] == "tensorflow" else Muster()
    with open(argv[2], "rb") as file:
        programs = pickle.load(file)
    with open(argv[3], "ab") as results:
        run_all(system, programs, results)


if __name__ == "__main__":
    main(sys.argv)
