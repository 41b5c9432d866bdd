"""The variables that get_variable has made, by name: found again, or made with what is asked for."""
import inspect
import traceback

from muster import dtypes
from muster.graph import framework, tensor_shape
from muster.graph.framework import GraphKeys, colocate_with, name_scope
from muster.ops import array_ops
from muster.variables import init_ops, partitioned, partitioned_variable, resource_variable, variables
from muster.variables.variables import VariableAggregation, VariableSynchronization


class _ReuseMode(object):
    def __repr__(self):
        return "<_ReuseMode.AUTO_REUSE: 1>"


AUTO_REUSE = _ReuseMode()
_STORE_KEY = ("__variable_store",)


class _VariableStore(object):
    """The variables that get_variable has made, by name."""

    def __init__(self):
        self._vars = {}
        self._partitioned_vars = {}

    def get_variable(self, name, shape=None, dtype=dtypes.float32, initializer=None, regularizer=None, reuse=None,
                     trainable=None, collections=None, caching_device=None, partitioner=None, validate_shape=True,
                     use_resource=None, custom_getter=None, constraint=None,
                     synchronization=VariableSynchronization.AUTO, aggregation=VariableAggregation.NONE):
        if custom_getter is not None and not callable(custom_getter):
            raise ValueError("Passed a custom_getter which is not callable: %s" % custom_getter)
        dtype = dtypes.as_dtype(dtype).base_dtype
        if regularizer is not None and not callable(regularizer):
            raise ValueError("regularizer must be callable")

        def true_getter(name, shape=None, dtype=dtypes.float32, initializer=None, regularizer=None, reuse=None,
                        trainable=None, collections=None, caching_device=None, partitioner=None, validate_shape=True,
                        use_resource=None, constraint=None, synchronization=VariableSynchronization.AUTO,
                        aggregation=VariableAggregation.NONE):
            is_scalar = shape is not None and isinstance(shape, (list, tuple)) and not shape
            if partitioner is not None and not is_scalar:
                if not callable(partitioner):
                    raise ValueError("Partitioner must be callable, but received: %s" % partitioner)
                with name_scope(None):
                    return self._get_partitioned(name, partitioner, shape, dtype, initializer, regularizer, reuse,
                                                 trainable, collections, caching_device, validate_shape, use_resource,
                                                 constraint, synchronization, aggregation)
            if reuse is True and partitioner is None and name in self._partitioned_vars:
                raise ValueError("A partitioner was not provided, but a partitioned version of the variable was found: "
                                 "%s/part_0. Perhaps a variable of the same name was already created with "
                                 "partitioning?" % name)
            if "%s/part_0" % name in self._vars:
                raise ValueError("No partitioner was provided, but a partitioned version of the variable was found: "
                                 "%s/part_0. Perhaps a variable of the same name was already created with "
                                 "partitioning?" % name)
            return self._get_single(name, shape, dtype, initializer, regularizer, reuse, trainable, collections,
                                    caching_device, validate_shape, use_resource, constraint, synchronization,
                                    aggregation)

        if custom_getter is None:
            return true_getter(name, shape, dtype, initializer, regularizer, reuse, trainable, collections,
                               caching_device, partitioner, validate_shape, use_resource, constraint, synchronization,
                               aggregation)
        kwargs = dict(getter=true_getter, name=name, shape=shape, dtype=dtype, initializer=initializer,
                      regularizer=regularizer, reuse=reuse, trainable=trainable, collections=collections,
                      caching_device=caching_device, partitioner=partitioner, validate_shape=validate_shape,
                      use_resource=use_resource, synchronization=synchronization, aggregation=aggregation)
        if _takes(custom_getter, "constraint"):
            kwargs["constraint"] = constraint
        return custom_getter(**kwargs)

    def _get_partitioned(self, name, partitioner, shape, dtype, initializer, regularizer, reuse, trainable, collections,
                         caching_device, validate_shape, use_resource, constraint, synchronization, aggregation):
        initializing_from_value = initializer is not None and isinstance(initializer, framework.Tensor)
        if name in self._vars:
            raise ValueError("A partitioner was provided, but an unpartitioned version of the variable was found: %s. "
                             "Perhaps a variable of the same name was already created without partitioning?" % name)
        shape = tensor_shape.as_shape(shape)
        if initializing_from_value:
            shape = shape.merge_with(initializer.get_shape())
        if not reuse or reuse is AUTO_REUSE:
            if not shape.is_fully_defined():
                raise ValueError("Shape of a new partitioned variable (%s) must be fully defined, but instead was %s."
                                 % (name, shape))
            if shape.ndims < 1:
                raise ValueError("A partitioned Variable must have rank at least 1, shape: %s" % shape)
        partitions = partitioned.call_partitioner(partitioner, shape, dtype)
        should_check = reuse is not None
        if name in self._partitioned_vars:
            if should_check and not reuse:
                raise ValueError("Partitioned variable with name %s already exists. Did you mean to set reuse=True or "
                                 "reuse=tf.AUTO_REUSE in VarScope?" % name)
            existing = self._partitioned_vars[name]
            if not shape.is_compatible_with(existing.get_shape()):
                raise ValueError("Trying to reuse partitioned variable %s, but specified shape %s and found shape %s."
                                 % (name, shape, existing.get_shape()))
            return existing
        if should_check and reuse is True:
            raise ValueError("PartitionedVariable %s does not exist, or was not created with tf.get_variable(). Did you "
                             "mean to set reuse=False or reuse=tf.AUTO_REUSE in VarScope?" % name)
        axis, slices = partitioned.slices_of(partitions, shape.as_list())
        if initializer is None:
            initializer, initializing_from_value = self._default_initializer(name, dtype)
        parts = []
        for i, (offset, part_shape) in enumerate(slices):
            full_name = "%s/part_%d" % (name, i)
            info = partitioned.PartitionInfo(full_shape=shape.as_list(), var_offset=offset)
            if initializing_from_value:
                init, init_shape = array_ops.slice(initializer, offset, part_shape), None
            elif inspect.isfunction(initializer) or callable(initializer):
                init, init_shape = initializer, part_shape
            else:
                init, init_shape = initializer, part_shape
            with name_scope(full_name + "/PartitionedInitializer") if initializing_from_value else name_scope(None):
                var = self._get_single(full_name, init_shape, dtype, init, regularizer, reuse, trainable, collections,
                                       caching_device, validate_shape, use_resource, constraint, synchronization,
                                       aggregation, partition_info=info)
            var._set_save_slice_info(variables.Variable.SaveSliceInfo(name, shape.as_list(), offset, part_shape))
            parts.append(var)
        result = partitioned_variable.PartitionedVariable(name=name, shape=shape, dtype=dtype, variable_list=parts,
                                               partitions=partitions)
        self._partitioned_vars[name] = result
        return result

    def _get_single(self, name, shape, dtype, initializer, regularizer, reuse, trainable, collections, caching_device,
                    validate_shape, use_resource, constraint, synchronization, aggregation, partition_info=None):
        initializing_from_value = initializer is not None and not callable(initializer)
        if shape is not None and initializing_from_value:
            raise ValueError("If initializer is a constant, do not specify shape.")
        dtype = dtypes.as_dtype(dtype)
        shape = tensor_shape.as_shape(shape)
        if name in self._vars:
            if reuse is False or reuse is None:
                var = self._vars[name]
                message = ("Variable %s already exists, disallowed. Did you mean to set reuse=True or "
                           "reuse=tf.AUTO_REUSE in VarScope?" % name)
                if isinstance(var, resource_variable.ResourceVariable):
                    raise ValueError(message)
                raise ValueError("%s Originally defined at:\n\n%s" % (message, "".join(
                    traceback.format_list(getattr(var, "_created_at", [])))))
            found = self._vars[name]
            if not shape.is_compatible_with(found.get_shape()):
                raise ValueError("Trying to share variable %s, but specified shape %s and found shape %s."
                                 % (name, shape, found.get_shape()))
            if not dtype.is_compatible_with(found.dtype):
                raise ValueError("Trying to share variable %s, but specified dtype %s and found dtype %s."
                                 % (name, dtype.name, found.dtype.name))
            return found
        if reuse is True:
            raise ValueError("Variable %s does not exist, or was not created with tf.get_variable(). Did you mean to "
                             "set reuse=tf.AUTO_REUSE in VarScope?" % name)
        if initializer is None:
            initializer, initializing_from_value = self._default_initializer(name, dtype)
        with framework.get_default_graph()._in_scope(framework.get_default_graph()._scope):
            if initializing_from_value:
                init_val, variable_dtype = initializer, None
            else:
                if inspect.isclass(initializer):
                    initializer = initializer()
                if shape.is_fully_defined():
                    if _takes(initializer, "partition_info"):
                        init_val = lambda: initializer(shape.as_list(), dtype=dtype,  # noqa: E731
                                                       partition_info=partition_info)
                    else:
                        init_val = lambda: initializer(shape.as_list(), dtype=dtype)  # noqa: E731
                    variable_dtype = dtype.base_dtype
                elif _required_arguments(initializer) == 0:
                    init_val, variable_dtype = initializer, None
                else:
                    raise ValueError("The initializer passed is not valid. It should be a callable with no arguments "
                                     "and the shape should not be provided or an instance of `tf.keras.initializers.*' "
                                     "and `shape` should be fully defined.")
        if use_resource is None:
            use_resource = variables.resource_variables_enabled()
        v = variables.Variable(initial_value=init_val, name=name, trainable=trainable, collections=collections,
                               caching_device=caching_device, dtype=variable_dtype, validate_shape=validate_shape,
                               constraint=constraint, use_resource=use_resource, synchronization=synchronization,
                               aggregation=aggregation)
        self._vars[name] = v
        v._created_at = traceback.extract_stack(limit=8)[:-3]
        if regularizer:
            with colocate_with(v):
                with name_scope(name + "/Regularizer/"):
                    loss = regularizer(v)
                if loss is not None:
                    framework.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
        return v

    @staticmethod
    def _default_initializer(name, dtype):
        if dtype.is_floating:
            return init_ops.glorot_uniform_initializer(), False
        if dtype.is_integer or dtype.is_unsigned or dtype.is_bool or dtype == dtypes.string:
            return init_ops.zeros_initializer(), False
        raise ValueError("An initializer for variable %s of %s is required" % (name, dtype.base_dtype))


def _takes(function, argument):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return any(p.name == argument or p.kind is p.VAR_KEYWORD for p in signature.parameters.values())


def _required_arguments(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    return len([p for p in parameters if p.default is p.empty and p.kind in (
        p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)])


def _get_default_variable_store():
    items = framework.get_default_graph().get_collection_ref(_STORE_KEY)
    if not items:
        items.append(_VariableStore())
    return items[0]
