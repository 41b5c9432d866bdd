"""One task of a trainer as users wrote them for TensorFlow 1.x: a Supervisor, replica_device_setter, Adam and a dense
digit network; asynchronous, synchronous with --sync, or by all-reduce (of Muster alone) with --allreduce. Its data is
made up.

A worker says `ready` after its first steps and trains on until it is killed: none may wait in between, the others of
a synchronous run need its gradients. When it reads a line it prints, as JSON, how many global steps it then saw pass
and the seconds that they took."""
import argparse
import json
import math
import sys
import tempfile
import threading
import time

import numpy as np
import tensorflow as tf

if not hasattr(tf, "placeholder"):  # stock TensorFlow 2.x
    tf = tf.compat.v1
    tf.disable_v2_behavior()

PIXELS = 784
CLASSES = 10
WARM_UP = 20


def parse_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts")
    parser.add_argument("--worker_hosts")
    parser.add_argument("--job_name")
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--hidden_units", type=int, default=100)
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1000, help="global steps that are measured")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--allreduce", action="store_true")
    return parser.parse_args()


class Digits(object):
    """Batches out of made-up images."""

    def __init__(self, seed, count=5000):
        rng = np.random.RandomState(seed)
        self._images = rng.rand(count, PIXELS).astype(np.float32)
        self._labels = np.eye(CLASSES)[rng.randint(0, CLASSES, count)]
        self._next = 0

    def next_batch(self, size):
        if self._next + size > len(self._images):
            self._next = 0
        rows = slice(self._next, self._next + size)
        self._next += size
        return self._images[rows], self._labels[rows]


def build(flags, cluster):
    """The placeholders, the training op, the global step and the optimizer."""
    workers = len(flags.worker_hosts.split(","))
    device = "/job:worker/task:%d" % flags.task_index
    setter = tf.train.replica_device_setter(worker_device=device, ps_device="/job:ps/cpu:0", cluster=cluster)
    with tf.device(device if flags.allreduce else setter):
        step = tf.Variable(0, name="global_step", trainable=False)
        hid_w = tf.Variable(tf.truncated_normal([PIXELS, flags.hidden_units], stddev=1.0 / 28), name="hid_w")
        hid_b = tf.Variable(tf.zeros([flags.hidden_units]), name="hid_b")
        sm_w = tf.Variable(tf.truncated_normal([flags.hidden_units, CLASSES],
                                               stddev=1.0 / math.sqrt(flags.hidden_units)), name="sm_w")
        sm_b = tf.Variable(tf.zeros([CLASSES]), name="sm_b")
        images = tf.placeholder(tf.float32, [None, PIXELS])
        labels = tf.placeholder(tf.float32, [None, CLASSES])
        hidden = tf.nn.relu(tf.nn.xw_plus_b(images, hid_w, hid_b))
        found = tf.nn.softmax(tf.nn.xw_plus_b(hidden, sm_w, sm_b))
        loss = -tf.reduce_sum(labels * tf.log(tf.clip_by_value(found, 1e-10, 1.0)))
        optimizer = tf.train.AdamOptimizer(0.001)
        if flags.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=workers,
                                                       total_num_replicas=workers)
        if flags.allreduce:
            optimizer = tf.train.AllReduceOptimizer(optimizer)
        train = optimizer.minimize(loss, global_step=step)
    return images, labels, train, step, optimizer


def main():
    flags = parse_flags()
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
    is_chief = flags.task_index == 0
    images, labels, train, step, optimizer = build(flags, cluster)
    own = "/job:worker/task:%d" % flags.task_index
    if flags.allreduce:
        session = tf.train.MonitoredTrainingSession(server.target, is_chief=is_chief,
                                                    hooks=[optimizer.make_session_run_hook(server)],
                                                    config=tf.ConfigProto(device_filters=[own]),
                                                    log_step_count_steps=None)
    else:
        session = supervised_session(flags, server, step, optimizer)
    digits = Digits(flags.task_index)

    def run():
        batch, wanted = digits.next_batch(flags.batch_size)
        return int(session.run([train, step], feed_dict={images: batch, labels: wanted})[1])

    for _ in range(WARM_UP):
        run()
    asked = threading.Event()
    threading.Thread(target=lambda: sys.stdin.readline() and asked.set(), daemon=True).start()
    print("ready", flush=True)
    while not asked.is_set():
        run()
    first = last = run()
    begin = time.perf_counter()
    while last < first + flags.steps:
        last = run()
    print(json.dumps({"steps": last - first, "seconds": time.perf_counter() - begin}), flush=True)
    while True:
        run()


def supervised_session(flags, server, step, optimizer):
    is_chief = flags.task_index == 0
    kwargs = {}
    if flags.sync:
        kwargs = {"local_init_op": optimizer.chief_init_op if is_chief else optimizer.local_step_init_op,
                  "ready_for_local_init_op": optimizer.ready_for_local_init_op}
        if is_chief:
            runner, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op()
    supervisor = tf.train.Supervisor(is_chief=is_chief, logdir=tempfile.mkdtemp() if is_chief else None,
                                     init_op=tf.global_variables_initializer(), recovery_wait_secs=1,
                                     global_step=step, **kwargs)
    config = tf.ConfigProto(allow_soft_placement=True,
                            device_filters=["/job:ps", "/job:worker/task:%d" % flags.task_index])
    session = supervisor.prepare_or_wait_for_session(server.target, config=config)
    if flags.sync and is_chief:
        supervisor.start_queue_runners(session, [runner])
        session.run(tokens)
    return session


if __name__ == "__main__":
    main()
