"""tf.image: flips, crops, resizing and colours."""
import numpy as np

from muster import _absent, array_ops, check_ops, control_flow_ops, convert, dtypes, framework, math_ops, random_ops
from muster import string_ops, tensor_shape
from muster.array_ops import _merge_deprecated
from muster.convert import convert_to_tensor
from muster.framework import name_scope
from muster.op_library import call

__getattr__ = _absent.explain(__name__)


class ResizeMethod(object):
    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def _is_tensor(value):
    return isinstance(value, framework.Tensor) or hasattr(value, "_as_graph_element")


def _check(condition, message):
    """Assertions for a condition that is known only when running; else an error at once."""
    if _is_tensor(condition):
        return [control_flow_ops.Assert(condition, [message])]
    if not condition:
        raise ValueError(message)
    return []


def _image_checks(image):
    try:
        shape = image.get_shape().with_rank(3) if image.get_shape().ndims is None \
            else image.get_shape().with_rank_at_least(3)
    except ValueError:
        raise ValueError("'image' (shape %s) must be at least three-dimensional." % image.get_shape())
    inner = shape[-3:]
    if any(d == 0 for d in inner.as_list()):
        raise ValueError("inner 3 dims of 'image.shape' must be > 0: %s" % shape)
    if inner.is_fully_defined():
        return []
    return [check_ops.assert_positive(array_ops.shape(image)[-3:], ["inner 3 dims of 'image.shape' must be > 0."]),
            check_ops.assert_greater_equal(array_ops.rank(image), 3,
                                           message="'image' must be at least three-dimensional.")]


def _checked(image):
    return control_flow_ops.with_dependencies(_image_checks(image), image)


def _dimensions(image, rank):
    """The sizes of an image: numbers where known, else tensors."""
    shape = image.get_shape()
    if shape.is_fully_defined():
        return shape.as_list()
    static = shape.with_rank(rank).as_list()
    dynamic = array_ops.unstack(array_ops.shape(image), rank)
    return [d if s is None else s for s, d in zip(static, dynamic)]


def _by_rank(image, rank3, rank4):
    """What to do with one image or a batch of them."""
    shape = image.get_shape()
    if shape.ndims is None:
        return control_flow_ops.cond(math_ops.equal(array_ops.rank(image), 3), rank3, rank4)
    if shape.ndims == 3:
        return rank3()
    if shape.ndims == 4:
        return rank4()
    raise ValueError("'image' must have either 3 or 4 dimensions.")


def _keep_shape(image, result):
    shape = image.get_shape()
    result.set_shape([None, None, None] if shape.ndims is None else shape)
    return result


# --- Flips. ---
def _random_flip(image, axis, seed, scope_name):
    with name_scope(None, scope_name, [image]) as scope:
        image = _checked(convert_to_tensor(image, name="image"))

        def one():
            mirror = math_ops.less(random_ops.random_uniform([], 0, 1.0, seed=seed), 0.5)
            result = control_flow_ops.cond(mirror, lambda: array_ops.reverse(image, [axis]), lambda: image, name=scope)
            return _keep_shape(image, result)

        def batch():
            count = array_ops.shape(image)[0]
            noise = random_ops.random_uniform([count], 0, 1.0, seed=seed)
            flips = math_ops.cast(math_ops.round(array_ops.reshape(noise, [count, 1, 1, 1])), image.dtype)
            flipped = array_ops.reverse(image, [axis + 1])
            return flips * flipped + (1 - flips) * image

        return _by_rank(image, one, batch)


def random_flip_left_right(image, seed=None):
    return _random_flip(image, 1, seed, "random_flip_left_right")


def random_flip_up_down(image, seed=None):
    return _random_flip(image, 0, seed, "random_flip_up_down")


def _flip(image, axis, scope_name):
    with name_scope(None, scope_name, [image]):
        image = _checked(convert_to_tensor(image, name="image"))
        return _by_rank(image, lambda: _keep_shape(image, array_ops.reverse(image, [axis])),
                        lambda: array_ops.reverse(image, [axis + 1]))


def flip_left_right(image):
    return _flip(image, 1, "flip_left_right")


def flip_up_down(image):
    return _flip(image, 0, "flip_up_down")


