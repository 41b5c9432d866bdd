"""Arithmetic, reductions and matrix products, and the operators of tensors."""
import builtins
import sys

import numpy as np

from muster import dtypes
from muster.generated.math_ops import *  # noqa: F403
from muster.graph import convert, framework, tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops.array_ops import _merge_deprecated, rank, reshape, shape_internal


def _is_sparse(x):
    module = sys.modules.get("muster.ops.sparse_tensor")  # not loaded: no sparse tensor exists
    return module is not None and isinstance(x, module.SparseTensor)


def _takes_sparse(op, name_, doc):
    def function(x, name=None):
        if _is_sparse(x):
            with name_scope(name, op, [x.values]) as name:
                return type(x)(x.indices, call(op, name=name, x=x.values), x.dense_shape)
        return call(op, name=name, x=x)

    function.__name__ = function.__qualname__ = name_
    function.__doc__ = doc + ", element by element; of a SparseTensor, of its values."
    return function


negative = _takes_sparse("Neg", "negative", "-x")
square = _takes_sparse("Square", "square", "x * x")
sqrt = _takes_sparse("Sqrt", "sqrt", "The square root")
tanh = _takes_sparse("Tanh", "tanh", "The hyperbolic tangent")
erf = _takes_sparse("Erf", "erf", "The error function")
sign = _takes_sparse("Sign", "sign", "-1, 0 or 1 by the sign of x")


def sigmoid(x, name=None):
    with name_scope(name, "Sigmoid", [x]) as name:
        return call("Sigmoid", name=name, x=convert_to_tensor(x, name="x"))


def log_sigmoid(x, name=None):
    with name_scope(name, "LogSigmoid", [x]) as name:
        x = convert_to_tensor(x, name="x")
        return negative(call("Softplus", features=-x), name=name)


def abs(x, name=None):
    with name_scope(name, "Abs", [x]) as name:
        if _is_sparse(x):
            return type(x)(x.indices, abs(x.values, name=name), x.dense_shape)
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return call("ComplexAbs", name=name, x=x, Tout=x.dtype.real_dtype)
        return call("Abs", name=name, x=x)


def round(x, name=None):
    x = convert_to_tensor(x, name="x")
    if x.dtype.is_integer:
        return x
    return call("Round", name=name, x=x)


floormod = mod  # noqa: F405


def multiply_no_nan(x, y, name=None):
    with name_scope(name, "multiply_no_nan", [x, y]) as name:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return call("MulNoNan", name=name, x=x, y=y)


def logical_xor(x, y, name="LogicalXor"):
    return logical_and(logical_or(x, y), logical_not(logical_and(x, y)), name=name)


def pow(x, y, name=None):
    with name_scope(name, "Pow", [x]) as name:
        return call("Pow", name=name, x=x, y=y)


_TRUEDIV = {dtypes.uint8: dtypes.float32, dtypes.int8: dtypes.float32, dtypes.uint16: dtypes.float32,
            dtypes.int16: dtypes.float32, dtypes.int32: dtypes.float64, dtypes.int64: dtypes.float64}


def _truediv(x, y, name):
    with name_scope(name, "truediv", [x, y]) as name:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype_hint=x.dtype.base_dtype)
        if x.dtype.base_dtype != y.dtype.base_dtype:
            raise TypeError("x and y must have the same dtype, got %r != %r" % (x.dtype.base_dtype, y.dtype.base_dtype))
        wanted = _TRUEDIV.get(x.dtype.base_dtype)
        if wanted is not None:
            x = cast(x, wanted)
            y = cast(y, wanted)
        return call("RealDiv", name=name, x=x, y=y)


def _div(x, y, name):
    with name_scope(name, "div", [x, y]) as name:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return call("RealDiv" if x.dtype.is_floating or x.dtype.is_complex else "FloorDiv", name=name, x=x, y=y)


def truediv(x, y, name=None):
    return _truediv(x, y, name)


def div(x, y, name=None):
    return _div(x, y, name)


def divide(x, y, name=None):
    if name is not None:
        return _DivideDelegate(x, name) / y
    return x / y


