"""tf.nn.rnn_cell: cells of recurrent networks and wrappers around them."""
import collections
import hashlib
import re

from muster import dtypes, nest
from muster.graph import convert, framework
from muster.graph import tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.nn import nn_ops
from muster.ops import array_ops, clip_ops, math_ops
from muster.ops import random_ops
from muster.variables import init_ops, partitioned
from muster.variables import variable_scopes

_KERNEL, _BIAS = "kernel", "bias"


def assert_like_rnncell(cell_name, cell):
    problems = [text for missing, text in (
        (not hasattr(cell, "output_size"), "'output_size' property is missing"),
        (not hasattr(cell, "state_size"), "'state_size' property is missing"),
        (not hasattr(cell, "zero_state") and not hasattr(cell, "get_initial_state"),
         "either 'zero_state' or 'get_initial_state' method is required"),
        (not callable(cell), "is not callable")) if missing]
    if problems:
        raise TypeError("The argument {!r} ({}) is not an RNNCell: {}.".format(cell_name, cell, ", ".join(problems)))


def _part(value):
    """(tensor or nothing, static shape) of a part of a shape."""
    if isinstance(value, framework.Tensor):
        known = convert.constant_value(value)
        if value.get_shape().ndims == 0:
            return array_ops.expand_dims(value, 0), tensor_shape.TensorShape([None if known is None else int(known)])
        if value.get_shape().ndims != 1:
            raise ValueError("prefix tensor must be either a scalar or vector, but saw tensor: %s" % value)
        return value, tensor_shape.TensorShape(None if known is None else [int(k) for k in known])
    shape = tensor_shape.as_shape([value] if isinstance(value, (int, tensor_shape.Dimension)) else value)
    # The constant is made even where only the static shape is asked for, as TensorFlow does.
    return constant(shape.as_list(), dtype=dtypes.int32) if shape.is_fully_defined() else None, shape


def concat_shape(prefix, suffix, static=False):
    """The shape prefix + suffix, as a list of numbers or as a tensor."""
    first, first_static = _part(prefix)
    second, second_static = _part(suffix)
    if static:
        joined = first_static.concatenate(second_static)
        return joined.as_list() if joined.ndims is not None else None
    if first is None or second is None:
        raise ValueError("Provided a prefix or suffix of None: %s and %s" % (prefix, suffix))
    return array_ops.concat((first, second), 0)


def _zeros_of(state_size, batch_size, dtype):
    def zeros(size):
        result = array_ops.zeros(concat_shape(batch_size, size), dtype=dtype)
        result.set_shape(concat_shape(batch_size, size, static=True))
        return result

    return nest.map_structure(zeros, state_size)


def _snake_case(name):
    name = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


class RNNCell(object):
    """cell(inputs, state) -> (output, new state). The first call makes the variables, in a scope of the cell's name."""

    def __init__(self, trainable=True, name=None, dtype=None, _reuse=None, **kwargs):
        self._trainable, self._reuse = trainable, _reuse
        self._base_name = name or _snake_case(type(self).__name__)
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype)
        self._scope = self._outer_scope = None
        self._variables = []
        self.built = False

    name = property(lambda self: self._base_name)
    trainable = property(lambda self: self._trainable)
    dtype = property(lambda self: self._dtype)

    @property
    def state_size(self):
        raise NotImplementedError("Abstract method")

    @property
    def output_size(self):
        raise NotImplementedError("Abstract method")

    @property
    def scope_name(self):
        return self._scope.name

    @property
    def variables(self):
        return list(self._variables)

    weights = variables

    @property
    def trainable_variables(self):
        return [v for v in self._variables if v.trainable] if self._trainable else []

    trainable_weights = trainable_variables

    def zero_state(self, batch_size, dtype):
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            return _zeros_of(self.state_size, batch_size, dtype)

    def get_initial_state(self, inputs=None, batch_size=None, dtype=None):
        if inputs is not None:
            inputs = convert_to_tensor(inputs, name="inputs")
            batch_size, dtype = array_ops.shape(inputs)[0], inputs.dtype
        if batch_size is None or dtype is None:
            raise ValueError("batch_size and dtype cannot be None while constructing initial state: batch_size={}, "
                             "dtype={}".format(batch_size, dtype))
        return self.zero_state(batch_size, dtype)

    def add_variable(self, name, shape, dtype=None, initializer=None, partitioner=None, **kwargs):
        variable = variable_scopes.get_variable(
            name, shape=shape, dtype=dtypes.as_dtype(dtype or self._dtype or dtypes.float32), initializer=initializer,
            partitioner=partitioner, trainable=self._trainable, **kwargs)
        self._variables.extend(list(variable) if hasattr(variable, "_get_variable_list") else [variable])
        return variable

    add_weight = add_variable

    def build(self, inputs_shape):
        self.built = True

    def call(self, inputs, state):
        raise NotImplementedError("Abstract method")

    def _set_scope(self, scope):
        if self._scope is not None:
            return
        if self._reuse:
            context = variable_scopes.variable_scope(self._base_name if scope is None else scope)
        else:
            context = variable_scopes.variable_scope(scope, default_name=self._base_name)
        with context as captured:
            self._scope = captured

    def _run(self, inputs, state, scope=None):
        self._set_scope(scope)
        reuse = True if self.built or self._reuse else None
        with variable_scopes.variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as current:
            with name_scope(current.original_name_scope):
                if not self.built:
                    first = nest.flatten(inputs)[0]
                    if self._dtype is None:
                        self._dtype = convert_to_tensor(first).dtype.base_dtype
                    self.build(convert_to_tensor(first).get_shape())
                    self.built = True
                return self.call(inputs, state)

    def __call__(self, inputs, state, scope=None):
        if scope is not None:
            with variable_scopes.variable_scope(scope) as opened:
                return self._run(inputs, state, opened)
        # The scope of the first call is opened again by later ones.
        self._outer_scope = self._outer_scope or variable_scopes.get_variable_scope()
        with variable_scopes.variable_scope(self._outer_scope):
            return self._run(inputs, state)


