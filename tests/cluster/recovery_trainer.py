"""A worker that counts: every update takes one from each of two variables. It prints a JSON object per event.

The argument is a JSON object: cluster, task, folder, sync, aggregate, tokens, pause, last_step, save_steps.
"""
import json
import sys
import time

import tensorflow as tf

OPTIONS = json.loads(sys.argv[1])


def say(event, **more):
    print(json.dumps(dict(more, event=event, time=time.time())), flush=True)


class Sessions(tf.train.SessionRunHook):
    """Tells of every session that is made."""

    def after_create_session(self, session, coord):
        say("session", step=int(session.run(tf.train.get_global_step())))


def main():
    task = OPTIONS["task"]
    cluster = tf.train.ClusterSpec(OPTIONS["cluster"])
    server = tf.train.Server(cluster, job_name="worker", task_index=task)
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % task, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        values = [tf.get_variable("v%d" % i, [], initializer=tf.zeros_initializer()) for i in range(2)]
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        hooks = [tf.train.StopAtStepHook(last_step=OPTIONS["last_step"])]
        if OPTIONS.get("sync"):
            workers = len(OPTIONS["cluster"]["worker"])
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, OPTIONS.get("aggregate", workers), workers)
            hooks.append(optimizer.make_session_run_hook(task == 0, OPTIONS.get("tokens", -1)))
        train = optimizer.minimize(values[0] + values[1], global_step=step)
    hooks.append(Sessions())
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % task])
    session = tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=task == 0, checkpoint_dir=OPTIONS["folder"], hooks=hooks, config=config,
        save_checkpoint_steps=OPTIONS.get("save_steps", 20), save_summaries_steps=None)
    with session:
        while not session.should_stop():
            _, at = session.run([train, step])
            say("step", step=int(at))
            time.sleep(OPTIONS.get("pause", 0.05))
        say("stop", values=[float(v) for v in session._tf_sess().run(values)],
            step=int(session._tf_sess().run(step)))
    say("closed")


main()
