"""Where pixels are: flips, turns, crops, pads, sizes, patches and boxes."""
from muster import dtypes
from muster.generated.image import resize_area
from muster.graph import convert, tensor_shape
from muster.graph.convert import convert_to_tensor
from muster.graph.framework import name_scope
from muster.graph.op_library import call
from muster.image.checks import _by_rank, _check, _checked, _dimensions, _image_checks, _is_tensor, _keep_shape
from muster.ops import array_ops, control_flow_ops, math_ops, random_ops
from muster.ops.array_ops import _merge_deprecated


class ResizeMethod(object):
    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


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


def extract_patches(images, sizes, strides, rates, padding, name=None):
    return extract_image_patches(images, sizes, strides, rates, padding, name)
