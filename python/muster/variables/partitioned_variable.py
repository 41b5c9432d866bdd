"""A variable in parts, which have names of their own."""
from muster import dtypes
from muster.graph import convert, tensor_shape
from muster.graph.framework import control_dependencies, name_scope
from muster.ops import array_ops


class PartitionedVariable(object):
    """A variable kept in parts along one axis."""

    def __init__(self, name, shape, dtype, variable_list, partitions):
        if not isinstance(variable_list, (list, tuple)):
            raise TypeError("variable_list is not a list or tuple: %s" % variable_list)
        if not isinstance(partitions, (list, tuple)):
            raise TypeError("partitions is not a list or tuple: %s" % partitions)
        self._name, self._shape = name, tensor_shape.as_shape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._variable_list = sorted(variable_list, key=lambda v: v._get_save_slice_info().var_offset)
        self._partitions = list(partitions)
        self._as_tensor_cache = None

    def __iter__(self):
        return iter(self._variable_list)

    def __len__(self):
        return len(self._partition_axes()) and len(self._variable_list)

    name = property(lambda self: self._name)
    dtype = property(lambda self: self._dtype)
    shape = property(lambda self: self._shape)

    def get_shape(self):
        return self._shape

    def _partition_axes(self):
        if all(p == 1 for p in self._partitions):
            return [0]
        return [i for i, p in enumerate(self._partitions) if p > 1]

    def _get_variable_list(self):
        return self._variable_list

    def _get_partitions(self):
        return self._partitions

    def _concat(self):
        if len(self._variable_list) == 1:
            with name_scope(None):
                return array_ops.identity(self._variable_list[0], name=self._name)
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError("Cannot concatenate along more than one dimension: %s. Multi-axis partition "
                                      "concat is not supported" % str(axes))
        with name_scope(self._name + "/ConcatPartitions/"):
            concatenated = array_ops.concat(self._variable_list, axes[0])
        with name_scope(None):
            return array_ops.identity(concatenated, name=self._name)

    def as_tensor(self):
        with control_dependencies(None):
            return self._concat()

    def initialized_value(self):
        return self.as_tensor()

    @property
    def _distribute_strategy(self):
        return None

    def _apply_assign(self, method, value, **kwargs):
        axes = self._partition_axes()
        if not isinstance(value, (list, PartitionedVariable)):
            sizes = [v.get_shape().as_list()[axes[0]] for v in self._variable_list]
            value = array_ops.split(convert.convert_to_tensor(value, dtype=self._dtype.base_dtype), sizes, axis=axes[0])
        return [getattr(v, method)(part, **kwargs) for v, part in zip(self._variable_list, value)]

    def assign(self, value, use_locking=False, name=None, read_value=True):
        return self._apply_assign("assign", value, use_locking=use_locking)

    def assign_add(self, value, use_locking=False, name=None, read_value=True):
        return self._apply_assign("assign_add", value, use_locking=use_locking)

    def assign_sub(self, value, use_locking=False, name=None, read_value=True):
        return self._apply_assign("assign_sub", value, use_locking=use_locking)


def _partitioned_to_tensor(var, dtype=None, name=None, as_ref=False):
    if dtype is not None and not dtype.is_compatible_with(var.dtype):
        raise ValueError("Incompatible type conversion requested to type '%s' for variable of type '%s'"
                         % (dtype.name, var.dtype.name))
    return var.as_tensor()


convert.register_tensor_conversion_function(PartitionedVariable, _partitioned_to_tensor, 100)
