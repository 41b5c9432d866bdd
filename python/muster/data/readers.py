"""Datasets of the records of files."""
from muster import dtypes
from muster.data import structure
from muster.data.dataset import Dataset
from muster.graph import convert
from muster.graph.op_library import call
from muster.ops import array_ops

_BUFFER = 256 * 1024


class _FileDataset(Dataset):
    """The records of several files, one file after another or some at a time."""

    def __init__(self, filenames, of_one_file, num_parallel_reads):
        if isinstance(filenames, Dataset):
            specs = structure.flatten(filenames._spec)
            if len(specs) != 1 or specs[0].dtype != dtypes.string:
                raise TypeError("`filenames` must be a `tf.data.Dataset` of `tf.string` elements.")
            if not specs[0].shape.is_compatible_with([]):
                raise ValueError("`filenames` must be a `tf.data.Dataset` of scalar `tf.string` elements.")
        else:
            filenames = convert.convert_to_tensor(filenames, dtype=dtypes.string, name="filenames")
            filenames = Dataset.from_tensor_slices(array_ops.reshape(filenames, [-1], name="flat_filenames"))

        def read_one_file(filename):
            return Dataset(of_one_file(filename), structure.Spec(dtypes.string, []))

        if num_parallel_reads is None:
            dataset = filenames.flat_map(read_one_file)
        else:
            dataset = filenames.interleave(read_one_file, cycle_length=num_parallel_reads, block_length=1,
                                           num_parallel_calls=num_parallel_reads)
        super(_FileDataset, self).__init__(dataset._variant_tensor, dataset._spec, dataset._inputs)


def _int(value, name, default):
    return convert.convert_to_tensor(default if value is None else value, dtype=dtypes.int64, name=name)


def _compression(value):
    return convert.convert_to_tensor("" if value is None else value, dtype=dtypes.string, name="compression_type")


class TFRecordDataset(_FileDataset):
    """Records of TFRecord files, as strings."""

    def __init__(self, filenames, compression_type=None, buffer_size=None, num_parallel_reads=None):
        def of_one_file(filename):
            return call("TFRecordDataset", filenames=filename, compression_type=_compression(compression_type),
                        buffer_size=_int(buffer_size, "buffer_size", _BUFFER))

        super(TFRecordDataset, self).__init__(filenames, of_one_file, num_parallel_reads)


class TextLineDataset(_FileDataset):
    """Lines of text files, without their ends."""

    def __init__(self, filenames, compression_type=None, buffer_size=None, num_parallel_reads=None):
        def of_one_file(filename):
            return call("TextLineDataset", filenames=filename, compression_type=_compression(compression_type),
                        buffer_size=_int(buffer_size, "buffer_size", _BUFFER))

        super(TextLineDataset, self).__init__(filenames, of_one_file, num_parallel_reads)


class FixedLengthRecordDataset(_FileDataset):
    """Records of `record_bytes` bytes each, between a header and a footer."""

    def __init__(self, filenames, record_bytes, header_bytes=None, footer_bytes=None, buffer_size=None,
                 compression_type=None, num_parallel_reads=None):
        def of_one_file(filename):
            return call("FixedLengthRecordDatasetV2", filenames=filename,
                        header_bytes=_int(header_bytes, "header_bytes", 0),
                        record_bytes=_int(record_bytes, "record_bytes", None),
                        footer_bytes=_int(footer_bytes, "footer_bytes", 0),
                        buffer_size=_int(buffer_size, "buffer_size", _BUFFER),
                        compression_type=_compression(compression_type))

        super(FixedLengthRecordDataset, self).__init__(filenames, of_one_file, num_parallel_reads)
