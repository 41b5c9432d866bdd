"""Control flow ops, alone and in loops, and the resources of loops."""

import numpy as np

import compare
import element_types as et
from cases import Typed, cases

EXACT = compare.EXACT


@cases("Switch", tolerance=EXACT)
def switch(g):
    g.normal([g.values(2, 3), True], fetch=[1])
    g.normal([g.values(2, 3), False], "false", fetch=[0])
    g.empty([g.values(0, 3), True], fetch=[1])
    g.edge([g.special(), False], "special values", fetch=[0])
    g.error([g.values(2), [True, False]], "predicate no scalar")
    g.error([g.values(2), True], "a dead output", fetch=[0])


@cases("Merge", tolerance=EXACT)
def merge(g):
    def nodes(value, predicate):
        def build(b, case):
            s = b.node("Switch", [b.feed(value, g.type), b.feed(predicate, et.BOOL)], T=g.type)
            m = b.node("Merge", [f"{s}:0", f"{s}:1"], name="op", T=g.type, N=2)
            return [([f"{m}:0", f"{m}:1"], [])]
        return build

    g.normal([], nodes=nodes(g.values(2, 3), True))
    g.normal([], "the other", nodes=nodes(g.values(2, 3), False))
    g.empty([], nodes=nodes(g.values(0, 3), True))
    g.edge([], "special values", nodes=nodes(g.special(), True))
    g.type_error([g.values(2), g.values(2)], N=2)


@cases("RefSwitch", tolerance=EXACT)
def ref_switch(g):
    g.normal([g.values(2, 3), True], fetch=[1])
    g.empty([g.values(0, 3), False], fetch=[0])
    g.edge([g.special(), True], "special values", fetch=[1])
    g.error([g.values(2), [True, False]], "predicate no scalar")


@cases("RefIdentity", tolerance=EXACT)
def ref_identity(g):
    g.normal([g.values(2, 3)])
    g.empty([g.values(0, 3)])
    g.edge([g.special()], "special values")
    g.error([], "no variable")


@cases("RefSelect", tolerance=EXACT)
def ref_select(g):
    g.normal([1, g.values(2), g.values(2)], N=2)
    g.empty([0, g.values(0)], N=1)
    g.edge([0, g.special(), g.values(2)], N=2)
    g.error([2, g.values(2), g.values(2)], N=2)
    g.error([[0, 1], g.values(2), g.values(2)], "index no scalar", N=2)


@cases("RefMerge", tolerance=EXACT)
def ref_merge(g):
    def nodes(value, predicate):
        def build(b, case):
            variable = b.ref_variable(value, g.type)
            b.readers.clear()
            s = b.node("RefSwitch", [variable, b.feed(predicate, et.BOOL)], T=g.type)
            m = b.node("RefMerge", [f"{s}:0", f"{s}:1"], name="op", T=g.type, N=2)
            return [([f"{m}:0", f"{m}:1"], [])]
        return build

    g.normal([], nodes=nodes(g.values(2, 3), True))
    g.empty([], nodes=nodes(g.values(0, 3), False))
    g.edge([], "special values", nodes=nodes(g.special(), True))
    g.error([], "no variable", N=2)


def _loop(g, value, count, *, add=None, enter="Enter", leave="Exit", back="NextIteration"):
    """A loop that carries `value` through `count` iterations, adding `add` to it in each where given."""

    def build(b, case):
        kind = g.type
        frame = dict(frame_name=b.prefix, parallel_iterations=4)
        i0 = b.node("Enter", [b.feed(0, et.INT32)], T=et.INT32, **frame)
        x0 = b.node(enter, [b.ref_variable(value, kind) if enter == "RefEnter" else b.feed(value, kind)], T=kind, **frame)
        b.readers.clear()
        limit = b.node("Enter", [b.feed(count, et.INT32)], T=et.INT32, is_constant=True, **frame)
        merge = "RefMerge" if enter == "RefEnter" else "Merge"
        i = b.node("Merge", [i0, f"{b.prefix}/next_i"], T=et.INT32, N=2)
        x = b.node(merge, [x0, f"{b.prefix}/next_x"], T=kind, N=2)
        going = b.node("LoopCond", [b.node("Less", [i, limit], T=et.INT32)])
        si = b.node("Switch", [i, going], T=et.INT32)
        sx = b.node("RefSwitch" if enter == "RefEnter" else "Switch", [x, going], T=kind)
        one = b.node("Const", [f"^{b.node('Identity', [f'{si}:1'], T=et.INT32)}"], dtype=et.INT32,
                     value=(et.INT32, np.array(1, np.int32)))
        b.node("NextIteration", [b.node("Add", [f"{si}:1", one], T=et.INT32)], name="next_i", T=et.INT32)
        if enter == "RefEnter":
            body = b.node("RefIdentity", [f"{sx}:1"], T=kind)
        else:
            body = b.node("Identity", [f"{sx}:1"], T=kind)
        if add is not None:
            step = b.node("Enter", [b.feed(add, kind)], T=kind, is_constant=True, **frame)
            body = b.node("Add", [body, step], T=kind)
        b.node(back, [body], name="next_x", T=kind)
        left = b.node(leave, [f"{sx}:0"], T=kind)
        left_i = b.node("Exit", [f"{si}:0"], T=et.INT32)
        return [([f"{left}:0", f"{left_i}:0"], [])]

    return build


