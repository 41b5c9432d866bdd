"""variable_scope and get_variable: variables found again by name."""
import contextlib
import inspect
import threading
import traceback

from muster import array_ops, dtypes, framework, init_ops, partitioned, tensor_shape, variables
from muster.framework import GraphKeys, colocate_with, name_scope
from muster.variables import VariableAggregation, VariableSynchronization


class _ReuseMode(object):
    def __repr__(self):
        return "<_ReuseMode.AUTO_REUSE: 1>"


AUTO_REUSE = _ReuseMode()
_STORE_KEY = ("__variable_store",)
_SCOPE_STORE_KEY = ("__varscope",)


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
            is_scalar = shape is not None and isinstance(shape, collections_abc_Sequence) and not shape
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
        result = variables.PartitionedVariable(name=name, shape=shape, dtype=dtype, variable_list=parts,
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
                if isinstance(var, variables.ResourceVariable):
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


collections_abc_Sequence = (list, tuple)


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


class VariableScope(object):
    """Defaults for get_variable, and the prefix of names."""

    def __init__(self, reuse, name="", initializer=None, regularizer=None, caching_device=None, partitioner=None,
                 custom_getter=None, name_scope="", dtype=dtypes.float32, use_resource=None, constraint=None):
        self._name, self._initializer, self._regularizer = name, initializer, regularizer
        self._reuse, self._caching_device, self._partitioner = reuse, caching_device, partitioner
        self._custom_getter, self._name_scope = custom_getter, name_scope
        self._dtype, self._use_resource, self._constraint = dtype, use_resource, constraint

    name = property(lambda self: self._name)
    original_name_scope = property(lambda self: self._name_scope)
    reuse = property(lambda self: self._reuse)
    initializer = property(lambda self: self._initializer)
    dtype = property(lambda self: self._dtype)
    use_resource = property(lambda self: self._use_resource)
    regularizer = property(lambda self: self._regularizer)
    caching_device = property(lambda self: self._caching_device)
    partitioner = property(lambda self: self._partitioner)
    custom_getter = property(lambda self: self._custom_getter)
    constraint = property(lambda self: self._constraint)

    def reuse_variables(self):
        self._reuse = True

    def set_initializer(self, initializer):
        self._initializer = initializer

    def set_dtype(self, dtype):
        self._dtype = dtype

    def set_use_resource(self, use_resource):
        self._use_resource = use_resource

    def set_regularizer(self, regularizer):
        self._regularizer = regularizer

    def set_caching_device(self, caching_device):
        self._caching_device = caching_device

    def set_partitioner(self, partitioner):
        self._partitioner = partitioner

    def set_constraint(self, constraint):
        self._constraint = constraint

    def set_custom_getter(self, custom_getter):
        self._custom_getter = custom_getter

    def get_collection(self, name):
        scope = self._name + "/" if self._name else self._name
        return framework.get_collection(name, scope)

    def trainable_variables(self):
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self):
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self):
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(self, var_store, name, shape=None, dtype=None, initializer=None, regularizer=None, reuse=None,
                     trainable=None, collections=None, caching_device=None, partitioner=None, validate_shape=True,
                     use_resource=None, custom_getter=None, constraint=None,
                     synchronization=VariableSynchronization.AUTO, aggregation=VariableAggregation.NONE):
        if regularizer is None:
            regularizer = self._regularizer
        if caching_device is None:
            caching_device = self._caching_device
        if partitioner is None:
            partitioner = self._partitioner
        if custom_getter is None:
            custom_getter = self._custom_getter
        if use_resource is None:
            use_resource = self._use_resource
        if constraint is None:
            constraint = self._constraint
        reuse = self._reuse if reuse is None else reuse
        full_name = self.name + "/" + name if self.name else name
        # Names of the variables' nodes are absolute: scopes of names do not apply.
        with name_scope(None):
            if dtype is not None and initializer is not None and not callable(initializer):
                init_dtype = framework.dtypes.as_dtype(initializer.dtype) if hasattr(initializer, "dtype") else None
                if init_dtype is not None and init_dtype.base_dtype != dtypes.as_dtype(dtype).base_dtype:
                    raise ValueError("Initializer type '%s' and explicit dtype '%s' don't match."
                                     % (init_dtype, dtypes.as_dtype(dtype)))
            if initializer is None:
                initializer = self._initializer
            if dtype is None:
                dtype = self._dtype
            return var_store.get_variable(
                full_name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer, reuse=reuse,
                trainable=trainable, collections=collections, caching_device=caching_device, partitioner=partitioner,
                validate_shape=validate_shape, use_resource=use_resource, custom_getter=custom_getter,
                constraint=constraint, synchronization=synchronization, aggregation=aggregation)


