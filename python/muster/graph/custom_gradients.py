"""tf.custom_gradient: a function that brings its own gradient."""
import functools

from muster import nest
from muster.graph import framework, gradients_impl
from muster.graph.convert import convert_to_tensor
from muster.graph.op_library import call

_numbers = iter(range(1 << 62))


def custom_gradient(f=None):
    if f is None:
        return custom_gradient

    @functools.wraps(f)
    def decorated(*args, **kwargs):
        if kwargs:
            raise ValueError("The custom_gradient decorator currently supports keywords arguments only when eager "
                             "execution is enabled.")
        name = "CustomGradient-%d" % next(_numbers)
        inputs = [convert_to_tensor(value) for value in args]
        inputs = [call("Identity", input=value) for value in inputs]
        before = set(framework.get_collection(framework.GraphKeys.GLOBAL_VARIABLES))
        result, gradient = f(*inputs)
        made = [v for v in framework.get_collection(framework.GraphKeys.GLOBAL_VARIABLES) if v not in before]
        if any(v.trainable for v in made):
            raise TypeError("a function with tf.custom_gradient that makes variables needs `variables` in its gradient, "
                            "which Muster does not support")
        flat = [convert_to_tensor(value) for value in nest.flatten(result)]

        @gradients_impl.RegisterGradient(name)
        def internal(op, *output_gradients):
            given = nest.flatten(gradient(*output_gradients[:len(flat)]))
            if len(given) != len(inputs):
                raise ValueError("custom_gradient function expected to return %d gradients but returned %d"
                                 % (len(inputs), len(given)))
            return [None] * len(flat) + given

        graph = framework.get_default_graph()
        with graph.gradient_override_map({"IdentityN": name}):
            outputs = call("IdentityN", input=flat + inputs)
        return nest.pack_sequence_as(result, outputs[:len(flat)])

    return decorated


__all__ = ["custom_gradient"]