@cases("Enter", "Exit", "NextIteration", tolerance=compare.SUM)
def loop(g):
    g.normal([], nodes=_loop(g, g.values(2, 3), 3))
    if g.type in (et.FLOAT, et.DOUBLE, et.INT32, et.INT64, et.STRING):
        g.normal([], "adding", nodes=_loop(g, g.values(2, 3), 9, add=g.values(3)))
    g.empty([], nodes=_loop(g, g.values(0, 3), 2))
    g.edge([], "no iteration", nodes=_loop(g, g.special(), 0))
    more = {"frame_name": "f"} if g.op == "Enter" else {}
    g.type_error([g.values(2)], **more)


@cases("RefEnter", "RefExit", "RefNextIteration", tolerance=EXACT)
def ref_loop(g):
    refs = dict(enter="RefEnter", leave="RefExit", back="RefNextIteration")
    g.normal([], nodes=_loop(g, g.values(2, 3), 3, **refs))
    g.empty([], nodes=_loop(g, g.values(0, 3), 2, **refs))
    g.edge([], "no iteration", nodes=_loop(g, g.special(), 0, **refs))
    more = {"frame_name": "f"} if g.op == "RefEnter" else {}
    g.error([], "no variable", **more)


@cases("LoopCond", tolerance=EXACT)
def loop_cond(g):
    g.normal([], nodes=lambda b, case: [([f"{b.node('LoopCond', [b.feed(True, et.BOOL)])}:0"], [])])
    g.empty([], "false", nodes=lambda b, case: [([f"{b.node('LoopCond', [b.feed(False, et.BOOL)])}:0"], [])])
    g.edge([], "a loop", nodes=lambda b, case: _loop(_Int32, [1, 2], 5, add=[3, 4])(b, case))
    g.error([Typed(et.FLOAT, 1.0)], "an input of another type")


class _Int32:
    type = et.INT32


@cases("Assert", tolerance=EXACT, attrs={"T": [et.INT32]})
def assert_(g):
    g.normal([True, [1, 2, 3]])
    g.empty([True, np.zeros(0)])
    g.edge([True, 5], "scalar")
    g.error([False, [1, 2, 3, 4]], "false")
    g.error([[True, True], [1]], "condition no scalar")
    g.error([[True], [1]], "condition a vector of one")
    g.error([False, b"text"], "text", T=[et.STRING])


# --- Stacks and tensor arrays: the whole life of one in a graph. ---
@cases("StackV2", "StackPushV2", "StackPopV2", "StackCloseV2", tolerance=EXACT)
def stack(g):
    kind = g.type if g.types else et.FLOAT

    def nodes(first, second, pops):
        def build(b, case):
            handle = b.node("StackV2", [b.const(-1, et.INT32)], elem_type=kind, stack_name=b.prefix)
            one = b.node("StackPushV2", [handle, b.feed(first, kind)], T=kind)
            two = b.node("StackPushV2", [handle, b.feed(second, kind), f"^{one}"], T=kind)
            last, out = two, []
            for _ in range(pops):
                last = b.node("StackPopV2", [handle, f"^{last}"], elem_type=kind)
                out.append(f"{last}:0")
            closed = b.node("StackCloseV2", [handle, f"^{last}"])
            return [(out, [closed])]
        return build

    g.normal([], nodes=nodes(g.values(2, 3), g.values(4), 2))
    g.empty([], nodes=nodes(g.values(0), g.values(0, 2), 2))
    g.edge([], "special values", nodes=nodes(g.special(), g.values(), 1))
    g.error([], "popped once too often", nodes=nodes(g.values(2), g.values(2), 3))