class _ScopeStore(threading.local):
    def __init__(self):
        super(_ScopeStore, self).__init__()
        self.current_scope = VariableScope(False)
        self.counts = {}

    def open_variable_scope(self, scope_name):
        self.counts[scope_name] = self.counts.get(scope_name, 0) + 1

    def close_subscopes(self, scope_name):
        for name in list(self.counts):
            if scope_name is None or name.startswith(scope_name + "/"):
                self.counts[name] = 0

    def count(self, scope_name):
        return self.counts.get(scope_name, 0)


def _scope_store():
    items = framework.get_default_graph().get_collection_ref(_SCOPE_STORE_KEY)
    if not items:
        items.append(_ScopeStore())
    return items[0]


def _get_default_variable_store():
    items = framework.get_default_graph().get_collection_ref(_STORE_KEY)
    if not items:
        items.append(_VariableStore())
    return items[0]


def get_variable_scope():
    return _scope_store().current_scope


def get_variable(name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=None, collections=None,
                 caching_device=None, partitioner=None, validate_shape=True, use_resource=None, custom_getter=None,
                 constraint=None, synchronization=VariableSynchronization.AUTO, aggregation=VariableAggregation.NONE):
    return get_variable_scope().get_variable(
        _get_default_variable_store(), name, shape=shape, dtype=dtype, initializer=initializer,
        regularizer=regularizer, trainable=trainable, collections=collections, caching_device=caching_device,
        partitioner=partitioner, validate_shape=validate_shape, use_resource=use_resource,
        custom_getter=custom_getter, constraint=constraint, synchronization=synchronization, aggregation=aggregation)


def get_local_variable(name, shape=None, dtype=None, initializer=None, regularizer=None, trainable=False,
                       collections=None, caching_device=None, partitioner=None, validate_shape=True, use_resource=None,
                       custom_getter=None, constraint=None, synchronization=VariableSynchronization.AUTO,
                       aggregation=VariableAggregation.NONE):
    if collections:
        collections = list(collections) + [GraphKeys.LOCAL_VARIABLES]
    else:
        collections = [GraphKeys.LOCAL_VARIABLES]
    return get_variable(name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer,
                        trainable=False, collections=collections, caching_device=caching_device,
                        partitioner=partitioner, validate_shape=validate_shape, use_resource=use_resource,
                        custom_getter=custom_getter, constraint=constraint, synchronization=synchronization,
                        aggregation=aggregation)


def _unique_scope_name(prefix):
    store = _scope_store()
    current = get_variable_scope().name
    name = current + "/" + prefix if current else prefix
    if store.count(name) == 0:
        return prefix
    index = 1
    while store.count(name + "_%d" % index) > 0:
        index += 1
    return prefix + "_%d" % index


class _PureVariableScope(object):
    """Swaps the current variable scope, without a scope of names."""

    def __init__(self, name_or_scope, reuse=None, initializer=None, regularizer=None, caching_device=None,
                 partitioner=None, custom_getter=None, old_name_scope=None, dtype=dtypes.float32, use_resource=None,
                 constraint=None):
        self._name_or_scope = name_or_scope
        self._reuse, self._initializer, self._regularizer = reuse, initializer, regularizer
        self._caching_device, self._partitioner = caching_device, partitioner
        self._custom_getter, self._old_name_scope = custom_getter, old_name_scope
        self._dtype, self._use_resource, self._constraint = dtype, use_resource, constraint

    def __enter__(self):
        self._store = _scope_store()
        self._old = self._store.current_scope
        if isinstance(self._name_or_scope, VariableScope):
            self._new_name = self._name_or_scope.name
            self._store.open_variable_scope(self._new_name)
            self._old_counts = dict(self._store.counts)
            base = self._name_or_scope
            name_scope_ = base._name_scope
            scope = VariableScope(base.reuse if not self._reuse else self._reuse, name=self._new_name,
                                  initializer=base.initializer, regularizer=base.regularizer,
                                  caching_device=base.caching_device, partitioner=base.partitioner, dtype=base.dtype,
                                  custom_getter=base.custom_getter, name_scope=name_scope_,
                                  use_resource=base.use_resource, constraint=base.constraint)
        else:
            self._new_name = self._old.name + "/" + self._name_or_scope if self._old.name else self._name_or_scope
            reuse = self._reuse or self._old.reuse
            scope = VariableScope(reuse, name=self._new_name, initializer=self._old.initializer,
                                  regularizer=self._old.regularizer, caching_device=self._old.caching_device,
                                  partitioner=self._old.partitioner, dtype=self._old.dtype,
                                  use_resource=self._old.use_resource, custom_getter=self._old.custom_getter,
                                  name_scope=self._old_name_scope or self._name_or_scope,
                                  constraint=self._old.constraint)
            self._store.open_variable_scope(self._new_name)
        for attribute in ("initializer", "regularizer", "caching_device", "partitioner", "constraint", "use_resource"):
            value = getattr(self, "_" + attribute)
            if value is not None:
                setattr(scope, "_" + attribute, value)
        if self._custom_getter is not None:
            scope._custom_getter = _composed_getter(self._custom_getter, scope.custom_getter)
        if self._dtype is not None:
            scope._dtype = self._dtype
        self._store.current_scope = scope
        return scope

    def __exit__(self, *unused):
        if self._store.current_scope is None:
            raise RuntimeError("Improper nesting of variable_scope.")
        self._store.close_subscopes(self._new_name)
        if isinstance(self._name_or_scope, VariableScope):
            self._store.counts = self._old_counts
        self._store.current_scope = self._old
        return False


