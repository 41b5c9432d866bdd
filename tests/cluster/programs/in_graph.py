"""In-graph replication: one client builds a replica of the model for each worker and averages their gradients on the ps."""
import numpy as np
import one_client
import tensorflow as tf

INPUTS, CLASSES, EXAMPLES = 8, 3, 120

server, workers, steps = one_client.start(ps="localhost:2222", workers="localhost:2223,localhost:2224", steps=100)
optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
with tf.device("/job:ps/task:0"):
    w = tf.get_variable("w", [INPUTS, CLASSES], initializer=tf.random_normal_initializer(stddev=0.1, seed=7))
    b = tf.get_variable("b", [CLASSES], initializer=tf.zeros_initializer())
x = tf.placeholder(tf.float32, [None, INPUTS])
labels = tf.placeholder(tf.int64, [None])


def replica(task, x, labels):
    """The loss of a share of the examples, and its gradients."""
    with tf.device("/job:worker/task:%d" % task), tf.name_scope("replica_%d" % task):
        logits = tf.nn.xw_plus_b(x, w, b)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        return loss, [gradient for gradient, _ in optimizer.compute_gradients(loss, [w, b])]


shares = zip(tf.split(x, workers), tf.split(labels, workers))
losses, gradients = zip(*(replica(task, *share) for task, share in enumerate(shares)))
with tf.device("/job:ps/task:0"):
    mean_loss = tf.add_n(losses) / workers
    mean_gradients = [tf.add_n(of_one_variable) / workers for of_one_variable in zip(*gradients)]
    train_op = optimizer.apply_gradients(zip(mean_gradients, [w, b]))

random = np.random.RandomState(3)
examples = random.randn(EXAMPLES, INPUTS).astype(np.float32)
classes = (examples[:, :CLASSES] + 0.1 * random.randn(EXAMPLES, CLASSES)).argmax(axis=1)
first, last = one_client.train(server, train_op, mean_loss, {x: examples, labels: classes}, steps)
assert last < 0.5 * first
