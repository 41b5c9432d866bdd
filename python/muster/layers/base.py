"""What layers share: variables that the first call makes, and the checks of arguments."""
from muster import dtypes
from muster.graph import framework
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import GraphKeys, name_scope
from muster.nn.rnn_cell import _snake_case
from muster.variables import variable_scopes


class Layer(object):
    """Variables are made by the first call, in a scope of the layer's name; later calls use them again."""

    def __init__(self, trainable=True, name=None, dtype=None, activity_regularizer=None, _scope=None, _reuse=None,
                 **kwargs):
        if kwargs:
            raise TypeError("Keyword argument not understood: %s" % ", ".join(sorted(kwargs)))
        self.trainable, self._reuse = trainable, _reuse
        self._base_name = name or _snake_case(type(self).__name__)
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype)
        self._activity_regularizer = activity_regularizer
        self._weights, self._losses, self._updates = [], [], []
        self._scope = None
        self.built = False
        if _scope:
            with variable_scopes.variable_scope(_scope) as captured:
                self._scope = captured

    name = property(lambda self: self._base_name)
    dtype = property(lambda self: self._dtype)
    losses = property(lambda self: list(self._losses))
    updates = property(lambda self: list(self._updates))
    variables = property(lambda self: list(self._weights))
    weights = variables

    @property
    def scope_name(self):
        if self._scope is None:
            raise ValueError("No name available for layer scope because the layer \"" + self.name + "\" has not been "
                             "used yet. The scope name is determined the first time the layer instance is called.")
        return self._scope.name

    @property
    def trainable_variables(self):
        return [v for v in self._weights if v.trainable] if self.trainable else []

    @property
    def non_trainable_variables(self):
        trainable = set(self.trainable_variables)
        return [v for v in self._weights if v not in trainable]

    trainable_weights, non_trainable_weights = trainable_variables, non_trainable_variables

    def build(self, input_shape):
        self.built = True

    def call(self, inputs, **kwargs):
        return inputs

    def add_weight(self, name, shape, dtype=None, initializer=None, regularizer=None, trainable=True, constraint=None,
                   use_resource=None, partitioner=None):
        before = set(framework.get_collection(GraphKeys.GLOBAL_VARIABLES)) if regularizer is not None else ()
        variable = variable_scopes.get_variable(
            name, shape=shape, dtype=dtypes.as_dtype(dtype or self._dtype or dtypes.float32), initializer=initializer,
            trainable=trainable and self.trainable, constraint=constraint, use_resource=use_resource,
            partitioner=partitioner)
        if regularizer is not None and variable not in before:
            with name_scope(name + "/Regularizer"):
                self.add_loss(regularizer(variable))
        self._weights.extend(list(variable) if hasattr(variable, "_get_variable_list") else [variable])
        return variable

    add_variable = add_weight

    def add_loss(self, losses, inputs=None):
        losses = losses if isinstance(losses, (list, tuple)) else [losses]
        losses = [loss for loss in losses if loss is not None]
        self._losses.extend(losses)
        for loss in losses:
            framework.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    def add_update(self, updates, inputs=None):
        for update in updates if isinstance(updates, (list, tuple)) else [updates]:
            update = update.op if hasattr(update, "op") else update
            self._updates.append(update)
            framework.add_to_collection(GraphKeys.UPDATE_OPS, update)

    def _set_scope(self, scope):
        if self._scope is not None:
            return
        if self._reuse:
            context = variable_scopes.variable_scope(self._base_name if scope is None else scope)
        else:
            context = variable_scopes.variable_scope(scope, default_name=self._base_name)
        with context as captured:
            self._scope = captured

    def __call__(self, inputs, *args, **kwargs):
        self._set_scope(kwargs.pop("scope", None))
        reuse = self._reuse if self._reuse is not None and not self.built else (True if self.built else None)
        with variable_scopes.variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as current:
            with name_scope(current.original_name_scope):
                if not self.built:
                    inputs = convert_to_tensor(inputs)
                    if self._dtype is None:
                        self._dtype = inputs.dtype.base_dtype
                    self.build(inputs.get_shape())
                    self.built = True
                outputs = self.call(inputs, *args, **kwargs)
                if self._activity_regularizer is not None:
                    with name_scope("ActivityRegularizer"):
                        self.add_loss(self._activity_regularizer(outputs))
                return outputs

    def apply(self, inputs, *args, **kwargs):
        return self(inputs, *args, **kwargs)


def _tuple(value, n, name):
    if isinstance(value, int):
        return (value,) * n
    complaint = "The `%s` argument must be a tuple of %d integers. Received: %s" % (name, n, value)
    try:
        values = tuple(value)
    except TypeError:
        raise ValueError(complaint) from None
    if len(values) != n:
        raise ValueError(complaint)
    numbers = []
    for single in values:
        try:
            numbers.append(int(single))
        except (TypeError, ValueError):
            raise ValueError("%s including element %s of type %s" % (complaint, single, type(single))) from None
    return tuple(numbers)


def _padding(padding):
    if padding.lower() not in ("valid", "same"):
        raise ValueError("The `padding` argument must be one of \"valid\", \"same\". Received: %s" % padding)
    return padding.upper()


def _channels_first(data_format):
    if data_format.lower() not in ("channels_last", "channels_first"):
        raise ValueError("The `data_format` argument must be one of \"channels_first\", \"channels_last\". Received: "
                         "%s" % data_format)
    return data_format.lower() == "channels_first"


# --- Functions. ---
def _made(layer_class, inputs, name, reuse, arguments):
    layer = layer_class(name=name, dtype=inputs.dtype.base_dtype, _scope=name, _reuse=reuse, **arguments)
    return layer.apply(inputs)
