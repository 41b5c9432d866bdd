"""Tensors as protocol buffers, to and from numpy."""
from muster import _muster, _protos
from muster.graph import convert
from muster.graph.convert import constant_value, constant_value_as_shape  # noqa: F401


def make_tensor_proto(values, dtype=None, shape=None, verify_shape=False, allow_broadcast=False):
    proto = _protos.get("tensorflow.TensorProto")()
    tensor = convert.value_tensor(values, dtype, shape, verify_shape)
    proto.ParseFromString(_muster.tensor_proto(tensor))
    return proto


def make_ndarray(tensor):
    """The array of a TensorProto."""
    value = _muster.tensor_from_proto(tensor.SerializeToString())
    return value.numpy()


MakeNdarray = make_ndarray


def is_tensor(x):
    from muster.graph import framework
    from muster.ops import sparse_tensor
    from muster.variables import variables

    return isinstance(x, (framework.Tensor, framework.IndexedSlices, sparse_tensor.SparseTensor, variables.Variable))


__all__ = ["make_tensor_proto", "make_ndarray", "is_tensor"]
