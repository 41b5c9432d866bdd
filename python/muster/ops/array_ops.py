"""Functions on the shape and arrangement of tensors. Each emits the nodes that TensorFlow 1.15 emits."""
import builtins

import numpy as np

from muster import dtypes
from muster.generated.array_ops import *  # noqa: F403
from muster.graph import framework, tensor_shape
from muster.graph.convert import constant, constant_value, constant_value_as_shape, convert_to_tensor, value_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call

newaxis = None


def _merge_deprecated(new_name, new, old_name, old):
    if old is not None:
        if new is not None:
            raise ValueError("Cannot specify both '%s' and '%s'" % (old_name, new_name))
        return old
    return new


def placeholder_with_default(input, shape, name=None):
    return call("PlaceholderWithDefault", name=name, input=input, shape=tensor_shape.as_shape(shape))


def shape(input, name=None, out_type=dtypes.int32):
    return shape_internal(input, name, optimize=True, out_type=out_type)


def _emitted(emit):
    """What emit(scope), a function of the C++ core, makes in the scope that is open; it has the name of the scope."""
    graph = framework.get_default_graph()
    first = graph._g.num_nodes
    output = emit(graph._building_scope())
    graph._override_gradients(first)
    return graph._tensor(output)


def shape_internal(input, name=None, optimize=True, out_type=dtypes.int32):
    with name_scope(name, "Shape", [input]):
        input = convert_to_tensor(input)
        return _emitted(lambda scope: scope.shape(input._output, int(dtypes.as_dtype(out_type)), optimize))


def size(input, name=None, out_type=dtypes.int32):
    return size_internal(input, name, optimize=True, out_type=out_type)


def size_internal(input, name=None, optimize=True, out_type=dtypes.int32):
    with name_scope(name, "Size", [input]) as name:
        input = convert_to_tensor(input)
        dims = input._output.shape
        if optimize:
            if dims is not None and None not in dims:
                return constant(int(np.prod(dims, dtype=np.int64)), out_type, name=name)
            if dims is not None and 0 in dims:
                return constant(0, out_type, name=name)
        return call("Size", name=name, input=input, out_type=out_type)


def rank(input, name=None):
    return rank_internal(input, name, optimize=True)


def rank_internal(input, name=None, optimize=True):
    with name_scope(name, "Rank", [input]) as name:
        input = convert_to_tensor(input)
        dims = input._output.shape
        if optimize and dims is not None:
            return constant(len(dims), dtypes.int32, name=name)
        return call("Rank", name=name, input=input)


def reshape(tensor, shape, name=None):
    result = call("Reshape", name=name, tensor=tensor, shape=shape)
    _set_static_shape(result, shape)
    return result


def _set_static_shape(tensor, shape):
    if isinstance(shape, framework.Tensor):
        tensor.set_shape(constant_value_as_shape(shape))


def expand_dims(input, axis=None, name=None, dim=None):
    axis = _merge_deprecated("axis", axis, "dim", dim)
    return call("ExpandDims", name=name, input=input, dim=axis)


def squeeze(input, axis=None, name=None, squeeze_dims=None):
    axis = _merge_deprecated("axis", axis, "squeeze_dims", squeeze_dims)
    if np.isscalar(axis):
        axis = [axis]
    return call("Squeeze", name=name, input=input, squeeze_dims=[] if axis is None else axis)


def _filled(shape, dtype, name, default_name, value):
    dtype = dtypes.as_dtype(dtype).base_dtype
    if dtype == dtypes.bool:
        value = bool(value)
    elif dtype == dtypes.string and value == 0:
        value = ""
    value = value_tensor(value, dtype)
    with name_scope(name, default_name, [shape]):
        if not isinstance(shape, framework.Tensor):
            try:
                dims = tensor_shape.as_shape(shape)
            except (TypeError, ValueError):
                dims = None
            if dims is not None and dims.is_fully_defined():
                return _emitted(lambda scope: scope.filled(dims.as_list(), value))
            shape = convert_to_tensor(shape, dtype=dtypes.int32)
        return _emitted(lambda scope: scope.filled(shape._output, value))


def zeros(shape, dtype=dtypes.float32, name=None):
    return _filled(shape, dtype, name, "zeros", 0)


def ones(shape, dtype=dtypes.float32, name=None):
    return _filled(shape, dtype, name, "ones", 1)