class _DivideDelegate(object):
    def __init__(self, x, name):
        self._x, self._name = x, name

    def __truediv__(self, y):
        return _truediv(self._x, y, self._name)


def floordiv(x, y, name=None):
    with name_scope(name, "floordiv", [x, y]) as name:
        return call("FloorDiv", name=name, x=x, y=y)


def div_no_nan(x, y, name=None):
    with name_scope(name, "div_no_nan", [x, y]) as name:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return call("DivNoNan", name=name, x=x, y=y)


def cast(x, dtype, name=None):
    base = dtypes.as_dtype(dtype).base_dtype
    # A resource variable of that type stays unread until the value is needed.
    if (isinstance(x, framework.Tensor) or getattr(x, "_is_resource", False)) and base == x.dtype:
        return x
    with name_scope(name, "Cast", [x]) as name:
        if isinstance(x, framework.IndexedSlices):
            return framework.IndexedSlices(cast(x.values, base, name=name), x.indices, x.dense_shape)
        if _is_sparse(x):
            return type(x)(x.indices, cast(x.values, base, name=name), x.dense_shape)
        x = convert_to_tensor(x, name="x")
        if x.dtype.base_dtype != base:
            x = call("Cast", name=name, x=x, DstT=base)
        return x


def saturate_cast(value, dtype, name=None):
    with name_scope(name, "saturate_cast", [value]) as name:
        value = convert_to_tensor(value, name="value")
        dtype = dtypes.as_dtype(dtype).base_dtype
        if value.dtype.min < dtype.min:
            value = maximum(value, convert_to_tensor(dtype.min, dtype=value.dtype, name="min"))
        if value.dtype.max > dtype.max:
            value = minimum(value, convert_to_tensor(dtype.max, dtype=value.dtype, name="max"))
        return cast(value, dtype, name=name)


def to_float(x, name="ToFloat"):
    return cast(x, dtypes.float32, name=name)


def to_double(x, name="ToDouble"):
    return cast(x, dtypes.float64, name=name)


def to_int32(x, name="ToInt32"):
    return cast(x, dtypes.int32, name=name)


def to_int64(x, name="ToInt64"):
    return cast(x, dtypes.int64, name=name)


def to_bfloat16(x, name="ToBFloat16"):
    return cast(x, dtypes.bfloat16, name=name)


def complex(real, imag, name=None):
    real = convert_to_tensor(real, name="real")
    imag = convert_to_tensor(imag, name="imag")
    with name_scope(name, "Complex", [real, imag]) as name:
        kinds = {dtypes.float64: dtypes.complex128, dtypes.float32: dtypes.complex64}
        if real.dtype != imag.dtype or real.dtype not in kinds:
            raise TypeError("real and imag have incorrect types: {} {}".format(real.dtype.name, imag.dtype.name))
        return call("Complex", name=name, real=real, imag=imag, Tout=kinds[real.dtype])


def real(input, name=None):
    with name_scope(name, "Real", [input]) as name:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return call("Real", name=name, input=input, Tout=input.dtype.real_dtype)
        return input


def imag(input, name=None):
    with name_scope(name, "Imag", [input]) as name:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return call("Imag", name=name, input=input, Tout=input.dtype.real_dtype)
        from muster.ops import array_ops

        return array_ops.zeros_like(input)


def conj(x, name=None):
    if isinstance(x, framework.Tensor) and (x.dtype.is_floating or x.dtype.is_integer):
        return x
    with name_scope(name, "Conj", [x]) as name:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return call("Conj", name=name, input=x)
        return x


def angle(input, name=None):
    with name_scope(name, "Angle", [input]) as name:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return call("Angle", name=name, input=input, Tout=input.dtype.real_dtype)
        from muster.ops import array_ops

        return array_ops.zeros_like(input)


