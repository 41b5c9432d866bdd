"""Python and numpy values to tensors: which type they get, and the constants they become."""
import numpy as np

from muster import _muster, dtypes
from muster.graph import framework, tensor_shape

_conversions = []  # (base type, function, priority), highest priority (lowest number) first


def register_tensor_conversion_function(base_type, conversion_func, priority=100):
    """conversion_func(value, dtype=None, name=None, as_ref=False) turns a base_type into a tensor."""
    if not (isinstance(base_type, type) or (isinstance(base_type, tuple) and all(isinstance(x, type) for x in base_type))):
        raise TypeError("base_type must be a type or a tuple of types.")
    if not callable(conversion_func):
        raise TypeError("conversion_func must be callable.")
    at = len(_conversions)
    while at > 0 and _conversions[at - 1][2] > priority:
        at -= 1
    _conversions.insert(at, (base_type, conversion_func, priority))


def _flat(values):
    if isinstance(values, (list, tuple)):
        for value in values:
            for inner in _flat(value):
                yield inner
    else:
        yield values


_KINDS = {
    "int": (int, np.integer, tensor_shape.Dimension),
    "float": (float, int, np.integer, np.floating, tensor_shape.Dimension),
    "complex": (complex, float, int, np.number),
    "string": (str, bytes, np.str_, np.bytes_),
    "bool": (bool, np.bool_),
}


def _check_elements(values, dtype):
    """TypeError "Expected float32, got 'a' of type 'str' instead." for elements that do not fit the type."""
    if dtype.is_integer or dtype.is_quantized:
        allowed = _KINDS["int"]
    elif dtype.is_floating:
        allowed = _KINDS["float"]
    elif dtype.is_complex:
        allowed = _KINDS["complex"]
    elif dtype == dtypes.string:
        allowed = _KINDS["string"]
    elif dtype.is_bool:
        allowed = _KINDS["bool"]
    else:
        return
    for value in _flat(values):
        if isinstance(value, np.ndarray):
            continue
        bad = not isinstance(value, allowed)
        if isinstance(value, (bool, np.bool_)) and not dtype.is_bool:
            bad = True
        if bad:
            if isinstance(value, framework.Tensor):
                raise TypeError("Expected %s, got %s of type '%s' instead." % (dtype.name, value, type(value).__name__))
            raise TypeError("Expected %s, got %s of type '%s' instead." % (dtype.name, repr(value), type(value).__name__))


def _to_dims(values):
    if isinstance(values, (list, tuple)):
        return [_to_dims(v) for v in values]
    return values.value if isinstance(values, tensor_shape.Dimension) else values


def wrapped(values, dtype):
    """Integers too large for the type, modulo its range, as numpy made them before its version 2."""
    try:
        return np.array(values, dtype=np.int64).astype(dtype.as_numpy_dtype)
    except OverflowError as e:
        raise ValueError(str(e))


def _check_dense(values, array):
    """Refuses lists of arrays as TensorFlow does; tf.stack makes nodes for them."""
    wanted, inner = [], values
    while isinstance(inner, (list, tuple)):
        wanted.append(len(inner))
        inner = inner[0] if inner else None
    if wanted and list(array.shape) != wanted:
        raise ValueError("Argument must be a dense tensor: %s - got shape %s, but wanted %s."
                         % (values, list(array.shape), wanted))


