"""One task of a cluster that trains a dense network on MNIST; the chief prints the test accuracy at the end.

Epochs are of all workers together: without --sync a global step takes one batch, with --sync one of every worker."""
import argparse
import gzip
import os

import numpy as np
import tensorflow as tf

BATCH = 100


def parse_flags():
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name", "data_dir", "logdir"):
        parser.add_argument("--" + name)
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--sync", action="store_true")
    return parser.parse_args()


def read_idx(folder, name, header):
    with gzip.open(os.path.join(folder, name + ".gz")) as file:
        return np.frombuffer(file.read(), np.uint8)[header:]


def read_digits(folder, part):
    images = read_idx(folder, part + "-images-idx3-ubyte", 16).reshape(-1, 784)
    return images, read_idx(folder, part + "-labels-idx1-ubyte", 8)


def batches(images, labels, task, workers):
    """This worker's share of every epoch, in an order that all of them know."""
    epoch = 0
    while True:
        order = np.random.RandomState(epoch).permutation(len(images))
        for begin in range(task * BATCH, len(images), workers * BATCH):
            rows = order[begin:begin + BATCH]
            yield images[rows] / np.float32(255), labels[rows]
        epoch += 1


def dense(x, inputs, outputs, name):
    with tf.variable_scope(name):
        w = tf.get_variable("w", [inputs, outputs], initializer=tf.truncated_normal_initializer(stddev=inputs ** -0.5))
        return tf.nn.xw_plus_b(x, w, tf.get_variable("b", [outputs], initializer=tf.zeros_initializer()))


class Judge(tf.train.SessionRunHook):
    """The step and the test accuracy at the beginning and at the end."""

    def __init__(self, accuracy, feed):
        self._wanted, self._feed = [tf.train.get_global_step(), accuracy], feed

    def _say(self, when, session):
        print("%s: step %d, test accuracy %.4f" % ((when,) + tuple(session.run(self._wanted, self._feed))), flush=True)

    def after_create_session(self, session, coord):
        self._say("begin", session)

    def end(self, session):
        self._say("end", session)


def main():
    flags = parse_flags()
    workers = flags.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": workers})
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
    is_chief = flags.task_index == 0
    own = "/job:worker/task:%d" % flags.task_index
    train_images, train_labels = read_digits(flags.data_dir, "train")
    tf.set_random_seed(1)
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)):
        step = tf.train.get_or_create_global_step()
        images = tf.placeholder(tf.float32, [None, 784])
        labels = tf.placeholder(tf.int64, [None])
        logits = dense(tf.nn.relu(dense(images, 784, 100, "hidden")), 100, 10, "logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        optimizer = tf.train.AdamOptimizer(0.003)
        last_step = int(flags.epochs * len(train_images) / BATCH)
        hooks = []
        if flags.sync:
            last_step //= len(workers)
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=len(workers),
                                                       total_num_replicas=len(workers))
            hooks.append(optimizer.make_session_run_hook(is_chief, num_tokens=0))
        train = optimizer.minimize(loss, global_step=step)
    hooks.append(tf.train.StopAtStepHook(last_step=last_step))
    judges = []
    if is_chief:
        test_images, test_labels = read_digits(flags.data_dir, "t10k")
        judges.append(Judge(accuracy, {images: test_images / np.float32(255), labels: test_labels}))
    config = tf.ConfigProto(device_filters=["/job:ps", own])
    with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=is_chief, checkpoint_dir=flags.logdir, hooks=hooks,
            chief_only_hooks=judges, config=config, save_checkpoint_steps=500) as session:
        for batch, wanted in batches(train_images, train_labels, flags.task_index, len(workers)):
            if session.should_stop():
                break
            session.run(train, {images: batch, labels: wanted})


if __name__ == "__main__":
    main()
