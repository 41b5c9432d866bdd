"""256 MB of variables to the disk and back."""
import os
import tempfile

from side import main, tf
from timing import best_call

NAMES = ["v%d" % i for i in range(16)]


def _checkpoint(measure):
    variables = [tf.Variable(tf.random_normal([1024, 4096], seed=i)) for i in range(16)]
    with tf.Session() as session, tempfile.TemporaryDirectory() as folder:
        session.run(tf.global_variables_initializer())
        return measure(session, variables, folder)


def _save(prefix, variables):
    return tf.raw_ops.SaveV2(prefix=prefix, tensor_names=NAMES, shape_and_slices=[""] * 16, tensors=variables)


def checkpoint_write():
    """Muster's includes the wait until the data is on the disk; TensorFlow does not wait for the disk."""
    def measure(session, variables, folder):
        save = _save(os.path.join(folder, "m"), variables)

        def clear(*_):
            for name in os.listdir(folder):
                os.remove(os.path.join(folder, name))
        return best_call(lambda: session.run(save), 5, after=clear, warm_up=0)
    return _checkpoint(measure)


def checkpoint_read():
    def measure(session, variables, folder):
        prefix = os.path.join(folder, "m")
        session.run(_save(prefix, variables))
        restored = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=NAMES, shape_and_slices=[""] * 16,
                                        dtypes=[tf.float32] * 16)
        load = tf.group(*[tf.assign(v, t) for v, t in zip(variables, restored)])
        return best_call(lambda: session.run(load), 5, warm_up=0)
    return _checkpoint(measure)


if __name__ == "__main__":
    main(globals())