def _array_of(values, dtype):
    """A numpy array with the elements of `values` and the type they (or `dtype`) ask for, and that type."""
    if isinstance(values, (np.ndarray, np.generic)):
        array = np.asarray(values)
        if dtype is not None:
            wanted = dtype
            if wanted == dtypes.string:
                array = array if array.dtype.kind in "SUO" else array.astype(object)
            elif array.dtype != np.dtype(wanted.as_numpy_dtype):
                array = array.astype(wanted.as_numpy_dtype)
            return array, wanted
        return array, dtypes.as_dtype(array.dtype)
    values = _to_dims(values)
    if values is None:
        raise ValueError("None values not supported.")
    if dtype is not None:
        _check_elements(values, dtype)
        if dtype == dtypes.string:
            array = np.array(_encoded(values), dtype=object)
        else:
            try:
                array = np.array(values, dtype=dtype.as_numpy_dtype)
            except OverflowError:
                array = wrapped(values, dtype)
            except ValueError as e:
                raise ValueError("Argument must be a dense tensor: %s - got shape %s, but wanted %s."
                                 % (values, [len(values)] if hasattr(values, "__len__") else [], e))
        if array.dtype == object and dtype != dtypes.string:
            raise ValueError("Argument must be a dense tensor: %s" % (values,))
        if dtype != dtypes.string:
            _check_dense(values, array)
        return array, dtype
    flat = list(_flat(values))
    if any(v is None for v in flat):
        raise ValueError("None values not supported.")
    if flat and all(isinstance(v, (str, bytes)) for v in flat):
        return np.array(_encoded(values), dtype=object), dtypes.string
    if any(isinstance(v, (str, bytes)) for v in flat):
        raise TypeError("Failed to convert object of type %s to Tensor. Contents: %s. Consider casting elements to a "
                        "supported type." % (type(values), values))
    try:
        array = np.array(values)
    except ValueError:
        raise ValueError("Argument must be a dense tensor: %s" % (values,))
    if array.dtype == object:
        bad = next((v for v in flat if not isinstance(v, (int, float, complex, bool, str, bytes, np.generic))), None)
        if bad is not None:
            raise TypeError("Failed to convert object of type %s to Tensor. Contents: %s. Consider casting elements to "
                            "a supported type." % (type(values), values))
        raise ValueError("Argument must be a dense tensor: %s" % (values,))
    _check_dense(values, array)
    # Whether Python's or numpy's, numbers in a list become 32 bit ones; a numpy array keeps its type.
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    elif array.dtype == np.int64:
        narrow = array.astype(np.int32)
        if np.array_equal(array, narrow):
            array = narrow
    elif array.dtype == np.complex64:
        array = array.astype(np.complex128)
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.float32)
    return array, dtypes.as_dtype(array.dtype)


def _encoded(values):
    if isinstance(values, (list, tuple)):
        return [_encoded(v) for v in values]
    return values.encode() if isinstance(values, str) else values


def value_tensor(values, dtype=None, shape=None, verify_shape=False):
    """A runtime tensor for constants. `shape` fills up with the last value."""
    dtype = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
    if isinstance(values, _muster.TensorValue):
        return values
    if getattr(getattr(values, "DESCRIPTOR", None), "full_name", None) == "tensorflow.TensorProto":
        return _muster.tensor_from_proto(values.SerializeToString())
    array, dtype = _array_of(values, dtype)
    if shape is not None:
        dims = tensor_shape.as_shape(shape).as_list()
        count = int(np.prod(dims, dtype=np.int64))
        if verify_shape and tuple(dims) != array.shape:
            raise TypeError("Expected Tensor's shape: %s, got %s." % (tuple(dims), array.shape))
        if array.size > count:
            raise ValueError("Too many elements provided. Needed at most %d, but received %d" % (count, array.size))
        if array.size == count:
            array = array.reshape(dims)
        else:
            flat = array.reshape(-1)
            last = flat[-1] if flat.size else (b"" if dtype == dtypes.string else np.zeros([], dtype.as_numpy_dtype))
            full = np.empty([count], dtype=array.dtype)
            full[:flat.size] = flat
            full[flat.size:] = last
            array = full.reshape(dims)
    if dtype == dtypes.bfloat16:
        array = array.view(np.uint16)
    return _muster.tensor(np.ascontiguousarray(array).reshape(array.shape), int(dtype))


def constant(value, dtype=None, shape=None, name="Const", verify_shape=False):
    """A constant tensor."""
    graph = framework.get_default_graph()
    tensor = value_tensor(value, dtype, shape, verify_shape)
    return graph._add("Const", [], {"value": tensor, "dtype": tensor.dtype}, name).outputs[0]


def _constant_conversion(value, dtype=None, name=None, as_ref=False):
    return constant(value, dtype=dtype, name=name or "Const")


def _shape_conversion(value, dtype=None, name=None, as_ref=False):
    if not value.is_fully_defined():
        raise ValueError("Cannot convert a partially known TensorShape to a Tensor: %s" % value)
    dims = value.as_list()
    if dtype is None:
        dtype = dtypes.int64 if any(d >= 2 ** 31 for d in dims) else dtypes.int32
    elif dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError("Cannot convert a TensorShape to dtype: %s" % dtype)
    return constant(np.array(dims, dtype=dtype.as_numpy_dtype), dtype=dtype, name=name or "shape_as_tensor")


def _dimension_conversion(value, dtype=None, name=None, as_ref=False):
    if value.value is None:
        raise ValueError("Cannot convert an unknown Dimension to a Tensor: %s" % value)
    return constant(value.value, dtype=dtype or dtypes.int32, name=name or "shape_as_tensor")


