"""tf.image: pictures as tensors."""
from muster.generated.image import *  # noqa: F401, F403
from muster.image.codecs import decode_image, encode_png, is_jpeg  # noqa: F401
from muster.image.color import (  # noqa: F401
    adjust_brightness, adjust_contrast, adjust_gamma, adjust_hue, adjust_saturation, convert_image_dtype,
    grayscale_to_rgb, per_image_standardization, per_image_whitening, psnr, random_brightness, random_contrast,
    random_hue, random_saturation, rgb_to_grayscale, rgb_to_yiq, rgb_to_yuv, total_variation, yiq_to_rgb, yuv_to_rgb)
from muster.image.geometry import (  # noqa: F401
    ResizeMethod, central_crop, crop_and_resize, crop_to_bounding_box, extract_image_patches, extract_patches,
    flip_left_right, flip_up_down, non_max_suppression, pad_to_bounding_box, random_flip_left_right,
    random_flip_up_down, resize, resize_bicubic, resize_bilinear, resize_image_with_crop_or_pad, resize_images,
    resize_nearest_neighbor, resize_with_crop_or_pad, rot90, transpose, transpose_image)
from muster.names import absent as _absent

__getattr__ = _absent.explain(__name__)
