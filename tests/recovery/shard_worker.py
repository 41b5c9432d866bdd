"""A worker that takes shards of the data. Its model counts how often each shard of each epoch was trained on, so that the
queue's account can be compared with what really happened. Prints what it does, one line for each event."""
import argparse
import json
import os
import time

import tensorflow as tf


def say(*words):
    print("%.3f" % time.time(), *words, flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name", "checkpoint_dir"):
        parser.add_argument("--" + name)
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--shards", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lease_secs", type=float, default=10)
    parser.add_argument("--pause", type=float, default=0.1, help="for each shard")
    parser.add_argument("--hold_after", type=int, default=-1, help="works on its next shard for ever after this many")
    parser.add_argument("--begin_when", help="takes nothing before this file is there")
    parser.add_argument("--save_steps", type=int, default=5)
    flags = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")})
    server = tf.train.Server(cluster, flags.job_name, flags.task_index)
    if flags.job_name == "ps":
        server.join()
    own = "/job:worker/task:%d" % flags.task_index
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)):
        step = tf.train.get_or_create_global_step()
        times = tf.get_variable("times", initializer=tf.zeros([flags.epochs * flags.shards], tf.int32))
        place = tf.placeholder(tf.int32, [])
        train = tf.group(tf.scatter_add(times, place, 1), tf.assign_add(step, 1))
        queue = tf.data.ShardQueue(["shard %d" % i for i in range(flags.shards)], epochs=flags.epochs, shuffle=True,
                                   seed=7, lease_secs=flags.lease_secs)
    taken = 0
    with tf.train.MonitoredTrainingSession(
            server.target, is_chief=flags.task_index == 0, checkpoint_dir=flags.checkpoint_dir, hooks=[queue.hook()],
            save_checkpoint_secs=None, save_checkpoint_steps=flags.save_steps, save_summaries_steps=None,
            log_step_count_steps=None, config=tf.ConfigProto(device_filters=["/job:ps", own])) as session:
        while flags.begin_when and not os.path.exists(flags.begin_when):
            time.sleep(0.05)
        for shard in queue.shards(session):
            assert shard.value == b"shard %d" % shard.index
            if taken == flags.hold_after:
                say("holds", shard.epoch, shard.index)
                while True:
                    time.sleep(1)
            taken += 1
            time.sleep(flags.pause)
            session.run(train, {place: shard.epoch * flags.shards + shard.index})
            say("finished", shard.epoch, shard.index)
        say("report", json.dumps(queue.report(session)))
        say("times", *session.run(times))
    say("done")


if __name__ == "__main__":
    main()
