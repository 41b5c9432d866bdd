"""An Estimator on a cluster: every task calls train_and_evaluate, TF_CONFIG says what for."""
import numpy as np
import tensorflow as tf

tf.app.flags.DEFINE_string("model_dir", None, "The folder of the model")
tf.app.flags.DEFINE_integer("steps", 200, "Steps of all workers together")
FLAGS = tf.app.flags.FLAGS


def input_fn():
    rng = np.random.RandomState(0)
    x = rng.randn(64, 3).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(({"x": x}, x.dot([[1.0], [-2.0], [0.5]]).astype(np.float32))).repeat().batch(16)


def model_fn(features, labels, mode):
    weights = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
    predictions = tf.matmul(features["x"], weights)
    loss = tf.losses.mean_squared_error(labels, predictions)
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, predictions, loss, train_op)


def main(_):
    estimator = tf.estimator.Estimator(model_fn, FLAGS.model_dir)
    results, _ = tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(input_fn, max_steps=FLAGS.steps),
        tf.estimator.EvalSpec(input_fn, steps=4, start_delay_secs=0, throttle_secs=0))
    if results is not None:
        print("step %d loss %.6f" % (results["global_step"], results["loss"]))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run()
