"""Printing tensors while a step runs."""
from muster import array_ops, control_flow_ops, framework
from muster.convert import convert_to_tensor
from muster.framework import control_dependencies, name_scope
from muster.op_library import call


def Print(input_, data, message=None, first_n=None, summarize=None, name=None):
    return call("Print", name=name, input=input_, data=data, message=message, first_n=first_n, summarize=summarize)


def verify_tensor_all_finite(t=None, msg=None, name=None, x=None, message=None):
    x = array_ops._merge_deprecated("x", x, "t", t)
    message = array_ops._merge_deprecated("message", message, "msg", msg)
    with name_scope(name, "VerifyFinite", [x]) as name:
        x = convert_to_tensor(x, name="x")
        with framework.colocate_with(x):
            checked = array_ops.check_numerics(x, message=message)
            return control_flow_ops.with_dependencies([checked], x)


def add_check_numerics_ops():
    """A group of CheckNumerics on every floating-point output of the graph."""
    checks = []
    for op in framework.get_default_graph().get_operations():
        for output in op.outputs:
            if output.dtype.is_floating:
                message = op.name + ":" + str(output.value_index)
                with control_dependencies(checks):
                    checks = [array_ops.check_numerics(output, message=message)]
    return control_flow_ops.group(*checks)


def timestamp(name=None):
    return call("Timestamp", name=name)


__all__ = ["Print", "verify_tensor_all_finite", "add_check_numerics_ops", "timestamp"]
