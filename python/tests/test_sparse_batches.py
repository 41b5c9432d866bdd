"""SparseTensors pass through the queues of tf.train.batch and its kin."""
import numpy as np
import pytest

import muster as tf


def batches(build, count):
    with tf.Graph().as_default(), tf.Session() as sess:
        fetched = build()
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        got = [sess.run(fetched) for _ in range(count)]
        coord.request_stop()
        coord.join(threads)
        return got


def rows(sparse):
    return [[(int(at[1]), float(v)) for at, v in zip(sparse.indices, sparse.values) if at[0] == row]
            for row in range(sparse.dense_shape[0])]


def test_one_at_a_time():
    def build():
        n = tf.train.range_input_producer(6, shuffle=False).dequeue()
        sparse = tf.SparseTensor(tf.cast(tf.stack([[n % 4], [n % 4 + 1]]), tf.int64),
                                 tf.cast(tf.stack([n, n * 10]), tf.float32), [6])
        return tf.train.batch({"s": sparse, "n": n}, 3)

    first, second = batches(build, 2)
    assert list(first["n"]) == [0, 1, 2] and list(second["n"]) == [3, 4, 5]
    assert rows(first["s"]) == [[(0, 0), (1, 0)], [(1, 1), (2, 10)], [(2, 2), (3, 20)]]
    assert rows(second["s"]) == [[(3, 3), (4, 30)], [(0, 4), (1, 40)], [(1, 5), (2, 50)]]
    assert list(first["s"].dense_shape) == [3, 6]


def test_many_at_a_time():
    def build():
        sparse = tf.SparseTensor([[0, 1], [2, 0], [2, 3]], tf.constant([1., 2., 3.]), [3, 4])
        return tf.train.batch([sparse, tf.constant([7, 8, 9])], 3, enqueue_many=True)

    (sparse, dense), = batches(build, 1)
    assert rows(sparse) == [[(1, 1)], [], [(0, 2), (3, 3)]]
    assert list(dense) == [7, 8, 9]


def test_shuffled_and_joined():
    def build():
        made = []
        for start in (0, 100):
            n = tf.train.range_input_producer(50, shuffle=False).dequeue() + start
            made.append([tf.SparseTensor([[0]], tf.cast(tf.reshape(n, [1]), tf.float32), [1]), n])
        return tf.train.shuffle_batch_join(made, 8, capacity=40, min_after_dequeue=10, seed=1)

    for sparse, n in batches(build, 3):
        np.testing.assert_array_equal(sparse.values, n)


def test_columns_must_agree():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="sparsity"):
        sparse = tf.SparseTensor([[0]], tf.constant([1.]), [1])
        tf.train.batch_join([[sparse], [tf.constant(1.)]], 2)


def test_serialized_sparse_tensors_come_back():
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.SparseTensor([[0, 1], [0, 2], [2, 0]], ["a", "b", "c"], [3, 4])
        rows = tf.serialize_many_sparse(table)
        assert rows.get_shape().as_list() == [None, 3] and session.run(tf.shape(rows)).tolist() == [3, 3]
        again = session.run(tf.deserialize_many_sparse(rows, tf.string, rank=1))
        assert again.indices.tolist() == [[0, 1], [0, 2], [2, 0]] and again.values.tolist() == [b"a", b"b", b"c"]
        assert again.dense_shape.tolist() == [3, 4]
        one = session.run(tf.raw_ops.DeserializeSparse(serialized_sparse=tf.serialize_sparse(table), dtype=tf.string))
        assert one[0].tolist() == again.indices.tolist() and one[2].tolist() == [3, 4]


def _serialized(*values):
    return [tf.serialize_tensor(value) for value in values]


@pytest.mark.parametrize("parts, text", [
    (lambda: ["\x07bad", "", ""], "Could not parse"),
    (lambda: _serialized(tf.constant([[1, 2]]), tf.constant([1.0]), tf.constant([3, 3])), "index matrix"),
    (lambda: _serialized(tf.constant([[1, 2]], tf.int64), tf.constant([1.0, 2.0]), tf.constant([3, 3], tf.int64)), ""),
    (lambda: _serialized(tf.constant([[1, 2]], tf.int64), tf.constant([1.0]), tf.constant([3], tf.int64)), ""),
    (lambda: _serialized(tf.constant([1, 2], tf.int64), tf.constant([1.0]), tf.constant([3, 3], tf.int64)), ""),
    (lambda: _serialized(tf.constant([[1, 2]], tf.int64), tf.constant([1]), tf.constant([3, 3], tf.int64)), "of type float"),
])
def test_bytes_that_are_no_sparse_tensor(parts, text):
    with tf.Graph().as_default(), tf.Session() as session:
        read = tf.deserialize_many_sparse(tf.stack([tf.stack(parts())]), tf.float32)
        with pytest.raises(tf.errors.InvalidArgumentError, match=text or None):
            session.run(read)


def test_no_sparse_tensors_at_all():
    with tf.Graph().as_default(), tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least 1"):
            session.run(tf.deserialize_many_sparse(tf.zeros([0, 3], tf.string), tf.float32))
        with pytest.raises(ValueError, match="must be equal"):
            tf.deserialize_many_sparse(tf.constant([["a", "b"]]), tf.float32)
        rows = tf.placeholder_with_default(tf.constant([["a", "b"]]), None)
        with pytest.raises(tf.errors.InvalidArgumentError, match="3 columns"):
            session.run(tf.deserialize_many_sparse(rows, tf.float32))