class _LayerCell(RNNCell):
    """Cells with variables of their own: a scope given to the call is their scope."""

    def __call__(self, inputs, state, scope=None, *args, **kwargs):
        return self._run(inputs, state, scope)


def _depth(inputs_shape):
    depth = inputs_shape[-1].value
    if depth is None:
        raise ValueError("Expected inputs.shape[-1] to be known, saw shape: %s" % str(inputs_shape))
    return depth


def _activation(activation):
    if isinstance(activation, str):
        return getattr(nn_ops, activation)
    return activation or math_ops.tanh


class BasicRNNCell(_LayerCell):
    def __init__(self, num_units, activation=None, reuse=None, name=None, dtype=None, **kwargs):
        super(BasicRNNCell, self).__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._activation = num_units, _activation(activation)

    state_size = property(lambda self: self._num_units)
    output_size = property(lambda self: self._num_units)

    def build(self, inputs_shape):
        depth = _depth(inputs_shape)
        self._kernel = self.add_variable(_KERNEL, shape=[depth + self._num_units, self._num_units])
        self._bias = self.add_variable(_BIAS, shape=[self._num_units],
                                       initializer=init_ops.zeros_initializer(dtype=self.dtype))

    def call(self, inputs, state):
        gates = math_ops.matmul(array_ops.concat([inputs, state], 1), self._kernel)
        output = self._activation(nn_ops.bias_add(gates, self._bias))
        return output, output


class GRUCell(_LayerCell):
    def __init__(self, num_units, activation=None, reuse=None, kernel_initializer=None, bias_initializer=None,
                 name=None, dtype=None, **kwargs):
        super(GRUCell, self).__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._activation = num_units, _activation(activation)
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    state_size = property(lambda self: self._num_units)
    output_size = property(lambda self: self._num_units)

    def build(self, inputs_shape):
        depth, units = _depth(inputs_shape), self._num_units
        self._gate_kernel = self.add_variable("gates/" + _KERNEL, shape=[depth + units, 2 * units],
                                              initializer=self._kernel_initializer)
        self._gate_bias = self.add_variable(
            "gates/" + _BIAS, shape=[2 * units],
            initializer=self._bias_initializer or init_ops.constant_initializer(1.0, dtype=self.dtype))
        self._candidate_kernel = self.add_variable("candidate/" + _KERNEL, shape=[depth + units, units],
                                                   initializer=self._kernel_initializer)
        self._candidate_bias = self.add_variable(
            "candidate/" + _BIAS, shape=[units],
            initializer=self._bias_initializer or init_ops.zeros_initializer(dtype=self.dtype))

    def call(self, inputs, state):
        gates = math_ops.matmul(array_ops.concat([inputs, state], 1), self._gate_kernel)
        gates = math_ops.sigmoid(nn_ops.bias_add(gates, self._gate_bias))
        r, u = array_ops.split(value=gates, num_or_size_splits=2, axis=1)
        r_state = r * state
        candidate = math_ops.matmul(array_ops.concat([inputs, r_state], 1), self._candidate_kernel)
        c = self._activation(nn_ops.bias_add(candidate, self._candidate_bias))
        new_h = u * state + (1 - u) * c
        return new_h, new_h