def _indexed_slices_conversion(value, dtype=None, name=None, as_ref=False):
    if dtype and not dtype.is_compatible_with(value.dtype):
        raise ValueError("Tensor conversion requested dtype %s for IndexedSlices with dtype %s"
                         % (dtype.name, value.dtype.name))
    if value.dense_shape is None:
        raise ValueError("Tensor conversion requested for IndexedSlices without dense_shape: %s" % value)
    import warnings

    from muster.ops import math_ops

    warnings.warn("Converting sparse IndexedSlices to a dense Tensor of unknown shape. This may consume a large amount "
                  "of memory.")
    return math_ops.unsorted_segment_sum(value.values, value.indices, value.dense_shape[0], name=name)


def _has_tensors(values):
    return any(isinstance(v, framework.Tensor) or hasattr(v, "_as_graph_element") for v in _flat(values))


def _list_conversion(value, dtype=None, name=None, as_ref=False):
    """Lists that contain tensors are packed."""
    from muster.ops import array_ops

    if not _has_tensors(value):
        return _constant_conversion(value, dtype, name)
    if dtype is None:
        for element in _flat(value):
            if isinstance(element, framework.Tensor) or hasattr(element, "_as_graph_element"):
                dtype = element.dtype.base_dtype
                break
    return array_ops._autopack(value, dtype, name or "packed")


def convert_to_tensor(value, dtype=None, name=None, preferred_dtype=None, dtype_hint=None, as_ref=False):
    """`value` as a tensor: constants, variables, lists of tensors, and what has a registered conversion."""
    preferred_dtype = dtype_hint if preferred_dtype is None else preferred_dtype
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(value, framework.Tensor):
        if dtype is not None and not dtype.is_compatible_with(value.dtype):
            raise ValueError("Tensor conversion requested dtype %s for Tensor with dtype %s: %r"
                             % (dtype.name, value.dtype.name, str(value)))
        return value
    if preferred_dtype is not None and dtype is None:
        try:
            return _convert(value, dtypes.as_dtype(preferred_dtype), name, as_ref)
        except (TypeError, ValueError):
            pass
    return _convert(value, dtype, name, as_ref)


def _convert(value, dtype, name, as_ref):
    for base_type, function, _ in _conversions:
        if isinstance(value, base_type):
            result = function(value, dtype=dtype, name=name, as_ref=as_ref)
            if result is NotImplemented:
                continue
            if dtype is not None and not dtype.is_compatible_with(result.dtype):
                raise RuntimeError("Conversion function for type %s returned incompatible dtype: requested = %s, "
                                   "actual = %s" % (base_type, dtype.name, result.dtype.name))
            return result
    return _constant_conversion(value, dtype, name)


def convert_n_to_tensor(values, dtype=None, name=None, preferred_dtype=None, as_ref=False):
    if not isinstance(values, (list, tuple)):
        raise TypeError("values must be a list.")
    return [convert_to_tensor(value, dtype=dtype, name=name if name is None else "%s_%d" % (name, i),
                              preferred_dtype=preferred_dtype, as_ref=as_ref) for i, value in enumerate(values)]


def convert_to_tensor_or_indexed_slices(value, dtype=None, name=None, as_ref=False):
    if isinstance(value, framework.IndexedSlices):
        if dtype and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise ValueError("Tensor conversion requested dtype %s for Tensor with dtype %s: %r"
                             % (dtypes.as_dtype(dtype).name, value.dtype.name, str(value)))
        return value
    return convert_to_tensor(value, dtype=dtype, name=name, as_ref=as_ref)


register_tensor_conversion_function((list, tuple), _list_conversion, 99)
register_tensor_conversion_function(tensor_shape.TensorShape, _shape_conversion, 100)
register_tensor_conversion_function(tensor_shape.Dimension, _dimension_conversion, 100)
register_tensor_conversion_function(framework.IndexedSlices, _indexed_slices_conversion, 100)


def operand(value):
    """A value as functions of the C++ core take it: an output, a variable, a number without a type, or a constant."""
    if isinstance(value, framework.Tensor):
        return value._output
    if (hasattr(value, "_parent_op") or hasattr(value, "_get_variable_list") or
            (hasattr(value, "_train_variable") and framework.get_default_graph().building_function)):
        return convert_to_tensor(value)._output  # A variable after a change, in parts, or read by a function.
    if hasattr(value, "_train_variable"):
        return value._train_variable()
    if type(value) in (int, float):
        return value
    return value_tensor(value)


def constant_value(tensor, partial=False):
    """The value of a tensor as a numpy array, where building the graph can know it; else None."""
    if not isinstance(tensor, framework.Tensor):
        return None
    value = tensor._handle.constant_value()
    if value is None:
        return None
    return np.asarray(value.numpy())


def constant_value_as_shape(tensor):
    return tensor_shape.TensorShape(tensor._handle.constant_value_as_shape())