def _composed_getter(getter, old_getter):
    if old_getter is None:
        return getter

    def wrapped(getter=None, *args, **kwargs):
        return getter_outer(lambda *a, **k: old_getter(getter, *a, **k), *args, **kwargs)

    getter_outer = getter
    return wrapped


class variable_scope(object):
    """Opens a scope of variables, and with it a scope of names."""

    def __init__(self, name_or_scope, default_name=None, values=None, initializer=None, regularizer=None,
                 caching_device=None, partitioner=None, custom_getter=None, reuse=None, dtype=None, use_resource=None,
                 constraint=None, auxiliary_name_scope=True):
        self._name_or_scope, self._default_name = name_or_scope, default_name
        self._values = [] if values is None else values
        self._options = dict(initializer=initializer, regularizer=regularizer, caching_device=caching_device,
                             partitioner=partitioner, custom_getter=custom_getter, dtype=dtype,
                             use_resource=use_resource, constraint=constraint)
        self._reuse = reuse
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if reuse not in (None, True, False, AUTO_REUSE):
            raise ValueError("The reuse parameter must be True or False or None.")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError("The auxiliary_name_scope must be `True` or `False`, while get {}".format(
                auxiliary_name_scope))
        self._auxiliary_name_scope = auxiliary_name_scope

    def __enter__(self):
        self._contexts = contextlib.ExitStack()
        graph = framework.graph_for(self._values)
        if graph is not framework.get_default_graph():
            self._contexts.enter_context(graph.as_default())
        try:
            return self._enter()
        except Exception:
            self._contexts.close()
            raise

    def _enter(self):
        names = self._contexts
        if self._name_or_scope is not None:
            if not isinstance(self._name_or_scope, (VariableScope, str)):
                raise TypeError("VariableScope: name_or_scope must be a string or VariableScope.")
            if isinstance(self._name_or_scope, str):
                name = self._name_or_scope
            else:
                name = self._name_or_scope.name.split("/")[-1]
            current = framework.get_default_graph().get_name_scope()
            if name or current:
                if self._auxiliary_name_scope:
                    current_name = names.enter_context(name_scope(name))
                else:
                    current_name = current + "/" if current else ""
                old_name_scope = current_name if isinstance(self._name_or_scope, str) else \
                    self._name_or_scope.original_name_scope
                return names.enter_context(_PureVariableScope(
                    self._name_or_scope, reuse=self._reuse, old_name_scope=old_name_scope, **self._options))
            return names.enter_context(_PureVariableScope(self._name_or_scope, reuse=self._reuse, **self._options))
        if self._reuse:
            raise ValueError("reuse=True cannot be used without a name_or_scope")
        unique = _unique_scope_name(self._default_name)
        if self._auxiliary_name_scope:
            current_name = names.enter_context(name_scope(self._default_name))
        else:
            current = framework.get_default_graph().get_name_scope()
            current_name = current + "/" if current else ""
        return names.enter_context(_PureVariableScope(unique, old_name_scope=current_name, **self._options))

    def __exit__(self, exc_type, exc_value, tb):
        self._contexts.__exit__(exc_type, exc_value, tb)
        return False


def variable_op_scope(values, name_or_scope, default_name=None, initializer=None, regularizer=None, caching_device=None,
                      partitioner=None, custom_getter=None, reuse=None, dtype=None, use_resource=None, constraint=None):
    return variable_scope(name_or_scope, default_name=default_name, values=values, initializer=initializer,
                          regularizer=regularizer, caching_device=caching_device, partitioner=partitioner,
                          custom_getter=custom_getter, reuse=reuse, dtype=dtype, use_resource=use_resource,
                          constraint=constraint)


@contextlib.contextmanager
def variable_creator_scope(variable_creator):
    variables._creators.append(variable_creator)
    try:
        yield
    finally:
        variables._creators.remove(variable_creator)


no_regularizer = lambda _: None  # noqa: E731
__all__ = ["AUTO_REUSE", "VariableScope", "get_variable", "get_local_variable", "get_variable_scope", "variable_scope",
           "variable_op_scope", "variable_creator_scope", "no_regularizer"]
