"""A worker that trains by all-reduce: each step averages over all, so the model tells how many took part and how often."""
import argparse
import time

import tensorflow as tf


class Pace(tf.train.SessionRunHook):
    """Steps take a little while, so that tests can act between them."""

    def after_run(self, run_context, run_values):
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts")
    parser.add_argument("--worker_hosts")
    parser.add_argument("--job_name")
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--checkpoint_dir")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--save", action="store_true", help="keep a checkpoint, that of the beginning")
    flags = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)
    cluster = tf.train.ClusterSpec({"worker": flags.worker_hosts.split(",")})
    server = tf.train.Server(cluster, "worker", flags.task_index)
    own = "/job:worker/task:%d" % flags.task_index
    with tf.device(own):
        step = tf.train.get_or_create_global_step()
        # The gradient is minus one on every worker: w counts the updates, whatever the members.
        w = tf.get_variable("w", initializer=tf.zeros([1000]))
        optimizer = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(1.0))
        train = optimizer.minimize(-tf.reduce_sum(w), global_step=step)
    hooks = [optimizer.make_session_run_hook(server, grace_secs=2), tf.train.StopAtStepHook(last_step=flags.steps), Pace()]
    config = tf.ConfigProto(device_filters=[own])
    with tf.train.MonitoredTrainingSession(server.target, is_chief=flags.task_index == 0, hooks=hooks, config=config,
                                           checkpoint_dir=flags.checkpoint_dir if flags.save else None,
                                           save_checkpoint_secs=3600, save_summaries_steps=None, save_summaries_secs=None,
                                           log_step_count_steps=None) as session:
        while not session.should_stop():
            _, at, value = session.run([train, step, w])
            print("%.3f step %d %d %d" % (time.time(), at, value.min(), value.max()), flush=True)
    print("%.3f done" % time.time(), flush=True)


if __name__ == "__main__":
    main()