def transpose_image(image, name=None):
    with name_scope(name, "transpose", [image]):
        image = _checked(convert_to_tensor(image, name="image"))
        return _by_rank(image, lambda: array_ops.transpose(image, [1, 0, 2], name="transpose"),
                        lambda: array_ops.transpose(image, [0, 2, 1, 3], name="transpose"))


transpose = transpose_image


def rot90(image, k=1, name=None):
    """Turns one image by k quarter turns, counter-clockwise; k is a number."""
    if _is_tensor(k):
        raise NotImplementedError("rot90 with a tensor k is not supported")
    with name_scope(name, "rot90", [image]):
        image = _checked(convert_to_tensor(image, name="image"))

        def turned(first):
            swapped = [1, 0, 2] if first == 0 else [0, 2, 1, 3]
            return {0: lambda: image,
                    1: lambda: array_ops.reverse(array_ops.transpose(image, swapped), [first]),
                    2: lambda: array_ops.reverse(image, [first, first + 1]),
                    3: lambda: array_ops.transpose(array_ops.reverse(image, [first]), swapped)}[k % 4]()

        return _by_rank(image, lambda: turned(0), lambda: turned(1))


# --- Crops and padding. ---
def _as_batch(image):
    shape = image.get_shape()
    if shape.ndims == 4:
        return image, True
    if shape.ndims not in (None, 3):
        raise ValueError("'image' must have either 3 or 4 dimensions.")
    image = array_ops.expand_dims(image, 0)
    if shape.ndims is None:
        image.set_shape([None] * 4)
    return image, False


def _as_given(image, is_batch):
    return image if is_batch else array_ops.squeeze(image, axis=[0])


def _static(sizes):
    return [None if _is_tensor(s) else s for s in sizes]


def central_crop(image, central_fraction):
    with name_scope(None, "central_crop", [image]):
        image = convert_to_tensor(image, name="image")
        if not 0.0 < central_fraction <= 1.0:
            raise ValueError("central_fraction must be within (0, 1]")
        if central_fraction == 1.0:
            return image
        image = _checked(image)
        rank = image.get_shape().ndims
        if rank not in (3, 4):
            raise ValueError("`image` should either be a Tensor with rank = 3 or rank = 4. Had rank = {}.".format(rank))
        sizes = _dimensions(image, rank)
        height, width = sizes[-3], sizes[-2]

        def part(size):
            if _is_tensor(size):
                start = math_ops.cast((math_ops.cast(size, dtypes.float64) * (1 - central_fraction)) / 2, dtypes.int32)
            else:
                start = int((size - size * central_fraction) / 2)
            return start, size - start * 2

        (top, new_height), (left, new_width) = part(height), part(width)
        lead, lead_size = ([], []) if rank == 3 else ([0], [-1])
        cropped = array_ops.slice(image, array_ops.stack(lead + [top, left, 0]),
                                  array_ops.stack(lead_size + [new_height, new_width, -1]))
        cropped.set_shape(_static(sizes[:-3] + [new_height, new_width, sizes[-1]]))
        return cropped


def pad_to_bounding_box(image, offset_height, offset_width, target_height, target_width):
    with name_scope(None, "pad_to_bounding_box", [image]):
        image, is_batch = _as_batch(convert_to_tensor(image, name="image"))
        checks = _image_checks(image)
        batch, height, width, depth = _dimensions(image, rank=4)
        after_width = target_width - offset_width - width
        after_height = target_height - offset_height - height
        checks += _check(offset_height >= 0, "offset_height must be >= 0")
        checks += _check(offset_width >= 0, "offset_width must be >= 0")
        checks += _check(after_width >= 0, "width must be <= target - offset")
        checks += _check(after_height >= 0, "height must be <= target - offset")
        image = control_flow_ops.with_dependencies(checks, image)
        paddings = array_ops.reshape(
            array_ops.stack([0, 0, offset_height, after_height, offset_width, after_width, 0, 0]), [4, 2])
        padded = array_ops.pad(image, paddings)
        padded.set_shape(_static([batch, target_height, target_width, depth]))
        return _as_given(padded, is_batch)


