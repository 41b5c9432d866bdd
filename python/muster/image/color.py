"""Pixels: types, brightness, contrast, color spaces, and how much pictures differ."""
import numpy as np

from muster import dtypes
from muster.graph import framework
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.image.checks import _checked
from muster.ops import array_ops, math_ops, random_ops


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
