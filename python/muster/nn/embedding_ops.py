"""Rows of embedding tables, which may be split over several variables."""
import warnings

from muster import dtypes
from muster.graph import tensor_shape
from muster.graph.convert import constant, convert_to_tensor
from muster.graph.framework import colocate_with, name_scope
from muster.ops import array_ops, clip_ops, math_ops, sparse_ops, sparse_tensor


def _rank_of(x):
    rank = convert_to_tensor(x).get_shape().ndims
    return (rank, True) if rank else (array_ops.rank(x), False)


def _clip(rows, ids, max_norm):
    if max_norm is None:
        return rows
    ids_rank, ids_known = _rank_of(ids)
    rows_rank, rows_known = _rank_of(rows)
    axes = list(range(ids_rank, rows_rank)) if ids_known and rows_known else math_ops.range(ids_rank, rows_rank)
    return clip_ops.clip_by_norm(rows, max_norm, axes=axes)


def _is_partitioned(params):
    return hasattr(params, "_get_variable_list")


def _as_param_list(params):
    if _is_partitioned(params):
        return list(params)
    return list(params) if isinstance(params, (list, tuple)) else [params]


def _total_rows(params, dtype):
    sizes = [p.get_shape()[0].value for p in params]
    if None not in sizes and sum(sizes):
        return constant(sum(sizes), dtype)
    dynamic = []
    for size, param in zip(sizes, params):
        if size is not None:
            dynamic.append(size)
        else:
            with colocate_with(param):
                dynamic.append(array_ops.shape(param)[0])
    return math_ops.reduce_sum(math_ops.cast(array_ops.stack(dynamic), dtype))


