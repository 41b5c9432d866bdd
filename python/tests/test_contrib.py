"""Members of tf.contrib that trainers use, and the module of the MNIST tutorials."""
import numpy as np
import pytest

import muster as tf
from muster.contrib import slim as slim


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        yield


def lenet(images, is_training):
    normalizer = {"is_training": is_training, "decay": 0.9}
    with tf.variable_scope("LeNet"):
        with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(5e-4),
                            normalizer_fn=slim.batch_norm, normalizer_params=normalizer):
            net = slim.conv2d(images, 4, [5, 5], scope="conv1")
            net = slim.max_pool2d(net, [2, 2], 2, scope="pool1")
            net = slim.repeat(net, 2, slim.conv2d, 4, [3, 3], scope="conv2")
            net = slim.flatten(slim.avg_pool2d(net, [2, 2]))
            net = slim.dropout(net, 0.9, is_training=is_training)
            return slim.fully_connected(net, 3, activation_fn=None, normalizer_fn=None, scope="fc")


def test_slim_trains_and_evaluates(tmp_path):
    images = np.random.RandomState(0).rand(12, 8, 8, 1).astype(np.float32)
    labels = np.arange(12) % 3
    tf.losses.softmax_cross_entropy(slim.one_hot_encoding(labels, 3), lenet(tf.constant(images), True))
    train_op = slim.learning.create_train_op(tf.losses.get_total_loss(), tf.train.AdamOptimizer(0.02))
    assert [v.op.name for v in slim.get_model_variables()][:4] == [
        "LeNet/conv1/weights", "LeNet/conv1/BatchNorm/beta", "LeNet/conv1/BatchNorm/moving_mean",
        "LeNet/conv1/BatchNorm/moving_variance"]
    assert [v.op.name for v in slim.get_model_variables("LeNet/fc")] == ["LeNet/fc/weights", "LeNet/fc/biases"]
    assert "LeNet/conv2/conv2_2/weights" in [v.op.name for v in tf.trainable_variables()]
    assert len(tf.losses.get_regularization_losses()) == 4
    logdir = str(tmp_path)
    loss = slim.learning.train(train_op, logdir, number_of_steps=40, save_summaries_secs=0, save_interval_secs=0)
    assert loss < 1.0
    with tf.Graph().as_default():
        logits = lenet(tf.constant(images), False)
        values, updates = slim.metrics.aggregate_metric_map({
            "accuracy": slim.metrics.streaming_accuracy(tf.argmax(logits, 1), labels)})
        accuracy, = slim.evaluation.evaluate_once(
            "", tf.train.latest_checkpoint(logdir), None, num_evals=2, eval_op=list(updates.values()),
            final_op=list(values.values()))
    assert 0.0 <= accuracy <= 1.0


def test_arg_scope_is_checked():
    with pytest.raises(ValueError, match="not decorated"):
        with slim.arg_scope([tf.matmul], a=1):
            pass
    with pytest.raises(TypeError, match="no argument nonsense"):
        with slim.arg_scope([slim.conv2d], nonsense=1):
            pass
    with slim.arg_scope([slim.conv2d], stride=2) as kept:
        pass
    with slim.arg_scope(kept):
        assert slim.conv2d(tf.zeros([1, 4, 4, 1]), 2, 3).get_shape().as_list() == [1, 2, 2, 2]


def test_recurrent_cells():
    x = tf.constant(np.random.RandomState(0).randn(3, 5, 4).astype(np.float32))
    rnn, steps = tf.contrib.rnn, tf.unstack(x, axis=1)
    outputs = []
    with tf.variable_scope("a"):
        outputs += rnn.static_bidirectional_rnn(rnn.BasicLSTMCell(6), rnn.GRUCell(6), steps, dtype=tf.float32)[0]
    with tf.variable_scope("b"):
        outputs += rnn.static_bidirectional_rnn(rnn.BasicLSTMCell(6), rnn.BasicLSTMCell(6), steps, dtype=tf.float32,
                                                sequence_length=[5, 3, 1])[0]
    with tf.variable_scope("c"):
        outputs += rnn.static_rnn(rnn.LayerNormBasicLSTMCell(6), steps, dtype=tf.float32)[0]
    with tf.variable_scope("d"):
        outputs.append(tf.nn.dynamic_rnn(rnn.OutputProjectionWrapper(rnn.GRUCell(6), 2), x, dtype=tf.float32)[0])
    with tf.variable_scope("e"):
        outputs.append(rnn.stack_bidirectional_dynamic_rnn([rnn.GRUCell(6)], [rnn.GRUCell(6)], x, dtype=tf.float32)[0])
    loss = tf.add_n([tf.reduce_mean(tf.square(output)) for output in outputs])
    gradients = tf.gradients(loss, tf.trainable_variables())
    assert all(gradient is not None for gradient in gradients)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert np.isfinite(sess.run(loss))
        assert all(np.isfinite(value).all() for value in sess.run(gradients))


