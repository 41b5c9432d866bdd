"""What functions of pictures check and keep: ranks and sizes."""
from muster.graph import framework
from muster.ops import array_ops, check_ops, control_flow_ops, math_ops


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
