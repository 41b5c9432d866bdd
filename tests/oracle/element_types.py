"""Element types as the table writes them: TensorFlow's enum numbers, and arrays that can cross between interpreters.

bfloat16 travels as uint16 bits: numpy has no such type, and only one of the two interpreters has ml_dtypes.
"""

import numpy as np

FLOAT, DOUBLE, INT32, UINT8, INT16, INT8, STRING, COMPLEX64, INT64, BOOL = range(1, 11)
BFLOAT16, UINT16, COMPLEX128, HALF, RESOURCE, VARIANT, UINT32, UINT64 = 14, 17, 18, 19, 20, 21, 22, 23

NAMES = {
    FLOAT: "float", DOUBLE: "double", INT32: "int32", UINT8: "uint8", INT16: "int16", INT8: "int8", STRING: "string",
    COMPLEX64: "complex64", INT64: "int64", BOOL: "bool", BFLOAT16: "bfloat16", UINT16: "uint16",
    COMPLEX128: "complex128", HALF: "half", RESOURCE: "resource", VARIANT: "variant", UINT32: "uint32",
    UINT64: "uint64",
}
CARRIERS = {
    FLOAT: np.float32, DOUBLE: np.float64, INT32: np.int32, UINT8: np.uint8, INT16: np.int16, INT8: np.int8,
    STRING: np.object_, COMPLEX64: np.complex64, INT64: np.int64, BOOL: np.bool_, BFLOAT16: np.uint16,
    UINT16: np.uint16, COMPLEX128: np.complex128, HALF: np.float16, UINT32: np.uint32, UINT64: np.uint64,
}
FLOATS = (HALF, BFLOAT16, FLOAT, DOUBLE)
COMPLEXES = (COMPLEX64, COMPLEX128)
SIGNED = (INT8, INT16, INT32, INT64)
UNSIGNED = (UINT8, UINT16, UINT32, UINT64)
INTEGERS = SIGNED + UNSIGNED
# The types that a test can feed and fetch; resource and variant need ops that make them.
USABLE = tuple(sorted(CARRIERS))
# Distance between 1 and the next number.
EPSILON = {HALF: 2.0**-10, BFLOAT16: 2.0**-7, FLOAT: 2.0**-23, DOUBLE: 2.0**-52, COMPLEX64: 2.0**-23,
           COMPLEX128: 2.0**-52}
SMALLEST = {HALF: 2.0**-24, BFLOAT16: 2.0**-126, FLOAT: 2.0**-126, DOUBLE: 2.0**-1022, COMPLEX64: 2.0**-126,
            COMPLEX128: 2.0**-1022}
LARGEST = {HALF: 65504.0, BFLOAT16: 3.38e38, FLOAT: 3.4e38, DOUBLE: 1.7e308, COMPLEX64: 1e18, COMPLEX128: 1e150}


def bfloat16_bits(values):
    """float32 values rounded to the nearest bfloat16 (ties to even), as uint16."""
    with np.errstate(all="ignore"):
        bits = np.asarray(values, np.float32).view(np.uint32)
        rounded = ((bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16).astype(np.uint16)
        nan = np.isnan(np.asarray(values, np.float32))
    return np.where(nan, np.uint16(0x7FC0), rounded)


def bfloat16_values(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def carrier(values, dtype):
    """`values` (an array, a number, a nested list) as the array that stands for a tensor of `dtype`."""
    if dtype == STRING:
        source = np.asarray(values, object)
        result = np.empty(source.shape, object)
        for at in np.ndindex(source.shape):
            item = source[at]
            result[at] = item if isinstance(item, bytes) else str(item).encode()
        return result
    array = np.asarray(values)
    with np.errstate(all="ignore"):
        if dtype == BFLOAT16:
            return np.asarray(bfloat16_bits(array.astype(np.float32).reshape(array.shape))).reshape(array.shape)
        if array.dtype.kind == "c" and dtype not in COMPLEXES:
            array = array.real
        return array.astype(CARRIERS[dtype])


def numbers(array, dtype):
    """The values of a float or complex carrier in double precision."""
    if dtype == BFLOAT16:
        return bfloat16_values(np.ascontiguousarray(array)).astype(np.float64).reshape(np.shape(array))
    with np.errstate(all="ignore"):
        return np.asarray(array, np.complex128 if dtype in COMPLEXES else np.float64)
