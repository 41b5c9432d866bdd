"""Variables, ref and resource, and the scatters into them."""

import numpy as np

import compare
import element_types as et
from cases import Typed, Uninitialized, cases

EXACT = compare.EXACT


@cases("VariableV2", "Variable", tolerance=EXACT)
def variable(g):
    def assigned(values):
        values = et.carrier(values, g.type)

        def nodes(b, case):
            name = b.node(g.op, name="op", dtype=g.type, shape=values.shape)
            b.initializers.append(b.node("Assign", [name, b.feed(values, g.type, raw=True)], T=g.type))
            return [([f"{name}:0"], [])]

        return nodes

    g.normal([], nodes=assigned(g.values(2, 3)))
    g.empty([], nodes=assigned(g.values(0, 3)))
    g.edge([], "special values", nodes=assigned(g.special()))
    g.error([], "not initialized", shape=[2])


@cases("IsVariableInitialized", tolerance=EXACT)
def is_initialized(g):
    g.normal([g.values(2, 3)])
    g.empty([g.values(0, 3)])
    g.edge([Uninitialized(g.type, (2,))], "not initialized")
    g.error([], "no variable")


@cases("Assign", tolerance=EXACT)
def assign(g):
    g.normal([g.values(2, 3), g.values(2, 3)])
    g.empty([g.values(0, 3), g.values(0, 3)])
    g.edge([g.values(2, 3), g.values(4)], "another shape", validate_shape=False)
    g.edge([Uninitialized(g.type, (2,)), g.values(2)], "not initialized")
    g.error([g.values(2, 3), g.values(3, 2)], "shapes")


@cases("AssignAdd", "AssignSub")
def assign_update(g):
    g.normal([g.values(2, 3), g.values(2, 3)])
    g.empty([g.values(0, 3), g.values(0, 3)])
    g.edge([g.special(), g.special()[::-1]], "special values")
    g.error([g.values(2, 3), g.values(3, 2)], "shapes")
    g.error([Uninitialized(g.type, (2,)), g.values(2)], "not initialized")


@cases("CountUpTo", tolerance=EXACT)
def count_up_to(g):
    g.normal([3], limit=5)
    g.empty([0], "from zero", limit=1)
    g.edge([-7], "negative", limit=0)
    g.error([5], "the limit", limit=5)
    g.error([[1, 2]], "no scalar", limit=5)


@cases("ResourceCountUpTo", tolerance=EXACT)
def resource_count_up_to(g):
    g.normal([3], limit=5)
    g.empty([0], "from zero", limit=1)
    g.edge([-7], "negative", limit=0)
    g.error([5], "the limit", limit=5)


def _scatter(g, kind, *, scalars=True):
    low, high = (1, 4) if "Div" in g.op else (None, None)

    def updates(*shape):
        return g.values(*shape, dtype=kind, low=low, high=high)

    g.normal([g.values(5, 3, dtype=kind), [3, 1], updates(2, 3)])
    g.normal([g.values(5, dtype=kind), [[3, 1], [0, 2]], updates(2, 2)], "matrix of indices")
    if "Update" not in g.op:
        g.normal([g.values(4, 2, dtype=kind), [1, 1, 3], updates(3, 2)], "twice")
    if scalars:
        g.edge([g.values(5, 3, dtype=kind), [3, 1], updates()], "scalar update")
    g.edge([g.values(5, 3, dtype=kind), 2, updates(3)], "scalar index")
    g.empty([g.values(5, 3, dtype=kind), np.zeros(0), updates(0, 3)])
    g.error([g.values(5, 3, dtype=kind), [5], updates(1, 3)], "beyond")
    g.error([g.values(5, 3, dtype=kind), [-1], updates(1, 3)], "negative")
    g.error([g.values(5, 3, dtype=kind), [1], updates(2, 3)], "shapes")
    g.error([Uninitialized(kind, (5, 3)), [1], updates(1, 3)], "not initialized")


SCATTERS = "Update Add Sub Mul Div Max Min".split()