def test_raw_rnn_does_what_dynamic_rnn_does():
    x = tf.constant(np.random.RandomState(0).randn(4, 3, 2).astype(np.float32))  # time, batch, depth
    lengths = tf.constant([4, 2, 3])
    cell = tf.nn.rnn_cell.BasicRNNCell(5)
    inputs = tf.TensorArray(tf.float32, size=4).unstack(x)

    def loop_fn(time, output, state, loop_state):
        finished = time >= lengths
        next_state = cell.zero_state(3, tf.float32) if output is None else state
        next_input = tf.cond(tf.reduce_all(finished), lambda: tf.zeros([3, 2]), lambda: inputs.read(time))
        return finished, next_input, next_state, output, None

    emitted, state, _ = tf.nn.raw_rnn(cell, loop_fn)
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        expected, expected_state = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32, time_major=True)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for mine, theirs in sess.run([(emitted.stack(), expected), (state, expected_state)]):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_sequence_losses_agree():
    rng = np.random.RandomState(0)
    logits = tf.constant(rng.randn(2, 3, 5).astype(np.float32))
    targets = tf.constant(rng.randint(0, 5, (2, 3)).astype(np.int32))
    weights = tf.constant([[1., 1., 0.], [1., 1., 1.]])
    new = tf.contrib.seq2seq.sequence_loss(logits, targets, weights)
    plain = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits) * weights
    old = tf.contrib.legacy_seq2seq.sequence_loss_by_example(
        tf.unstack(logits, axis=1), tf.unstack(targets, axis=1), tf.unstack(weights, axis=1))
    with tf.Session() as sess:
        got, entropy, by_example, w = sess.run([new, plain, old, weights])
    np.testing.assert_allclose(got, entropy.sum() / w.sum(), rtol=1e-6)
    np.testing.assert_allclose(by_example, entropy.sum(1) / w.sum(1), rtol=1e-6)


def test_layers_of_tf_layers():
    x = tf.zeros([2, 7, 7, 3])
    deconvolved = tf.layers.conv2d_transpose(x, 5, 3, strides=2, padding="same")
    assert deconvolved.get_shape().as_list() == [2, 14, 14, 5]
    assert tf.layers.conv2d_transpose(x, 5, 3, strides=2).get_shape().as_list() == [2, 15, 15, 5]
    assert tf.layers.separable_conv2d(x, 6, 3).get_shape().as_list() == [2, 5, 5, 6]
    assert tf.layers.max_pooling1d(tf.zeros([2, 8, 3]), 2, 2).get_shape().as_list() == [2, 4, 3]
    assert tf.layers.average_pooling1d(tf.zeros([2, 8, 3]), 2, 2).get_shape().as_list() == [2, 4, 3]
    assert [v.op.name for v in tf.trainable_variables()] == [
        "conv2d_transpose/kernel", "conv2d_transpose/bias", "conv2d_transpose_1/kernel", "conv2d_transpose_1/bias",
        "separable_conv2d/depthwise_kernel", "separable_conv2d/pointwise_kernel", "separable_conv2d/bias"]