def crop_to_bounding_box(image, offset_height, offset_width, target_height, target_width):
    with name_scope(None, "crop_to_bounding_box", [image]):
        image, is_batch = _as_batch(convert_to_tensor(image, name="image"))
        checks = _image_checks(image)
        batch, height, width, depth = _dimensions(image, rank=4)
        checks += _check(offset_width >= 0, "offset_width must be >= 0.")
        checks += _check(offset_height >= 0, "offset_height must be >= 0.")
        checks += _check(target_width > 0, "target_width must be > 0.")
        checks += _check(target_height > 0, "target_height must be > 0.")
        checks += _check(width >= target_width + offset_width, "width must be >= target + offset.")
        checks += _check(height >= target_height + offset_height, "height must be >= target + offset.")
        image = control_flow_ops.with_dependencies(checks, image)
        cropped = array_ops.slice(image, array_ops.stack([0, offset_height, offset_width, 0]),
                                  array_ops.stack([-1, target_height, target_width, -1]))
        cropped.set_shape(_static([batch, target_height, target_width, depth]))
        return _as_given(cropped, is_batch)


def _either(tensor_function, plain_function):
    def function(x, y):
        return tensor_function(x, y) if _is_tensor(x) or _is_tensor(y) else plain_function(x, y)

    return function


