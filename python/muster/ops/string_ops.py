"""Strings: hashing, joining, splitting, conversion from and to numbers and raw bytes."""
import numpy as np

from muster import dtypes
from muster.generated.string_ops import *  # noqa: F403
from muster.graph import framework
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, math_ops, sparse_tensor
from muster.ops.array_ops import _merge_deprecated


def string_to_number(string_tensor=None, out_type=dtypes.float32, name=None, input=None):
    string_tensor = _merge_deprecated("input", input, "string_tensor", string_tensor)
    return call("StringToNumber", name=name, string_tensor=string_tensor, out_type=out_type)


def string_to_hash_bucket(string_tensor=None, num_buckets=None, name=None, input=None):
    string_tensor = _merge_deprecated("input", input, "string_tensor", string_tensor)
    return call("StringToHashBucket", name=name, string_tensor=string_tensor, num_buckets=num_buckets)


def _sparse(results):
    indices, values, shape = results
    indices.set_shape([None, 2])
    values.set_shape([None])
    shape.set_shape([2])
    return sparse_tensor.SparseTensor(indices, values, shape)


def string_split(source, sep=None, skip_empty=True, delimiter=None, result_type="SparseTensor", name=None):
    _only_sparse("tf.string_split", result_type)
    with name_scope(name, "StringSplit", [source]):
        delimiter = _merge_deprecated("sep", sep, "delimiter", delimiter)
        delimiter = convert_to_tensor(" " if delimiter is None else delimiter, dtype=dtypes.string)
        source = convert_to_tensor(source, dtype=dtypes.string)
        return _sparse(call("StringSplit", input=source, delimiter=delimiter, skip_empty=skip_empty))


def _only_sparse(function, result_type):
    if result_type == "RaggedTensor":
        raise NotImplementedError("%s does not support result_type='RaggedTensor'" % function)
    if result_type != "SparseTensor":
        raise ValueError("result_type must be 'RaggedTensor' or 'SparseTensor'.")


def split(input=None, sep=None, maxsplit=-1, result_type="SparseTensor", source=None, name=None):
    """tf.strings.split: the pieces of a vector of strings as a SparseTensor."""
    source = _merge_deprecated("input", input, "source", source)
    _only_sparse("tf.strings.split", result_type)
    with name_scope(name, "StringSplit", [source]):
        sep = convert_to_tensor("" if sep is None else sep, dtype=dtypes.string)
        source = convert_to_tensor(source, dtype=dtypes.string)
        return _sparse(call("StringSplitV2", input=source, sep=sep, maxsplit=maxsplit))


def reduce_join(inputs, axis=None, keep_dims=None, separator="", name=None, reduction_indices=None, keepdims=None):
    keepdims = _merge_deprecated("keepdims", keepdims, "keep_dims", keep_dims)
    axis = _merge_deprecated("axis", axis, "reduction_indices", reduction_indices)
    inputs = convert_to_tensor(inputs)
    if axis is None:
        ndims = inputs.get_shape().ndims
        if ndims is not None:
            axis = constant(np.arange(ndims - 1, -1, -1), dtype=dtypes.int32)
        else:
            axis = math_ops.range(array_ops.rank(inputs) - 1, -1, -1)
    return call("ReduceJoin", name=name, inputs=inputs, reduction_indices=axis,
                keep_dims=False if keepdims is None else keepdims, separator=separator)


def regex_full_match(input, pattern, name=None):
    if isinstance(pattern, (str, bytes)):
        return call("StaticRegexFullMatch", name=name, input=input, pattern=pattern)
    return call("RegexFullMatch", name=name, input=input, pattern=pattern)


def regex_replace(input, pattern, rewrite, replace_global=True, name=None):
    if isinstance(pattern, (str, bytes)) and isinstance(rewrite, (str, bytes)):
        return call("StaticRegexReplace", name=name, input=input, pattern=pattern, rewrite=rewrite,
                    replace_global=replace_global)
    return call("RegexReplace", name=name, input=input, pattern=pattern, rewrite=rewrite,
                replace_global=replace_global)


def string_format(template, inputs, placeholder="{}", summarize=3, name=None):
    inputs = [inputs] if isinstance(inputs, framework.Tensor) else inputs
    if template.count(placeholder) != len(inputs):
        raise ValueError("%s placeholder(s) in template does not match %s tensor(s) provided as input"
                         % (template.count(placeholder), len(inputs)))
    return call("StringFormat", name=name, inputs=inputs, template=template, placeholder=placeholder,
                summarize=summarize)


def decode_raw(input_bytes=None, out_type=None, little_endian=True, name=None, bytes=None):
    input_bytes = _merge_deprecated("input_bytes", input_bytes, "bytes", bytes)
    if out_type is None:
        raise ValueError("decode_raw_v1() missing 1 positional argument: 'out_type'")
    return call("DecodeRaw", name=name, bytes=input_bytes, out_type=out_type, little_endian=little_endian)


__all__ = ["as_string", "string_to_number", "string_to_hash_bucket_fast", "string_to_hash_bucket_strong",
           "string_to_hash_bucket", "string_join", "string_split", "reduce_join", "substr", "string_strip",
           "regex_replace", "encode_base64", "decode_base64", "decode_raw"]