def range(start, limit=None, delta=1, dtype=None, name="range"):
    if limit is None:
        start, limit = 0, start
    with name_scope(name, "Range", [start, limit, delta]) as name:
        start = convert_to_tensor(start, dtype=dtype, name="start")
        limit = convert_to_tensor(limit, dtype=dtype, name="limit")
        delta = convert_to_tensor(delta, dtype=dtype, name="delta")
        if dtype is None:
            order = [dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64]
            inferred = max([a.dtype for a in (start, limit, delta)], key=order.index)
            start, limit, delta = cast(start, inferred), cast(limit, inferred), cast(delta, inferred)
        return call("Range", name=name, start=start, limit=limit, delta=delta)


lin_space = linspace  # noqa: F405


def _all_dimensions(x):
    """The axes of a reduction over everything: a constant when the rank is known, else range(0, rank)."""
    if isinstance(x, framework.Tensor) and x._output.shape is not None:
        return constant(np.arange(len(x._output.shape)), dtype=dtypes.int32)
    return range(0, rank(x))


def _reduction(op, name_, doc):
    def function(input_tensor, axis=None, keepdims=None, name=None, reduction_indices=None, keep_dims=None):
        axis = _merge_deprecated("axis", axis, "reduction_indices", reduction_indices)
        keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
        keepdims = False if keepdims is None else keepdims
        axes = axis if axis is not None else _all_dimensions(input_tensor)
        result = call(op, name=name, input=input_tensor, reduction_indices=axes, keep_dims=keepdims)
        if not keepdims and axis is None:
            # Everything is reduced, whether or not the rank is known.
            result.set_shape([])
        return result

    function.__name__ = function.__qualname__ = name_
    function.__doc__ = doc + " along the dimensions `axis`, or of all elements."
    return function


reduce_sum = _reduction("Sum", "reduce_sum", "The sums")
reduce_mean = _reduction("Mean", "reduce_mean", "The means")
reduce_prod = _reduction("Prod", "reduce_prod", "The products")
reduce_max = _reduction("Max", "reduce_max", "The largest elements")
reduce_min = _reduction("Min", "reduce_min", "The smallest elements")
reduce_all = _reduction("All", "reduce_all", "Whether all elements are true,")
reduce_any = _reduction("Any", "reduce_any", "Whether any element is true,")
reduce_euclidean_norm = _reduction("EuclideanNorm", "reduce_euclidean_norm", "The square roots of the sums of squares")


def reduce_logsumexp(input_tensor, axis=None, keepdims=None, name=None, reduction_indices=None, keep_dims=None):
    axis = _merge_deprecated("axis", axis, "reduction_indices", reduction_indices)
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    keepdims = False if keepdims is None else keepdims
    input_tensor = convert_to_tensor(input_tensor)
    from muster.ops import array_ops

    with name_scope(name, "ReduceLogSumExp", [input_tensor]) as name:
        raw_max = reduce_max(input_tensor, axis=axis, keepdims=True)
        my_max = array_ops.stop_gradient(
            array_ops.where(is_finite(raw_max), raw_max, array_ops.zeros_like(raw_max)))
        result = log(reduce_sum(exp(subtract(input_tensor, my_max)), axis, keepdims=keepdims))
        if not keepdims:
            my_max = reshape(my_max, shape_internal(result))
        return add(result, my_max, name=name)


def reduce_variance(input_tensor, axis=None, keepdims=False, name=None):
    with name_scope(name or "reduce_variance"):
        means = reduce_mean(input_tensor, axis=axis, keepdims=True)
        return reduce_mean(square(input_tensor - means), axis=axis, keepdims=keepdims)


def reduce_std(input_tensor, axis=None, keepdims=False, name=None):
    with name_scope(name or "reduce_std"):
        return sqrt(reduce_variance(input_tensor, axis=axis, keepdims=keepdims))


def argmax(input, axis=None, name=None, dimension=None, output_type=dtypes.int64):
    axis = _merge_deprecated("axis", axis, "dimension", dimension)
    return call("ArgMax", name=name, input=input, dimension=0 if axis is None else axis, output_type=output_type)


def argmin(input, axis=None, name=None, dimension=None, output_type=dtypes.int64):
    axis = _merge_deprecated("axis", axis, "dimension", dimension)
    return call("ArgMin", name=name, input=input, dimension=0 if axis is None else axis, output_type=output_type)


