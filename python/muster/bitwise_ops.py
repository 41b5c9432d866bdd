"""tf.bitwise."""
from muster.op_library import call


def bitwise_and(x, y, name=None):
    return call("BitwiseAnd", name=name, x=x, y=y)


def bitwise_or(x, y, name=None):
    return call("BitwiseOr", name=name, x=x, y=y)


def bitwise_xor(x, y, name=None):
    return call("BitwiseXor", name=name, x=x, y=y)


def invert(x, name=None):
    return call("Invert", name=name, x=x)


def left_shift(x, y, name=None):
    return call("LeftShift", name=name, x=x, y=y)


def right_shift(x, y, name=None):
    return call("RightShift", name=name, x=x, y=y)
