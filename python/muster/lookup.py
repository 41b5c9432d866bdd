"""tf.lookup and tf.contrib.lookup: tables from keys to values, and their initializers."""
import collections
import uuid

from muster import dtypes
from muster.graph import convert, framework, tensor_shape
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import GraphKeys, name_scope
from muster.graph.op_library import call
from muster.names import absent as _absent
from muster.ops import array_ops, control_flow_ops, math_ops, sparse_tensor, string_ops

__getattr__ = _absent.explain(__name__)


def _check_types(table, key_dtype, value_dtype):
    for what, wanted, given in (("key", table.key_dtype, key_dtype), ("value", table.value_dtype, value_dtype)):
        if given.base_dtype != wanted:
            raise TypeError("Invalid %s dtype, expected %s but got %s." % (what, wanted, given))


class LookupInterface(object):
    """What all tables have."""

    def __init__(self, key_dtype, value_dtype, name):
        self._key_dtype, self._value_dtype = dtypes.as_dtype(key_dtype), dtypes.as_dtype(value_dtype)
        self._name = name

    key_dtype = property(lambda self: self._key_dtype)
    value_dtype = property(lambda self: self._value_dtype)
    name = property(lambda self: self._name)

    def size(self, name=None):
        raise NotImplementedError

    def lookup(self, keys, name=None):
        raise NotImplementedError

    def __getitem__(self, keys):
        return self.lookup(keys)


def _values_of(keys):
    return keys.values if isinstance(keys, sparse_tensor.SparseTensor) else keys


def _like(keys, values):
    if isinstance(keys, sparse_tensor.SparseTensor):
        return sparse_tensor.SparseTensor(keys.indices, values, keys.dense_shape)
    return values


class StaticHashTable(LookupInterface):
    """A table that its initializer fills once."""

    def __init__(self, initializer, default_value, name=None):
        super(StaticHashTable, self).__init__(initializer.key_dtype, initializer.value_dtype, name or "hash_table")
        self._initializer = initializer
        self._default_value = convert_to_tensor(default_value, dtype=self._value_dtype)
        self._default_value.get_shape().merge_with(tensor_shape.TensorShape([]))
        # Kernels of several steps have to find the same table.
        shared_name = initializer._shared_name or "hash_table_%s" % uuid.uuid4()
        self.resource_handle = call("HashTableV2", name=self._name, shared_name=shared_name, key_dtype=self._key_dtype,
                                    value_dtype=self._value_dtype)
        self._name = self.resource_handle.op.name.split("/")[-1]
        self._init_op = initializer.initialize(self)

    default_value = property(lambda self: self._default_value)
    initializer = property(lambda self: self._init_op)
    init = property(lambda self: self._init_op)
    table_ref = property(lambda self: self.resource_handle)

    def size(self, name=None):
        with name_scope(name, "%s_Size" % self.name, [self.resource_handle]):
            return call("LookupTableSizeV2", table_handle=self.resource_handle)

    def lookup(self, keys, name=None):
        wanted = _values_of(keys)
        if keys.dtype.base_dtype != self._key_dtype:
            raise TypeError("Signature mismatch. Keys must be dtype %s, got %s." % (self._key_dtype, keys.dtype))
        with name_scope(name, "%s_Lookup" % self.name, [self.resource_handle, wanted, self._default_value]):
            values = call("LookupTableFindV2", table_handle=self.resource_handle, keys=wanted,
                          default_value=self._default_value)
        values.set_shape(wanted.get_shape())
        return _like(keys, values)

    def export(self, name=None):
        with name_scope(name, "%s_Export" % self.name, [self.resource_handle]):
            return call("LookupTableExportV2", table_handle=self.resource_handle, Tkeys=self._key_dtype,
                        Tvalues=self._value_dtype)


StaticHashTableV1 = StaticHashTable


class HashTable(StaticHashTable):
    """tf.contrib.lookup.HashTable."""

    def __init__(self, initializer, default_value, shared_name=None, name=None):
        if shared_name:
            initializer = _Shared(initializer, shared_name)
        super(HashTable, self).__init__(initializer, default_value, name)


class _Shared(object):
    """An initializer for a table that is shared under a name of its own."""

    def __init__(self, initializer, shared_name):
        self.key_dtype, self.value_dtype = initializer.key_dtype, initializer.value_dtype
        self.initialize, self._shared_name = initializer.initialize, shared_name


