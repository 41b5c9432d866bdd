"""Several CPU devices in one process: what runs where, and that results do not depend on it."""
import numpy as np
import pytest


def _config(tf, **settings):
    return tf.ConfigProto(device_count={"CPU": 2}, **settings)


def _tower(tf, images, labels):
    """A small convolutional network in the manner of the CIFAR-10 tutorial; its loss."""
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        with tf.device("/cpu:0"):
            initial = tf.constant_initializer(np.linspace(-0.3, 0.3, 3 * 3 * 3 * 4).reshape(3, 3, 3, 4))
            kernel = tf.get_variable("kernel", [3, 3, 3, 4], initializer=initial)
            bias = tf.get_variable("bias", [4], initializer=tf.constant_initializer(0.1))
            initial = tf.constant_initializer(np.linspace(-0.1, 0.1, 64 * 5).reshape(64, 5))
            weights = tf.get_variable("weights", [64, 5], initializer=initial)
    conv = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, kernel, [1, 2, 2, 1], "SAME"), bias))
    logits = tf.matmul(tf.reshape(conv, [-1, 64]), weights)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def _train(tf, devices, steps=5):
    """Losses of training with one tower per device and averaged gradients."""
    generator = np.random.RandomState(7)
    images = generator.rand(2, 6, 8, 8, 3).astype(np.float32)
    labels = generator.randint(0, 5, [2, 6]).astype(np.int32)
    with tf.Graph().as_default():
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        losses, towers = [], []
        for i, device in enumerate(devices):
            with tf.device(device), tf.name_scope("tower_%d" % i):
                loss = _tower(tf, tf.constant(images[i]), tf.constant(labels[i]))
                losses.append(loss)
                towers.append(optimizer.compute_gradients(loss))
        with tf.device("/cpu:0"):
            averaged = []
            for pairs in zip(*towers):
                mean = tf.reduce_mean(tf.stack([gradient for gradient, _ in pairs]), 0)
                averaged.append((mean, pairs[0][1]))
            total = tf.add_n(losses) / len(losses)
            train = optimizer.apply_gradients(averaged)
        with tf.Session(config=_config(tf)) as session:
            session.run(tf.global_variables_initializer())
            return [session.run([total, train])[0] for _ in range(steps)]


def test_towers_on_two_devices_train_like_on_one():
    import muster as tf

    one = _train(tf, ["/cpu:0", "/cpu:0"])
    two = _train(tf, ["/cpu:0", "/cpu:1"])
    assert two == one
    assert two[-1] < two[0]


def test_unknown_devices_are_refused_in_tensorflows_words():
    import muster as tf

    with tf.Graph().as_default():
        default = tf.constant(1.0)
        with tf.device("/gpu:0"):
            x = tf.placeholder_with_default(default, [], name="x")
        with tf.Session(config=_config(tf)) as session:
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                session.run(x + 1.0)
        assert ("Cannot assign a device for operation x: {{node x}} was explicitly assigned to /device:GPU:0 but available "
                "devices are [ /job:localhost/replica:0/task:0/device:CPU:0, "
                "/job:localhost/replica:0/task:0/device:CPU:1 ]. Make sure the device specification refers to a valid "
                "device.") in str(error.value)
        with tf.Session(config=_config(tf, allow_soft_placement=True)) as session:
            assert session.run(x + 1.0) == 2.0


def test_placement_is_logged(capfd):
    import muster as tf

    with tf.Graph().as_default():
        with tf.device("/cpu:1"):
            x = tf.placeholder_with_default(1.0, [], name="x")
        y = tf.negative(x, name="y")
        with tf.Session(config=_config(tf, log_device_placement=True)) as session:
            assert session.run(y) == -1.0
    logged = capfd.readouterr().err
    assert "x: (PlaceholderWithDefault): /job:localhost/replica:0/task:0/device:CPU:1\n" in logged
    assert "y: (Neg): /job:localhost/replica:0/task:0/device:CPU:0\n" in logged


def test_a_device_function_has_the_last_word():
    import muster as tf

    def device_of(outer, inner):
        with tf.Graph().as_default(), tf.device(outer), tf.device(inner):
            return tf.constant(1).op.device

    # As TensorFlow 2.21 answers: strings are merged, what a function returns replaces the device so far.
    assert device_of(lambda op: "/cpu:0", "/gpu:1") == "/cpu:0"
    assert device_of(lambda op: "/job:ps", "/gpu:1") == "/job:ps"
    assert device_of(lambda op: "", "/gpu:1") == ""
    assert device_of("/job:a", lambda op: "/cpu:0") == "/job:a/device:CPU:0"
    assert device_of("/job:a/cpu:3", lambda op: op.device) == "/job:a/device:CPU:3"
