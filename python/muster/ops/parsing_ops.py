"""Parsing: CSV records and serialized Examples and SequenceExamples become tensors."""
import collections
import re

from muster import dtypes, tf_logging
from muster.generated.parsing_ops import *  # noqa: F403
from muster.graph import framework, tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, control_flow_ops, math_ops, sparse_tensor

VarLenFeature = collections.namedtuple("VarLenFeature", ["dtype"])


class SparseFeature(collections.namedtuple("SparseFeature", ["index_key", "value_key", "dtype", "size",
                                                             "already_sorted"])):
    def __new__(cls, index_key, value_key, dtype, size, already_sorted=False):
        return super(SparseFeature, cls).__new__(cls, index_key, value_key, dtype, size, already_sorted)


class FixedLenFeature(collections.namedtuple("FixedLenFeature", ["shape", "dtype", "default_value"])):
    def __new__(cls, shape, dtype, default_value=None):
        return super(FixedLenFeature, cls).__new__(cls, shape, dtype, default_value)


class FixedLenSequenceFeature(collections.namedtuple("FixedLenSequenceFeature", ["shape", "dtype", "allow_missing",
                                                                                 "default_value"])):
    def __new__(cls, shape, dtype, allow_missing=False, default_value=None):
        return super(FixedLenSequenceFeature, cls).__new__(cls, shape, dtype, allow_missing, default_value)


def _plain_name(key):
    return re.sub("[^A-Za-z0-9_.\\-/]", "_", key)


class _Columns(object):
    """What the parsing ops are asked for, from features by key (in sorted order)."""

    def __init__(self, features, kinds):
        self.sparse_keys, self.sparse_types = [], []
        self.dense_keys, self.dense_types, self.dense_shapes = [], [], []
        self.dense_defaults = collections.OrderedDict()
        for key in sorted(features or {}):
            feature = features[key]
            if not isinstance(feature, tuple(kinds)):
                raise ValueError("Unsupported %s %s." % (type(feature).__name__, feature))
            if not feature.dtype:
                raise ValueError("Missing type for feature %s." % key)
            if isinstance(feature, VarLenFeature):
                self._add_sparse(key, feature.dtype)
            elif isinstance(feature, SparseFeature):
                self._add_sparse_feature(feature)
            else:
                self._add_dense(key, feature)
        both = set(self.dense_keys) & set(self.sparse_keys)
        if both:
            raise ValueError("Dense and sparse keys must not intersect; intersection: %s" % both)
        if not self.dense_keys and not self.sparse_keys and features:
            raise ValueError("Must provide at least one feature key")

    def _add_sparse(self, key, dtype):
        if key in self.sparse_keys:
            known = self.sparse_types[self.sparse_keys.index(key)]
            if known != dtype:
                raise ValueError("Conflicting type %s vs %s for feature %s." % (known, dtype, key))
            return
        self.sparse_keys.append(key)
        self.sparse_types.append(dtypes.as_dtype(dtype))

    def _add_sparse_feature(self, feature):
        if not feature.index_key:
            raise ValueError("Missing index_key for SparseFeature %s." % (feature,))
        if not feature.value_key:
            raise ValueError("Missing value_key for SparseFeature %s." % (feature,))
        index_keys = [feature.index_key] if isinstance(feature.index_key, str) else feature.index_key
        if len(index_keys) > 1:
            tf_logging.warning("SparseFeature is a complicated feature config and should only be used after careful "
                               "consideration of VarLenFeature.")
        for index_key in sorted(index_keys):
            self._add_sparse(index_key, dtypes.int64)
        self._add_sparse(feature.value_key, feature.dtype)

    def _add_dense(self, key, feature):
        if feature.shape is None:
            raise ValueError("Missing shape for feature %s." % key)
        shape = tensor_shape.as_shape(feature.shape)
        if isinstance(feature, FixedLenFeature):
            if shape.ndims and shape[0].value is None:
                raise ValueError("First dimension of shape for feature %s unknown. Consider using "
                                 "FixedLenSequenceFeature." % key)
            if not shape.is_fully_defined():
                raise ValueError("All dimensions of shape for feature %s need to be known but received %s."
                                 % (key, feature.shape))
        elif feature.allow_missing:
            self.dense_defaults[key] = None
        self.dense_keys.append(key)
        self.dense_shapes.append(shape)
        self.dense_types.append(dtypes.as_dtype(feature.dtype))
        if feature.default_value is not None:
            self.dense_defaults[key] = feature.default_value

    def defaults(self):
        """One tensor per dense column: the default, padding, or nothing where the feature is required."""
        return [self._default(*column) for column in zip(self.dense_keys, self.dense_shapes, self.dense_types)]

    def _default(self, key, shape, dtype):
        value = self.dense_defaults.get(key)
        if shape.ndims and shape[0].value is None:
            if value is None:
                return convert_to_tensor("" if dtype == dtypes.string else 0, dtype=dtype)
            value = convert_to_tensor(value, dtype=dtype, name="padding_" + _plain_name(key))
            return array_ops.reshape(value, [])
        if value is None:
            return constant([], dtype=dtype)
        if isinstance(value, framework.Tensor):
            return value
        value = convert_to_tensor(value, dtype=dtype, name="key_" + _plain_name(key))
        return array_ops.reshape(value, shape)


