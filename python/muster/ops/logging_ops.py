"""Printing tensors while a step runs, and the names that summaries had before TensorFlow 1.0."""
from muster import dtypes
from muster.generated.logging_ops import *  # noqa: F403
from muster.graph import framework
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import GraphKeys, control_dependencies, name_scope
from muster.graph.op_library import call
from muster.ops import array_ops, control_flow_ops


def print(*inputs, **kwargs):  # noqa: A001  (TensorFlow's name)
    """Prints tensors and other values, with spaces between them, when the op runs."""
    import sys

    from muster import nest, tf_logging
    from muster.ops import sparse_tensor, string_ops

    stream, end = kwargs.pop("output_stream", sys.stderr), kwargs.pop("end", "\n")
    summarize, separator = kwargs.pop("summarize", 3), kwargs.pop("sep", " ")
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError("Unrecognized keyword arguments for tf.print: %s" % kwargs)
    known = {id(sys.stdout): "stdout", id(sys.stderr): "stderr", id(tf_logging.info): "log(info)",
             id(tf_logging.warning): "log(warning)", id(tf_logging.error): "log(error)"}
    target = stream if isinstance(stream, str) else known.get(id(stream))
    if target is None:
        raise ValueError("Unsupported output stream, logging level, or file.%s" % stream)
    with name_scope(name, "print"):
        parts, tensors = [], []
        for value in inputs:
            flat = nest.flatten(value)
            if any(isinstance(part, framework.Tensor) or hasattr(part, "_as_graph_element") for part in flat):
                parts.append(", ".join(["{}"] * len(flat)) if len(flat) > 1 else "{}")
                tensors.extend(convert_to_tensor(part) for part in flat)
            elif sparse_tensor.is_sparse(value):
                parts.append("SparseTensor(indices={}, values={}, shape={})")
                tensors.extend([value.indices, value.values, value.dense_shape])
            else:
                parts.append(str(value).replace("{}", "{ }"))
        text = string_ops.string_format(separator.join(parts), tensors, summarize=summarize)
        return call("PrintV2", input=text, output_stream=target, end=end)


def verify_tensor_all_finite(t=None, msg=None, name=None, x=None, message=None):
    x = array_ops._merge_deprecated("x", x, "t", t)
    message = array_ops._merge_deprecated("message", message, "msg", msg)
    with name_scope(name, "VerifyFinite", [x]) as name:
        x = convert_to_tensor(x, name="x")
        with framework.colocate_with(x):
            checked = array_ops.check_numerics(x, message=message)
            return control_flow_ops.with_dependencies([checked], x)


def add_check_numerics_ops():
    """A group of CheckNumerics on every floating-point output of the graph."""
    checks = []
    for op in framework.get_default_graph().get_operations():
        for output in op.outputs:
            if output.dtype.is_floating:
                message = op.name + ":" + str(output.value_index)
                with control_dependencies(checks):
                    checks = [array_ops.check_numerics(output, message=message)]
    return control_flow_ops.group(*checks)


# --- Summaries whose tag is given as it is, not made from the scope. ---
def _collected(val, collections):
    for key in [GraphKeys.SUMMARIES] if collections is None else collections:
        framework.add_to_collection(key, val)
    return val


def scalar_summary(tags, values, collections=None, name=None):
    with name_scope(name, "ScalarSummary", [tags, values]) as scope:
        return _collected(call("ScalarSummary", tags=tags, values=values, name=scope), collections)


def histogram_summary(tag, values, collections=None, name=None):
    with name_scope(name, "HistogramSummary", [tag, values]) as scope:
        return _collected(call("HistogramSummary", tag=tag, values=values, name=scope), collections)


def image_summary(tag, tensor, max_images=3, collections=None, name=None):
    with name_scope(name, "ImageSummary", [tag, tensor]) as scope:
        return _collected(call("ImageSummary", tag=tag, tensor=tensor, max_images=max_images, name=scope), collections)


def audio_summary(tag, tensor, sample_rate, max_outputs=3, collections=None, name=None):
    with name_scope(name, "AudioSummary", [tag, tensor]) as scope:
        sample_rate = convert_to_tensor(sample_rate, dtype=dtypes.float32, name="sample_rate")
        return _collected(call("AudioSummaryV2", tag=tag, tensor=tensor, max_outputs=max_outputs,
                               sample_rate=sample_rate, name=scope), collections)


def merge_summary(inputs, collections=None, name=None):
    with name_scope(name, "MergeSummary", inputs):
        return _collected(call("MergeSummary", inputs=inputs, name=name), collections or [])


def merge_all_summaries(key=GraphKeys.SUMMARIES):
    summaries = framework.get_collection(key)
    return merge_summary(summaries) if summaries else None


def get_summary_op():
    """The op that merges all summaries of the graph, made once."""
    kept = framework.get_collection(GraphKeys.SUMMARY_OP)
    if kept and kept[0] is not None:
        return kept[0]
    merged = merge_all_summaries()
    if merged is not None:
        framework.add_to_collection(GraphKeys.SUMMARY_OP, merged)
    return merged


__all__ = ["Print", "print", "verify_tensor_all_finite", "add_check_numerics_ops", "timestamp", "audio_summary",
           "histogram_summary", "image_summary", "merge_all_summaries", "merge_summary", "scalar_summary"]
