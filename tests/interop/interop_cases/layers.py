"""Layers that a master's graph optimizer joins into ops of its own before it sends them to tasks of any kind."""

import numpy as np

from interop_cases import OTHER, PS, WORKER, case


def _layers(tf, feed):
    """Tensors to fetch. `feed(*shape)` gives a placeholder."""
    def convolution():
        return tf.nn.bias_add(tf.nn.conv2d(feed(1, 6, 6, 3), feed(3, 3, 3, 4), [1, 1, 1, 1], "SAME"), feed(4))

    def product():
        return tf.nn.bias_add(tf.matmul(feed(4, 5), feed(5, 6)), feed(6))

    for activation in (tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.leaky_relu, tf.tanh, tf.sigmoid):
        yield activation(convolution())
        yield activation(product())
    yield tf.nn.relu(convolution() + feed(1, 6, 6, 4))
    yield product() + feed(4, 6)
    statistics = [feed(4) for _ in range(4)]
    yield tf.nn.relu(tf.nn.fused_batch_norm(
        tf.nn.conv2d(feed(1, 6, 6, 3), feed(3, 3, 3, 4), [1, 1, 1, 1], "VALID"), *statistics, is_training=False)[0])
    yield tf.nn.relu(tf.nn.fused_batch_norm(feed(2, 4, 4, 8), feed(8), feed(8))[0])
    yield tf.nn.relu(tf.nn.bias_add(
        tf.nn.depthwise_conv2d(feed(1, 6, 6, 3), feed(3, 3, 3, 2), [1, 1, 1, 1], "SAME"), feed(6)))
    x = tf.matmul(feed(4, 4), feed(4, 4))
    yield x * tf.sigmoid(x)
    x = feed(4, 4)
    yield x * tf.tanh(tf.nn.softplus(x))
    x = product()
    yield 0.5 * x * (1.0 + tf.erf(x * 0.70710678))
    yield tf.exp(tf.sqrt(tf.abs(tf.sin(feed(4, 4)))))


@case
def layers_that_optimizers_join(tf, c):
    random = np.random.RandomState(0)
    # Shapes are known at run time only, as for most programs that feed batches.
    arrays, values = [], []

    def feed(*shape):
        arrays.append(random.rand(*shape).astype("f"))
        values.append(tf.placeholder(tf.float32, [None] + list(shape[1:])))
        return values[-1]

    fetches = []
    layers = _layers(tf, feed)
    for i in range(100):
        with tf.device((PS, WORKER, OTHER)[i % 3]):
            tensor = next(layers, None)
        if tensor is None:
            break
        fetches.append(tensor)
    assert len(fetches) == 21
    with c.session() as s:
        far = [s.run(tensor, dict(zip(values, arrays))) for tensor in fetches]
    definition = tf.get_default_graph().as_graph_def()
    for node in definition.node:
        node.device = ""
    with tf.Graph().as_default(), tf.Session() as s:
        tf.import_graph_def(definition, name="")
        near = s.run([t.name for t in fetches], {t.name: a for t, a in zip(values, arrays)})
    for tensor, a, b in zip(fetches, far, near):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=tensor.name)
