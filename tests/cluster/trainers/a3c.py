"""Asynchronous advantage actor-critic: one network on the parameter server, a copy and an environment per worker."""
import argparse
import collections
import os
import queue
import signal
import sys
import threading

import numpy as np
import tensorflow as tf

Step = collections.namedtuple("Step", "state action reward value done")


class Corridor(object):
    """Seven places in a row: stepping right pays in the end."""

    size, num_actions = 7, 2

    def reset(self):
        self.at, self.time = 3, 0
        return self._state()

    def step(self, action):
        self.at += 1 if action else -1
        self.time += 1
        done = self.at in (0, self.size - 1) or self.time >= 20
        return self._state(), float(self.at == self.size - 1), done

    def _state(self):
        return np.eye(self.size, dtype=np.float32)[self.at]


class Policy(object):
    def __init__(self, num_actions, size, seed):
        self.x = tf.placeholder(tf.float32, [None, size])
        hidden = tf.nn.elu(self._linear(self.x, 16, "hidden", 1.0, seed))
        self.logits = self._linear(hidden, num_actions, "action", 0.01, seed + 1)
        self.vf = tf.reshape(self._linear(hidden, 1, "value", 1.0, seed + 2), [-1])
        self.sample = tf.one_hot(tf.squeeze(tf.multinomial(
            self.logits - tf.reduce_max(self.logits, [1], keep_dims=True), 1, seed=seed + 3), [1]), num_actions)[0, :]
        self.var_list = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, tf.get_variable_scope().name)

    @staticmethod
    def _linear(x, size, name, scale, seed):
        w = tf.get_variable(name + "/w", [x.get_shape()[1], size],
                            initializer=tf.random_uniform_initializer(-scale, scale, seed=seed))
        b = tf.get_variable(name + "/b", [size], initializer=tf.constant_initializer(0))
        return tf.matmul(x, w) + b

    def act(self, state):
        session = tf.get_default_session()
        action, value = session.run([self.sample, self.vf], {self.x: [state]})
        return int(action.argmax()), float(value[0])

    def value(self, state):
        return float(tf.get_default_session().run(self.vf, {self.x: [state]})[0])


class Runner(threading.Thread):
    """Plays in a thread of its own; rollouts wait in a queue."""

    def __init__(self, env, policy, length, session):
        super(Runner, self).__init__(daemon=True)
        self.queue = queue.Queue(1)
        self._env, self._policy, self._length, self._session = env, policy, length, session
        self.wanted = threading.Semaphore(0)

    def run(self):
        with self._session.as_default(), self._session.graph.as_default():
            state = self._env.reset()
            while True:
                self.wanted.acquire()
                rollout, done = [], False
                while len(rollout) < self._length and not done:
                    action, value = self._policy.act(state)
                    following, reward, done = self._env.step(action)
                    rollout.append(Step(state, action, reward, value, done))
                    state = self._env.reset() if done else following
                self.queue.put((rollout, 0.0 if done else self._policy.value(state)))