def _sparse_tensors(indices, values, shapes):
    return [sparse_tensor.SparseTensor(*parts) for parts in zip(indices, values, shapes)]


def _with_none_first(features):
    """Features whose sequences have a first dimension of any length."""
    changed = dict(features)
    for key, feature in features.items():
        if isinstance(feature, FixedLenSequenceFeature):
            if not feature.allow_missing:
                raise ValueError("Unsupported: FixedLenSequenceFeature requires allow_missing to be True.")
            changed[key] = feature._replace(shape=[None] + list(feature.shape))
    return changed


def _merge_sparse_features(features, tensors):
    """SparseFeatures are put together from the columns of their indices and values."""
    from muster.ops import sparse_ops

    result = dict(tensors)
    for key in sorted(features):
        feature = features[key]
        if isinstance(feature, SparseFeature):
            ids = (tensors[feature.index_key] if isinstance(feature.index_key, str)
                   else [tensors[index_key] for index_key in feature.index_key])
            result[key] = sparse_ops.sparse_merge(ids, tensors[feature.value_key], vocab_size=feature.size,
                                                  already_sorted=feature.already_sorted)
    return {key: result[key] for key in result if key in features}


_EXAMPLE_KINDS = [VarLenFeature, SparseFeature, FixedLenFeature, FixedLenSequenceFeature]


def parse_example(serialized, features, name=None, example_names=None):
    if not features:
        raise ValueError("Missing: features was %s." % features)
    features = _with_none_first(features)
    tensors = _parse_batch(serialized, example_names, _Columns(features, _EXAMPLE_KINDS), name)
    return _merge_sparse_features(features, tensors)


def _parse_batch(serialized, names, columns, name):
    with name_scope(name, "ParseExample", [serialized, names]):
        indices, values, shapes, dense = call(
            "ParseExample", name=name, serialized=serialized, names=[] if names is None else names,
            dense_defaults=columns.defaults(), sparse_keys=columns.sparse_keys, sparse_types=columns.sparse_types,
            dense_keys=columns.dense_keys, dense_shapes=columns.dense_shapes)
        return dict(zip(columns.sparse_keys + columns.dense_keys, _sparse_tensors(indices, values, shapes) + list(dense)))


def parse_single_example(serialized, features, name=None, example_names=None):
    if not features:
        raise ValueError("Missing features.")
    features = _with_none_first(features)
    columns = _Columns(features, _EXAMPLE_KINDS)
    if example_names is not None:
        return _merge_sparse_features(features, _parse_named(serialized, example_names, columns, name))
    with name_scope(name, "ParseSingleExample", [serialized]):
        serialized = convert_to_tensor(serialized, name="serialized")
        indices, values, shapes, dense = call(
            "ParseSingleExample", name=name, serialized=serialized, dense_defaults=columns.defaults(),
            num_sparse=len(columns.sparse_keys), sparse_keys=columns.sparse_keys, sparse_types=columns.sparse_types,
            dense_keys=columns.dense_keys, dense_shapes=columns.dense_shapes)
        tensors = dict(zip(columns.sparse_keys + columns.dense_keys,
                           _sparse_tensors(indices, values, shapes) + list(dense)))
    return _merge_sparse_features(features, tensors)


def _assert_scalar(value, name):
    ndims = value.get_shape().ndims
    if ndims == 0:
        return value
    if ndims is not None:
        raise ValueError("Input %s must be a scalar" % name)
    check = control_flow_ops.Assert(math_ops.equal(array_ops.rank(value), 0), ["Input %s must be a scalar" % name],
                                    name="%sIsScalar" % name.capitalize())
    result = control_flow_ops.with_dependencies([check], value, name="%sDependencies" % name)
    result.set_shape([])
    return result


