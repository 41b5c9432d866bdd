"""A trainer whose parameter servers wait in queues for the workers to be done, and then end by themselves."""
import tempfile

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
FLAGS = flags.FLAGS


def create_done_queue(i, num_workers):
    with tf.device("/job:ps/task:%d" % i):
        return tf.FIFOQueue(num_workers, tf.int32, shared_name="done_queue" + str(i))


def main(_):
    ps_hosts, worker_hosts = FLAGS.ps_hosts.split(","), FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        sess = tf.Session(server.target)
        queue = create_done_queue(FLAGS.task_index, len(worker_hosts))
        for i in range(len(worker_hosts)):
            sess.run(queue.dequeue())
            print("ps %d received done %d" % (FLAGS.task_index, i))
        print("ps %d: quitting" % FLAGS.task_index)
        return

    is_chief = FLAGS.task_index == 0
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % FLAGS.task_index,
                                                  ps_device="/job:ps/cpu:0", cluster=cluster)):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        x = tf.placeholder(tf.float32, [None, 5])
        y = tf.placeholder(tf.float32, [None, 1])
        hid_w = tf.Variable(tf.truncated_normal([5, 7], stddev=.3, seed=1), name="hid_w")
        hid_b = tf.Variable(tf.zeros([7]), name="hid_b")
        out_w = tf.Variable(tf.truncated_normal([7, 1], stddev=.3, seed=2), name="out_w")
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b)), out_w) - y))
        train_op = tf.train.AdamOptimizer(.01).minimize(loss, global_step=global_step)
        enqueue_ops = [create_done_queue(i, len(worker_hosts)).enqueue(1) for i in range(len(ps_hosts))]
        sv = tf.train.Supervisor(is_chief=is_chief, logdir=tempfile.mkdtemp(), init_op=tf.global_variables_initializer(),
                                 recovery_wait_secs=1, global_step=global_step, summary_op=None)
    config = tf.ConfigProto(allow_soft_placement=True,
                            device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    rng = np.random.RandomState(FLAGS.task_index)
    with sv.prepare_or_wait_for_session(server.target, config=config) as sess:
        step = local_step = 0
        while not sv.should_stop() and step < 100:
            inputs = rng.randn(16, 5)
            loss_value, _, step = sess.run([loss, train_op, global_step], {x: inputs, y: inputs.sum(1, keepdims=True)})
            local_step += 1
            if len(worker_hosts) == 1 and local_step % 25 == 0:
                print("loss %.4f" % loss_value)
        for op in enqueue_ops:
            sess.run(op)
    print("worker %d done" % FLAGS.task_index)


if __name__ == "__main__":
    tf.app.run()