def cumsum(x, axis=0, exclusive=False, reverse=False, name=None):
    with name_scope(name, "Cumsum", [x]) as name:
        x = convert_to_tensor(x, name="x")
        return call("Cumsum", name=name, x=x, axis=axis, exclusive=exclusive, reverse=reverse)


def cumprod(x, axis=0, exclusive=False, reverse=False, name=None):
    with name_scope(name, "Cumprod", [x]) as name:
        x = convert_to_tensor(x, name="x")
        return call("Cumprod", name=name, x=x, axis=axis, exclusive=exclusive, reverse=reverse)


def matmul(a, b, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False, a_is_sparse=False,
           b_is_sparse=False, name=None):
    with name_scope(name, "MatMul", [a, b]) as name:
        if transpose_a and adjoint_a:
            raise ValueError("Only one of transpose_a and adjoint_a can be True.")
        if transpose_b and adjoint_b:
            raise ValueError("Only one of transpose_b and adjoint_b can be True.")
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b")
        a_dims, b_dims = a._output.shape, b._output.shape
        both_unknown = a_dims is None and b_dims is None
        if (a_dims is None or len(a_dims) > 2) and (b_dims is None or len(b_dims) > 2) or both_unknown:
            if transpose_a:
                a, adjoint_a = conj(a), True
            if transpose_b:
                b, adjoint_b = conj(b), True
            return call("BatchMatMulV2", name=name, x=a, y=b, adj_x=adjoint_a, adj_y=adjoint_b)
        if (a_dims is not None and len(a_dims) > 2) or (b_dims is not None and len(b_dims) > 2):
            if transpose_a:
                a, adjoint_a = conj(a), True
            if transpose_b:
                b, adjoint_b = conj(b), True
            return call("BatchMatMulV2", name=name, x=a, y=b, adj_x=adjoint_a, adj_y=adjoint_b)
        if adjoint_a:
            a, transpose_a = conj(a), True
        if adjoint_b:
            b, transpose_b = conj(b), True
        use_sparse = (a_is_sparse or b_is_sparse) and a.dtype.base_dtype in (dtypes.bfloat16, dtypes.float32)
        if use_sparse:
            return call("SparseMatMul", name=name, a=a, b=b, transpose_a=transpose_a, transpose_b=transpose_b,
                        a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse)
        return call("MatMul", name=name, a=a, b=b, transpose_a=transpose_a, transpose_b=transpose_b)


def matvec(a, b, transpose_a=False, adjoint_a=False, a_is_sparse=False, b_is_sparse=False, name=None):
    from muster.ops import array_ops

    with name_scope(name, "MatVec", [a, b]) as name:
        output = matmul(a, array_ops.expand_dims(b, axis=-1), transpose_a=transpose_a, adjoint_a=adjoint_a,
                        a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse)
        return array_ops.squeeze(output, axis=-1)


