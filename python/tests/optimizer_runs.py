"""Twenty steps of every optimizer, dense and sparse, on references and resources: run by Muster and by TensorFlow.

As a program (with TensorFlow): prints {title: {variable: values after each step}} as JSON."""
import json
import sys

import numpy as np

STEPS = 20
_SHAPE = (5, 3)

# Arguments behind tf.train.<name>Optimizer.
OPTIMIZERS = {
    "GradientDescent": "0.1", "Momentum": "0.1, 0.9", "Momentum nesterov": "0.1, 0.9, use_nesterov=True",
    "Adagrad": "0.1", "AdagradDA": "0.1, step, l1_regularization_strength=0.001, l2_regularization_strength=0.002",
    "Adadelta": "0.5", "Adam": "0.05", "RMSProp": "0.01, momentum=0.5", "RMSProp centered": "0.01, centered=True",
    "Ftrl": "0.1, l1_regularization_strength=0.001, l2_regularization_strength=0.002",
    "Ftrl shrinkage": "0.1, l2_shrinkage_regularization_strength=0.01",
    "ProximalGradientDescent": "0.1, l1_regularization_strength=0.001",
    "ProximalAdagrad": "0.1, l1_regularization_strength=0.001, l2_regularization_strength=0.002"}

RUNS = [(title, gradient, resource, dtype) for title in OPTIMIZERS for gradient in ("dense", "sparse")
        for resource in (False, True) for dtype in ("float32", "float64")
        # What TensorFlow itself does not have.
        if not (dtype == "float64" and title.startswith(("Proximal", "AdagradDA")))]


def title(run):
    return "%s %s %s %s" % (run[0], run[1], "resource" if run[2] else "ref", run[3])


def trajectory(tf, run):
    name, gradient, resource, dtype = run
    with tf.Graph().as_default():
        random = np.random.RandomState(7)
        step = tf.Variable(0, trainable=False, name="step", dtype=tf.int64)
        v = tf.Variable(random.randn(*_SHAPE).astype(dtype), name="v", use_resource=resource)
        if gradient == "dense":
            given = tf.placeholder(dtype, _SHAPE)
            feeds = [{given: random.randn(*_SHAPE)} for _ in range(STEPS)]
        else:
            values, indices = tf.placeholder(dtype, [None, _SHAPE[1]]), tf.placeholder(tf.int64, [None])
            given = tf.IndexedSlices(values, indices, tf.constant(_SHAPE, tf.int64))
            # Rows repeat.
            feeds = [{values: random.randn(4, _SHAPE[1]), indices: random.randint(0, _SHAPE[0], [4])}
                     for _ in range(STEPS)]
        optimizer = eval("tf.train.%sOptimizer(%s)" % (name.split()[0], OPTIMIZERS[name]), {"tf": tf, "step": step})
        train = optimizer.apply_gradients([(given, v)], global_step=step)
        slots = {slot: optimizer.get_slot(v, slot) for slot in optimizer.get_slot_names()}
        fetches = dict(slots, var=v, step=step)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            taken = []
            for feed in feeds:
                session.run(train, feed)
                taken.append(session.run(fetches))
    return {key: [np.asarray(at[key], np.float64).reshape(-1).tolist() for at in taken] for key in fetches}


if __name__ == "__main__":
    import tensorflow.compat.v1

    tensorflow.compat.v1.disable_v2_behavior()
    json.dump({title(run): trajectory(tensorflow.compat.v1, run) for run in RUNS}, sys.stdout)