def zeros_like(tensor, dtype=None, name=None, optimize=True):
    with name_scope(name, "zeros_like", [tensor]) as name:
        tensor = convert_to_tensor(tensor, name="tensor")
        wanted = tensor.dtype.base_dtype if dtype is None else dtypes.as_dtype(dtype)
        if wanted not in (tensor.dtype.base_dtype, dtypes.variant):
            dims = tensor._output.shape if optimize else None
            known = dims is not None and None not in dims
            return zeros(dims if known else shape_internal(tensor, optimize=optimize), dtype=wanted, name=name)
        return _emitted(lambda scope: scope.zeros_like(tensor._output, optimize))


def ones_like(tensor, dtype=None, name=None, optimize=True):
    with name_scope(name, "ones_like", [tensor]) as name:
        tensor = convert_to_tensor(tensor, name="tensor")
        dims = shape_internal(tensor, optimize=optimize)
        wanted = tensor.dtype if dtype is None else dtypes.as_dtype(dtype)
        result = ones(dims, dtype=wanted, name=name)
        result.set_shape(tensor.get_shape())
        return result


def _autopack(values, dtype, name):
    """Nested lists of tensors and constants as one Pack per level."""
    must_pack = False
    converted = []
    with name_scope(name) as scope:
        for i, element in enumerate(values):
            if isinstance(element, framework.Tensor) or hasattr(element, "_as_graph_element"):
                element = convert_to_tensor(element)
                if dtype is not None and element.dtype.base_dtype != dtype.base_dtype:
                    raise TypeError("Cannot convert a list containing a tensor of dtype %s to %s (Tensor is: %r)"
                                    % (element.dtype, dtype, element))
                converted.append(element)
                must_pack = True
            elif isinstance(element, (list, tuple)):
                inner = _autopack(element, dtype, str(i))
                must_pack = must_pack or isinstance(inner, framework.Tensor)
                converted.append(inner)
            else:
                converted.append(element)
        if not must_pack:
            return list(converted)
        tensors = [e if isinstance(e, framework.Tensor) else constant(e, dtype=dtype, name=str(i))
                   for i, e in enumerate(converted)]
        return call("Pack", name=scope, values=tensors, axis=0)


def stack(values, axis=0, name="stack"):
    if axis == 0:
        try:
            # Values without tensors become one constant.
            return convert_to_tensor(values, name=name)
        except (TypeError, ValueError):
            pass
    dims = convert_to_tensor(values[0], name=name)._output.shape
    if dims is not None and not -len(dims) - 1 <= axis <= len(dims):
        raise ValueError("axis = %d not in [%d, %d)" % (axis, -len(dims) - 1, len(dims) + 1))
    return call("Pack", name=name, values=values, axis=axis)


def parallel_stack(values, name="parallel_stack"):
    with name_scope(name):
        first = convert_to_tensor(values[0])
        dims = [len(values)] + first.get_shape().as_list()
        return call("ParallelConcat", values=[expand_dims(v, 0) for v in values], shape=dims)


def unstack(value, num=None, axis=0, name="unstack"):
    if num is None:
        value = convert_to_tensor(value)
        dims = value._output.shape
        if dims is not None:
            if not -len(dims) <= axis < len(dims):
                raise ValueError("axis = %d not in [%d, %d)" % (axis, -len(dims), len(dims)))
            num = dims[axis]
    if num is None:
        raise ValueError("Cannot infer num from shape %s" % value.get_shape())
    return call("Unpack", name=name, value=value, num=num, axis=axis)


def concat(values, axis, name="concat"):
    if not isinstance(values, (list, tuple)):
        values = [values]
    if len(values) == 1:
        with name_scope(name) as scope:
            convert_to_tensor(axis, name="concat_dim", dtype=dtypes.int32).get_shape().assert_has_rank(0)
            return identity(values[0], name=scope)
    return call("ConcatV2", name=name, values=values, axis=axis)


def split(value, num_or_size_splits, axis=0, num=None, name="split"):
    size_splits = convert_to_tensor(num_or_size_splits)
    if isinstance(num_or_size_splits, (int, np.integer)):
        return call("Split", name=name, split_dim=axis, num_split=num_or_size_splits, value=value)
    if size_splits._output.shape is not None and len(size_splits._output.shape) == 0:
        raise ValueError("Rank-0 tensors are not supported as the num_or_size_splits argument to split. Argument "
                         "provided: %s" % (num_or_size_splits,))
    if num is None:
        dims = size_splits._output.shape
        num = dims[0] if dims else None
        if num is None:
            raise ValueError("Cannot infer num from shape %s" % num_or_size_splits)
    return call("SplitV", name=name, value=value, size_splits=size_splits, split_dim=axis, num_split=num)


