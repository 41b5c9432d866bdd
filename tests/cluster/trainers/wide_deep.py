"""A wide and deep recommender: hashed crosses with FTRL, embeddings of lists with Adagrad, read from TFRecords."""
import json
import os
import tempfile

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string("data_dir", "", "Where the records are written; a new folder if empty")
tf.app.flags.DEFINE_integer("steps", 40, "Steps to train")
tf.app.flags.DEFINE_integer("batch_size", 32, "Examples per step")

USERS, ITEMS, BUCKETS, DIMENSION = 20, 30, 64, 4
FEATURES = {
    "user": tf.FixedLenFeature([], tf.string),
    "item": tf.FixedLenFeature([], tf.int64),
    "history": tf.VarLenFeature(tf.int64),
    "price": tf.FixedLenFeature([1], tf.float32, default_value=[0.5]),
    "label": tf.FixedLenFeature([1], tf.float32),
}


def write_records(path, count, seed):
    rng = np.random.RandomState(seed)
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(count):
            user, item = rng.randint(USERS), rng.randint(ITEMS)
            feature = {
                "user": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"user%d" % user])),
                "item": tf.train.Feature(int64_list=tf.train.Int64List(value=[item])),
                "history": tf.train.Feature(int64_list=tf.train.Int64List(value=rng.randint(0, ITEMS, rng.randint(4)))),
                "label": tf.train.Feature(float_list=tf.train.FloatList(value=[float((user + item) % 3 == 0)]))}
            if rng.rand() < 0.8:
                feature["price"] = tf.train.Feature(float_list=tf.train.FloatList(value=[rng.rand()]))
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def input_fn(paths, shard, num_shards):
    dataset = tf.data.TFRecordDataset(paths).shard(num_shards, shard).repeat().batch(FLAGS.batch_size)
    dataset = dataset.map(lambda records: tf.parse_example(records, FEATURES)).prefetch(2)
    iterator = dataset.make_initializable_iterator()
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


def wide(features):
    item = tf.as_string(features["item"])
    cross = tf.string_join([features["user"], item], separator="_X_")
    weights = tf.get_variable("wide/weights", [BUCKETS], initializer=tf.zeros_initializer())
    bias = tf.get_variable("wide/bias", [1], initializer=tf.zeros_initializer())
    columns = [tf.string_to_hash_bucket_fast(column, BUCKETS) for column in (features["user"], item, cross)]
    return tf.reduce_sum(tf.gather(weights, tf.stack(columns, axis=1)), axis=1, keepdims=True) + bias


def deep(features, hidden=(16, 8)):
    items = tf.get_variable("deep/items", [ITEMS, DIMENSION],
                            initializer=tf.truncated_normal_initializer(stddev=0.3, seed=1))
    users = tf.get_variable("deep/users", [BUCKETS, DIMENSION],
                            initializer=tf.truncated_normal_initializer(stddev=0.3, seed=2))
    filled, was_empty = tf.sparse_fill_empty_rows(features["history"], 0)
    history = tf.nn.embedding_lookup_sparse(items, filled, None, combiner="mean")
    history = tf.where(was_empty, tf.zeros_like(history), history)
    net = tf.concat([tf.nn.embedding_lookup(items, features["item"]), history,
                     tf.nn.embedding_lookup(users, tf.string_to_hash_bucket_fast(features["user"], BUCKETS)),
                     features["price"]], axis=1)
    for i, units in enumerate(hidden + (1,)):
        with tf.variable_scope("deep/layer%d" % i):
            kernel = tf.get_variable("kernel", [net.get_shape()[1].value, units],
                                     initializer=tf.glorot_uniform_initializer(seed=3 + i),
                                     regularizer=lambda w: 1e-4 * tf.nn.l2_loss(w))
            net = tf.nn.xw_plus_b(net, kernel, tf.get_variable("bias", [units], initializer=tf.zeros_initializer()))
            net = tf.nn.relu(net) if units > 1 else net
    return net


class LossTracker(tf.train.SessionRunHook):
    def __init__(self, loss):
        self._loss, self.losses = loss, []

    def before_run(self, run_context):
        return tf.train.SessionRunArgs({"loss": self._loss, "step": tf.train.get_global_step()})

    def after_run(self, run_context, run_values):
        self.losses.append(run_values.results["loss"])


def main(_):
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    folder = FLAGS.data_dir or tempfile.mkdtemp()
    path = os.path.join(folder, "clicks-%d.tfrecord" % task["index"])
    write_records(path, 300, seed=task["index"])
    strategy = tf.contrib.training.GreedyLoadBalancingStrategy(
        cluster.num_tasks("ps"), tf.contrib.training.byte_size_load_fn) if hasattr(tf, "contrib") else None
    with tf.device(tf.train.replica_device_setter(cluster=cluster, ps_strategy=strategy,
                                                  worker_device="/job:worker/task:%d" % task["index"])):
        global_step = tf.train.get_or_create_global_step()
        features = input_fn([path], 0, 1)
        logits = wide(features) + deep(features)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=features["label"], logits=logits))
        total = loss + tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
        train_op = tf.group(
            tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.001).minimize(
                total, var_list=tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="wide")),
            tf.train.AdagradOptimizer(0.1).minimize(
                total, var_list=tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="deep"),
                global_step=global_step))
        _, update_auc = tf.metrics.auc(features["label"], tf.sigmoid(logits))
        tf.summary.scalar("loss", loss)
    tracker = LossTracker(loss)
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.steps), tf.train.NanTensorHook(loss), tracker,
             tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=20),
             tf.train.FinalOpsHook(tf.report_uninitialized_variables())]
    with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=task["index"] == 0, checkpoint_dir=os.path.join(folder, "model"),
            hooks=hooks, save_checkpoint_steps=20, save_summaries_steps=10, log_step_count_steps=None) as session:
        while not session.should_stop():
            _, score = session.run([train_op, update_auc])
    print("losses %s" % " ".join("%.4f" % value for value in tracker.losses[::10]))
    print("uninitialized %d" % len(hooks[-1].final_ops_values))
    names = [name for name, _ in tf.train.list_variables(tf.train.latest_checkpoint(os.path.join(folder, "model")))]
    print("saved %s" % [name for name in names if "/Ftrl" in name or "/Adagrad" in name][:3])
    print("auc %.3f" % score)


if __name__ == "__main__":
    tf.app.run()
