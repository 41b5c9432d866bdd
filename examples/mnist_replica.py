"""One worker of a cluster that trains the network of mnist.py: every worker computes gradients on batches of its own and
applies them to the variables on the parameter servers, without waiting for the others.

    muster run examples/mnist_replica.py --ps_hosts a:2222 --worker_hosts b:2222,c:2222 --task_index 0

Parameter servers run `muster serve`. examples/mnist_cluster.py starts all of it on one machine. The program is plain
TensorFlow 1.x: stock TensorFlow runs it too."""
from __future__ import print_function

import argparse
import os
import time

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

import mnist


def parse_flags():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--data_dir", default=os.path.join(here, "..", "data", "digits"))
    parser.add_argument("--steps", type=int, default=2000, help="of all workers together")
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--hidden_units", type=int, default=256)
    parser.add_argument("--learning_rate", type=float, default=0.002)
    return parser.parse_args()


def wait_for_variables(session):
    """Worker 0 gives the variables their first values; the others wait for them."""
    missing = tf.report_uninitialized_variables()
    while session.run(missing).size:
        time.sleep(0.1)


def train(session, flags, digits, graph_parts, global_step):
    images, labels, loss, train_op, accuracy = graph_parts
    test_feed = {images: digits.test.images, labels: digits.test.labels}
    step, own_steps, shown = 0, 0, 0
    started = last = time.time()
    while step < flags.steps:
        batch_images, batch_labels = digits.train.next_batch(flags.batch_size)
        _, value, step = session.run([train_op, loss, global_step], {images: batch_images, labels: batch_labels})
        own_steps += 1
        if own_steps % 100 == 0:
            now = time.time()
            print("worker %d: step %5d  loss %.4f  test accuracy %.4f  %.0f steps/s" % (
                flags.task_index, step, value, session.run(accuracy, test_feed),
                (own_steps - shown) / max(now - last, 1e-9)), flush=True)
            last, shown = now, own_steps
    print("worker %d: made %d of %d steps in %.1f s; test accuracy %.4f" % (
        flags.task_index, own_steps, step, time.time() - started, session.run(accuracy, test_feed)), flush=True)


def main():
    flags = parse_flags()
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name="worker", task_index=flags.task_index)
    tf.set_random_seed(1)
    digits = input_data.read_data_sets(flags.data_dir, one_hot=True, validation_size=0, seed=flags.task_index)
    own = "/job:worker/task:%d" % flags.task_index
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)):
        graph_parts = mnist.build(flags.hidden_units, flags.learning_rate)
        global_step = tf.train.get_or_create_global_step()
        initializer = tf.global_variables_initializer()
    # Workers need the parameter servers, not each other: one that dies does not stop the rest.
    config = tf.ConfigProto(device_filters=["/job:ps", own])
    with tf.Session(server.target, config=config) as session:
        if flags.task_index == 0:
            session.run(initializer)
        else:
            wait_for_variables(session)
        train(session, flags, digits, graph_parts, global_step)


if __name__ == "__main__":
    main()