def transpose(a, perm=None, name="transpose", conjugate=False):
    with name_scope(name, "transpose", [a]) as name:
        op = "ConjugateTranspose" if conjugate else "Transpose"
        if perm is not None:
            return call(op, name=name, x=a, perm=perm)
        a = convert_to_tensor(a, name="a")
        dims = a._output.shape
        if not dims:
            rank_ = call("Rank", input=a)
            reversed_perm = (rank_ - 1) - call("Range", start=0, limit=rank_, delta=1)
        else:
            reversed_perm = np.arange(len(dims) - 1, -1, -1, dtype=np.int32)
        result = call(op, name=name, x=a, perm=reversed_perm)
        if dims is not None:
            result.set_shape(list(reversed(dims)))
        return result


def pad(tensor, paddings, mode="CONSTANT", name=None, constant_values=0):
    mode = mode.upper()
    if mode == "CONSTANT":
        is_zero = not isinstance(constant_values, framework.Tensor) and np.ndim(constant_values) == 0 \
            and constant_values == 0
        if is_zero:
            result = call("Pad", name=name, input=tensor, paddings=paddings)
        else:
            result = call("PadV2", name=name, input=tensor, paddings=paddings, constant_values=constant_values)
    elif mode in ("REFLECT", "SYMMETRIC"):
        result = call("MirrorPad", name=name, input=tensor, paddings=paddings, mode=mode)
    else:
        raise ValueError("Unknown padding mode: %s" % mode)
    return result


reverse_v2 = reverse


def reverse_sequence(input, seq_lengths, seq_axis=None, batch_axis=None, name=None, seq_dim=None, batch_dim=None):
    seq_axis = _merge_deprecated("seq_axis", seq_axis, "seq_dim", seq_dim)
    batch_axis = _merge_deprecated("batch_axis", batch_axis, "batch_dim", batch_dim)
    return call("ReverseSequence", name=name, input=input, seq_lengths=seq_lengths, seq_dim=seq_axis,
                batch_dim=0 if batch_axis is None else batch_axis)


def gather(params, indices, validate_indices=None, name=None, axis=None, batch_dims=0):
    if axis is None:
        axis = batch_dims
    if isinstance(axis, framework.Tensor) or axis != 0:
        return call("GatherV2", name=name, params=params, indices=indices, axis=axis, batch_dims=batch_dims)
    try:
        # A resource variable reads the rows without reading the whole.
        return params.sparse_read(indices, name=name)
    except AttributeError:
        return call("GatherV2", name=name, params=params, indices=indices, axis=axis)


def gather_nd(params, indices, name=None, batch_dims=0):
    if batch_dims != 0:
        raise NotImplementedError("gather_nd with batch_dims is not supported")
    try:
        return params.gather_nd(indices, name=name)
    except AttributeError:
        return call("GatherNd", name=name, params=params, indices=indices)


def one_hot(indices, depth, on_value=None, off_value=None, axis=None, dtype=None, name=None):
    with name_scope(name, "one_hot", [indices, depth, on_value, off_value, axis, dtype]) as name:
        dtype = None if dtype is None else dtypes.as_dtype(dtype)
        # The types of given values are found by converting them, which leaves constants in the graph.
        on_dtype = None if on_value is None else convert_to_tensor(on_value).dtype.base_dtype
        off_dtype = None if off_value is None else convert_to_tensor(off_value).dtype.base_dtype
        if on_dtype is not None or off_dtype is not None:
            if dtype is not None:
                if on_dtype is not None and on_dtype != dtype:
                    raise TypeError("dtype {0} of on_value does not match dtype parameter {1}".format(on_dtype, dtype))
                if off_dtype is not None and off_dtype != dtype:
                    raise TypeError("dtype {0} of off_value does not match dtype parameter {1}".format(
                        off_dtype, dtype))
            else:
                dtype = on_dtype if on_dtype is not None else off_dtype
        elif dtype is None:
            dtype = dtypes.float32
        if on_value is None:
            on_value, on_dtype = convert_to_tensor(1, dtype=dtype, name="on_value"), dtype
        if off_value is None:
            off_value, off_dtype = convert_to_tensor(0, dtype=dtype, name="off_value"), dtype
        if on_dtype != off_dtype:
            raise TypeError("dtype {0} of on_value does not match dtype {1} of off_value".format(on_dtype, off_dtype))
        return call("OneHot", name=name, indices=indices, depth=depth, on_value=on_value, off_value=off_value,
                    axis=-1 if axis is None else axis)


