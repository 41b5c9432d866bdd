"""tf.data: input pipelines as chains of datasets, run by iterators."""
from muster.data import experimental  # noqa: F401
from muster.data.dataset import (  # noqa: F401
    Dataset, get_legacy_output_classes as get_output_classes, get_legacy_output_shapes as get_output_shapes,
    get_legacy_output_types as get_output_types, make_initializable_iterator, make_one_shot_iterator)
from muster.data.iterator import Iterator  # noqa: F401
from muster.data.options import Options  # noqa: F401
from muster.data.readers import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset  # noqa: F401
from muster.data.shard_queue import ShardQueue  # noqa: F401
from muster.names import absent as _absent

__all__ = ["Dataset", "FixedLengthRecordDataset", "Iterator", "Options", "ShardQueue", "TFRecordDataset",
           "TextLineDataset", "experimental", "get_output_classes", "get_output_shapes", "get_output_types",
           "make_initializable_iterator", "make_one_shot_iterator"]

__getattr__ = _absent.explain(__name__)