def test_layer_norm_and_optimize_loss():
    x = tf.constant(np.random.RandomState(0).randn(4, 6).astype(np.float32))
    normed = tf.contrib.layers.layer_norm(x)
    loss = tf.reduce_mean(tf.square(tf.contrib.layers.linear(normed, 1) - 1.0))
    train = tf.contrib.layers.optimize_loss(loss, tf.train.create_global_step(), 0.1, "SGD", clip_gradients=1.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        value = sess.run(normed)
        losses = [sess.run(train) for _ in range(20)]
    np.testing.assert_allclose(value.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(value.std(1), 1, rtol=1e-5)
    assert losses[-1] < losses[0]


def test_hparams():
    hparams = tf.contrib.training.HParams(rate=0.1, layers=[1, 2], name="a", sync=False)
    hparams.parse("rate=0.5,layers=[3,4,5],sync=true,name=b")
    assert hparams.values() == {"rate": 0.5, "layers": [3, 4, 5], "name": "b", "sync": True}
    hparams.parse("layers[1]=9")
    assert hparams.layers == [3, 9, 5] and "rate" in hparams
    with pytest.raises(ValueError, match="Unknown hyperparameter"):
        hparams.parse("nope=1")


def test_projector(tmp_path):
    projector = tf.contrib.tensorboard.plugins.projector

    config = projector.ProjectorConfig()
    embedding = config.embeddings.add()
    embedding.tensor_name, embedding.metadata_path = "emb:0", "words.tsv"
    embedding.sprite.single_image_dim.extend([28, 28])
    projector.visualize_embeddings(tf.summary.FileWriter(str(tmp_path)), config)
    text = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'tensor_name: "emb:0"' in text and text.count("single_image_dim: 28") == 2


def test_mnist_module():
    from muster.examples.tutorials.mnist import mnist

    images = tf.constant(np.random.RandomState(0).rand(8, mnist.IMAGE_PIXELS).astype(np.float32))
    labels = tf.constant(np.arange(8, dtype=np.int32))
    logits = mnist.inference(images, 16, 8)
    loss = mnist.loss(logits, labels)
    train, right = mnist.training(loss, 0.5), mnist.evaluation(logits, labels)
    assert [v.op.name for v in tf.trainable_variables()][:2] == ["hidden1/weights", "hidden1/biases"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        losses = [sess.run([loss, train])[0] for _ in range(20)]
        assert losses[-1] < losses[0] and 0 <= sess.run(right) <= 8


def test_warm_start(tmp_path):
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.get_variable("net/w", initializer=[1.0, 2.0])
        tf.get_variable("net/b", initializer=[3.0])
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, str(tmp_path / "m"))
    w, b = tf.get_variable("net/w", [2]), tf.get_variable("other", [1], initializer=tf.zeros_initializer())
    tf.train.warm_start(str(tmp_path), [w, b], var_name_to_prev_var_name={"other": "net/b"})
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [list(value) for value in sess.run([w, b])] == [[1, 2], [3]]
    with pytest.raises(ValueError, match="nobody"):
        tf.train.warm_start(str(tmp_path), [w], var_name_to_prev_var_name={"nobody": "net/b"})


def test_print(capfd):
    with tf.Session() as sess:
        sess.run(tf.print("values:", tf.constant([1, 2, 3]), 7, output_stream="stdout"))
    assert "values: [1 2 3] 7" in capfd.readouterr().out


def test_towers_take_batches_from_a_prefetch_queue():
    batch = tf.train.batch([tf.constant([1.0, 2.0]), tf.constant(3)], 4)
    queue = tf.contrib.slim.prefetch_queue.prefetch_queue(batch, capacity=4)
    named = tf.contrib.slim.prefetch_queue.prefetch_queue({"x": batch[0]}, capacity=2)
    towers = [queue.dequeue() for _ in range(2)]
    assert [str(t.get_shape()) for t in towers[0]] == ["(4, 2)", "(4,)"]
    assert [node.name for node in tf.get_default_graph().as_graph_def().node if node.op == "FIFOQueueV2"] == [
        "batch/fifo_queue", "prefetch_queue/fifo_queue", "prefetch_queue_1/fifo_queue"]
    with tf.Session() as sess, tf.contrib.slim.queues.QueueRunners(sess):
        for images, labels in sess.run(towers):
            assert images.tolist() == [[1.0, 2.0]] * 4 and labels.tolist() == [3] * 4
        assert sess.run(named.dequeue()["x"]).shape == (4, 2)


def test_separable_convolutions_have_the_names_of_slim():
    slim = tf.contrib.slim
    image = tf.ones([2, 8, 8, 3])
    with slim.arg_scope([slim.separable_conv2d], depth_multiplier=2, weights_regularizer=slim.l2_regularizer(1e-3)):
        both = slim.separable_conv2d(image, 5, [3, 3], scope="both", outputs_collections="ends")
        alone = slim.separable_conv2d(image, None, 3, stride=2, normalizer_fn=slim.batch_norm, scope="alone")
    assert both.get_shape().as_list() == [2, 8, 8, 5] and alone.get_shape().as_list() == [2, 4, 4, 6]
    assert [(v.op.name, v.get_shape().as_list()) for v in tf.trainable_variables()] == [
        ("both/depthwise_weights", [3, 3, 3, 2]), ("both/pointwise_weights", [1, 1, 6, 5]), ("both/biases", [5]),
        ("alone/depthwise_weights", [3, 3, 3, 2]), ("alone/BatchNorm/beta", [6])]
    assert list(slim.utils.convert_collection_to_dict("ends")) == ["both"]
    assert slim.model_analyzer.analyze_vars(tf.trainable_variables())[0] == 54 + 30 + 5 + 54 + 6


def test_words_become_numbers(tmp_path):
    learn = tf.contrib.learn
    processor = learn.preprocessing.VocabularyProcessor(4)
    rows = list(processor.fit_transform(["the cat sat", "the dog isn't here now"]))
    assert [row.tolist() for row in rows] == [[1, 2, 3, 0], [1, 4, 5, 6]]
    assert len(processor.vocabulary_) == 8
    processor.save(str(tmp_path / "words"))
    again = learn.preprocessing.VocabularyProcessor.restore(str(tmp_path / "words"))
    assert next(again.transform(["a dog sat"])).tolist() == [0, 4, 3, 0]
    assert list(again.reverse([[2, 0]])) == ["cat <UNK>"]
    frequent = learn.preprocessing.VocabularyProcessor(3, min_frequency=1).fit(["a b a", "c a b"])
    assert next(frequent.transform(["a b c"])).tolist() == [1, 2, 0]
