"""tf.TensorArray: elements written once and read by index, ordered by a flow tensor."""
import contextlib

from muster import dtypes
from muster.graph import convert, framework, tensor_shape
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import colocate_with, control_dependencies, device, name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, math_ops


class TensorArray(object):
    """Every write gives a new object with the same handle and a new flow."""

    def __init__(self, dtype, size=None, dynamic_size=None, clear_after_read=None, tensor_array_name=None, handle=None,
                 flow=None, infer_shape=True, element_shape=None, colocate_with_first_write_call=True, name=None):
        if handle is not None:
            if tensor_array_name:
                raise ValueError("Cannot construct with both handle and tensor_array_name")
            if not isinstance(handle, framework.Tensor):
                raise TypeError("Handle must be a Tensor")
            for given, label in ((size, "size"), (element_shape, "element_shape"), (dynamic_size, "dynamic_size"),
                                 (clear_after_read, "clear_after_read")):
                if given is not None:
                    raise ValueError("Cannot provide both a handle and %s at the same time" % label)
        elif size is None:
            raise ValueError("Size must be provided if handle is not provided")
        self._dynamic_size = dynamic_size or False
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._infer_shape = infer_shape
        # Shared by all arrays of one handle: the element shape so far, and where the first write put them.
        self._element_shape = [tensor_shape.as_shape(element_shape)]
        self._colocation = [] if colocate_with_first_write_call else None
        with name_scope(name, "TensorArray", [handle, size, flow]) as scope:
            if handle is not None:
                if flow is None:
                    raise ValueError("flow must not be None if handle is not None.")
                self._handle, self._flow = handle, flow
                return
            with contextlib.ExitStack() as stack:
                if colocate_with_first_write_call:
                    stack.enter_context(device(None))
                    stack.enter_context(colocate_with(None, ignore_existing=True))
                self._handle, self._flow = call(
                    "TensorArrayV3", name=scope, size=size, dtype=dtype,
                    element_shape=tensor_shape.as_shape(element_shape), identical_element_shapes=infer_shape,
                    dynamic_size=self._dynamic_size,
                    clear_after_read=True if clear_after_read is None else clear_after_read,
                    tensor_array_name=tensor_array_name)

    flow = property(lambda self: self._flow)
    handle = property(lambda self: self._handle)
    dtype = property(lambda self: self._dtype)
    element_shape = property(lambda self: self._element_shape[0])
    dynamic_size = property(lambda self: self._dynamic_size)

    def _with_flow(self, flow):
        result = object.__new__(TensorArray)
        result.__dict__.update(self.__dict__)
        result._flow = flow
        return result

    def _merge_shape(self, shape):
        if not shape.is_compatible_with(self.element_shape):
            raise ValueError("Inconsistent shapes: saw %s but expected %s " % (shape, self.element_shape))
        if self._infer_shape:
            self._element_shape[0] = self.element_shape.merge_with(shape)

    def _placed(self, value):
        """Writes go where the first written value is."""
        if self._colocation is None:
            return contextlib.ExitStack()
        if not self._colocation:
            self._colocation.append(value)
        return colocate_with(self._colocation[0])

    def _element(self, value):
        value = convert_to_tensor(value, preferred_dtype=self._dtype, name="value")
        if value.dtype.base_dtype != self._dtype:
            raise ValueError("TensorArray dtype is %s but Op is trying to write dtype %s."
                             % (self._dtype.name, value.dtype.name))
        return value

    def identity(self):
        return self._with_flow(array_ops.identity(self._flow))

    def grad(self, source, flow=None, name=None):
        flow = self._flow if flow is None else flow
        with name_scope(name, "TensorArrayGrad", [self._handle]), colocate_with(self._handle):
            handle, _ = call("TensorArrayGradV3", name=name, handle=self._handle, flow_in=flow, source=source)
            with control_dependencies([handle]):
                flow = array_ops.identity(flow, name="gradient_flow")
            result = TensorArray(dtype=self._dtype, handle=handle, flow=flow, infer_shape=self._infer_shape,
                                 colocate_with_first_write_call=False)
            result._element_shape = self._element_shape
            return result

    def read(self, index, name=None):
        value = call("TensorArrayReadV3", name=name, handle=self._handle, index=index, flow_in=self._flow,
                     dtype=self._dtype)
        value.set_shape(self.element_shape)
        return value

    def write(self, index, value, name=None):
        with name_scope(name, "TensorArrayWrite", [self._handle, index, value]):
            value = self._element(value)
            self._merge_shape(value.get_shape())
            with self._placed(value):
                flow = call("TensorArrayWriteV3", name=name, handle=self._handle, index=index, value=value,
                            flow_in=self._flow)
            return self._with_flow(flow)

    def stack(self, name=None):
        with colocate_with(self._handle), name_scope(name, "TensorArrayStack", [self._handle]):
            return self.gather(math_ops.range(0, self.size()), name=name)

    def gather(self, indices, name=None):
        value = call("TensorArrayGatherV3", name=name, handle=self._handle, indices=indices, flow_in=self._flow,
                     dtype=self._dtype, element_shape=self.element_shape)
        if self.element_shape.dims is not None:
            value.set_shape([None] + self.element_shape.as_list())
        return value

    def concat(self, name=None):
        rest = self.element_shape[1:] if self.element_shape.dims is not None else tensor_shape.unknown_shape()
        value, _ = call("TensorArrayConcatV3", name=name, handle=self._handle, flow_in=self._flow, dtype=self._dtype,
                        element_shape_except0=rest)
        if self.element_shape.dims is not None:
            value.set_shape([None] + self.element_shape.as_list()[1:])
        return value

    def unstack(self, value, name=None):
        with name_scope(name, "TensorArrayUnstack", [self._handle, value]):
            count = array_ops.shape(value)[0]
            return self.scatter(indices=math_ops.range(0, count), value=value, name=name)

    def scatter(self, indices, value, name=None):
        with name_scope(name, "TensorArrayScatter", [self._handle, value, indices]):
            value = self._element(value)
            shape = value.get_shape()
            self._merge_shape(shape[1:] if shape.dims is not None else shape)
            with self._placed(value):
                flow = call("TensorArrayScatterV3", name=name, handle=self._handle, indices=indices, value=value,
                            flow_in=self._flow)
            return self._with_flow(flow)

    def split(self, value, lengths, name=None):
        with name_scope(name, "TensorArraySplit", [self._handle, value, lengths]):
            value = convert_to_tensor(value, dtype=self._dtype, name="value")
            with self._placed(value):
                lengths = math_ops.cast(lengths, dtypes.int64)
                known = convert.constant_value(lengths)
                shape = value.get_shape()
                if shape.dims is not None and known is not None and known.size and known.max() == known.min():
                    self._merge_shape(tensor_shape.TensorShape([int(known[0])]).concatenate(shape[1:]))
                flow = call("TensorArraySplitV3", name=name, handle=self._handle, value=value, lengths=lengths,
                            flow_in=self._flow)
            return self._with_flow(flow)

    def size(self, name=None):
        return call("TensorArraySizeV3", name=name, handle=self._handle, flow_in=self._flow)

    def close(self, name=None):
        return call("TensorArrayCloseV3", name=name, handle=self._handle)


def build_with_flow(old, flow):
    """The array `old` after what `flow` waits for."""
    return old._with_flow(flow)


__all__ = ["TensorArray"]
