"""Changing variables: assign and its kin, for reference and resource variables."""
from muster.graph import framework
from muster.graph.op_library import call


def _is_resource(ref):
    return not isinstance(ref, framework.Tensor) and getattr(ref, "_is_resource", False)


def assign(ref, value, validate_shape=None, use_locking=None, name=None):
    if _is_resource(ref):
        return ref.assign(value, name=name)
    return call("Assign", name=name, ref=ref, value=value, use_locking=use_locking, validate_shape=validate_shape)


def assign_add(ref, value, use_locking=None, name=None):
    if _is_resource(ref):
        return ref.assign_add(value)
    return call("AssignAdd", name=name, ref=ref, value=value, use_locking=use_locking)


def assign_sub(ref, value, use_locking=None, name=None):
    if _is_resource(ref):
        return ref.assign_sub(value)
    return call("AssignSub", name=name, ref=ref, value=value, use_locking=use_locking)


def count_up_to(ref, limit, name=None):
    if _is_resource(ref):
        return call("ResourceCountUpTo", name=name, resource=ref.handle, limit=limit, T=ref.dtype)
    return call("CountUpTo", name=name, ref=ref, limit=limit)


def _scatter(op):
    def function(ref, indices, updates, use_locking=op == "ScatterUpdate", name=None):
        if _is_resource(ref):
            return ref._lazy_read(ref._scatter(op, indices, updates, name))
        return call(op, name=name, ref=ref, indices=indices, updates=updates, use_locking=use_locking)

    return function


scatter_update = _scatter("ScatterUpdate")
scatter_add = _scatter("ScatterAdd")
scatter_sub = _scatter("ScatterSub")
scatter_mul = _scatter("ScatterMul")
scatter_div = _scatter("ScatterDiv")
scatter_min = _scatter("ScatterMin")
scatter_max = _scatter("ScatterMax")


def _scatter_nd(op):
    def function(ref, indices, updates, use_locking=op == "ScatterNdUpdate", name=None):
        if _is_resource(ref):
            return ref._lazy_read(call("Resource" + op, name=name, ref=ref.handle, indices=indices, updates=updates,
                                       use_locking=use_locking))
        return call(op, name=name, ref=ref, indices=indices, updates=updates, use_locking=use_locking)

    return function


scatter_nd_update = _scatter_nd("ScatterNdUpdate")
scatter_nd_add = _scatter_nd("ScatterNdAdd")
scatter_nd_sub = _scatter_nd("ScatterNdSub")


def is_variable_initialized(ref, name=None):
    if _is_resource(ref):
        return ref.is_initialized(name=name)
    return call("IsVariableInitialized", name=name, ref=ref)
