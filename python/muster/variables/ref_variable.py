"""Variables as references, TensorFlow 1's default: a VariableV2 node, its Assign and its read."""
from muster.graph import framework
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, state_ops
from muster.variables.variables import Variable, VariableAggregation, VariableSynchronization


class RefVariable(Variable):
    """A VariableV2 node, its Assign and its read."""

    def __init__(self, initial_value=None, trainable=None, collections=None, validate_shape=True, caching_device=None,
                 name=None, variable_def=None, dtype=None, expected_shape=None, import_scope=None, constraint=None,
                 synchronization=VariableSynchronization.AUTO, aggregation=VariableAggregation.NONE, shape=None):
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            self._init_from_proto(variable_def, import_scope)
            return
        collections = self._setup(initial_value, trainable, collections, name, dtype, constraint, synchronization,
                                  aggregation)
        self._caching_device = caching_device
        with self._graph.control_dependencies(None):
            with name_scope(name, "Variable", [] if callable(initial_value) else [initial_value]) as name:
                self._make(initial_value, dtype, name, validate_shape)
        self._graph.add_to_collections(collections, self)

    # --- Reading. ---
    def value(self):
        return self._snapshot

    def _dense(self):
        return self._snapshot

    def _variable_value_for_eval(self):
        return self._variable

    def read_value(self):
        return array_ops.identity(self._variable, name="read")

    def _ref(self):
        return self._variable

    def _as_graph_element(self):
        return self._variable

    def _AsTensor(self):
        return self._snapshot

    def is_initialized(self, name=None):
        return state_ops.is_variable_initialized(self._variable, name=name)

    def _strided_slice_assign(self, begin, end, strides, value, name, **masks):
        return call("StridedSliceAssign", name=name, ref=self._ref(), begin=begin, end=end, strides=strides, value=value,
                    **masks)

    # --- Changing. ---
    def assign(self, value, use_locking=False, name=None, read_value=True):
        result = state_ops.assign(self._variable, value, use_locking=use_locking, name=name)
        return result if read_value else result.op

    def assign_add(self, delta, use_locking=False, name=None, read_value=True):
        result = state_ops.assign_add(self._variable, delta, use_locking=use_locking, name=name)
        return result if read_value else result.op

    def assign_sub(self, delta, use_locking=False, name=None, read_value=True):
        result = state_ops.assign_sub(self._variable, delta, use_locking=use_locking, name=name)
        return result if read_value else result.op

    def __repr__(self):
        return "<tf.Variable '%s' shape=%s dtype=%s>" % (self.name, self.shape, self.dtype.name)


def _add_ref_scatters():
    for kind in ("sub", "add", "max", "min", "mul", "div", "update"):
        function = getattr(state_ops, "scatter_" + kind)

        def method(self, sparse_delta, use_locking=False, name=None, _function=function, _kind=kind):
            if not isinstance(sparse_delta, framework.IndexedSlices):
                raise ValueError("sparse_delta is not IndexedSlices: %s" % sparse_delta)
            return _function(self._variable, sparse_delta.indices, sparse_delta.values, use_locking=use_locking,
                             name=name)

        setattr(RefVariable, "scatter_" + kind, method)
    for kind in ("sub", "add", "update"):
        function = getattr(state_ops, "scatter_nd_" + kind)

        def nd_method(self, indices, updates, name=None, _function=function):
            return _function(self._variable, indices, updates, use_locking=True, name=name)

        setattr(RefVariable, "scatter_nd_" + kind, nd_method)


_add_ref_scatters()
