"""Trains a network with one hidden layer on handwritten digits, in one process.

    muster run examples/mnist.py [--data_dir data/digits] [--steps 2000]

The program is plain TensorFlow 1.x: stock TensorFlow runs it too. It reads full MNIST from --data_dir as well."""
from __future__ import print_function

import argparse
import math
import os
import time

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

IMAGE_PIXELS = 28 * 28


def build(hidden_units, learning_rate):
    """The training graph: placeholders, loss, train op and accuracy."""
    images = tf.placeholder(tf.float32, [None, IMAGE_PIXELS], name="images")
    labels = tf.placeholder(tf.float32, [None, 10], name="labels")
    hidden_weights = tf.Variable(
        tf.truncated_normal([IMAGE_PIXELS, hidden_units], stddev=1.0 / 28), name="hidden_weights")
    hidden_biases = tf.Variable(tf.zeros([hidden_units]), name="hidden_biases")
    softmax_weights = tf.Variable(
        tf.truncated_normal([hidden_units, 10], stddev=1.0 / math.sqrt(hidden_units)), name="softmax_weights")
    softmax_biases = tf.Variable(tf.zeros([10]), name="softmax_biases")
    hidden = tf.nn.relu(tf.nn.xw_plus_b(images, hidden_weights, hidden_biases))
    logits = tf.nn.xw_plus_b(hidden, softmax_weights, softmax_biases)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits))
    global_step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdamOptimizer(learning_rate).minimize(loss, global_step=global_step)
    correct = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
    return images, labels, loss, train_op, accuracy


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default=os.path.join(here, "..", "data", "digits"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--hidden_units", type=int, default=256)
    parser.add_argument("--learning_rate", type=float, default=0.003)
    flags = parser.parse_args()

    tf.set_random_seed(1)
    digits = input_data.read_data_sets(flags.data_dir, one_hot=True, validation_size=0, seed=1)
    images, labels, loss, train_op, accuracy = build(flags.hidden_units, flags.learning_rate)
    test_feed = {images: digits.test.images, labels: digits.test.labels}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        started = last = time.time()
        for step in range(1, flags.steps + 1):
            batch_images, batch_labels = digits.train.next_batch(flags.batch_size)
            _, value = session.run([train_op, loss], {images: batch_images, labels: batch_labels})
            if step % 100 == 0 or step == flags.steps:
                now = time.time()
                print("step %5d  loss %.4f  test accuracy %.4f  %.0f steps/s" % (
                    step, value, session.run(accuracy, test_feed), 100 / max(now - last, 1e-9)), flush=True)
                last = now
        print("trained %d steps in %.1f s; test accuracy %.4f" % (
            flags.steps, time.time() - started, session.run(accuracy, test_feed)))


if __name__ == "__main__":
    main()