def resize_image_with_crop_or_pad(image, target_height, target_width):
    larger, smaller = _either(math_ops.maximum, max), _either(math_ops.minimum, min)
    same = _either(math_ops.equal, lambda x, y: x == y)
    with name_scope(None, "resize_image_with_crop_or_pad", [image]):
        image, is_batch = _as_batch(convert_to_tensor(image, name="image"))
        checks = _image_checks(image)
        checks += _check(target_width > 0, "target_width must be > 0.")
        checks += _check(target_height > 0, "target_height must be > 0.")
        image = control_flow_ops.with_dependencies(checks, image)
        if _is_tensor(target_height):
            target_height = control_flow_ops.with_dependencies(checks, target_height)
        if _is_tensor(target_width):
            target_width = control_flow_ops.with_dependencies(checks, target_width)
        _, height, width, _ = _dimensions(image, rank=4)
        width_diff = target_width - width
        crop_left, pad_left = larger(-width_diff // 2, 0), larger(width_diff // 2, 0)
        height_diff = target_height - height
        crop_top, pad_top = larger(-height_diff // 2, 0), larger(height_diff // 2, 0)
        cropped = crop_to_bounding_box(image, crop_top, crop_left, smaller(target_height, height),
                                       smaller(target_width, width))
        resized = pad_to_bounding_box(cropped, pad_top, pad_left, target_height, target_width)
        _, resized_height, resized_width, _ = _dimensions(resized, rank=4)
        checks = _check(same(resized_height, target_height), "resized height is not correct.")
        checks += _check(same(resized_width, target_width), "resized width is not correct.")
        return _as_given(control_flow_ops.with_dependencies(checks, resized), is_batch)


resize_with_crop_or_pad = resize_image_with_crop_or_pad


# --- Resizing. ---
def _resizer(op):
    def function(images, size, align_corners=False, name=None, half_pixel_centers=False):
        return call(op, name=name, images=images, size=size, align_corners=align_corners,
                    half_pixel_centers=half_pixel_centers)

    return function


resize_bilinear = _resizer("ResizeBilinear")
resize_nearest_neighbor = _resizer("ResizeNearestNeighbor")
resize_bicubic = _resizer("ResizeBicubic")


def resize_area(images, size, align_corners=False, name=None):
    return call("ResizeArea", name=name, images=images, size=size, align_corners=align_corners)


def resize_images(images, size, method=ResizeMethod.BILINEAR, align_corners=False, preserve_aspect_ratio=False,
                  name=None):
    with name_scope(name, "resize", [images, size]):
        images = convert_to_tensor(images, name="images")
        if images.get_shape().ndims is None:
            raise ValueError("'images' contains no shape.")
        if images.get_shape().ndims not in (3, 4):
            raise ValueError("'images' must have either 3 or 4 dimensions.")
        images, is_batch = _as_batch(images)
        _, height, width, _ = images.get_shape().as_list()
        try:
            size = convert_to_tensor(size, dtypes.int32, name="size")
        except (TypeError, ValueError):
            raise ValueError("'size' must be a 1-D int32 Tensor")
        if not size.get_shape().is_compatible_with([2]):
            raise ValueError("'size' must be a 1-D Tensor of 2 elements: new_height, new_width")
        if preserve_aspect_ratio:
            size = _same_aspect(images, size)
        new_height, new_width = (tensor_shape.as_shape(convert.constant_value_as_shape(size)).as_list() + [None] * 2)[:2]
        if None not in (new_height, new_width, height, width) and (height, width) == (new_height, new_width):
            return _as_given(images, is_batch)
        resizers = {ResizeMethod.BILINEAR: resize_bilinear, ResizeMethod.NEAREST_NEIGHBOR: resize_nearest_neighbor,
                    ResizeMethod.BICUBIC: resize_bicubic, ResizeMethod.AREA: resize_area}
        if method not in resizers:
            raise ValueError("Resize method is not implemented: {}".format(method))
        images = resizers[method](images, size, align_corners=align_corners)
        images.set_shape([None, new_height, new_width, None])
        return _as_given(images, is_batch)


resize = resize_images


def _same_aspect(images, size):
    _, height, width, _ = _dimensions(images, rank=4)

    def number(value):
        return math_ops.cast(value, dtypes.float32)

    scale = math_ops.minimum(number(size[0]) / number(height), number(size[1]) / number(width))
    return convert_to_tensor([math_ops.cast(math_ops.round(scale * number(height)), dtypes.int32),
                              math_ops.cast(math_ops.round(scale * number(width)), dtypes.int32)], dtypes.int32,
                             name="size")


# --- Values and colours. ---
def convert_image_dtype(image, dtype, saturate=False, name=None):
    image = convert_to_tensor(image, name="image")
    dtype = dtypes.as_dtype(dtype)
    if dtype == image.dtype:
        return array_ops.identity(image, name=name)
    narrow = math_ops.saturate_cast if saturate else math_ops.cast
    with name_scope(name, "convert_image", [image]) as name:
        if image.dtype.is_integer and dtype.is_integer:
            scale_in, scale_out = image.dtype.max, dtype.max
            if scale_in > scale_out:
                return narrow(math_ops.floordiv(image, (scale_in + 1) // (scale_out + 1)), dtype, name=name)
            return math_ops.multiply(narrow(image, dtype), (scale_out + 1) // (scale_in + 1), name=name)
        if image.dtype.is_floating and dtype.is_floating:
            return math_ops.cast(image, dtype, name=name)
        if image.dtype.is_integer:
            return math_ops.multiply(math_ops.cast(image, dtype), 1. / image.dtype.max, name=name)
        # Half a step more than the largest value makes the cast round evenly.
        return narrow(math_ops.multiply(image, dtype.max + 0.5), dtype, name=name)


def _as_float(image):
    return image if image.dtype in (dtypes.float16, dtypes.float32) else convert_image_dtype(image, dtypes.float32)


def per_image_standardization(image):
    with name_scope(None, "per_image_standardization", [image]) as scope:
        image = _checked(convert_to_tensor(image, name="image"))
        given = image.dtype
        image = _as_float(image)
        pixels = math_ops.reduce_prod(array_ops.shape(image)[-3:])
        mean = math_ops.reduce_mean(image, axis=[-1, -2, -3], keepdims=True)
        deviation = math_ops.reduce_std(image, axis=[-1, -2, -3], keepdims=True)
        least = math_ops.rsqrt(math_ops.cast(pixels, image.dtype))
        adjusted = math_ops.maximum(deviation, least)
        image -= mean
        image = math_ops.div(image, adjusted, name=scope)
        return convert_image_dtype(image, given, saturate=True)


per_image_whitening = per_image_standardization  # as TensorFlow 0.x has it


def adjust_brightness(image, delta):
    with name_scope(None, "adjust_brightness", [image, delta]) as name:
        image = convert_to_tensor(image, name="image")
        number = _as_float(image)
        adjusted = math_ops.add(number, math_ops.cast(delta, number.dtype), name=name)
        return convert_image_dtype(adjusted, image.dtype, saturate=True)


def adjust_contrast(images, contrast_factor):
    with name_scope(None, "adjust_contrast", [images, contrast_factor]) as name:
        images = convert_to_tensor(images, name="images")
        adjusted = call("AdjustContrastv2", name=name, images=_as_float(images), contrast_factor=contrast_factor)
        return convert_image_dtype(adjusted, images.dtype, saturate=True)


def random_brightness(image, max_delta, seed=None):
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, random_ops.random_uniform([], -max_delta, max_delta, seed=seed))


def random_contrast(image, lower, upper, seed=None):
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return adjust_contrast(image, random_ops.random_uniform([], lower, upper, seed=seed))


def adjust_hue(image, delta, name=None):
    with name_scope(name, "adjust_hue", [image]) as name:
        image = convert_to_tensor(image, name="image")
        return convert_image_dtype(call("AdjustHue", images=_as_float(image), delta=delta), image.dtype)


def adjust_saturation(image, saturation_factor, name=None):
    with name_scope(name, "adjust_saturation", [image]) as name:
        image = convert_to_tensor(image, name="image")
        return convert_image_dtype(call("AdjustSaturation", images=_as_float(image), scale=saturation_factor),
                                   image.dtype)


def random_hue(image, max_delta, seed=None):
    if max_delta > 0.5:
        raise ValueError("max_delta must be <= 0.5.")
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_hue(image, random_ops.random_uniform([], -max_delta, max_delta, seed=seed))


def random_saturation(image, lower, upper, seed=None):
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return adjust_saturation(image, random_ops.random_uniform([], lower, upper, seed=seed))


def rgb_to_hsv(images, name=None):
    return call("RGBToHSV", name=name, images=images)


def hsv_to_rgb(images, name=None):
    return call("HSVToRGB", name=name, images=images)


def rgb_to_grayscale(images, name=None):
    with name_scope(name, "rgb_to_grayscale", [images]) as name:
        images = convert_to_tensor(images, name="images")
        number = convert_image_dtype(images, dtypes.float32)
        gray = math_ops.tensordot(number, [0.2989, 0.5870, 0.1140], [-1, -1])
        return convert_image_dtype(array_ops.expand_dims(gray, -1), images.dtype, name=name)


def grayscale_to_rgb(images, name=None):
    with name_scope(name, "grayscale_to_rgb", [images]) as name:
        images = convert_to_tensor(images, name="images")
        rank = array_ops.expand_dims(array_ops.rank(images) - 1, 0)
        shape = array_ops.concat([array_ops.ones(rank, dtype=dtypes.int32)] + [array_ops.expand_dims(3, 0)], 0)
        rgb = array_ops.tile(images, shape, name=name)
        rgb.set_shape(images.get_shape()[:-1].concatenate([3]))
        return rgb


# --- Files. ---
def decode_jpeg(contents, channels=0, ratio=1, fancy_upscaling=True, try_recover_truncated=False,
                acceptable_fraction=1, dct_method="", name=None):
    return call("DecodeJpeg", name=name, contents=contents, channels=channels, ratio=ratio,
                fancy_upscaling=fancy_upscaling, try_recover_truncated=try_recover_truncated,
                acceptable_fraction=acceptable_fraction, dct_method=dct_method)


def decode_png(contents, channels=0, dtype=dtypes.uint8, name=None):
    return call("DecodePng", name=name, contents=contents, channels=channels, dtype=dtype)


def decode_and_crop_jpeg(contents, crop_window, channels=0, ratio=1, fancy_upscaling=True, try_recover_truncated=False,
                         acceptable_fraction=1, dct_method="", name=None):
    return call("DecodeAndCropJpeg", name=name, contents=contents, crop_window=crop_window, channels=channels,
                ratio=ratio, fancy_upscaling=fancy_upscaling, try_recover_truncated=try_recover_truncated,
                acceptable_fraction=acceptable_fraction, dct_method=dct_method)


def decode_bmp(contents, channels=0, name=None):
    return call("DecodeBmp", name=name, contents=contents, channels=channels)


def decode_gif(contents, name=None):
    return call("DecodeGif", name=name, contents=contents)


def extract_jpeg_shape(contents, output_type=dtypes.int32, name=None):
    return call("ExtractJpegShape", name=name, contents=contents, output_type=output_type)


def encode_jpeg(image, format="", quality=95, progressive=False, optimize_size=False, chroma_downsampling=True,
                density_unit="in", x_density=300, y_density=300, xmp_metadata="", name=None):
    return call("EncodeJpeg", name=name, image=image, format=format, quality=quality, progressive=progressive,
                optimize_size=optimize_size, chroma_downsampling=chroma_downsampling, density_unit=density_unit,
                x_density=x_density, y_density=y_density, xmp_metadata=xmp_metadata)


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


def non_max_suppression(boxes, scores, max_output_size, iou_threshold=0.5, score_threshold=float("-inf"), name=None):
    with name_scope(name, "non_max_suppression"):
        iou_threshold = convert_to_tensor(iou_threshold, name="iou_threshold")
        score_threshold = convert_to_tensor(score_threshold, name="score_threshold")
        return call("NonMaxSuppressionV3", boxes=boxes, scores=scores, max_output_size=max_output_size,
                    iou_threshold=iou_threshold, score_threshold=score_threshold)


def extract_image_patches(images, ksizes=None, strides=None, rates=None, padding=None, name=None, sizes=None):
    return array_ops.extract_image_patches(images, _merge_deprecated("sizes", sizes, "ksizes", ksizes), strides, rates,
                                           padding, name)


def crop_and_resize(image, boxes, box_ind=None, crop_size=None, method="bilinear", extrapolation_value=0, name=None,
                    box_indices=None):
    return call("CropAndResize", name=name, image=image, boxes=boxes,
                box_ind=_merge_deprecated("box_indices", box_indices, "box_ind", box_ind), crop_size=crop_size,
                method=method, extrapolation_value=extrapolation_value)


def total_variation(images, name=None):
    """How much neighbouring pixels differ, per image."""
    with name_scope(name, "total_variation"):
        ndims = images.get_shape().ndims
        if ndims not in (3, 4):
            raise ValueError("'images' must be either 3 or 4-dimensional.")
        lead = (slice(None),) * (ndims - 3)
        down = images[lead + (slice(1, None),)] - images[lead + (slice(None, -1),)]
        right = images[lead + (slice(None), slice(1, None))] - images[lead + (slice(None), slice(None, -1))]
        axes = None if ndims == 3 else list(np.arange(1, 4))
        return math_ops.reduce_sum(math_ops.abs(down), axis=axes) + math_ops.reduce_sum(math_ops.abs(right), axis=axes)


def adjust_gamma(image, gamma=1, gain=1):
    """gain * image ** gamma, for pixels scaled to [0, 1]."""
    with name_scope(None, "adjust_gamma", [image, gamma, gain]):
        image = convert_to_tensor(image, name="image")
        original = image.dtype
        result = image if original in (dtypes.float16, dtypes.float32) else convert_image_dtype(image, dtypes.float32)
        if not isinstance(gamma, framework.Tensor) and gamma < 0:
            raise ValueError("Gamma should be a non-negative real number.")
        return convert_image_dtype(gain * result ** gamma, original, saturate=True)


def psnr(a, b, max_val, name=None):
    """Peak signal to noise ratio over the last three dimensions."""
    with name_scope(name, "PSNR", [a, b]):
        max_val = convert_image_dtype(math_ops.cast(max_val, convert_to_tensor(a).dtype), dtypes.float32)
        a, b = convert_image_dtype(a, dtypes.float32), convert_image_dtype(b, dtypes.float32)
        error = math_ops.reduce_mean(math_ops.squared_difference(a, b), [-3, -2, -1])
        return math_ops.subtract(20 * math_ops.log(max_val) / np.log(10.0), np.float32(10 / np.log(10)) * math_ops.log(error),
                                 name="psnr")


def extract_patches(images, sizes, strides, rates, padding, name=None):
    return extract_image_patches(images, sizes, strides, rates, padding, name)


def _colors(matrix, name_):
    def function(images):
        images = convert_to_tensor(images, name="images")
        kernel = convert_to_tensor(np.array(matrix), dtype=images.dtype, name="kernel")
        return math_ops.tensordot(images, kernel, axes=[[images.get_shape().ndims - 1], [0]])

    function.__name__ = name_
    return function


_YIQ = [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]]
_YUV = [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]]
rgb_to_yiq = _colors(_YIQ, "rgb_to_yiq")
rgb_to_yuv = _colors(_YUV, "rgb_to_yuv")
yiq_to_rgb = _colors([[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]], "yiq_to_rgb")
yuv_to_rgb = _colors([[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]], "yuv_to_rgb")