def where(condition, x=None, y=None, name=None):
    if x is None and y is None:
        with name_scope(name, "Where", [condition]) as name:
            condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool, name="condition")
            return call("Where", name=name, input=condition)
    if x is not None and y is not None:
        return call("Select", name=name, condition=condition, t=x, e=y)
    raise ValueError("x and y must both be non-None or both be None.")


def where_v2(condition, x=None, y=None, name=None):
    if x is None and y is None:
        return where(condition, name=name)
    if x is not None and y is not None:
        return call("SelectV2", name=name, condition=condition, t=x, e=y)
    raise ValueError("x and y must both be non-None or both be None.")


def sequence_mask(lengths, maxlen=None, dtype=dtypes.bool, name=None):
    from muster.ops import math_ops

    with name_scope(name, "SequenceMask", [lengths, maxlen]):
        lengths = convert_to_tensor(lengths)
        if maxlen is None:
            maxlen = call("Max", input=lengths, reduction_indices=math_ops._all_dimensions(lengths))
            maxlen = math_ops.maximum(constant(0, maxlen.dtype), maxlen)
        else:
            maxlen = convert_to_tensor(maxlen)
        if maxlen.get_shape().ndims is not None and maxlen.get_shape().ndims != 0:
            raise ValueError("maxlen must be scalar for sequence_mask")
        row = call("Range", start=constant(0, maxlen.dtype), limit=maxlen, delta=constant(1, maxlen.dtype))
        matrix = call("Cast", x=expand_dims(lengths, -1), DstT=maxlen.dtype)
        result = row < matrix
        if dtype is None or result.dtype.base_dtype == dtypes.as_dtype(dtype).base_dtype:
            return result
        return call("Cast", x=result, DstT=dtype)


def broadcast_static_shape(shape_x, shape_y):
    x, y = tensor_shape.as_shape(shape_x), tensor_shape.as_shape(shape_y)
    if x.ndims is None or y.ndims is None:
        return tensor_shape.unknown_shape()
    dims = []
    for i in builtins.range(max(x.ndims, y.ndims)):
        a = x.dims[-1 - i].value if i < x.ndims else 1
        b = y.dims[-1 - i].value if i < y.ndims else 1
        if a is None or b is None:
            dims.append(b if a == 1 else a if b == 1 else (a if a is not None and a > 1 else b if b is not None and b > 1 else None))
        elif a == b or b == 1:
            dims.append(a)
        elif a == 1:
            dims.append(b)
        else:
            raise ValueError("Incompatible shapes for broadcasting: %s and %s" % (x, y))
    return tensor_shape.TensorShape(list(reversed(dims)))


def meshgrid(*args, **kwargs):
    indexing = kwargs.pop("indexing", "xy")
    name = kwargs.pop("name", "meshgrid")
    if kwargs:
        raise TypeError("'{}' is an invalid keyword argument for this function".format(list(kwargs)[0]))
    if indexing not in ("xy", "ij"):
        raise ValueError("indexing parameter must be either 'xy' or 'ij'")
    with name_scope(name, "meshgrid", args) as name:
        ndim = len(args)
        s0 = (1,) * ndim
        output = [reshape(stack(x), (s0[:i] + (-1,) + s0[i + 1:])) for i, x in enumerate(args)]
        shapes = [size(x) for x in args]
        output_dtype = convert_to_tensor(args[0]).dtype.base_dtype
        if indexing == "xy" and ndim > 1:
            output[0] = reshape(output[0], (1, -1) + (1,) * (ndim - 2))
            output[1] = reshape(output[1], (-1, 1) + (1,) * (ndim - 2))
            shapes[0], shapes[1] = shapes[1], shapes[0]
        mult_fact = ones(shapes, output_dtype)
        return [x * mult_fact for x in output]


