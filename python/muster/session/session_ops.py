"""Tensors that stay with the session between steps, and the handles that name them."""
from muster import dtypes
from muster.graph import framework
from muster.graph.op_library import call
from muster.ops import array_ops

__all__ = ["get_session_handle", "get_session_tensor", "delete_session_tensor"]

# Tensors whose handles are garbage are deleted in batches of this size.
_DEAD_HANDLES = 10


class TensorHandle(object):
    """Names a tensor that is kept in a session; may be fed where get_session_tensor has its placeholder."""

    def __init__(self, handle, dtype, session):
        self._handle = handle.decode() if isinstance(handle, bytes) else str(handle)
        self._dtype = dtype
        self._session = session
        self._owned = True

    def __del__(self):
        if self._owned:
            self._session.__dict__.setdefault("_dead_handles", []).append(self._handle)

    def __str__(self):
        return self._handle

    handle = property(lambda self: self._handle)

    def _check_owned(self):
        if not self._owned:
            raise TypeError("Persistent tensor %s may have already been deleted." % self._handle)

    def eval(self):
        self._check_owned()
        holder, reader = _node(self._session.graph, "GetSessionTensor", self._handle, dtype=self._dtype)
        return self._session.run(reader, {holder: self._handle})

    def delete(self):
        self._check_owned()
        self._owned = False
        _delete(self._session, self._handle)

    def get_raw_handle(self):
        """The name itself; the tensor then stays until it is deleted or the session closes."""
        self._owned = False
        return self._handle


def _device(handle):
    return str(handle).split(";")[-1]


def _node(graph, op_type, handle, **arguments):
    """(placeholder, op) for tensors on the handle's device, made once per graph."""
    made = graph.__dict__.setdefault("_handle_nodes", {})
    key = (op_type, _device(handle), arguments.get("dtype"))
    if key not in made:
        with graph.as_default(), graph.device(_device(handle)):
            holder = array_ops.placeholder(dtypes.string)
            made[key] = holder, call(op_type, handle=holder, **arguments)
    return made[key]


def _delete(session, handle):
    holder, deleter = _node(session.graph, "DeleteSessionTensor", handle)
    session.run(deleter, {holder: handle})


def fetched(session, value, dtype):
    """The handle object for a fetched name."""
    dead = session.__dict__.setdefault("_dead_handles", [])
    if len(dead) >= _DEAD_HANDLES and not session.graph.finalized:
        dropped, dead[:] = list(dead), []
        for handle in dropped:
            _delete(session, handle)
    return TensorHandle(value, dtype, session)


def get_session_handle(data, name=None):
    if not isinstance(data, framework.Tensor):
        raise TypeError("`data` must be of type Tensor.")
    with framework.colocate_with(data):
        return call("GetSessionHandle", name=name, value=data)


def get_session_tensor(handle, dtype, name=None):
    with framework.device(_device(handle)):
        holder = array_ops.placeholder(dtypes.string)
        return holder, call("GetSessionTensor", name=name, handle=holder, dtype=dtype)


def delete_session_tensor(handle, name=None):
    with framework.device(_device(handle)):
        holder = array_ops.placeholder(dtypes.string)
        return holder, call("DeleteSessionTensor", name=name, handle=holder)