class LSTMStateTuple(collections.namedtuple("LSTMStateTuple", ("c", "h"))):
    """The state of an LSTM: cell and output."""

    __slots__ = ()

    @property
    def dtype(self):
        if self.c.dtype != self.h.dtype:
            raise TypeError("Inconsistent internal state: %s vs %s" % (str(self.c.dtype), str(self.h.dtype)))
        return self.c.dtype


class BasicLSTMCell(_LayerCell):
    def __init__(self, num_units, forget_bias=1.0, state_is_tuple=True, activation=None, reuse=None, name=None,
                 dtype=None, **kwargs):
        super(BasicLSTMCell, self).__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._forget_bias = num_units, forget_bias
        self._state_is_tuple, self._activation = state_is_tuple, _activation(activation)

    @property
    def state_size(self):
        return LSTMStateTuple(self._num_units, self._num_units) if self._state_is_tuple else 2 * self._num_units

    output_size = property(lambda self: self._num_units)

    def build(self, inputs_shape):
        depth = _depth(inputs_shape)
        self._kernel = self.add_variable(_KERNEL, shape=[depth + self._num_units, 4 * self._num_units])
        self._bias = self.add_variable(_BIAS, shape=[4 * self._num_units],
                                       initializer=init_ops.zeros_initializer(dtype=self.dtype))

    def call(self, inputs, state):
        sigmoid, add, multiply = math_ops.sigmoid, math_ops.add, math_ops.multiply
        one = constant(1, dtype=dtypes.int32)
        if self._state_is_tuple:
            c, h = state
        else:
            c, h = array_ops.split(value=state, num_or_size_splits=2, axis=one)
        gates = math_ops.matmul(array_ops.concat([inputs, h], 1), self._kernel)
        gates = nn_ops.bias_add(gates, self._bias)
        # input gate, new input, forget gate, output gate
        i, j, f, o = array_ops.split(value=gates, num_or_size_splits=4, axis=one)
        forget_bias = constant(self._forget_bias, dtype=f.dtype)
        new_c = add(multiply(c, sigmoid(add(f, forget_bias))), multiply(sigmoid(i), self._activation(j)))
        new_h = multiply(self._activation(new_c), sigmoid(o))
        if self._state_is_tuple:
            return new_h, LSTMStateTuple(new_c, new_h)
        return new_h, array_ops.concat([new_c, new_h], 1)


