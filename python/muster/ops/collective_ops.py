"""Collective operations: tensors of several devices, one rank each, brought together."""
from muster import dtypes
from muster.graph import tensor_shape
from muster.graph.convert import convert_to_tensor
from muster.graph.op_library import call


def _check_size(group_size, least, function):
    if group_size < least:
        raise ValueError("Parameter `group_size` to %s must be at least %d. Received: %s."
                         % (function, least, group_size))


def _hint(communication_hint, timeout):
    attrs = {"communication_hint": communication_hint.lower()}
    # An attribute that TensorFlow 1.15 does not know.
    if timeout:
        attrs["timeout_seconds"] = timeout
    return attrs


def _tokens(ordering_token):
    return [] if ordering_token is None else [ordering_token]


def all_reduce(t, group_size, group_key, instance_key, merge_op="Add", final_op="Id", subdiv_offsets=(0,),
               communication_hint="auto", timeout=0):
    """The sum, product, minimum or maximum of the tensors of all ranks, element by element."""
    _check_size(group_size, 1, "all_reduce")
    return call("CollectiveReduce", input=t, group_size=group_size, group_key=group_key, instance_key=instance_key,
                merge_op=merge_op, final_op=final_op, subdiv_offsets=list(subdiv_offsets),
                **_hint(communication_hint, timeout))


def all_reduce_v2(t, group_size, group_key, instance_key, merge_op="Add", final_op="Id", communication_hint="auto",
                  timeout=0, ordering_token=None, max_subdivs_per_device=-1, name=None):
    """all_reduce with a group and an instance that are tensors."""
    return call("CollectiveReduceV2", name=name, input=t, group_size=group_size, group_key=group_key,
                instance_key=instance_key, merge_op=merge_op, final_op=final_op, timeout_seconds=timeout,
                communication_hint=communication_hint.lower(), is_stateless=False,
                ordering_token=_tokens(ordering_token), max_subdivs_per_device=max_subdivs_per_device)


def all_gather(t, group_size, group_key, instance_key, communication_hint="auto", timeout=0):
    """The tensors of all ranks, one after the other along the first dimension."""
    _check_size(group_size, 1, "all_gather")
    return call("CollectiveGather", input=t, shape=[0], group_size=group_size, group_key=group_key,
                instance_key=instance_key, **_hint(communication_hint, timeout))


def all_gather_v2(t, group_size, group_key, instance_key, communication_hint="auto", timeout=0, ordering_token=None,
                  name=None):
    """all_gather with a group and an instance that are tensors."""
    return call("CollectiveGatherV2", name=name, input=t, group_size=group_size, group_key=group_key,
                instance_key=instance_key, communication_hint=communication_hint.lower(), timeout_seconds=timeout,
                is_stateless=False, ordering_token=_tokens(ordering_token))


def broadcast_send(t, shape, dtype, group_size, group_key, instance_key, communication_hint="auto", timeout=0):
    """Gives a tensor to the other ranks."""
    _check_size(group_size, 2, "broadcast_send")
    t = convert_to_tensor(t)
    if t.shape.as_list() != tensor_shape.as_shape(shape).as_list():
        raise ValueError("Shape of broadcast_send tensor `t` not equal to declared shape. Received %s, expected %s."
                         % (t.shape, shape))
    if t.dtype != dtypes.as_dtype(dtype):
        raise ValueError("Type of broadcast_send tensor `t` not equal to declared type. Received %s, expected %s."
                         % (t.dtype, dtype))
    return call("CollectiveBcastSend", input=t, shape=shape, group_size=group_size, group_key=group_key,
                instance_key=instance_key, **_hint(communication_hint, timeout))


def broadcast_send_v2(t, group_size, group_key, instance_key, communication_hint="auto", timeout=0):
    """broadcast_send with a group and an instance that are tensors."""
    return call("CollectiveBcastSendV2", input=t, group_size=group_size, group_key=group_key,
                instance_key=instance_key, communication_hint=communication_hint.lower(), timeout_seconds=timeout)


def broadcast_recv(shape, dtype, group_size, group_key, instance_key, communication_hint="auto", timeout=0):
    """Takes the tensor that one rank gives to the others."""
    _check_size(group_size, 2, "broadcast_send")
    return call("CollectiveBcastRecv", shape=shape, T=dtype, group_size=group_size, group_key=group_key,
                instance_key=instance_key, **_hint(communication_hint, timeout))


def broadcast_recv_v2(shape, dtype, group_size, group_key, instance_key, communication_hint="auto", timeout=0):
    """broadcast_recv with a group, an instance and a shape that are tensors."""
    return call("CollectiveBcastRecvV2", T=dtype, group_size=group_size, group_key=group_key,
                instance_key=instance_key, shape=shape, communication_hint=communication_hint.lower(),
                timeout_seconds=timeout)


def all_to_all_v2(t, group_size, group_key, instance_key, communication_hint="auto", timeout=0, ordering_token=None,
                  name=None):
    """Part i of the first dimension for rank i, and theirs in its place."""
    return call("CollectiveAllToAllV2", name=name, input=t, group_size=group_size, group_key=group_key,
                instance_key=instance_key, communication_hint=communication_hint.lower(), timeout_seconds=timeout,
                is_stateless=False, ordering_token=_tokens(ordering_token))