TENSOR_ARRAY = """TensorArrayV3 TensorArrayWriteV3 TensorArrayReadV3 TensorArrayGatherV3 TensorArrayScatterV3
TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3""".split()


@cases(*TENSOR_ARRAY, tolerance=EXACT)
def tensor_array(g):
    kind = g.types.get("T", g.types.get("dtype", et.FLOAT))

    def nodes(value, *, index=1, gather=None, twice=False):
        value = et.carrier(value, kind)

        def build(b, case):
            rows = b.feed(value, kind, raw=True)
            array = b.node("TensorArrayV3", [b.feed(len(value), et.INT32)], dtype=kind, clear_after_read=False)
            places = b.feed(np.arange(len(value)), et.INT32)
            flow = b.node("TensorArrayScatterV3", [array, places, rows, f"{array}:1"], T=kind)
            out = []
            if twice:
                flow = b.node("TensorArrayScatterV3", [array, places, rows, flow], T=kind)
            chosen = b.feed(np.arange(len(value)) if gather is None else gather, et.INT32)
            out.append(b.node("TensorArrayGatherV3", [array, chosen, flow], dtype=kind))
            out.append(b.node("TensorArraySizeV3", [array, flow]))
            if len(value):
                out.append(b.node("TensorArrayReadV3", [array, b.feed(index, et.INT32), flow], dtype=kind))
            other = b.node("TensorArrayV3", [b.feed(2, et.INT32)], dtype=kind, clear_after_read=False)
            lengths = b.feed([len(value) // 2, len(value) - len(value) // 2], et.INT64)
            split = b.node("TensorArraySplitV3", [other, rows, lengths, f"{other}:1"], T=kind)
            joined = b.node("TensorArrayConcatV3", [other, split], dtype=kind)
            return [([f"{o}:0" for o in out] + [f"{joined}:0", f"{joined}:1"], [])]

        return build

    g.normal([], nodes=nodes(g.values(4, 3)))
    g.empty([], nodes=nodes(g.values(0, 3)))
    g.edge([], "special values", nodes=nodes(g.special(), gather=[1, 1, 0]))
    g.error([], "index", nodes=nodes(g.values(3, 2), index=3))
    g.error([], "negative", nodes=nodes(g.values(3, 2), gather=[-1]))
    g.error([], "written twice", nodes=nodes(g.values(3, 2), twice=True))


@cases("TensorArrayGradV3", "TensorArrayGradWithShape", "TensorArrayCloseV3", tolerance=EXACT)
def tensor_array_gradient(g):
    def nodes(rows, gradients, written=2):
        """Gradients that are written to one place add up there."""

        def build(b, case):
            array = b.node("TensorArrayV3", [b.feed(len(rows), et.INT32)], dtype=et.FLOAT, clear_after_read=False)
            places = b.feed(np.arange(len(rows)), et.INT32)
            flow = b.node("TensorArrayScatterV3", [array, places, b.feed(rows, et.FLOAT), f"{array}:1"], T=et.FLOAT)
            if case.op == "TensorArrayGradWithShape":
                shape = b.feed(np.zeros(0), et.INT32)
                made = b.node("TensorArrayGradWithShape", [array, flow, shape], source="gradients")
            else:
                made = b.node("TensorArrayGradV3", [array, flow], source="gradients")
            grad_flow = f"{made}:1"
            for _ in range(written):
                grad_flow = b.node("TensorArrayScatterV3", [made, places, b.feed(gradients, et.FLOAT), grad_flow], T=et.FLOAT)
            read = b.node("TensorArrayGatherV3", [made, places, grad_flow], dtype=et.FLOAT)
            closed = b.node("TensorArrayCloseV3", [array, f"^{read}"])
            return [([f"{read}:0"], [closed])]

        return build

    g.normal([], nodes=nodes(np.ones((3, 2)), np.arange(6.0).reshape(3, 2)))
    g.edge([], "scalars", nodes=nodes(np.ones(2), np.array([np.inf, np.nan])))
    g.empty([], "rows of nothing", nodes=nodes(np.ones((2, 0)), np.ones((2, 0))))
    g.error([], "shapes", nodes=nodes(np.ones((3, 2)), np.ones((3, 4))))
    g.error([], "never written", nodes=nodes(np.ones(0), np.ones(3)))
