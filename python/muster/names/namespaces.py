"""tf.math, tf.random, tf.strings and the like: other names of the functions of tf."""
import importlib
import sys
import types

from muster.names import absent

# Names that are the same under tf and in the namespace, then name there -> name under tf (or module:name).
_CONTENTS = {
    "math": (
        "abs accumulate_n acos acosh add add_n angle argmax argmin asin asinh atan atan2 atanh bincount ceil conj cos "
        "cosh count_nonzero cross cumprod cumsum confusion_matrix digamma divide div_no_nan equal erf erfc exp expm1 "
        "floor floordiv greater greater_equal imag is_nan is_inf is_finite is_non_decreasing is_strictly_increasing "
        "less less_equal lgamma log log1p log_sigmoid logical_and logical_not logical_or logical_xor maximum minimum "
        "mod multiply multiply_no_nan negative not_equal pow real reciprocal reduce_all reduce_any "
        "reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_std reduce_sum reduce_variance rint "
        "round rsqrt segment_max segment_mean segment_min segment_prod segment_sum sigmoid sign sin sinh sqrt square "
        "squared_difference subtract tan tanh truediv unsorted_segment_max unsorted_segment_min unsorted_segment_prod "
        "unsorted_segment_sum unsorted_segment_mean unsorted_segment_sqrt_n xdivy xlogy invert_permutation igamma "
        "igammac zeta polygamma lbeta scalar_mul",
        {"softmax": "nn.nn_ops:softmax", "log_softmax": "nn.nn_ops:log_softmax", "polyval": "ops.special_ops:polyval",
         "reduce_euclidean_norm": "ops.math_ops:reduce_euclidean_norm", "divide_no_nan": "div_no_nan",
         "floormod": "mod", "softplus": "nn.nn_ops:softplus", "softsign": "nn.nn_ops:softsign", "top_k": "nn.nn_ops:top_k",
         "in_top_k": "nn.nn_ops:in_top_k", "l2_normalize": "nn.nn_ops:l2_normalize", "ceil": "ceil",
         "zero_fraction": "nn.nn_ops:zero_fraction", "betainc": "ops.special_ops:betainc", "bessel_i0e": "ops.special_ops:bessel_i0e",
         "bessel_i1e": "ops.special_ops:bessel_i1e"}),
    "random": (
        "set_random_seed get_seed multinomial random_shuffle truncated_normal",
        {"normal": "random_normal", "uniform": "random_uniform", "shuffle": "random_shuffle", "gamma": "random_gamma",
         "poisson": "random_poisson", "stateless_normal": "ops.stateless_random_ops:stateless_random_normal",
         "stateless_uniform": "ops.stateless_random_ops:stateless_random_uniform",
         "stateless_truncated_normal": "ops.stateless_random_ops:stateless_truncated_normal",
         "categorical": "ops.random_ops:categorical",
         "all_candidate_sampler": "nn.candidate_sampling:all_candidate_sampler",
         "log_uniform_candidate_sampler": "nn.candidate_sampling:log_uniform_candidate_sampler",
         "uniform_candidate_sampler": "nn.candidate_sampling:uniform_candidate_sampler",
         "learned_unigram_candidate_sampler": "nn.candidate_sampling:learned_unigram_candidate_sampler",
         "fixed_unigram_candidate_sampler": "nn.candidate_sampling:fixed_unigram_candidate_sampler"}),
    "strings": (
        "as_string reduce_join regex_replace substr",
        {"join": "string_join", "strip": "string_strip", "to_number": "string_to_number",
         "to_hash_bucket": "string_to_hash_bucket", "to_hash_bucket_fast": "string_to_hash_bucket_fast",
         "to_hash_bucket_strong": "string_to_hash_bucket_strong", "length": "ops.string_ops:string_length",
         "lower": "ops.string_ops:string_lower", "upper": "ops.string_ops:string_upper", "split": "ops.string_ops:split",
         "format": "ops.string_ops:string_format", "regex_full_match": "ops.string_ops:regex_full_match"}),
    "io": (
        "decode_base64 encode_base64 decode_raw deserialize_many_sparse serialize_many_sparse serialize_sparse read_file "
        "write_file matching_files parse_tensor serialize_tensor "
        "parse_example parse_single_example parse_sequence_example parse_single_sequence_example decode_csv "
        "FixedLenFeature VarLenFeature SparseFeature FixedLenSequenceFeature QueueBase "
        "PaddingFIFOQueue PriorityQueue RandomShuffleQueue",
        {"gfile": "gfile_v2:", "decode_image": "image:decode_image", "decode_jpeg": "image:decode_jpeg", "decode_png": "image:decode_png",
         "decode_gif": "image:decode_gif", "decode_bmp": "image:decode_bmp", "encode_jpeg": "image:encode_jpeg",
         "encode_png": "image:encode_png", "is_jpeg": "image:is_jpeg",
         "extract_jpeg_shape": "image:extract_jpeg_shape", "decode_and_crop_jpeg": "image:decode_and_crop_jpeg",
         "match_filenames_once": "train.input:match_filenames_once", "write_graph": "train:write_graph",
         "TFRecordWriter": "python_io:TFRecordWriter", "TFRecordOptions": "python_io:TFRecordOptions",
         "TFRecordCompressionType": "python_io:TFRecordCompressionType",
         "tf_record_iterator": "python_io:tf_record_iterator"}),
    "debugging": (
        "Assert assert_equal assert_none_equal assert_less assert_less_equal assert_greater assert_greater_equal "
        "assert_negative assert_positive assert_non_negative assert_non_positive assert_near assert_rank "
        "assert_rank_at_least assert_rank_in assert_integer assert_type assert_scalar assert_proper_iterable "
        "assert_same_float_dtype is_numeric_tensor is_non_decreasing is_strictly_increasing is_finite is_inf is_nan "
        "check_numerics",
        {"assert_all_finite": "verify_tensor_all_finite"}),
    "initializers": (
        "global_variables local_variables variables tables_initializer",
        {"global_variables": "global_variables_initializer", "local_variables": "local_variables_initializer",
         "variables": "variables_initializer", "zeros": "zeros_initializer", "ones": "ones_initializer",
         "constant": "constant_initializer", "random_uniform": "random_uniform_initializer",
         "random_normal": "random_normal_initializer", "truncated_normal": "truncated_normal_initializer",
         "uniform_unit_scaling": "uniform_unit_scaling_initializer", "variance_scaling": "variance_scaling_initializer",
         "glorot_uniform": "glorot_uniform_initializer", "glorot_normal": "glorot_normal_initializer",
         "orthogonal": "orthogonal_initializer", "identity": "variables.init_ops:Identity", "he_normal": "variables.init_ops:he_normal",
         "he_uniform": "variables.init_ops:he_uniform", "lecun_normal": "variables.init_ops:lecun_normal",
         "lecun_uniform": "variables.init_ops:lecun_uniform"}),
    "queue": ("QueueBase FIFOQueue PaddingFIFOQueue PriorityQueue RandomShuffleQueue", {}),
    "sparse": ("SparseTensor SparseConditionalAccumulator", {
        "placeholder": "sparse_placeholder", "reorder": "sparse_reorder", "reshape": "sparse_reshape",
        "fill_empty_rows": "sparse_fill_empty_rows", "matmul": "sparse_tensor_dense_matmul",
        "sparse_dense_matmul": "sparse_tensor_dense_matmul", "reduce_sum": "sparse_reduce_sum",
        "reduce_sum_sparse": "sparse_reduce_sum_sparse", "to_dense": "sparse_tensor_to_dense",
        "to_indicator": "sparse_to_indicator", "merge": "sparse_merge", "retain": "sparse_retain", "add": "sparse_add", "concat": "sparse_concat",
        "split": "sparse_split", "slice": "sparse_slice", "softmax": "sparse_softmax", "transpose": "sparse_transpose",
        "mask": "sparse_mask", "maximum": "sparse_maximum", "minimum": "sparse_minimum",
        "reduce_max": "sparse_reduce_max", "reduce_max_sparse": "sparse_reduce_max_sparse",
        "reset_shape": "sparse_reset_shape", "expand_dims": "ops.sparse_ops:sparse_expand_dims",
        "from_dense": "ops.sparse_ops:from_dense", "segment_sum": "sparse_segment_sum", "segment_mean": "sparse_segment_mean",
        "segment_sqrt_n": "sparse_segment_sqrt_n"}),
    "bitwise": ("", {
        "bitwise_and": "generated.bitwise_ops:bitwise_and", "bitwise_or": "generated.bitwise_ops:bitwise_or",
        "bitwise_xor": "generated.bitwise_ops:bitwise_xor", "invert": "generated.bitwise_ops:invert",
        "left_shift": "generated.bitwise_ops:left_shift", "right_shift": "generated.bitwise_ops:right_shift"}),
    "sets": ("", {name: "ops.set_ops:" + function for short in ("size", "intersection", "difference", "union")
                  for function in ("set_" + short,) for name in (short, function)}),
    "manip": ("batch_to_space_nd gather_nd reshape reverse roll scatter_nd space_to_batch_nd tile", {}),
}


class _Namespace(types.ModuleType):
    """Finds a name when it is first asked for."""

    def __getattr__(self, name):
        same, other = _CONTENTS[self.__name__.rsplit(".", 1)[-1]]
        target = other.get(name, name if name in same.split() else None)
        if target is None:
            raise absent.error(self.__name__[7:], name)
        if ":" in target:
            module, attribute = target.split(":")
            value = importlib.import_module("muster." + module)
            value = getattr(value, attribute) if attribute else value
        else:
            value = getattr(sys.modules["muster"], target)
        setattr(self, name, value)
        return value

    def __dir__(self):
        same, other = _CONTENTS[self.__name__.rsplit(".", 1)[-1]]
        return sorted(set(same.split()) | set(other))


def module(name):
    """The module muster.<name>, made on demand."""
    full = "muster." + name
    made = sys.modules.get(full)
    if not isinstance(made, _Namespace):
        made = _Namespace(full, "tf.%s: other names of functions of tf." % name)
        made.__path__ = []  # names that `from tf.math import ...` does not find are explained, as in absent.explain
        if full not in sys.modules:
            sys.modules[full] = made
    return made


NAMES = tuple(_CONTENTS)
