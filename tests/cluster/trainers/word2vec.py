"""Skip-gram with noise-contrastive estimation; the embeddings are partitioned over the parameter servers."""
import collections
import math

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated host:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated host:port pairs")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_integer("steps", 60, "Steps to train")
flags.DEFINE_enum("partition_strategy", "mod", ["mod", "div"], "How rows are spread over the parts")
FLAGS = flags.FLAGS

VOCABULARY, EMBEDDING, BATCH, SAMPLED = 50, 8, 32, 10


def generate_batches(rng):
    """Pairs of a word and one of its neighbours in a text where n is followed by n + 1 or 3 n."""
    words = [0]
    for _ in range(400):
        words.append((words[-1] + 1 if rng.rand() < 0.5 else 3 * words[-1]) % VOCABULARY)
    pairs = collections.deque()
    while True:
        for i in range(1, len(words) - 1):
            pairs.extend([(words[i], words[i - 1]), (words[i], words[i + 1])])
            if len(pairs) >= BATCH:
                chosen = [pairs.popleft() for _ in range(BATCH)]
                yield np.array([c for c, _ in chosen], np.int64), np.array([[t] for _, t in chosen], np.int64)


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    num_ps = cluster.num_tasks("ps")
    with tf.device(tf.train.replica_device_setter(cluster=cluster,
                                                  worker_device="/job:worker/task:%d" % FLAGS.task_index)):
        global_step = tf.train.get_or_create_global_step()
        inputs = tf.placeholder(tf.int64, [BATCH])
        labels = tf.placeholder(tf.int64, [BATCH, 1])
        with tf.variable_scope("word2vec", partitioner=tf.fixed_size_partitioner(num_ps)):
            embeddings = tf.get_variable("embeddings", [VOCABULARY, EMBEDDING],
                                         initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=1))
            nce_weights = tf.get_variable("nce_weights", [VOCABULARY, EMBEDDING],
                                          initializer=tf.truncated_normal_initializer(
                                              stddev=1.0 / math.sqrt(EMBEDDING), seed=2))
            nce_biases = tf.get_variable("nce_biases", [VOCABULARY], initializer=tf.zeros_initializer())
        embedded = tf.nn.embedding_lookup(embeddings, inputs, partition_strategy=FLAGS.partition_strategy)
        sampled = tf.nn.log_uniform_candidate_sampler(labels, 1, SAMPLED, unique=True, range_max=VOCABULARY, seed=3)
        loss = tf.reduce_mean(tf.nn.nce_loss(
            weights=nce_weights, biases=nce_biases, labels=labels, inputs=embedded, num_sampled=SAMPLED,
            num_classes=VOCABULARY, sampled_values=sampled, partition_strategy=FLAGS.partition_strategy))
        rate = tf.train.exponential_decay(1.0, global_step, 20, 0.9, staircase=True)
        optimizer = tf.train.AdagradOptimizer(rate)
        gradients = optimizer.compute_gradients(loss)
        train_op = optimizer.apply_gradients(gradients, global_step=global_step)
        whole = tf.concat([tf.convert_to_tensor(part) for part in embeddings], 0)
        normalized = tf.nn.l2_normalize(whole, 1)
        similarity = tf.matmul(tf.nn.embedding_lookup(normalized, tf.constant([3, 7])), normalized, transpose_b=True)
        _, nearest = tf.nn.top_k(similarity, k=4)
    print("kinds of gradients: %s" % sorted({type(g).__name__ for g, _ in gradients}))
    print("places: %s" % sorted({v.device for v in tf.global_variables()}))

    supervisor = tf.train.Supervisor(is_chief=FLAGS.task_index == 0, global_step=global_step)
    with supervisor.managed_session(server.target) as session:
        batches, step, average = generate_batches(np.random.RandomState(FLAGS.task_index)), 0, 0.0
        while not supervisor.should_stop() and step < FLAGS.steps:
            centers, contexts = next(batches)
            _, value = session.run([train_op, loss], feed_dict={inputs: centers, labels: contexts})
            step = tf.train.global_step(session, global_step)
            average += value
            if step % 20 == 0:
                print("loss at step %d: %.4f" % (step, average / 20))
                average = 0.0
        print("nearest: %s" % np.sort(session.run(nearest)[:, 1:]).tolist())


if __name__ == "__main__":
    tf.app.run()