# --- Initializers. ---
class TableInitializerBase(object):
    _shared_name = ""

    def __init__(self, key_dtype, value_dtype):
        self._key_dtype, self._value_dtype = dtypes.as_dtype(key_dtype), dtypes.as_dtype(value_dtype)

    key_dtype = property(lambda self: self._key_dtype)
    value_dtype = property(lambda self: self._value_dtype)

    def initialize(self, table):
        raise NotImplementedError


class KeyValueTensorInitializer(TableInitializerBase):
    def __init__(self, keys, values, key_dtype=None, value_dtype=None, name=None):
        self._keys = convert_to_tensor(keys, dtype=key_dtype, name="keys")
        self._values = convert_to_tensor(values, dtype=value_dtype, name="values")
        self._name = name if name is not None else "key_value_init"
        super(KeyValueTensorInitializer, self).__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table):
        _check_types(table, self._keys.dtype, self._values.dtype)
        with name_scope(self._name, values=[table.resource_handle, self._keys, self._values]):
            op = call("LookupTableImportV2", table_handle=table.resource_handle, keys=self._keys, values=self._values)
        framework.add_to_collection(GraphKeys.TABLE_INITIALIZERS, op)
        return op


class TextFileIndex(object):
    """Special column indices: the whole line, and its number."""
    WHOLE_LINE = -2
    LINE_NUMBER = -1


class TextFileInitializer(TableInitializerBase):
    def __init__(self, filename, key_dtype, key_index, value_dtype, value_index, vocab_size=None, delimiter="\t",
                 name=None):
        if not isinstance(filename, framework.Tensor) and not filename:
            raise ValueError("Filename required for %s." % name)
        super(TextFileInitializer, self).__init__(key_dtype, value_dtype)
        for what, index, dtype in (("Key", key_index, self.key_dtype), ("Value", value_index, self.value_dtype)):
            if index < -2:
                raise ValueError("Invalid %s index %s." % (what.lower(), index))
            if index == TextFileIndex.LINE_NUMBER and dtype != dtypes.int64:
                raise ValueError("Signature mismatch. %ss must be dtype %s, got %s." % (what, dtypes.int64, dtype))
            if index == TextFileIndex.WHOLE_LINE and not dtype.is_integer and dtype != dtypes.string:
                raise ValueError("Signature mismatch. %ss must be integer or string, got %s." % (what, dtype))
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError("Invalid vocab_size %s." % vocab_size)
        self._key_index, self._value_index = key_index, value_index
        self._vocab_size, self._delimiter, self._name = vocab_size, delimiter, name
        parts = [filename] + ([vocab_size] if vocab_size else []) + [key_index, value_index]
        self._shared_name = "hash_table_" + "_".join(str(part) for part in parts)
        self._filename = convert_to_tensor(filename, dtypes.string, name="asset_path")

    def initialize(self, table):
        _check_types(table, self.key_dtype, self.value_dtype)
        with name_scope(self._name, "text_file_init", [table.resource_handle]):
            op = call("InitializeTableFromTextFileV2", table_handle=table.resource_handle, filename=self._filename,
                      key_index=self._key_index, value_index=self._value_index,
                      vocab_size=-1 if self._vocab_size is None else self._vocab_size, delimiter=self._delimiter)
        framework.add_to_collection(GraphKeys.TABLE_INITIALIZERS, op)
        if self._filename.op.type == "Const":
            framework.add_to_collection(GraphKeys.ASSET_FILEPATHS, self._filename)
        return op


class TextFileStringTableInitializer(TextFileInitializer):
    def __init__(self, filename, key_column_index=TextFileIndex.LINE_NUMBER,
                 value_column_index=TextFileIndex.WHOLE_LINE, vocab_size=None, delimiter="\t",
                 name="text_file_string_table_init"):
        super(TextFileStringTableInitializer, self).__init__(filename, dtypes.int64, key_column_index, dtypes.string,
                                                             value_column_index, vocab_size, delimiter, name)


class TextFileIdTableInitializer(TextFileInitializer):
    def __init__(self, filename, key_column_index=TextFileIndex.WHOLE_LINE,
                 value_column_index=TextFileIndex.LINE_NUMBER, vocab_size=None, delimiter="\t",
                 name="text_file_id_table_init", key_dtype=dtypes.string):
        super(TextFileIdTableInitializer, self).__init__(filename, key_dtype, key_column_index, dtypes.int64,
                                                         value_column_index, vocab_size, delimiter, name)


# --- Ids for keys that are in no vocabulary. ---
HasherSpec = collections.namedtuple("HasherSpec", ["hasher", "key"])
FastHashSpec = HasherSpec("fasthash", None)