@cases(*[f"Scatter{s}" for s in SCATTERS])
def scatter(g):
    _scatter(g, g.types["T"])


@cases(*[f"ResourceScatter{s}" for s in SCATTERS])
def resource_scatter(g):
    _scatter(g, g.types["dtype"])


def _scatter_nd(g, kind):
    g.normal([g.values(5, 3, dtype=kind), [[3], [1]], g.values(2, 3, dtype=kind)])
    g.normal([g.values(4, 3, dtype=kind), [[3, 0], [1, 2]], g.values(2, dtype=kind)], "elements")
    g.empty([g.values(5, 3, dtype=kind), np.zeros((0, 1)), g.values(0, 3, dtype=kind)])
    g.edge([g.values(1, 3, dtype=kind), [[0]], g.values(1, 3, dtype=kind)], "one row")
    g.error([g.values(4, 3, dtype=kind), [[4]], g.values(1, 3, dtype=kind)], "beyond")
    g.error([g.values(4, 3, dtype=kind), [[-1]], g.values(1, 3, dtype=kind)], "negative")
    g.error([g.values(4, 3, dtype=kind), [[1]], g.values(1, 2, dtype=kind)], "rows")
    g.error([Uninitialized(kind, (4, 3)), [[1]], g.values(1, 3, dtype=kind)], "not initialized")


@cases("ScatterNdUpdate", "ScatterNdAdd", "ScatterNdSub", "ResourceScatterNdUpdate", "ResourceScatterNdAdd",
       "ResourceScatterNdSub")
def scatter_nd_variable(g):
    _scatter_nd(g, g.types["T"])


# --- Resource variables. ---
@cases("VarHandleOp", tolerance=EXACT)
def var_handle(g):
    def read(values):
        def nodes(b, case):
            name = b.resource_variable(values, g.type)
            return [([f"{b.node('ReadVariableOp', [name], dtype=g.type)}:0"], [])]
        return nodes

    g.normal([], nodes=read(g.values(2, 3)))
    g.empty([], nodes=read(g.values(0, 3)))
    g.edge([], "special values", nodes=read(g.special()))
    g.error([], "not initialized", nodes=read(Uninitialized(g.type, (2,))))


@cases("ReadVariableOp", tolerance=EXACT)
def read_variable(g):
    g.normal([g.values(2, 3)])
    g.empty([g.values(0, 3)])
    g.edge([g.special()], "special values")
    g.error([Uninitialized(g.type, (2, 3))], "not initialized")


@cases("AssignVariableOp", tolerance=EXACT)
def assign_variable(g):
    g.normal([g.values(2, 3), g.values(2, 3)])
    g.empty([g.values(0, 3), g.values(0, 3)])
    g.edge([Uninitialized(g.type, (2,)), g.values(2)], "not initialized")
    other = et.INT32 if g.type != et.INT32 else et.FLOAT
    g.error([g.values(2, 3), Typed(other, np.ones((2, 3)))], "another type")


@cases("AssignAddVariableOp", "AssignSubVariableOp")
def update_variable(g):
    g.normal([g.values(2, 3), g.values(2, 3)])
    g.empty([g.values(0, 3), g.values(0, 3)])
    g.edge([g.special(), g.special()[::-1]], "special values")
    g.error([g.values(2, 3), g.values(3, 2)], "shapes")
    g.error([Uninitialized(g.type, (2,)), g.values(2)], "not initialized")


@cases("VarIsInitializedOp", tolerance=EXACT)
def var_is_initialized(g):
    g.normal([Typed(et.FLOAT, [1.0])])
    g.empty([Typed(et.FLOAT, np.zeros(0))])
    g.edge([Uninitialized(et.FLOAT, (2,))], "not initialized")
    g.error([], "no variable")


@cases("VariableShape", tolerance=EXACT)
def variable_shape(g):
    g.normal([Typed(et.FLOAT, np.ones((2, 3)))])
    g.empty([Typed(et.FLOAT, np.ones((0, 3)))])
    g.edge([Typed(et.INT64, 3)], "scalar")
    g.error([Uninitialized(et.FLOAT, (2,))], "not initialized")


