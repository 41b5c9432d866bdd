"""Optimizer steps on ref and resource variables, dense and by rows: one entry, driven by the names of the arguments."""

import numpy as np

import element_types as et
from cases import Uninitialized, cases

DENSE = """GradientDescent Momentum Adagrad AdagradV2 Adam AdaMax RMSProp CenteredRMSProp Adadelta Ftrl FtrlV2 AdagradDA
ProximalGradientDescent ProximalAdagrad AddSign PowerSign""".split()
SPARSE = """Momentum Adagrad AdagradV2 RMSProp CenteredRMSProp Adadelta Ftrl FtrlV2 AdagradDA ProximalGradientDescent
ProximalAdagrad""".split()
SCALARS = {
    "alpha": 0.1, "lr": 0.1, "momentum": 0.9, "rho": 0.9, "epsilon": 0.01, "beta1": 0.9, "beta2": 0.75, "beta1_power": 0.5,
    "beta2_power": 0.25, "l1": 0.05, "l2": 0.1, "l2_shrinkage": 0.02, "lr_power": -0.5, "global_step": 3, "logbase": 1.0,
    "sign_decay": 0.5, "beta": 0.9,
}
POSITIVE = {"accum", "accum_update", "ms", "v", "vhat", "gradient_squared_accumulator", "linear"}


def _inputs(g, shape, rows=None, **replaced):
    """Values for every argument: variables and gradients of `shape`, the gradient of `rows` rows where it is sparse."""
    result = []
    for arg in g.definition.input_arg:
        name = arg.name
        if name in replaced:
            result.append(replaced[name])
        elif name == "indices":
            result.append(np.arange(rows)[::-1])
        elif name in ("grad", "delta"):
            result.append(g.values(*((rows,) + shape[1:] if rows is not None else shape), dtype=g.types["T"]))
        elif name in SCALARS:
            result.append(SCALARS[name])
        else:
            positive = name in POSITIVE
            result.append(g.values(*shape, dtype=g.types["T"], low=1.0 if positive else None, high=3.0))
        if name == "mg":
            result[-1] = np.asarray(result[-1]) * 0.01
    return result


# Steps with roots and powers; the ref and resource forms of one optimizer are the same kernel in both systems.
STEP = ("relative", 1e-5)


def _loosen(g):
    if g.types["T"] in (et.HALF, et.BFLOAT16):  # every operation of a step rounds, in an order that is not settled
        g.tolerance = ("relative", 3e-5)


ALL = ([f"Apply{o}" for o in DENSE] + [f"ResourceApply{o}" for o in DENSE] +
       ["ResourceApplyAdamWithAmsgrad", "ResourceApplyKerasMomentum"])
ALL_SPARSE = ([f"SparseApply{o}" for o in SPARSE] + [f"ResourceSparseApply{o}" for o in SPARSE] +
              ["ResourceSparseApplyKerasMomentum"])


@cases(*ALL, tolerance=STEP)
def dense(g):
    _loosen(g)
    g.normal(_inputs(g, (2, 3)))
    names = {a.name for a in g.definition.attr}
    for attr in ("use_nesterov", "use_locking"):
        if attr in names:
            g.normal(_inputs(g, (2, 3)), attr, sliced=False, **{attr: True})
    if "update_slots" in names:
        g.normal(_inputs(g, (2, 3)), "slots kept", sliced=False, update_slots=False)
    g.empty(_inputs(g, (0, 3)))
    g.edge(_inputs(g, ()), "scalar")
    gradient = "delta" if any(a.name == "delta" for a in g.definition.input_arg) else "grad"
    g.error(_inputs(g, (2, 3), **{gradient: g.values(3, 2, dtype=g.types["T"])}), "shape of the gradient")
    rate = next(a.name for a in g.definition.input_arg if a.name in ("lr", "alpha"))
    g.error(_inputs(g, (2, 3), **{rate: [0.1, 0.2]}), "rate no scalar")
    g.error(_inputs(g, (2, 3), var=Uninitialized(g.types["T"], (2, 3))), "not initialized")


@cases(*ALL_SPARSE, tolerance=STEP)
def sparse(g):
    _loosen(g)
    g.normal(_inputs(g, (4, 3), rows=2))
    names = {a.name for a in g.definition.attr}
    if "use_nesterov" in names:
        g.normal(_inputs(g, (4, 3), rows=2), "use_nesterov", sliced=False, use_nesterov=True)
    if "update_slots" in names:
        g.normal(_inputs(g, (4, 3), rows=2), "slots kept", sliced=False, update_slots=False)
    g.empty(_inputs(g, (4, 3), rows=0))
    g.edge(_inputs(g, (4,), rows=3), "a vector")
    g.edge(_inputs(g, (4, 3), rows=2, indices=[1, 1]), "a row twice")
    g.error(_inputs(g, (4, 3), rows=2, indices=[1, 4]), "beyond")
    g.error(_inputs(g, (4, 3), rows=2, indices=[1, -1]), "negative")
    g.error(_inputs(g, (4, 3), rows=2, indices=[1]), "count")
    g.error(_inputs(g, (4, 3), rows=2, grad=g.values(2, 2, dtype=g.types["T"])), "shape of the gradient")
