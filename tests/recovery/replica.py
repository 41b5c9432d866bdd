"""One task of a cluster whose model counts its own updates: every update adds one to each of two variables, which are on
different parameter servers where there are two. Prints what it does, one line for each event; the tests read them."""
import argparse
import time

import tensorflow as tf

if not hasattr(tf, "placeholder"):  # stock TensorFlow 2.x
    tf = tf.compat.v1
    tf.disable_v2_behavior()


def parse_flags():
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name", "checkpoint_dir"):
        parser.add_argument("--" + name, default=None)
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--style", choices=["monitored", "supervisor"], default="monitored")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--no_stop", action="store_true", help="end without stopping the supervisor")
    parser.add_argument("--no_hook", action="store_true", help="forget the hook that synchronous training needs")
    parser.add_argument("--aggregate", type=int, default=2)
    parser.add_argument("--total", type=int, default=2)
    parser.add_argument("--num_tokens", type=int, default=-1)
    parser.add_argument("--last_step", type=int, default=1000000)
    parser.add_argument("--own_steps", type=int, default=1000000)
    parser.add_argument("--save_steps", type=int, default=10)
    parser.add_argument("--hold_at", type=int, default=1000000, help="at this step it says so and does nothing any more")
    parser.add_argument("--pause", type=float, default=0.02, help="between runs")
    parser.add_argument("--slow", type=float, default=0, help="inside a run")
    parser.add_argument("--no_filters", action="store_true")
    parser.add_argument("--recovery_wait_secs", type=int, default=30)
    return parser.parse_args()


def say(*words):
    print("%.3f" % time.time(), *words, flush=True)


def build(flags, cluster):
    """The step's op, the global step, the two counters and, for synchronous training, its optimizer."""
    own = "/job:worker/task:%d" % flags.task_index
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)):
        step = tf.train.get_or_create_global_step()
        counters = [tf.Variable(0.0, name="v%d" % i) for i in range(2)]
        loss = -(counters[0] + counters[1])
        if flags.slow:
            with tf.device(own):  # the gradients wait for it
                one = tf.py_func(lambda v: time.sleep(flags.slow) or v ** 0, [counters[0]], tf.float32)
            loss *= tf.stop_gradient(tf.reshape(one, []))
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        if flags.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=flags.aggregate,
                                                       total_num_replicas=flags.total)
        train = optimizer.minimize(loss, global_step=step)
    return train, step, counters, optimizer


def hold(flags, step):
    if step >= flags.hold_at:
        say("holds")
        time.sleep(600)


def loop(flags, session, should_stop, train, step, counters):
    made = 0
    while made < flags.own_steps and not should_stop():
        say("run")
        session.run(train)
        made += 1
        value, first, second = session.run([step, counters[0], counters[1]])
        say("step", int(value), int(first), int(second))
        hold(flags, value)
        if value >= flags.last_step:
            break
        time.sleep(flags.pause)
    return made


def main():
    flags = parse_flags()
    tf.logging.set_verbosity(tf.logging.INFO)
    ps_hosts, worker_hosts = flags.ps_hosts.split(","), flags.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    say("serving")
    if flags.job_name == "ps":
        server.join()
    is_chief = flags.task_index == 0
    train, step, counters, optimizer = build(flags, cluster)
    filters = [] if flags.no_filters else ["/job:ps", "/job:worker/task:%d" % flags.task_index]
    config = tf.ConfigProto(device_filters=filters)
    if flags.style == "supervisor":
        kwargs = {}
        if flags.sync:
            kwargs = {"local_init_op": optimizer.chief_init_op if is_chief else optimizer.local_step_init_op,
                      "ready_for_local_init_op": optimizer.ready_for_local_init_op}
            if is_chief:
                tokens = optimizer.get_init_tokens_op(flags.num_tokens)
        supervisor = tf.train.Supervisor(is_chief=is_chief, logdir=flags.checkpoint_dir, global_step=step,
                                         recovery_wait_secs=flags.recovery_wait_secs, save_model_secs=1, **kwargs)
        session = supervisor.prepare_or_wait_for_session(server.target, config=config)
        say("session")
        if flags.sync and is_chief:
            session.run(tokens)
            supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
        made = loop(flags, session, supervisor.should_stop, train, step, counters)
        say("loop ended", made)
        if not flags.no_stop:
            supervisor.stop()
            session.close()
    else:
        hooks = [tf.train.StopAtStepHook(last_step=flags.last_step)]
        if flags.sync and not flags.no_hook:
            hooks.append(optimizer.make_session_run_hook(is_chief, flags.num_tokens))
        with tf.train.MonitoredTrainingSession(master=server.target, is_chief=is_chief, hooks=hooks, config=config,
                                               checkpoint_dir=flags.checkpoint_dir if is_chief else None,
                                               save_checkpoint_steps=flags.save_steps,
                                               save_checkpoint_secs=None) as session:
            say("session")
            made = loop_monitored(flags, session, train, step, counters)
            say("loop ended", made)
    say("done")


def loop_monitored(flags, session, train, step, counters):
    made = 0
    while made < flags.own_steps and not session.should_stop():
        say("run")
        _, value, first, second = session.run([train, step, counters[0], counters[1]])
        made += 1
        say("step", int(value), int(first), int(second))
        hold(flags, value)
        time.sleep(flags.pause)
    return made


if __name__ == "__main__":
    main()
