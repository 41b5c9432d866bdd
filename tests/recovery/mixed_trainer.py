"""One task of a between-graph trainer that runs on Muster and on stock TensorFlow alike: MonitoredTrainingSession, a
dense network, Adagrad or Adam, summaries and checkpoints; asynchronous or synchronous.

Batches and first values come from numpy and depend on the step and the task only, so that one worker meets the same
losses whichever program serves. A worker prints `loss STEP VALUE` for each of its steps."""
import argparse
import os
import time

import numpy as np
import tensorflow as tf

if not hasattr(tf, "placeholder"):  # stock TensorFlow 2.x
    tf = tf.compat.v1
    tf.disable_v2_behavior()

TEACHER = np.random.RandomState(0).randn(20, 4)


def parse_flags():
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name", "checkpoint_dir"):
        parser.add_argument("--" + name)
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--resource", action="store_true")
    parser.add_argument("--optimizer", choices=["adagrad", "adam"], default="adagrad")
    parser.add_argument("--last_step", type=int, default=100)
    parser.add_argument("--begin_when", help="takes no step before this file is there")
    return parser.parse_args()


def say(*words):
    print("%.3f" % time.time(), *words, flush=True)


def batch(step, task):
    x = np.random.RandomState(1000 * task + step).randn(64, 20).astype(np.float32)
    return x, x.dot(TEACHER).argmax(axis=1)


def dense(x, inputs, outputs, name, resource):
    values = np.random.RandomState(inputs).randn(inputs, outputs) / np.sqrt(inputs)
    w = tf.get_variable(name + "/kernel", initializer=values.astype(np.float32), use_resource=resource)
    b = tf.get_variable(name + "/bias", initializer=np.zeros(outputs, np.float32), use_resource=resource)
    return tf.nn.bias_add(tf.matmul(x, w), b)


def main():
    flags = parse_flags()
    tf.logging.set_verbosity(tf.logging.INFO)
    workers = flags.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": workers})
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    say("serving")
    if flags.job_name == "ps":
        server.join()
    is_chief = flags.task_index == 0
    own = "/job:worker/task:%d" % flags.task_index
    with tf.device(tf.train.replica_device_setter(worker_device=own, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 20])
        y = tf.placeholder(tf.int64, [None])
        hidden = tf.nn.relu(dense(x, 20, 32, "hidden", flags.resource))
        logits = dense(hidden, 32, 4, "logits", flags.resource)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        tf.summary.scalar("loss", loss)
        tf.summary.histogram("logits", logits)
        step = tf.train.get_or_create_global_step()
        optimizer = (tf.train.AdamOptimizer(0.01) if flags.optimizer == "adam" else
                     tf.train.AdagradOptimizer(0.05))
        hooks = [tf.train.StopAtStepHook(last_step=flags.last_step)]
        if flags.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=len(workers),
                                                       total_num_replicas=len(workers))
            # No tokens in advance: every step takes one batch of each worker.
            hooks.append(optimizer.make_session_run_hook(is_chief, num_tokens=0))
        train = optimizer.minimize(loss, global_step=step)
    config = tf.ConfigProto(device_filters=["/job:ps", own])
    with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=is_chief, checkpoint_dir=flags.checkpoint_dir, hooks=hooks, config=config,
            save_checkpoint_secs=None, save_checkpoint_steps=20, save_summaries_steps=10,
            stop_grace_period_secs=5) as session:
        now = 0
        at = int(session.run_step_fn(lambda step_context: step_context.session.run(step)))
        say("session", at)
        while flags.begin_when and not os.path.exists(flags.begin_when):
            time.sleep(0.02)
        while not session.should_stop():
            images, labels = batch(at, flags.task_index)
            _, value, now = session.run([train, loss, step], {x: images, y: labels})
            at += 1
            say("loss", at, float(value), int(now))
    say("done")


if __name__ == "__main__":
    main()
