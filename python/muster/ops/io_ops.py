"""Files in graphs: reading, writing and finding them, and readers that take their names from a queue."""
from muster import dtypes
from muster.generated.io_ops import *  # noqa: F403
from muster.graph import framework
from muster.graph.op_library import call


class ReaderBase(object):
    """Takes work units, mostly names of files, from a queue and gives their records one by one."""

    def __init__(self, reader_ref, supports_serialize=False):
        self._reader_ref = reader_ref
        self._supports_serialize = supports_serialize

    reader_ref = property(lambda self: self._reader_ref)
    supports_serialize = property(lambda self: self._supports_serialize)

    def _call(self, op, name, **arguments):
        suffix = "V2" if self._reader_ref.dtype == dtypes.resource else ""
        return call(op + suffix, name=name, reader_handle=self._reader_ref, **arguments)

    def read(self, queue, name=None):
        """(key, value) of the next record."""
        return self._call("ReaderRead", name, queue_handle=_handle(queue))

    def read_up_to(self, queue, num_records, name=None):
        return self._call("ReaderReadUpTo", name, queue_handle=_handle(queue), num_records=num_records)

    def num_records_produced(self, name=None):
        return self._call("ReaderNumRecordsProduced", name)

    def num_work_units_completed(self, name=None):
        return self._call("ReaderNumWorkUnitsCompleted", name)

    def serialize_state(self, name=None):
        return self._call("ReaderSerializeState", name)

    def restore_state(self, state, name=None):
        return self._call("ReaderRestoreState", name, state=state)

    def reset(self, name=None):
        return self._call("ReaderReset", name)


def _handle(queue):
    return queue if isinstance(queue, framework.Tensor) else queue.queue_ref


class WholeFileReader(ReaderBase):
    def __init__(self, name=None):
        super(WholeFileReader, self).__init__(call("WholeFileReaderV2", name=name), supports_serialize=True)


class TextLineReader(ReaderBase):
    def __init__(self, skip_header_lines=None, name=None):
        super(TextLineReader, self).__init__(
            call("TextLineReaderV2", name=name, skip_header_lines=skip_header_lines))


class FixedLengthRecordReader(ReaderBase):
    def __init__(self, record_bytes, header_bytes=None, footer_bytes=None, hop_bytes=None, name=None, encoding=None):
        super(FixedLengthRecordReader, self).__init__(
            call("FixedLengthRecordReaderV2", name=name, record_bytes=record_bytes, header_bytes=header_bytes,
                 footer_bytes=footer_bytes, hop_bytes=hop_bytes, encoding=encoding))


class TFRecordReader(ReaderBase):
    def __init__(self, name=None, options=None):
        super(TFRecordReader, self).__init__(
            call("TFRecordReaderV2", name=name, compression_type=_compression(options)))


class IdentityReader(ReaderBase):
    def __init__(self, name=None):
        super(IdentityReader, self).__init__(call("IdentityReaderV2", name=name), supports_serialize=True)


def _compression(options):
    """The name that the op takes: options, a compression type or a name."""
    if not options:
        return ""
    if isinstance(options, str):
        return options
    from muster import python_io

    return python_io.TFRecordOptions.get_compression_type_string(options)


__all__ = ["read_file", "write_file", "matching_files", "ReaderBase", "WholeFileReader", "TextLineReader",
           "FixedLengthRecordReader", "TFRecordReader", "IdentityReader"]
