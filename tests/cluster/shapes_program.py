"""A between-graph program whose losses depend on its seeds only: workers take turns, by the step that they share."""
import argparse
import json
import os
import time

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", required=True)
parser.add_argument("--worker_hosts", required=True)
parser.add_argument("--job_name", required=True)
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--steps", type=int, default=12)
flags = parser.parse_args()
config = json.loads(os.environ["TF_CONFIG"])
assert config["task"] == {"type": flags.job_name, "index": flags.task_index}, config

workers = flags.worker_hosts.split(",")
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": workers})
server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
if flags.job_name == "ps":
    server.join()

own = "/job:worker/task:%d" % flags.task_index
tf.set_random_seed(7)
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)):
    global_step = tf.train.get_or_create_global_step()
    x = tf.random_normal([16, 4], seed=flags.task_index + 1)
    hidden = tf.layers.dense(x, 8, activation=tf.tanh, name="hidden")
    y = tf.layers.dense(hidden, 1, name="out")
    loss = tf.reduce_mean(tf.square(y - tf.reduce_sum(x, 1, keepdims=True)))
    train_op = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, global_step=global_step)

# Only this task's: the default graph is not shared, whichever process the others are in.
assert len(tf.trainable_variables()) == 4, tf.trainable_variables()
settings = tf.ConfigProto(device_filters=["/job:ps", own])
with tf.train.MonitoredTrainingSession(master=server.target, is_chief=flags.task_index == 0, config=settings) as session:
    # Not through the session's hooks: the step of the others must not end it.
    while True:
        step = session.run(global_step)
        if step >= flags.steps:
            break
        if step % len(workers) != flags.task_index:
            time.sleep(0.002)
            continue
        value, _ = session.run([loss, train_op])
        print("step %d loss %.9e" % (step, value), flush=True)
print("worker %d has ended" % flags.task_index)