class LSTMCell(_LayerCell):
    def __init__(self, num_units, use_peepholes=False, cell_clip=None, initializer=None, num_proj=None, proj_clip=None,
                 num_unit_shards=None, num_proj_shards=None, forget_bias=1.0, state_is_tuple=True, activation=None,
                 reuse=None, name=None, dtype=None, **kwargs):
        super(LSTMCell, self).__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self._num_units, self._use_peepholes, self._cell_clip = num_units, use_peepholes, cell_clip
        self._initializer, self._num_proj, self._proj_clip = initializer, num_proj, proj_clip
        self._num_unit_shards, self._num_proj_shards = num_unit_shards, num_proj_shards
        self._forget_bias, self._state_is_tuple = forget_bias, state_is_tuple
        self._activation = _activation(activation)

    output_size = property(lambda self: self._num_proj or self._num_units)

    @property
    def state_size(self):
        if self._state_is_tuple:
            return LSTMStateTuple(self._num_units, self.output_size)
        return self._num_units + self.output_size

    def build(self, inputs_shape):
        depth, units = _depth(inputs_shape), self._num_units

        def sharded(shards):
            return None if shards is None else partitioned.fixed_size_partitioner(shards)

        self._kernel = self.add_variable(_KERNEL, shape=[depth + self.output_size, 4 * units],
                                         initializer=self._initializer, partitioner=sharded(self._num_unit_shards))
        self._bias = self.add_variable(_BIAS, shape=[4 * units],
                                       initializer=init_ops.zeros_initializer(dtype=self.dtype))
        if self._use_peepholes:
            self._w_f_diag = self.add_variable("w_f_diag", shape=[units], initializer=self._initializer)
            self._w_i_diag = self.add_variable("w_i_diag", shape=[units], initializer=self._initializer)
            self._w_o_diag = self.add_variable("w_o_diag", shape=[units], initializer=self._initializer)
        if self._num_proj is not None:
            self._proj_kernel = self.add_variable(
                "projection/" + _KERNEL, shape=[units, self._num_proj], initializer=self._initializer,
                partitioner=sharded(self._num_proj_shards))

    def call(self, inputs, state):
        sigmoid = math_ops.sigmoid
        if self._state_is_tuple:
            c_prev, m_prev = state
        else:
            c_prev = array_ops.slice(state, [0, 0], [-1, self._num_units])
            m_prev = array_ops.slice(state, [0, self._num_units], [-1, self.output_size])
        if inputs.get_shape().with_rank(2)[1].value is None:
            raise ValueError("Could not infer input size from inputs.get_shape()[-1]")
        gates = math_ops.matmul(array_ops.concat([inputs, m_prev], 1), self._kernel)
        gates = nn_ops.bias_add(gates, self._bias)
        i, j, f, o = array_ops.split(value=gates, num_or_size_splits=4, axis=1)
        if self._use_peepholes:
            c = (sigmoid(f + self._forget_bias + self._w_f_diag * c_prev) * c_prev +
                 sigmoid(i + self._w_i_diag * c_prev) * self._activation(j))
        else:
            c = sigmoid(f + self._forget_bias) * c_prev + sigmoid(i) * self._activation(j)
        if self._cell_clip is not None:
            c = clip_ops.clip_by_value(c, -self._cell_clip, self._cell_clip)
        if self._use_peepholes:
            m = sigmoid(o + self._w_o_diag * c) * self._activation(c)
        else:
            m = sigmoid(o) * self._activation(c)
        if self._num_proj is not None:
            m = math_ops.matmul(m, self._proj_kernel)
            if self._proj_clip is not None:
                m = clip_ops.clip_by_value(m, -self._proj_clip, self._proj_clip)
        return m, LSTMStateTuple(c, m) if self._state_is_tuple else array_ops.concat([c, m], 1)


class MultiRNNCell(RNNCell):
    """Cells on top of each other."""

    def __init__(self, cells, state_is_tuple=True):
        super(MultiRNNCell, self).__init__()
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        if not nest.is_sequence(cells):
            raise TypeError("cells must be a list or tuple, but saw: %s." % cells)
        self._cells, self._state_is_tuple = list(cells), state_is_tuple
        if not state_is_tuple and any(nest.is_sequence(c.state_size) for c in self._cells):
            raise ValueError("Some cells return tuples of states, but the flag state_is_tuple is not set.  State sizes "
                             "are: %s" % str([c.state_size for c in self._cells]))

    @property
    def state_size(self):
        sizes = [cell.state_size for cell in self._cells]
        return tuple(sizes) if self._state_is_tuple else sum(sizes)

    output_size = property(lambda self: self._cells[-1].output_size)

    @property
    def variables(self):
        return [v for cell in self._cells for v in cell.variables]

    def zero_state(self, batch_size, dtype):
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            if self._state_is_tuple:
                return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)
            return super(MultiRNNCell, self).zero_state(batch_size, dtype)

    def call(self, inputs, state):
        position, new_states = 0, []
        for i, cell in enumerate(self._cells):
            with variable_scopes.variable_scope("cell_%d" % i):
                if self._state_is_tuple:
                    if not nest.is_sequence(state):
                        raise ValueError("Expected state to be a tuple of length %d, but received: %s"
                                         % (len(self.state_size), state))
                    cell_state = state[i]
                else:
                    cell_state = array_ops.slice(state, [0, position], [-1, cell.state_size])
                    position += cell.state_size
                inputs, new_state = cell(inputs, cell_state)
                new_states.append(new_state)
        return inputs, tuple(new_states) if self._state_is_tuple else array_ops.concat(new_states, 1)


class _Wrapper(RNNCell):
    def __init__(self, cell):
        super(_Wrapper, self).__init__()
        assert_like_rnncell("cell", cell)
        self.cell = cell

    state_size = property(lambda self: self.cell.state_size)
    output_size = property(lambda self: self.cell.output_size)
    variables = property(lambda self: self.cell.variables)
    wrapped_cell = property(lambda self: self.cell)

    def zero_state(self, batch_size, dtype):
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            return self.cell.zero_state(batch_size, dtype)