class StrongHashSpec(HasherSpec):
    def __new__(cls, key):
        if len(key) != 2:
            raise ValueError("key must have size 2, got %s." % len(key))
        if not all(isinstance(part, int) for part in key):
            raise TypeError("Invalid key %s. Must be unsigned integer values." % (key,))
        return super(StrongHashSpec, cls).__new__(cls, "stronghash", key)


def _hash(spec, strings, buckets):
    if not isinstance(spec, HasherSpec):
        raise TypeError("hasher_spec must be of type HasherSpec, got %s" % (spec,))
    if spec.hasher == "fasthash":
        return string_ops.string_to_hash_bucket_fast(strings, num_buckets=buckets, name="hash_bucket")
    if spec.hasher == "legacy":
        return string_ops.string_to_hash_bucket(strings, num_buckets=buckets, name="hash_bucket")
    if spec.hasher == "stronghash":
        return string_ops.string_to_hash_bucket_strong(strings, num_buckets=buckets, key=spec.key, name="hash_bucket")
    raise ValueError("Unknown hasher %s" % spec.hasher)


class IdTableWithHashBuckets(LookupInterface):
    """The ids of a table; keys that it does not hold get one of a few buckets behind them."""

    def __init__(self, table, num_oov_buckets, hasher_spec=FastHashSpec, name=None, key_dtype=None):
        name = name.rstrip("/") if name else None
        if table is not None:
            key_dtype = table.key_dtype if key_dtype is None else dtypes.as_dtype(key_dtype)
            if table.key_dtype not in (dtypes.int64, dtypes.string):
                raise TypeError("Invalid key dtype, expected one of %s, but got %s." % ((dtypes.int64, dtypes.string),
                                                                                       key_dtype))
            if table.key_dtype.is_integer != key_dtype.is_integer:
                raise TypeError("Invalid key dtype, expected %s but got %s." % (
                    "integer" if key_dtype.is_integer else "non-integer", table.key_dtype))
            _check_types(table, table.key_dtype, dtypes.int64)
        else:
            if num_oov_buckets <= 0:
                raise ValueError("oov_buckets must be > 0 if no table is supplied.")
            key_dtype = dtypes.string if key_dtype is None else dtypes.as_dtype(key_dtype)
        if not key_dtype.is_integer and key_dtype != dtypes.string:
            raise TypeError("Invalid key_dtype, expected integer or string, got %s." % key_dtype)
        if not isinstance(hasher_spec, HasherSpec):
            raise TypeError("hasher_spec must be of type HasherSpec, got %s" % (hasher_spec,))
        self._table, self._num_oov_buckets, self._hasher_spec = table, num_oov_buckets, hasher_spec
        name = name or (table.name if table is not None else "hash_bucket")
        super(IdTableWithHashBuckets, self).__init__(key_dtype, dtypes.int64, name.split("/")[-1])

    @property
    def initializer(self):
        if self._table is not None:
            return self._table.initializer
        with name_scope(None, "init"):
            return control_flow_ops.no_op()

    init = property(lambda self: self.initializer)
    resource_handle = property(lambda self: None if self._table is None else self._table.resource_handle)

    def size(self, name=None):
        with name_scope(name, "%s_Size" % self.name):
            known = self._table.size() if self._table is not None else convert_to_tensor(0, dtype=dtypes.int64)
            return known + self._num_oov_buckets

    def lookup(self, keys, name=None):
        if keys.dtype.base_dtype != self._key_dtype:
            raise TypeError("Signature mismatch. Keys must be dtype %s, got %s." % (self._key_dtype, keys.dtype))
        values = _values_of(keys)
        if self._table is not None and self._table.key_dtype == dtypes.int64:
            values = math_ops.cast(values, dtypes.int64)
        if self._num_oov_buckets == 0:
            return _like(keys, self._table.lookup(values, name=name))
        with name_scope(name, "%s_Lookup" % self.name):
            strings = values if values.dtype == dtypes.string else string_ops.as_string(values)
            ids = _hash(self._hasher_spec, strings, self._num_oov_buckets)
            if self._table is not None:
                known = self._table.lookup(values)
                ids = math_ops.add(ids, self._table.size())
                ids = array_ops.where(math_ops.not_equal(known, self._table.default_value), known, ids)
        return _like(keys, ids)


class StaticVocabularyTable(IdTableWithHashBuckets):
    """Strings to ids: those of an initializer, and buckets for all others."""

    def __init__(self, initializer, num_oov_buckets, lookup_key_dtype=None, name=None):
        if num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0.")
        table = None
        if initializer is not None:
            if initializer.value_dtype != dtypes.int64:
                raise TypeError("Invalid value dtype, expected %s but got %s." % (dtypes.int64, initializer.value_dtype))
            table = StaticHashTable(initializer, default_value=-1)
        super(StaticVocabularyTable, self).__init__(table, num_oov_buckets, name=name, key_dtype=lookup_key_dtype)


