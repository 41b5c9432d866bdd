"""One task of a cluster that trains a network on handwritten digits.

    muster launch --ps 1 --workers 2 examples/mnist_replica.py --logdir FOLDER

starts all tasks on this machine. On several machines each runs `muster run examples/mnist_replica.py` with --ps_hosts,
--worker_hosts, --job_name and --task_index of its own. Parameter servers keep the variables; every worker computes
gradients on batches of its own. Without --sync each applies them at once, with --sync one update takes the mean of all
workers' gradients. With --allreduce there are no parameter servers (--ps 0): every worker has the whole network, and
gradients are averaged over all. But for that the program is plain TensorFlow 1.x. examples/mnist_replica.cc is the same
in C++."""
from __future__ import print_function

import argparse
import os
import time

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

from learning_curve import write_learning_curve


def parse_flags():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True, choices=["ps", "worker"])
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--data_dir", default=os.path.join(here, "..", "data", "digits"))
    parser.add_argument("--logdir", default=None, help="for checkpoints, TensorBoard events and the learning curve")
    parser.add_argument("--train_steps", type=int, default=1500, help="of all workers together")
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=0.002)
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto", help="what workers compute on; auto: a GPU where there is one")
    parser.add_argument("--sync", action="store_true", help="average the gradients of all workers for each step")
    parser.add_argument("--allreduce", action="store_true", help="the same without parameter servers")
    return parser.parse_args()


def network(images):
    """Two convolutions and a hidden layer; small enough for a laptop."""
    pixels = tf.reshape(images, [-1, 28, 28, 1])
    first = tf.layers.conv2d(pixels, 8, 5, strides=2, padding="same", activation=tf.nn.relu, name="conv1")
    second = tf.layers.conv2d(first, 16, 5, strides=2, padding="same", activation=tf.nn.relu, name="conv2")
    hidden = tf.layers.dense(tf.layers.flatten(second), 128, activation=tf.nn.relu, name="hidden")
    return tf.layers.dense(hidden, 10, name="logits")


class Progress(tf.train.SessionRunHook):
    """Prints now and then how the chief's model does on the test images, and keeps it for the learning curve."""

    def __init__(self, loss, accuracy, test_feed, every_steps):
        self._loss, self._accuracy, self._test_feed = loss, accuracy, test_feed
        self._timer = tf.train.SecondOrStepTimer(every_steps=every_steps)
        self.points = []  # (step, loss, test accuracy)

    def begin(self):
        self._step = tf.train.get_global_step()
        self._started = time.time()

    def before_run(self, run_context):
        return tf.train.SessionRunArgs([self._step, self._loss])

    def after_run(self, run_context, run_values):
        step, loss = run_values.results
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._note(run_context.session, step, loss)

    def end(self, session):
        step, loss = session.run([self._step, self._loss], self._test_feed)
        self._note(session, step, loss)

    def _note(self, session, step, loss):
        accuracy = session.run(self._accuracy, self._test_feed)
        self.points.append((int(step), float(loss), float(accuracy)))
        print("step %5d  loss %.4f  test accuracy %.4f  after %.1f s" % (
            step, loss, accuracy, time.time() - self._started), flush=True)


def main():
    flags = parse_flags()
    workers = flags.worker_hosts.split(",")
    jobs = {"worker": workers}
    if flags.ps_hosts:
        jobs["ps"] = flags.ps_hosts.split(",")
    cluster = tf.train.ClusterSpec(jobs)
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
    if flags.device == "gpu" and not tf.test.is_gpu_available():
        raise SystemExit("--device=gpu: this task has no GPU (docs/gpu.md says what one needs)")
    is_chief = flags.task_index == 0
    task = "/job:worker/task:%d" % flags.task_index
    own = task if flags.device == "auto" else "%s/%s:0" % (task, flags.device)
    digits = input_data.read_data_sets(flags.data_dir, one_hot=True, validation_size=0, seed=flags.task_index)

    tf.set_random_seed(1)
    # Variables go to the parameter servers in turn, all other nodes to this worker.
    place = own if flags.allreduce else tf.train.replica_device_setter(cluster=cluster, worker_device=own)
    with tf.device(place):
        global_step = tf.train.get_or_create_global_step()
        images = tf.placeholder(tf.float32, [None, 784], name="images")
        labels = tf.placeholder(tf.float32, [None, 10], name="labels")
        logits = network(images)
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1)), tf.float32))
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)
        optimizer = tf.train.AdamOptimizer(flags.learning_rate)
        hooks = [tf.train.StopAtStepHook(last_step=flags.train_steps)]
        if flags.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=len(workers))
            hooks.append(optimizer.make_session_run_hook(is_chief))
        if flags.allreduce:
            optimizer = tf.train.AllReduceOptimizer(optimizer)
            hooks.append(optimizer.make_session_run_hook(server))
        train_op = optimizer.minimize(loss, global_step=global_step)

    test_feed = {images: digits.test.images, labels: digits.test.labels}
    progress = Progress(loss, accuracy, test_feed, every_steps=max(1, flags.train_steps // 15))
    # Workers need the parameter servers, not each other: the death of one does not stop the others.
    # What has no kernel for a GPU, such as summaries, runs on the CPU.
    config = tf.ConfigProto(device_filters=["/job:ps", task], allow_soft_placement=True)
    with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=is_chief, checkpoint_dir=flags.logdir, hooks=hooks,
            chief_only_hooks=[progress], config=config, save_checkpoint_secs=10) as session:
        own_steps = 0
        while not session.should_stop():
            batch_images, batch_labels = digits.train.next_batch(flags.batch_size)
            session.run(train_op, {images: batch_images, labels: batch_labels})
            own_steps += 1
    print("worker %d made %d steps" % (flags.task_index, own_steps), flush=True)
    if is_chief and progress.points:
        print("test accuracy %.4f" % progress.points[-1][2], flush=True)
        if flags.logdir:
            path = os.path.join(flags.logdir, "learning_curve.svg")
            write_learning_curve(path, progress.points)
            print("checkpoints, events and the learning curve are in %s" % flags.logdir, flush=True)


if __name__ == "__main__":
    main()
