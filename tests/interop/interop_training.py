"""A network that is trained on a cluster; whichever program runs it, the losses have to be the same."""

import numpy as np

STEPS = 50


def _dense(tf, x, inputs, outputs, name, resource, r):
    # The first values come from numpy: random ops of a seed need the same kernels, which is another test.
    w = tf.get_variable(name + "_w", initializer=(r.randn(inputs, outputs) / np.sqrt(inputs)).astype("f"),
                        use_resource=resource)
    b = tf.get_variable(name + "_b", initializer=np.zeros(outputs, "f"), use_resource=resource)
    return tf.nn.bias_add(tf.matmul(x, w), b)


def _network(tf, x, y, resource):
    r = np.random.RandomState(7)
    h = tf.nn.relu(_dense(tf, x, 16, 32, "first", resource, r))
    h = tf.nn.elu(_dense(tf, h, 32, 32, "second", resource, r))
    logits = _dense(tf, h, 32, 4, "last", resource, r)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def _convolutions(tf, x, y, resource):
    r = np.random.RandomState(8)
    image = tf.reshape(x, [-1, 4, 4, 1])
    f = tf.get_variable("filter", initializer=(r.randn(3, 3, 1, 6) / 3).astype("f"), use_resource=resource)
    b = tf.get_variable("bias", initializer=np.zeros(6, "f"), use_resource=resource)
    h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, f, strides=[1, 1, 1, 1], padding="SAME"), b))
    h = tf.nn.max_pool(h, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    logits = _dense(tf, tf.reshape(h, [-1, 24]), 24, 4, "last", resource, r)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def _recurrent(tf, x, y, resource):
    """A loop of the graph, its weights on the ps, its body on the worker."""
    r = np.random.RandomState(9)
    w = tf.get_variable("cell", initializer=(r.randn(12, 8) / 4).astype("f"), use_resource=resource)
    parts = tf.reshape(x, [-1, 4, 4])

    def body(i, h):
        return i + 1, tf.tanh(tf.matmul(tf.concat([parts[:, i], h], 1), w))

    state = tf.zeros([tf.shape(x)[0], 8])
    _, h = tf.while_loop(lambda i, h: i < 4, body, [tf.constant(0), state])
    logits = _dense(tf, h, 8, 4, "last", resource, r)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def _embedding(tf, x, y, resource):
    """Sparse gradients."""
    r = np.random.RandomState(10)
    table = tf.get_variable("table", initializer=r.randn(20, 8).astype("f"), use_resource=resource)
    words = tf.cast(tf.floor(tf.abs(x) * 5.0), tf.int32) % 20
    h = tf.reduce_mean(tf.nn.embedding_lookup(table, words), 1)
    logits = _dense(tf, h, 8, 4, "last", resource, r)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


MODELS = {"dense": _network, "convolutions": _convolutions, "recurrent": _recurrent, "embedding": _embedding}


def _optimizer(tf, name):
    return {
        "adam": lambda: tf.train.AdamOptimizer(0.01),
        "momentum": lambda: tf.train.MomentumOptimizer(0.05, 0.9),
        "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
        "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01),
        "gradient_descent": lambda: tf.train.GradientDescentOptimizer(0.1),
    }[name]()


def losses(tf, call):
    """The losses of STEPS steps; `call` has target, model, optimizer and resource (which kind of variables)."""
    r = np.random.RandomState(0)
    data = r.randn(64, 16).astype("f")
    labels = np.argmax(data[:, :4], 1).astype("int32")
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
            x = tf.placeholder(tf.float32, [None, 16])
            y = tf.placeholder(tf.int32, [None])
            loss = MODELS[call["model"]](tf, x, y, call["resource"])
            step = tf.train.get_or_create_global_step()
            train = _optimizer(tf, call["optimizer"]).minimize(loss, global_step=step)
            init = tf.global_variables_initializer()
        config = tf.ConfigProto(operation_timeout_in_ms=60000)
        with tf.Session(call["target"], config=config) as s:
            s.run(init)
            found = [float(s.run([loss, train], {x: data, y: labels})[0]) for _ in range(STEPS)]
            assert s.run(step) == STEPS
            return found