def _check_vocabulary_file(vocabulary_file, vocab_size):
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    if vocab_size is not None and vocab_size < 1:
        shown = convert.constant_value(vocabulary_file) if isinstance(vocabulary_file, framework.Tensor) else vocabulary_file
        raise ValueError("vocab_size must be greater than 0, got %d. vocabulary_file: %s" % (vocab_size, shown))


def _check_index_table(num_oov_buckets, key_dtype):
    if num_oov_buckets < 0:
        raise ValueError("num_oov_buckets must be greater or equal than 0, got %d." % num_oov_buckets)
    if not key_dtype.is_integer and key_dtype.base_dtype != dtypes.string:
        raise TypeError("Only integer and string keys are supported.")


def index_table_from_file(vocabulary_file=None, num_oov_buckets=0, vocab_size=None, default_value=-1,
                          hasher_spec=FastHashSpec, key_dtype=dtypes.string, name=None,
                          key_column_index=TextFileIndex.WHOLE_LINE, value_column_index=TextFileIndex.LINE_NUMBER,
                          delimiter="\t"):
    """Keys of a file to ids: the numbers of their lines."""
    _check_vocabulary_file(vocabulary_file, vocab_size)
    _check_index_table(num_oov_buckets, key_dtype)
    with name_scope(name, "string_to_index"):
        with name_scope(None, "hash_table"):
            table = StaticHashTable(TextFileIdTableInitializer(
                vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter, "table_init",
                dtypes.int64 if key_dtype.is_integer else key_dtype), default_value)
        if num_oov_buckets:
            table = IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, key_dtype=key_dtype)
        return table


def index_table_from_tensor(vocabulary_list, num_oov_buckets=0, default_value=-1, hasher_spec=FastHashSpec,
                            dtype=dtypes.string, name=None):
    """Keys to ids: their places in the list."""
    if vocabulary_list is None:
        raise ValueError("vocabulary_list must be specified.")
    _check_index_table(num_oov_buckets, dtype)
    with name_scope(name, "string_to_index"):
        keys = convert_to_tensor(vocabulary_list)
        if keys.dtype.is_integer != dtype.is_integer:
            raise ValueError("Expected %s, got %s." % ("integer" if dtype.is_integer else "non-integer", keys.dtype))
        if not dtype.is_integer and keys.dtype.base_dtype != dtype:
            raise ValueError("Expected %s, got %s." % (dtype, keys.dtype))
        values = math_ops.cast(math_ops.range(array_ops.size(keys)), dtypes.int64)
        with name_scope(None, "hash_table"):
            keys = math_ops.cast(keys, dtypes.int64) if keys.dtype.is_integer else keys
            table = StaticHashTable(KeyValueTensorInitializer(keys, values, keys.dtype.base_dtype, dtypes.int64,
                                                              name="table_init"), default_value)
        if num_oov_buckets:
            table = IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, key_dtype=dtype)
        return table


def index_to_string_table_from_file(vocabulary_file, vocab_size=None, default_value="UNK", name=None,
                                    key_column_index=TextFileIndex.LINE_NUMBER,
                                    value_column_index=TextFileIndex.WHOLE_LINE, delimiter="\t"):
    _check_vocabulary_file(vocabulary_file, vocab_size)
    with name_scope(name, "index_to_string"):
        return StaticHashTable(TextFileStringTableInitializer(
            vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter, "table_init"), default_value)


def index_to_string_table_from_tensor(vocabulary_list, default_value="UNK", name=None):
    if vocabulary_list is None:
        raise ValueError("vocabulary_list must be specified.")
    with name_scope(name, "index_to_string"):
        vocabulary_list = convert_to_tensor(vocabulary_list, dtypes.string)
        keys = math_ops.cast(math_ops.range(array_ops.size(vocabulary_list)), dtypes.int64)
        return StaticHashTable(KeyValueTensorInitializer(keys, vocabulary_list, dtypes.int64, dtypes.string,
                                                         name="table_init"), default_value)


