"""What the programs of one client share: their flags, their server, and training from the first loss to the last."""
import argparse

import tensorflow as tf


def start(ps, workers, steps):
    """Starts this task's server; tasks that are not the client stay in it. Gives (server, workers, steps)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", default=ps)
    parser.add_argument("--worker_hosts", default=workers)
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--steps", type=int, default=steps)
    flags = parser.parse_args()
    cluster = {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if (flags.job_name, flags.task_index) != ("worker", 0):
        server.join()
    return server, len(cluster["worker"]), flags.steps


def train(server, train_op, loss, feed, steps, **options):
    """Prints the loss before and after the steps, and gives both."""
    with tf.Session(server.target, config=tf.ConfigProto(**options)) as session:
        session.run(tf.global_variables_initializer())
        first = session.run(loss, feed)
        for _ in range(steps):
            session.run(train_op, feed)
        last = session.run(loss, feed)
    print("loss %.4f -> %.4f" % (first, last))
    return first, last