class A3C(object):
    def __init__(self, env, task, gamma=0.95):
        self.env, self.task, self.gamma = env, task, gamma
        worker_device = "/job:worker/task:{}/cpu:0".format(task)
        with tf.device(tf.train.replica_device_setter(1, worker_device=worker_device)):
            with tf.variable_scope("global"):
                self.network = Policy(env.num_actions, env.size, seed=10)
                self.global_step = tf.get_variable("global_step", [], tf.int32, trainable=False,
                                                   initializer=tf.constant_initializer(0, dtype=tf.int32))
        with tf.device(worker_device):
            with tf.variable_scope("local"):
                self.local_network = pi = Policy(env.num_actions, env.size, seed=20 + task)
                pi.global_step = self.global_step
            self.ac = tf.placeholder(tf.float32, [None, env.num_actions], name="ac")
            self.adv = tf.placeholder(tf.float32, [None], name="adv")
            self.r = tf.placeholder(tf.float32, [None], name="r")
            log_prob, prob = tf.nn.log_softmax(pi.logits), tf.nn.softmax(pi.logits)
            pi_loss = -tf.reduce_sum(tf.reduce_sum(log_prob * self.ac, [1]) * self.adv)
            vf_loss = 0.5 * tf.reduce_sum(tf.square(pi.vf - self.r))
            entropy = -tf.reduce_sum(prob * log_prob)
            self.loss = pi_loss + 0.5 * vf_loss - entropy * 0.01
            size = tf.to_float(tf.shape(pi.x)[0])
            grads, norm = tf.clip_by_global_norm(tf.gradients(self.loss, pi.var_list), 40.0)
            tf.summary.scalar("model/loss", self.loss / size)
            tf.summary.scalar("model/grad_global_norm", norm)
            self.summary_op = tf.summary.merge_all()
            self.sync = tf.group(*[v1.assign(v2) for v1, v2 in zip(pi.var_list, self.network.var_list)])
            inc_step = self.global_step.assign_add(tf.shape(pi.x)[0])
            self.train_op = tf.group(tf.train.AdamOptimizer(1e-2).apply_gradients(
                list(zip(grads, self.network.var_list))), inc_step)

    def start(self, session, summary_writer):
        self.runner, self.summary_writer, self.steps = Runner(self.env, self.local_network, 10, session), summary_writer, 0
        self.runner.start()

    def process(self, session):
        session.run(self.sync)
        self.runner.wanted.release()
        rollout, last = self.runner.queue.get(timeout=100)
        returns, value = [], last
        for step in reversed(rollout):
            value = step.reward + self.gamma * value
            returns.append(value)
        returns = np.array(returns[::-1], np.float32)
        fetches = [self.loss, self.train_op, self.global_step]
        if self.task == 0 and self.steps % 11 == 0:
            fetches.append(self.summary_op)
        fetched = session.run(fetches, {
            self.local_network.x: [step.state for step in rollout],
            self.ac: np.eye(self.env.num_actions)[[step.action for step in rollout]],
            self.adv: returns - [step.value for step in rollout], self.r: returns})
        if len(fetched) > 3:
            self.summary_writer.add_summary(tf.Summary.FromString(fetched[3]), fetched[2])
            self.summary_writer.flush()
        self.steps += 1
        return fetched[0]


class FastSaver(tf.train.Saver):
    """Does not write the graph again with every checkpoint."""

    def save(self, sess, save_path, global_step=None, latest_filename=None, meta_graph_suffix="meta",
             write_meta_graph=True):
        super(FastSaver, self).save(sess, save_path, global_step, latest_filename, meta_graph_suffix, False)


def run(args, server):
    trainer = A3C(Corridor(), args.task_index)
    to_save = [v for v in tf.global_variables() if not v.name.startswith("local")]
    init_op, init_all_op = tf.variables_initializer(to_save), tf.global_variables_initializer()
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:{}/cpu:0".format(args.task_index)])
    logdir = os.path.join(args.log_dir, "train")
    writer = tf.summary.FileWriter(logdir + "_%d" % args.task_index)
    supervisor = tf.train.Supervisor(
        is_chief=args.task_index == 0, logdir=logdir, saver=FastSaver(to_save), summary_op=None, init_op=init_op,
        init_fn=lambda session: session.run(init_all_op), summary_writer=writer,
        ready_op=tf.report_uninitialized_variables(to_save), global_step=trainer.global_step, save_model_secs=30,
        save_summaries_secs=30)
    with supervisor.managed_session(server.target, config=config) as session, session.as_default():
        session.run(trainer.sync)
        trainer.start(session, writer)
        losses, step = [], session.run(trainer.global_step)
        while not supervisor.should_stop() and step < args.steps:
            losses.append(trainer.process(session))
            step = session.run(trainer.global_step)
    supervisor.stop()
    print("worker %d reached %d" % (args.task_index, step) if args.workers > 1 else
          "losses %s" % " ".join("%.3f" % loss for loss in losses[::10]))
    if args.task_index == 0:
        names = sorted(os.listdir(logdir))
        print("graphs %d, checkpoints %s" % (len([name for name in names if name.endswith(".meta")]),
                                             any(name.endswith(".index") for name in names)))


def main(_):
    parser = argparse.ArgumentParser()
    parser.add_argument("--task_index", default=0, type=int)
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--ps_hosts")
    parser.add_argument("--worker_hosts")
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--steps", default=600, type=int)
    args = parser.parse_args()
    spec = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    args.workers = len(spec["worker"])
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    server = tf.train.Server(tf.train.ClusterSpec(spec).as_cluster_def(), job_name=args.job_name,
                             task_index=args.task_index,
                             config=tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2))
    if args.job_name == "ps":
        server.join()
    run(args, server)


if __name__ == "__main__":
    tf.app.run()