def tensordot(a, b, axes, name=None):
    from muster.ops import array_ops

    def reshape_side(side, side_axes, flipped):
        dims = side._output.shape
        if dims is None:
            raise NotImplementedError("tensordot of a tensor of unknown rank is not supported")
        side_axes = [i if i >= 0 else i + len(dims) for i in side_axes]
        free = [i for i in builtins.range(len(dims)) if i not in side_axes]
        perm = list(side_axes) + free if flipped else free + list(side_axes)
        if None not in dims:
            free_dims = [dims[i] for i in free]
            prod_free = int(np.prod([dims[i] for i in free]))
            prod_axes = int(np.prod([dims[i] for i in side_axes]))
            new_shape = [prod_axes, prod_free] if flipped else [prod_free, prod_axes]
            return reshape(array_ops.transpose(side, perm), new_shape), free_dims, free_dims
        free_static = [dims[i] for i in free]
        shape_ = array_ops.shape(side)
        free_dims = array_ops.gather(shape_, free)
        axes_dims = array_ops.gather(shape_, side_axes)
        prod_free = reduce_prod(free_dims)
        prod_axes = reduce_prod(axes_dims)
        side = array_ops.transpose(side, perm)
        new_shape = array_ops.stack([prod_axes, prod_free] if flipped else [prod_free, prod_axes])
        return reshape(side, new_shape), free_dims, free_static

    with name_scope(name, "Tensordot", [a, b, axes]) as name:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b")
        if isinstance(axes, (int, np.integer)):
            a_rank = a.get_shape().ndims
            if a_rank is None or axes > a_rank:
                raise ValueError("'axes' must not be larger than the number of dimensions of tensor %s." % a)
            a_axes = list(builtins.range(a_rank - axes, a_rank))
            b_axes = list(builtins.range(axes))
        else:
            if len(axes) != 2:
                raise ValueError("'axes' must be an integer or have length 2.")
            a_axes = [axes[0]] if isinstance(axes[0], (int, np.integer)) else list(axes[0])
            b_axes = [axes[1]] if isinstance(axes[1], (int, np.integer)) else list(axes[1])
            if len(a_axes) != len(b_axes):
                raise ValueError("Different number of contraction axes 'a' and 'b', %s != %s."
                                 % (len(a_axes), len(b_axes)))
        a_reshaped, a_free, a_static = reshape_side(a, a_axes, False)
        b_reshaped, b_free, b_static = reshape_side(b, b_axes, True)
        product = matmul(a_reshaped, b_reshaped)
        if isinstance(a_free, list) and isinstance(b_free, list):
            return reshape(product, a_free + b_free, name=name)
        a_free = convert_to_tensor(a_free, dtype=dtypes.int32)
        b_free = convert_to_tensor(b_free, dtype=dtypes.int32)
        result = reshape(product, array_ops.concat([a_free, b_free], 0), name=name)
        if a_static is not None and b_static is not None:
            result.set_shape(a_static + b_static)
        return result


def add_n(inputs, name=None):
    if not inputs or not isinstance(inputs, (list, tuple)):
        raise ValueError("inputs must be a list of at least one Tensor/IndexedSlices with the same dtype and shape")
    inputs = [convert.convert_to_tensor_or_indexed_slices(x) for x in inputs]
    if len(inputs) == 1:
        values = inputs[0].values if isinstance(inputs[0], framework.IndexedSlices) else inputs[0]
        if name:
            from muster.ops import array_ops

            return array_ops.identity(values, name=name)
        return values
    inputs = [convert_to_tensor(x) for x in inputs]
    return call("AddN", name=name, inputs=inputs)


def accumulate_n(inputs, shape=None, tensor_dtype=None, name=None):
    if not inputs or not isinstance(inputs, (list, tuple)):
        raise ValueError("inputs must be a list of at least one Tensor with the same dtype and shape")
    inputs = [convert_to_tensor(x) for x in inputs]
    if any(x.dtype != inputs[0].dtype for x in inputs):
        raise ValueError("inputs must be a list of at least one Tensor with the same dtype and shape")
    merged = tensor_shape.as_shape(shape)
    for x in inputs:
        merged = merged.merge_with(x.get_shape())
    if len(inputs) == 1 and name is None:
        return inputs[0]
    if len(inputs) == 1:
        from muster.ops import array_ops

        return array_ops.identity(inputs[0], name=name)
    return call("AccumulateNV2", name=name, inputs=inputs, shape=merged)


def _sparse_segment(op, name_, doc):
    def function(data, indices, segment_ids, name=None, num_segments=None):
        if num_segments is None:
            return call(op, name=name, data=data, indices=indices, segment_ids=segment_ids)
        return call(op + "WithNumSegments", name=name, data=data, indices=indices, segment_ids=segment_ids,
                    num_segments=num_segments)

    function.__name__ = function.__qualname__ = name_
    function.__doc__ = doc + " of the rows of `data` at `indices` with the same id; ids are sorted."
    return function


sparse_segment_sum = _sparse_segment("SparseSegmentSum", "sparse_segment_sum", "The sums")
sparse_segment_mean = _sparse_segment("SparseSegmentMean", "sparse_segment_mean", "The means")
sparse_segment_sqrt_n = _sparse_segment("SparseSegmentSqrtN", "sparse_segment_sqrt_n",
                                        "The sums, divided by the square root of their number,")