def eye(num_rows, num_columns=None, batch_shape=None, dtype=dtypes.float32, name=None):
    with name_scope(name, "eye", [num_rows, num_columns, batch_shape]):
        is_square = num_columns is None
        batch_shape = [] if batch_shape is None else batch_shape
        num_columns = num_rows if num_columns is None else num_columns
        from muster.ops import math_ops

        if isinstance(num_rows, framework.Tensor) or isinstance(num_columns, framework.Tensor):
            diag_size = math_ops.minimum(num_rows, num_columns)
        else:
            diag_size = np.minimum(num_rows, num_columns)
        if isinstance(batch_shape, framework.Tensor) or isinstance(diag_size, framework.Tensor):
            batch_shape = convert_to_tensor(batch_shape, name="shape", dtype=dtypes.int32)
            diag_shape = concat((batch_shape, [diag_size]), axis=0)
            full_shape = None if is_square else concat((batch_shape, [num_rows, num_columns]), axis=0)
        else:
            diag_shape = list(batch_shape) + [int(diag_size)]
            full_shape = None if is_square else list(batch_shape) + [num_rows, num_columns]
        diag_ones = ones(diag_shape, dtype=dtype)
        if is_square:
            return call("MatrixDiag", diagonal=diag_ones)
        return call("MatrixSetDiag", input=zeros(full_shape, dtype=dtype), diagonal=diag_ones)


def matrix_transpose(a, name="matrix_transpose", conjugate=False):
    """Swaps the last two dimensions."""
    with name_scope(name, values=[a]):
        a = convert_to_tensor(a, name="a")
        ndims = a.get_shape().ndims
        if ndims is None:
            from muster.ops import math_ops

            rank_ = rank(a)
            perm = concat((math_ops.range(rank_ - 2), [rank_ - 1, rank_ - 2]), 0)
        elif ndims < 2:
            raise ValueError("Argument 'a' should be a (batch) matrix, with rank >= 2.  Found: %s" % a.get_shape())
        else:
            perm = list(builtins.range(ndims - 2)) + [ndims - 1, ndims - 2]
        return transpose(a, perm=perm, conjugate=conjugate)


def required_space_to_batch_paddings(input_shape, block_shape, base_paddings=None, name=None):
    """(paddings, crops) that make a shape divisible by a block."""
    with name_scope(name, "required_space_to_batch_paddings", [input_shape, block_shape]):
        input_shape = convert_to_tensor(input_shape, dtype=dtypes.int32, name="input_shape")
        block_shape = convert_to_tensor(block_shape, dtype=dtypes.int32, name="block_shape")
        block_shape.get_shape().assert_is_fully_defined()
        block_shape.get_shape().assert_has_rank(1)
        count = block_shape.get_shape().as_list()[0]
        if count == 0:
            return zeros([0, 2], dtypes.int32), zeros([0, 2], dtypes.int32)
        input_shape.get_shape().assert_is_compatible_with([count])
        if base_paddings is not None:
            base_paddings = convert_to_tensor(base_paddings, dtype=dtypes.int32, name="base_paddings")
            base_paddings.get_shape().assert_is_compatible_with([count, 2])
        else:
            base_paddings = zeros([count, 2], dtypes.int32)
        known = [constant_value(t) for t in (block_shape, input_shape, base_paddings)]
        if all(k is not None for k in known):
            block_shape, input_shape, base_paddings = known
        start, end = base_paddings[:, 0], base_paddings[:, 1]
        full = input_shape + start + end
        extra = (block_shape - full % block_shape) % block_shape
        padded_end = end + extra
        paddings = stack([[start[i], padded_end[i]] for i in builtins.range(count)], name="paddings")
        crops = stack([[0, extra[i]] for i in builtins.range(count)], name="crops")
        return paddings, crops


def space_to_batch(input, paddings, block_size=None, name=None, block_shape=None):
    block_size = _merge_deprecated("block_shape", block_shape, "block_size", block_size)
    return space_to_batch_nd(input, np.array([block_size, block_size], np.int64), paddings, name=name)


def batch_to_space(input, crops, block_size, name=None, block_shape=None):
    block_size = _merge_deprecated("block_shape", block_shape, "block_size", block_size)
    return batch_to_space_nd(input, np.array([block_size, block_size], np.int64), crops, name=name)


def extract_image_patches(images, ksizes=None, strides=None, rates=None, padding=None, name=None, sizes=None):
    return call("ExtractImagePatches", name=name, images=images,
                ksizes=_merge_deprecated("sizes", sizes, "ksizes", ksizes), strides=strides, rates=rates,
                padding=padding)


def get_static_value(tensor, partial=False):
    return constant_value(tensor, partial)
