"""Resources that sessions initialize besides variables."""
import collections
import os

from muster import dtypes
from muster.graph import convert, framework
from muster.graph.framework import GraphKeys, name_scope
from muster.ops import array_ops, control_flow_ops, math_ops, slice_ops

_Resource = collections.namedtuple("_Resource", ["handle", "create", "is_initialized"])


def register_resource(handle, create_op, is_initialized_op, is_shared=True):
    key = GraphKeys.RESOURCES if is_shared else GraphKeys.LOCAL_RESOURCES
    framework.add_to_collection(key, _Resource(handle, create_op, is_initialized_op))


def is_resource(item):
    return isinstance(item, _Resource)


def shared_resources():
    return framework.get_collection(GraphKeys.RESOURCES)


def local_resources():
    return framework.get_collection(GraphKeys.LOCAL_RESOURCES)


def report_uninitialized_resources(resource_list=None, name="report_uninitialized_resources"):
    if resource_list is None:
        resource_list = shared_resources() + local_resources()
    with name_scope(name):
        with framework.device(os.environ.get("TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING", "/cpu:0")):
            if not resource_list:
                return convert.constant([], dtype=dtypes.string)
            mask = math_ops.logical_not(array_ops.stack([r.is_initialized for r in resource_list]))
            return slice_ops.boolean_mask(convert.constant([r.handle.name for r in resource_list]), mask)


def initialize_resources(resource_list, name="init"):
    if resource_list:
        return control_flow_ops.group(*[r.create for r in resource_list], name=name)
    return control_flow_ops.no_op(name=name)


__all__ = []
