"""variable_scope and get_variable: variables found again by name."""
import contextlib
import threading

from muster import dtypes
from muster.graph import framework
from muster.graph.framework import GraphKeys, name_scope
from muster.variables import variables
from muster.variables.variable_store import AUTO_REUSE, _get_default_variable_store
from muster.variables.variables import VariableAggregation, VariableSynchronization

_SCOPE_STORE_KEY = ("__varscope",)


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
