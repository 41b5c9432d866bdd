"""tf.python_io: TFRecord files."""
import os

from muster import _muster, compat


class TFRecordCompressionType(object):
    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions(object):
    """How records are compressed; the numbers are zlib's, None is its default.

    flush_mode and the sizes of buffers are accepted: Muster flushes whole records and sizes its buffers by itself.
    """

    compression_type_map = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(self, compression_type=None, flush_mode=None, input_buffer_size=None, output_buffer_size=None,
                 window_bits=None, compression_level=None, compression_method=None, mem_level=None,
                 compression_strategy=None):
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options):
        """"", "ZLIB" or "GZIP" for options, a member of TFRecordCompressionType or one of these strings."""
        if isinstance(options, TFRecordOptions):
            options = options.compression_type
        if not options:
            return ""
        if options in cls.compression_type_map:
            return cls.compression_type_map[options]
        if options in cls.compression_type_map.values():
            return options
        raise ValueError('Not a valid compression_type: "{}"'.format(options))


def _path(path):
    return compat.as_text(os.fspath(path))


def tf_record_iterator(path, options=None):
    """The records of a file, as bytes. At the end of a file that still grows it may be asked again."""
    return _muster.open_records(_path(path), TFRecordOptions.get_compression_type_string(options))


class TFRecordWriter(object):
    """Writes records to a file, which is emptied first."""

    def __init__(self, path, options=None):
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(compression_type=options)
        self._writer = _muster.new_record_writer(
            _path(path), TFRecordOptions.get_compression_type_string(options), options.window_bits,
            options.compression_level, options.compression_method, options.mem_level, options.compression_strategy)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def write(self, record):
        if not isinstance(record, bytes):
            record = bytes(record) if isinstance(record, (bytearray, memoryview)) else compat.as_bytes(record)
        self._writer.write(record)

    def flush(self):
        self._writer.flush()

    def close(self):
        self._writer.close()


__all__ = ["TFRecordCompressionType", "TFRecordOptions", "TFRecordWriter", "tf_record_iterator"]