def count_nonzero(input_tensor=None, axis=None, keepdims=None, dtype=dtypes.int64, name=None, reduction_indices=None,
                  keep_dims=None, input=None):
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    input_tensor = _merge_deprecated("input", input_tensor, "input_tensor", input)
    axis = _merge_deprecated("axis", axis, "reduction_indices", reduction_indices)
    keepdims = False if keepdims is None else keepdims
    with name_scope(name, "count_nonzero", [input_tensor]):
        input_tensor = convert_to_tensor(input_tensor, name="input")
        from muster.ops import array_ops

        zero = array_ops.zeros([], dtype=input_tensor.dtype)
        return cast(reduce_sum(cast(not_equal(input_tensor, zero), dtypes.int64), axis=axis, keepdims=keepdims),
                    dtype=dtype)


def bincount(arr, weights=None, minlength=None, maxlength=None, dtype=dtypes.int32, name=None):
    from muster.ops import array_ops

    with name_scope(name, "bincount"):
        arr = convert_to_tensor(arr, name="arr", dtype=dtypes.int32)
        array_is_nonempty = reduce_prod(array_ops.shape(arr)) > 0
        output_size = cast(array_is_nonempty, dtypes.int32) * (reduce_max(arr) + 1)
        if minlength is not None:
            output_size = maximum(convert_to_tensor(minlength, name="minlength", dtype=dtypes.int32), output_size)
        if maxlength is not None:
            output_size = minimum(convert_to_tensor(maxlength, name="maxlength", dtype=dtypes.int32), output_size)
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            return unsorted_segment_sum(weights, arr, output_size)
        return call("Bincount", arr=arr, size=output_size, weights=constant([], dtype))


def trace(x, name=None):
    from muster.ops import array_ops

    with name_scope(name, "Trace", [x]) as name:
        return reduce_sum(array_ops.matrix_diag_part(convert_to_tensor(x, name="x")), [-1], name=name)


# --- Operators. ---
def _operator(function, name):
    def forward(x, y):
        with name_scope(None, name, [x, y]) as scope:
            if isinstance(y, framework.Tensor):
                return function(x, y, name=scope)
            try:
                y = convert_to_tensor(y, dtype_hint=x.dtype.base_dtype, name="y")
            except TypeError:
                if hasattr(type(y), "__r%s__" % name):
                    return NotImplemented
                raise
            return function(x, y, name=scope)

    def backward(y, x):
        with name_scope(None, name, [x, y]) as scope:
            x = convert_to_tensor(x, dtype=y.dtype.base_dtype, name="x")
            return function(x, y, name=scope)

    return forward, backward


def _add_dispatch(x, y, name=None):
    if x.dtype == dtypes.string:
        return call("Add", name=name, x=x, y=y)
    return call("AddV2", name=name, x=x, y=y)


def _bool_operator(op, otherwise):
    def function(x, y, name=None):
        return call(op if x.dtype.is_bool else otherwise, name=name, x=x, y=y)

    return function


for _function, _name in ((_add_dispatch, "add"), (subtract, "sub"), (multiply, "mul"), (_div, "div"),
                         (_truediv, "truediv"), (floordiv, "floordiv"), (floormod, "mod"), (pow, "pow"),
                         (logical_and, "and"), (logical_or, "or"), (logical_xor, "xor"), (matmul, "matmul")):
    _forward, _backward = _operator(_function, _name)
    framework.Tensor._override_operator("__%s__" % _name, _forward)
    framework.Tensor._override_operator("__r%s__" % _name, _backward)
for _function, _name in ((less, "lt"), (less_equal, "le"), (greater, "gt"), (greater_equal, "ge")):
    framework.Tensor._override_operator("__%s__" % _name, _function)
framework.Tensor._override_operator("__neg__", negative)
framework.Tensor._override_operator("__abs__", abs)
framework.Tensor._override_operator("__invert__", logical_not)

OVERLOADED = ["__%s%s__" % (side, name) for side in ("", "r") for name in (
    "add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "matmul")] + [
        "__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__abs__", "__invert__", "__getitem__"]