def _parse_named(serialized, names, columns, name):
    """One example with a name for error texts: a batch of one."""
    with name_scope(name, "ParseSingleExample", [serialized, names]):
        serialized = array_ops.expand_dims(_assert_scalar(convert_to_tensor(serialized), "serialized"), 0)
        names = array_ops.expand_dims(_assert_scalar(convert_to_tensor(names), "names"), 0)
        outputs = _parse_batch(serialized, names, columns, name)
        for key in columns.dense_keys:
            outputs[key] = array_ops.squeeze(outputs[key], [0], name="Squeeze_%s" % _plain_name(key))
        for key in columns.sparse_keys:
            sparse = outputs[key]
            outputs[key] = sparse_tensor.SparseTensor(
                array_ops.slice(sparse.indices, [0, 1], [-1, -1], name="Slice_Indices_%s" % _plain_name(key)),
                sparse.values,
                array_ops.slice(sparse.dense_shape, [1], [-1], name="Squeeze_Shape_%s" % _plain_name(key)))
        return outputs


class _Sequences(object):
    """What the ops that parse SequenceExamples are asked for."""

    def __init__(self, context_features, sequence_features):
        if not (context_features or sequence_features):
            raise ValueError("Missing features.")
        self.context = _Columns(context_features, [VarLenFeature, FixedLenFeature])
        self.steps = _Columns(sequence_features, [VarLenFeature, FixedLenSequenceFeature])

    def may_miss(self):
        for key, value in self.steps.dense_defaults.items():
            if value is not None:
                raise ValueError("Value feature_list.dense_defaults[%s] must be None" % key)
        return list(self.steps.dense_defaults)

    def arguments(self):
        context, steps = self.context, self.steps
        return dict(
            context_dense_defaults=context.defaults(), context_sparse_keys=context.sparse_keys,
            context_sparse_types=context.sparse_types, context_dense_keys=context.dense_keys,
            context_dense_shapes=context.dense_shapes, feature_list_sparse_keys=steps.sparse_keys,
            feature_list_sparse_types=steps.sparse_types, feature_list_dense_keys=steps.dense_keys,
            feature_list_dense_types=steps.dense_types, feature_list_dense_shapes=steps.dense_shapes)

    def results(self, outputs):
        results = []
        for columns, part in ((self.context, outputs[:4]), (self.steps, outputs[4:8])):
            tensors = _sparse_tensors(*part[:3]) + list(part[3])
            results.append(dict(zip(columns.sparse_keys + columns.dense_keys, tensors)))
        return tuple(results)


def parse_single_sequence_example(serialized, context_features=None, sequence_features=None, example_name=None,
                                  name=None):
    """(context, sequences): dictionaries of tensors of one SequenceExample."""
    wanted = _Sequences(context_features, sequence_features)
    with name_scope(name, "ParseSingleSequenceExample", [serialized]):
        outputs = call(
            "ParseSingleSequenceExample", name=name, serialized=serialized,
            debug_name="" if example_name is None else example_name,
            feature_list_dense_missing_assumed_empty=wanted.may_miss(), **wanted.arguments())
        return wanted.results(outputs)


def parse_sequence_example(serialized, context_features=None, sequence_features=None, example_names=None, name=None):
    """(context, sequences, lengths): dictionaries of tensors of a batch of SequenceExamples."""
    wanted = _Sequences(context_features, sequence_features)
    with name_scope(name, "ParseSequenceExample", [serialized]):
        outputs = call(
            "ParseSequenceExample", name=name, serialized=serialized,
            debug_name=[] if example_names is None else example_names,
            feature_list_dense_missing_assumed_empty=wanted.may_miss(), Ncontext_sparse=len(wanted.context.sparse_keys),
            Ncontext_dense=len(wanted.context.dense_keys), Nfeature_list_sparse=len(wanted.steps.sparse_keys),
            Nfeature_list_dense=len(wanted.steps.dense_keys), **wanted.arguments())
        return wanted.results(outputs) + (dict(zip(wanted.steps.dense_keys, outputs[8])),)


def decode_csv(records, record_defaults, field_delim=",", use_quote_delim=True, name=None, na_value="",
               select_cols=None):
    if select_cols is not None:
        if any(a >= b for a, b in zip(select_cols, select_cols[1:])):
            raise ValueError("select_cols is not strictly increasing.")
        if select_cols and select_cols[0] < 0:
            raise ValueError("select_cols contains negative values.")
        if len(select_cols) != len(record_defaults):
            raise ValueError("Length of select_cols and record_defaults do not match.")
    return call("DecodeCSV", name=name, records=records, record_defaults=record_defaults, field_delim=field_delim,
                use_quote_delim=use_quote_delim, na_value=na_value, select_cols=select_cols or [])


__all__ = ["VarLenFeature", "SparseFeature", "FixedLenFeature", "FixedLenSequenceFeature", "parse_example",
           "parse_single_example", "parse_sequence_example",
           "parse_single_sequence_example", "decode_csv", "parse_tensor", "serialize_tensor"]
