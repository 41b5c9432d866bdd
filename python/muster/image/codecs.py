"""Pictures as JPEG, PNG, GIF and BMP."""
from muster import dtypes
from muster.generated.image import decode_bmp, decode_gif, decode_png
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.image.color import convert_image_dtype
from muster.ops import control_flow_ops, math_ops, string_ops


def encode_png(image, compression=-1, name=None):
    # Said for arrays too: otherwise they would become the op's default type, and lose their upper bytes.
    kind = dtypes.uint16 if getattr(image, "dtype", None) == "uint16" else dtypes.uint8
    return call("EncodePng", name=name, image=image, compression=compression, T=kind)


def is_jpeg(contents, name=None):
    with name_scope(name, "is_jpeg"):
        return math_ops.equal(string_ops.substr(contents, 0, 3), b"\xff\xd8\xff", name=name)


def decode_image(contents, channels=None, dtype=dtypes.uint8, name=None):
    """A picture of whatever format its first bytes show; GIFs have a dimension of frames."""
    with name_scope(name, "decode_image"):
        if channels not in (None, 0, 1, 3, 4):
            raise ValueError("channels must be in (None, 0, 1, 3, 4)")
        start = string_ops.substr(contents, 0, 3)
        is_gif, is_bmp = math_ops.equal(start, b"\x47\x49\x46"), math_ops.equal(string_ops.substr(contents, 0, 2), b"BM")

        def frames():
            return convert_image_dtype(decode_gif(contents), dtype)

        def bmp():
            return convert_image_dtype(decode_bmp(contents, channels or 0), dtype)

        def other():
            if dtype == dtypes.uint16:
                return decode_png(contents, channels or 0, dtype=dtypes.uint16)
            return convert_image_dtype(decode_png(contents, channels or 0), dtype)

        return control_flow_ops.cond(is_gif, frames, lambda: control_flow_ops.cond(is_bmp, bmp, other))