class DropoutWrapper(_Wrapper):
    """Drops elements of inputs, state and outputs of a cell."""

    def __init__(self, cell, input_keep_prob=1.0, output_keep_prob=1.0, state_keep_prob=1.0,
                 variational_recurrent=False, input_size=None, dtype=None, seed=None,
                 dropout_state_filter_visitor=None):
        super(DropoutWrapper, self).__init__(cell)
        self._filter = dropout_state_filter_visitor or self._default_filter
        self._variational, self._seed = variational_recurrent, seed
        self._noise = {}
        with name_scope("DropoutWrapperInit"):
            for attribute, value in (("input_keep_prob", input_keep_prob), ("state_keep_prob", state_keep_prob),
                                     ("output_keep_prob", output_keep_prob)):
                tensor = convert_to_tensor(value)
                known = convert.constant_value(tensor)
                if known is not None and not 0 <= known <= 1:
                    raise ValueError("Parameter %s must be between 0 and 1: %d" % (attribute, known))
                setattr(self, "_" + attribute, tensor if known is None else float(known))
            if variational_recurrent:
                self._make_noise(input_size, dtype)

    @staticmethod
    def _default_filter(substate):
        # The memory of an LSTM stays; its output is dropped.
        return LSTMStateTuple(c=False, h=True) if isinstance(substate, LSTMStateTuple) else True

    @staticmethod
    def _drops(probability):
        return not isinstance(probability, float) or probability < 1

    def _gen_seed(self, salt_prefix, index):
        if self._seed is None:
            return None
        text = (str(self._seed) + "%s_%d" % (salt_prefix, index)).encode("utf-8")
        return int(hashlib.md5(text).hexdigest()[:8], 16) & 0x7FFFFFFF

    def _make_noise(self, input_size, dtype):
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")

        def noise(sizes, salt):
            return [random_ops.random_uniform(concat_shape([1], size), seed=self._gen_seed(salt, i), dtype=dtype)
                    for i, size in enumerate(nest.flatten(sizes))]

        if self._drops(self._input_keep_prob):
            if input_size is None:
                raise ValueError("When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, input_size "
                                 "must be provided")
            self._noise["input"] = noise(input_size, "input")
        self._noise["state"] = noise(self.cell.state_size, "state")
        self._noise["output"] = noise(self.cell.output_size, "output")

    def _dropped(self, values, salt, keep_prob, chosen=None):
        flat, results = nest.flatten(values), []
        for i, value in enumerate(flat):
            if chosen is not None and not chosen[i]:
                results.append(value)
            elif self._variational:
                mask = math_ops.floor(self._noise[salt][i] + keep_prob)
                result = math_ops.div(value, keep_prob) * mask
                result.set_shape(value.get_shape())
                results.append(result)
            else:
                results.append(nn_ops.dropout(value, rate=1. - keep_prob, seed=self._gen_seed(salt, i)))
        return nest.pack_sequence_as(values, results)

    def __call__(self, inputs, state, scope=None):
        if self._drops(self._input_keep_prob):
            inputs = self._dropped(inputs, "input", self._input_keep_prob)
        output, new_state = self.cell(inputs, state, scope=scope)
        if self._drops(self._state_keep_prob):
            chosen = self._choices(new_state)
            new_state = self._dropped(new_state, "state", self._state_keep_prob, chosen)
        if self._drops(self._output_keep_prob):
            output = self._dropped(output, "output", self._output_keep_prob)
        return output, new_state

    def _choices(self, state):
        choice = self._filter(state)
        if isinstance(choice, bool):
            if choice and nest.is_sequence(state) and not isinstance(state, LSTMStateTuple):
                return [c for part in state for c in self._choices(part)]
            return [choice] * len(nest.flatten(state))
        return nest.flatten(choice)


class ResidualWrapper(_Wrapper):
    """Adds the inputs to the outputs."""

    def __init__(self, cell, residual_fn=None):
        super(ResidualWrapper, self).__init__(cell)
        self._residual_fn = residual_fn

    def __call__(self, inputs, state, scope=None):
        outputs, new_state = self.cell(inputs, state, scope=scope)
        if self._residual_fn is not None:
            return self._residual_fn(inputs, outputs), new_state
        nest.assert_same_structure(inputs, outputs)
        return nest.map_structure(lambda i, o: i + o, inputs, outputs), new_state


class DeviceWrapper(_Wrapper):
    """Runs a cell on a device."""

    def __init__(self, cell, device):
        super(DeviceWrapper, self).__init__(cell)
        self._device = device

    def __call__(self, inputs, state, scope=None):
        with framework.device(self._device):
            return self.cell(inputs, state, scope=scope)