# --- Tables that change. ---
class _ChangingTable(LookupInterface):
    def __init__(self, key_dtype, value_dtype, default_value, handle, checkpoint, saved_name):
        super(_ChangingTable, self).__init__(key_dtype, value_dtype, handle.op.name.split("/")[-1])
        self._default_value, self.resource_handle = default_value, handle
        if checkpoint:
            framework.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, _saveable(self, saved_name))

    default_value = property(lambda self: self._default_value)

    def _call(self, op, name, suffix, inputs, **arguments):
        with name_scope(name, "%s_%s" % (self.name, suffix), [self.resource_handle] + inputs):
            arguments = {key: convert_to_tensor(value, dtype, name=key) for key, (value, dtype) in arguments.items()}
            with framework.colocate_with(self.resource_handle):
                return call(op, table_handle=self.resource_handle, **arguments)

    def size(self, name=None):
        return self._call("LookupTableSizeV2", name, "Size", [])

    def lookup(self, keys, name=None):
        with name_scope(name, "%s_lookup_table_find" % self.name, [self.resource_handle, keys, self._default_value]):
            keys = convert_to_tensor(keys, dtype=self._key_dtype, name="keys")
            with framework.colocate_with(self.resource_handle):
                return call("LookupTableFindV2", table_handle=self.resource_handle, keys=keys,
                            default_value=self._default_value)

    def insert(self, keys, values, name=None):
        return self._call("LookupTableInsertV2", name, "lookup_table_insert", [keys, values],
                          keys=(keys, self._key_dtype), values=(values, self._value_dtype))

    def remove(self, keys, name=None):
        if keys.dtype != self._key_dtype:
            raise TypeError("Signature mismatch. Keys must be dtype %s, got %s." % (self._key_dtype, keys.dtype))
        with name_scope(name, "%s_lookup_table_remove" % self.name, [self.resource_handle, keys]):
            return call("LookupTableRemoveV2", table_handle=self.resource_handle, keys=keys)

    def export(self, name=None):
        with name_scope(name, "%s_lookup_table_export_values" % self.name, [self.resource_handle]):
            with framework.colocate_with(self.resource_handle):
                return call("LookupTableExportV2", table_handle=self.resource_handle, Tkeys=self._key_dtype,
                            Tvalues=self._value_dtype)


def _saveable(table, name):
    """Saves a table as two tensors, <name>-keys and <name>-values."""
    from muster.train import saveable

    class TableSaveable(saveable.SaveableObject):
        def __init__(self):
            specs = [saveable.SaveSpec(tensor, "", name + part) for tensor, part in zip(table.export(),
                                                                                       ("-keys", "-values"))]
            super(TableSaveable, self).__init__(table, specs, name)

        def restore(self, restored_tensors, restored_shapes):
            with name_scope("%s_table_restore" % name):
                with framework.colocate_with(table.resource_handle):
                    return call("LookupTableImportV2", table_handle=table.resource_handle, keys=restored_tensors[0],
                                values=restored_tensors[1])

    return TableSaveable()


class MutableHashTable(_ChangingTable):
    """Values of any fixed shape; that of the default value."""

    def __init__(self, key_dtype, value_dtype, default_value, shared_name=None, name="MutableHashTable",
                 checkpoint=True):
        default_value = convert_to_tensor(default_value, dtype=value_dtype)
        shape = default_value.get_shape()
        options = dict(name=name, shared_name=shared_name, use_node_name_sharing=checkpoint and shared_name is None,
                       key_dtype=key_dtype, value_dtype=value_dtype)
        if shape.ndims == 0:
            handle = call("MutableHashTableV2", **options)
        else:
            handle = call("MutableHashTableOfTensorsV2", value_shape=shape, **options)
        super(MutableHashTable, self).__init__(key_dtype, value_dtype, default_value, handle, checkpoint, name)


class DenseHashTable(_ChangingTable):
    """tf.lookup.experimental.DenseHashTable, tf.contrib.lookup.MutableDenseHashTable: two keys are reserved."""

    def __init__(self, key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets=None,
                 shared_name=None, name="MutableDenseHashTable", checkpoint=True):
        default_value = convert_to_tensor(default_value, dtype=value_dtype, name="default_value")
        empty_key = convert_to_tensor(empty_key, dtype=key_dtype, name="empty_key")
        deleted_key = convert_to_tensor(deleted_key, dtype=key_dtype, name="deleted_key")
        handle = call("MutableDenseHashTableV2", name=name, empty_key=empty_key, deleted_key=deleted_key,
                      shared_name=shared_name, use_node_name_sharing=checkpoint and shared_name is None,
                      value_dtype=value_dtype, value_shape=default_value.get_shape(),
                      initial_num_buckets=initial_num_buckets)
        super(DenseHashTable, self).__init__(key_dtype, value_dtype, default_value, handle, checkpoint, name)


MutableDenseHashTable = DenseHashTable