@cases("DestroyResourceOp", tolerance=EXACT)
def destroy(g):
    def nodes(initialized, twice):
        def build(b, case):
            handle = b.node("VarHandleOp", dtype=et.FLOAT, shape=[2], shared_name=b.prefix)
            if initialized:
                b.initializers.append(b.node("AssignVariableOp", [handle, b.feed([1.0, 2.0], et.FLOAT)], dtype=et.FLOAT))
            gone = b.node("DestroyResourceOp", [handle], ignore_lookup_error=not twice)
            there = b.node("VarIsInitializedOp", [handle])
            return [([], [gone])] * (2 if twice else 1) + [([f"{there}:0"], [])]
        return build

    g.normal([], nodes=nodes(True, False))
    g.empty([], "nothing there", nodes=nodes(False, False))
    g.edge([], "once, strictly", nodes=lambda b, case: nodes(True, True)(b, case)[1:])
    g.error([], "twice, strictly", nodes=nodes(True, True))


@cases("ResourceGather", tolerance=EXACT)
def resource_gather(g):
    kind = g.types["dtype"]
    g.normal([g.values(4, 3, dtype=kind), [3, 0, 3]])
    g.empty([g.values(4, 3, dtype=kind), np.zeros(0)])
    g.edge([g.special(15, dtype=kind), 3], "scalar")
    g.error([g.values(4, 3, dtype=kind), [4]], "beyond")
    g.error([g.values(4, 3, dtype=kind), [-1]], "negative")
    g.error([Uninitialized(kind, (4, 3)), [1]], "not initialized")


@cases("ResourceGatherNd", tolerance=EXACT)
def resource_gather_nd(g):
    kind = g.types["dtype"]
    g.normal([g.values(4, 3, dtype=kind), [[3, 0], [1, 1]]])
    g.empty([g.values(4, 3, dtype=kind), np.zeros((0, 2))])
    g.edge([g.values(4, 3, dtype=kind), [[2]]], "a row")
    g.error([g.values(4, 3, dtype=kind), [[4, 0]]], "beyond")
    g.error([g.values(4, 3, dtype=kind), [[-1, 0]]], "negative")


@cases("TemporaryVariable", "DestroyTemporaryVariable", tolerance=EXACT)
def temporary(g):
    kind = g.type

    def through(values, destroyed=None):
        values = et.carrier(values, kind)

        def nodes(b, case):
            name = b.node("TemporaryVariable", dtype=kind, shape=values.shape, var_name=b.prefix)
            filled = b.node("Assign", [name, b.feed(values, kind, raw=True)], T=kind)
            gone = b.node("DestroyTemporaryVariable", [filled], T=kind, var_name=destroyed or b.prefix)
            return [([f"{gone}:0"], [])]

        return nodes

    g.normal([], nodes=through(g.values(2, 3)))
    g.empty([], nodes=through(g.values(0, 3)))
    g.edge([], "special values", nodes=through(g.special()))
    g.error([], "another name", nodes=through(g.values(2, 3), destroyed="other"))


@cases("StridedSliceAssign", "ResourceStridedSliceAssign", tolerance=EXACT)
def strided_slice_assign(g):
    kind = g.types["T"]
    g.normal([g.values(3, 4, dtype=kind), [0, 1], [2, 4], [1, 2], g.values(2, 2, dtype=kind)])
    g.empty([g.values(3, 4, dtype=kind), [1, 0], [1, 4], [1, 1], g.values(0, 4, dtype=kind)])
    g.edge([g.values(3, 4, dtype=kind), [1, 0], [2, 4], [1, 1], g.values(4, dtype=kind)], "shrink", shrink_axis_mask=1)
    g.error([g.values(3, 4, dtype=kind), [0, 1], [2, 4], [1, 2], g.values(3, 2, dtype=kind)], "shapes")
