"""Estimators of the program's own model functions: training goes on, metrics are measured, predictions and exports are right."""
import json
import os

import numpy as np
import pytest

import muster as tf


def model_fn(features, labels, mode, params):
    """A line; `params` says how fast it learns."""
    w = tf.get_variable("w", [1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    y = tf.reshape(features["x"], [-1]) * w + b
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y, "twice": 2 * y}, export_outputs={
            "predict": tf.estimator.export.PredictOutput({"y": y})})
    loss = tf.losses.mean_squared_error(labels, y)
    train_op = tf.train.GradientDescentOptimizer(params["rate"]).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={
        "error": tf.metrics.mean_absolute_error(labels, y)})


X = np.arange(8, dtype=np.float32)
Y = 3 * X + 1


def train_input():
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).repeat().batch(4)


def eval_input():
    return tf.estimator.inputs.numpy_input_fn({"x": X}, Y, batch_size=3, num_epochs=1, shuffle=False)()


@pytest.fixture
def estimator(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    config = tf.estimator.RunConfig(save_checkpoints_steps=100, log_step_count_steps=50, keep_checkpoint_max=2)
    return tf.estimator.Estimator(model_fn, str(tmp_path / "model"), config, {"rate": 0.03})


def test_it_learns_and_goes_on(estimator):
    with pytest.raises(ValueError, match="Could not find trained model"):
        estimator.evaluate(eval_input)
    estimator.train(train_input, steps=150)
    first = estimator.evaluate(eval_input)
    assert first["global_step"] == 150 and set(first) == {"error", "loss", "global_step"}
    estimator.train(train_input, steps=250)
    second = estimator.evaluate(eval_input, steps=2)
    assert second["global_step"] == 400 and second["loss"] < first["loss"] < 5
    estimator.train(train_input, max_steps=400)  # nothing left to do
    assert estimator.latest_checkpoint().endswith("model.ckpt-400")
    assert estimator.get_variable_names() == ["b", "global_step", "w"]
    assert abs(estimator.get_variable_value("w")[0] - 3) < 0.3
    assert any(name.startswith("events") for name in os.listdir(estimator.eval_dir()))


def test_predictions(estimator):
    estimator.train(train_input, max_steps=300)
    w, b = estimator.get_variable_value("w"), estimator.get_variable_value("b")
    source = tf.estimator.inputs.numpy_input_fn({"x": X}, batch_size=3, num_epochs=1, shuffle=False)
    rows = list(estimator.predict(source))
    np.testing.assert_allclose([row["y"] for row in rows], X * w + b, rtol=1e-5)
    batches = list(estimator.predict(source, predict_keys=["twice"], yield_single_examples=False))
    assert [sorted(batch) for batch in batches] == [["twice"]] * 3 and [len(b["twice"]) for b in batches] == [3, 3, 2]


def test_an_export_can_be_loaded(estimator, tmp_path):
    estimator.train(train_input, max_steps=50)
    receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn({"x": tf.FixedLenFeature([1], tf.float32)})
    folder = estimator.export_savedmodel(str(tmp_path / "exports"), receiver).decode()
    example = tf.train.Example(features=tf.train.Features(feature={
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[2.0]))})).SerializeToString()
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], folder)
        signature = loaded.signature_def["serving_default"]
        y = session.run(signature.outputs["y"].name, {signature.inputs["examples"].name: [example]})
    expected = 2 * estimator.get_variable_value("w") + estimator.get_variable_value("b")
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_training_with_evaluation(estimator):
    exporter = tf.estimator.FinalExporter("final", tf.estimator.export.build_raw_serving_input_receiver_fn(
        {"x": tf.placeholder(tf.float32, [None], name="x")}))
    results, _ = tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(train_input, max_steps=200),
        tf.estimator.EvalSpec(eval_input, steps=None, exporters=exporter, throttle_secs=0))
    assert results["global_step"] == 200
    assert len(os.listdir(os.path.join(estimator.model_dir, "export", "final"))) == 1


def test_the_cluster_of_tf_config(monkeypatch):
    cluster = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}
    for task, index, chief, master in (("worker", 0, True, "grpc://c:1"), ("worker", 1, False, "grpc://d:1"),
                                       ("ps", 1, False, "")):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": task, "index": index}}))
        config = tf.estimator.RunConfig()
        assert (config.is_chief, config.master, config.num_ps_replicas) == (chief, master, 2)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": dict(cluster, chief=["e:1"]),
                                                "task": {"type": "worker", "index": 0}}))
    assert not tf.estimator.RunConfig().is_chief and tf.estimator.RunConfig().num_worker_replicas == 3


def test_what_is_wrong(estimator):
    with pytest.raises(ValueError, match="both steps and max_steps"):
        estimator.train(train_input, steps=1, max_steps=1)
    with pytest.raises(ValueError, match="Missing train_op"):
        tf.estimator.EstimatorSpec("train", loss=tf.constant(1.0))
    with pytest.raises(ValueError, match="cannot be both set"):
        tf.estimator.RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1)
    with pytest.raises(AttributeError, match="no canned models"):
        tf.estimator.DNNClassifier