def _assign(flat_ids, params, strategy):
    """(partition of each id, its row there)."""
    count = len(params)
    if strategy == "mod":
        partitions = flat_ids % count
        return partitions, flat_ids // count
    if strategy == "div":
        total = _total_rows(params, flat_ids.dtype)
        per_partition = total // count
        extras = total % count
        partitions = math_ops.maximum(flat_ids // (per_partition + 1), (flat_ids - extras) // per_partition)
        rows = array_ops.where(partitions < extras, flat_ids % (per_partition + 1),
                               (flat_ids - extras) % per_partition)
        return partitions, rows
    raise ValueError("Unrecognized partition strategy: " + strategy)


def embedding_lookup(params, ids, partition_strategy="mod", name=None, validate_indices=True, max_norm=None):
    if params is None:
        raise ValueError("params must be specified")
    if isinstance(params, (list, tuple)) and not params:
        raise ValueError("Need at least one param")
    params = _as_param_list(params)
    with name_scope(name, "embedding_lookup", params + [ids]) as name:
        if not any(getattr(p, "_is_resource", False) for p in params):
            # A resource variable is left as it is, so that only the rows are read.
            params = [convert_to_tensor(p, name="params_%d" % i) for i, p in enumerate(params)]
        ids = convert_to_tensor(ids, name="ids")
        if len(params) == 1:
            with colocate_with(_colocation(params[0])):
                rows = _clip(array_ops.gather(params[0], ids, name=name), ids, max_norm)
            # The result itself is free of the table's placement.
            return array_ops.identity(rows)
        flat_ids = array_ops.reshape(ids, [-1])
        original = math_ops.range(array_ops.size(flat_ids))
        partitions, rows = _assign(flat_ids, params, partition_strategy)
        partitions = math_ops.cast(partitions, dtypes.int32)
        gather_ids = array_ops.dynamic_partition(rows, partitions, len(params))
        places = array_ops.dynamic_partition(original, partitions, len(params))
        parts = []
        for param, part_ids in zip(params, gather_ids):
            with colocate_with(_colocation(param)):
                parts.append(array_ops.gather(param, part_ids))
        result = array_ops.parallel_dynamic_stitch(places, parts, name=name)
        element = params[0].get_shape()[1:]
        for param in params[1:]:
            element = element.merge_with(param.get_shape()[1:])
        if element.is_fully_defined():
            element_shape = element
        else:
            with colocate_with(_colocation(params[0])):
                element_shape = array_ops.shape(params[0])[1:]
        result = array_ops.reshape(result, array_ops.concat([array_ops.shape(ids), element_shape], 0))
        result.set_shape(ids.get_shape().concatenate(element))
        return _clip(result, ids, max_norm)


def _colocation(param):
    return param.op if getattr(param, "_is_resource", False) else param


def embedding_lookup_sparse(params, sp_ids, sp_weights, partition_strategy="mod", name=None, combiner=None,
                            max_norm=None):
    if combiner is None:
        warnings.warn("The default value of combiner will change from \"mean\" to \"sqrtn\" after 2016/11/01.")
        combiner = "mean"
    if combiner not in ("mean", "sqrtn", "sum"):
        raise ValueError("combiner must be one of 'mean', 'sqrtn' or 'sum'")
    params = _as_param_list(params)
    if not isinstance(sp_ids, sparse_tensor.SparseTensor):
        raise TypeError("sp_ids must be SparseTensor")
    if sp_weights is not None:
        if not isinstance(sp_weights, sparse_tensor.SparseTensor):
            raise TypeError("sp_weights must be either None or SparseTensor")
        sp_ids.values.get_shape().assert_is_compatible_with(sp_weights.values.get_shape())
        sp_ids.indices.get_shape().assert_is_compatible_with(sp_weights.indices.get_shape())
        sp_ids.dense_shape.get_shape().assert_is_compatible_with(sp_weights.dense_shape.get_shape())
    with name_scope(name, "embedding_lookup_sparse", params + [sp_ids.values]) as name:
        segment_ids = sp_ids.indices[:, 0]
        if segment_ids.dtype != dtypes.int32:
            segment_ids = math_ops.cast(segment_ids, dtypes.int32)
        ids, idx = array_ops.unique(sp_ids.values)
        embeddings = embedding_lookup(params, ids, partition_strategy=partition_strategy, max_norm=max_norm)
        if embeddings.dtype in (dtypes.float16, dtypes.bfloat16):
            embeddings = math_ops.to_float(embeddings)
        if sp_weights is None:
            reduce = {"sum": math_ops.sparse_segment_sum, "mean": math_ops.sparse_segment_mean,
                      "sqrtn": math_ops.sparse_segment_sqrt_n}[combiner]
            return reduce(embeddings, idx, segment_ids, name=name)
        weights = math_ops.cast(sp_weights.values, embeddings.dtype)
        embeddings = array_ops.gather(embeddings, idx)
        ones = array_ops.fill(array_ops.expand_dims(array_ops.rank(embeddings) - 1, 0), 1)
        wide = array_ops.concat([array_ops.shape(weights), ones], 0)
        static = weights.get_shape()
        weights = array_ops.reshape(weights, wide)
        if embeddings.get_shape().ndims is not None:
            weights.set_shape(static.concatenate([1] * (embeddings.get_shape().ndims - 1)))
        embeddings *= weights
        if combiner == "sum":
            return math_ops.segment_sum(embeddings, segment_ids, name=name)
        embeddings = math_ops.segment_sum(embeddings, segment_ids)
        if combiner == "mean":
            return math_ops.div(embeddings, math_ops.segment_sum(weights, segment_ids), name=name)
        squares = math_ops.segment_sum(math_ops.pow(weights, 2), segment_ids)
        return math_ops.div(embeddings, math_ops.sqrt(squares), name=name)


def safe_embedding_lookup_sparse(embedding_weights, sparse_ids, sparse_weights=None, combiner="mean", default_id=None,
                                 name="safe_embedding_lookup_sparse", partition_strategy="div", max_norm=None):
    """embedding_lookup_sparse without ids below zero and weights that are not positive; empty rows are allowed."""
    if embedding_weights is None:
        raise ValueError("Missing embedding_weights %s." % embedding_weights)
    embedding_weights = _as_param_list(embedding_weights)
    if not embedding_weights:
        raise ValueError("Missing embedding_weights %s." % embedding_weights)
    with name_scope(name, "embedding_lookup", embedding_weights + [sparse_ids, sparse_weights]) as scope:
        original_shape = sparse_ids.dense_shape
        rank_static = sparse_ids.dense_shape.get_shape()[0].value
        rank = array_ops.size(original_shape) if rank_static is None else rank_static
        flat = array_ops.stack([math_ops.reduce_prod(array_ops.slice(original_shape, [0], [rank - 1])),
                                original_shape[rank - 1]])
        sparse_ids = sparse_ops.sparse_reshape(sparse_ids, flat)
        if sparse_weights is not None:
            sparse_weights = sparse_tensor.SparseTensor(sparse_ids.indices, sparse_weights.values, sparse_ids.dense_shape)
        valid = math_ops.greater_equal(sparse_ids.values, 0)
        if sparse_weights is not None:
            valid = math_ops.logical_and(valid, math_ops.greater(
                sparse_weights.values, array_ops.zeros_like(sparse_weights.values)))
            sparse_weights = sparse_ops.sparse_retain(sparse_weights, valid)
        sparse_ids = sparse_ops.sparse_retain(sparse_ids, valid)
        sparse_ids, is_row_empty = sparse_ops.sparse_fill_empty_rows(sparse_ids, default_id or 0)
        if sparse_weights is not None:
            sparse_weights, _ = sparse_ops.sparse_fill_empty_rows(sparse_weights, 1.0)
        result = embedding_lookup_sparse(
            embedding_weights, sparse_ids, sparse_weights, combiner=combiner, partition_strategy=partition_strategy,
            name=None if default_id is None else scope, max_norm=max_norm)
        if default_id is None:
            # Rows without ids are zero.
            empty = array_ops.tile(array_ops.reshape(is_row_empty, [-1, 1]),
                                   array_ops.stack([1, array_ops.shape(result)[1]]))
            result = array_ops.where(empty, array_ops.zeros_like(result), result, name=scope)
        final = array_ops.reshape(result, array_ops.concat([
            array_ops.slice(math_ops.cast(original_shape, dtypes.int32), [0], [rank - 1]),
            array_ops.slice(array_ops.shape(result), [1], [-1])], 0))
        if rank_static is not None:
            final.set_shape(tensor_shape.TensorShape([None] * (rank_static - 1)).concatenate(result.get_shape()[1:]))
        return final
