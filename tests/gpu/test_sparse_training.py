"""Embeddings that are trained on the emulated card, against those on the CPU."""
import card

MODEL = """
import numpy as np
import muster as tf

ROWS, WIDTH = 50, 6

def lookup(ids, use_resource):
    tables = []
    for name in ("a", "b"):
        with tf.variable_scope(name, use_resource=use_resource):
            start = np.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH).astype(np.float32)
            tables.append(tf.get_variable("table", initializer=start if name == "a" else -start))
    rows = [tf.nn.embedding_lookup(table, ids) for table in tables]
    return tables, tf.reduce_sum(tf.square(rows[0] * 2.0 - rows[1] - 0.3))

def train(device, optimizer, use_resource, batches, level=tf.OptimizerOptions.L1):
    with tf.Graph().as_default():
        with tf.device(device):
            ids = tf.placeholder(tf.int64, [None])
            tables, loss = lookup(ids, use_resource)
            step = optimizer().minimize(loss)
        options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level=level))
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=False, graph_options=options)) as session:
            session.run(tf.global_variables_initializer())
            losses = [float(session.run([loss, step], {ids: batch})[0]) for batch in batches]
            return losses, [session.run(table).tolist() for table in tables]

random = np.random.RandomState(0)
BATCHES = [random.randint(0, ROWS, size) for size in (7, 30, 0, 64, 30, 30, 30)] + [np.full(40, 3)]

def agree(a, b, tolerance):
    for x, y in zip(a, b):
        np.testing.assert_allclose(np.array(x, np.float64), np.array(y, np.float64), tolerance, tolerance)
"""


def test_training_is_as_on_the_cpu():
    card.run(MODEL + """
OPTIMIZERS = {
    "GradientDescent": lambda: tf.train.GradientDescentOptimizer(0.01),
    "Momentum": lambda: tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    "Adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "Adam": lambda: tf.train.AdamOptimizer(0.01),
    "Ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "RMSProp": lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.5),
    "centered RMSProp": lambda: tf.train.RMSPropOptimizer(0.01, centered=True),
    "Adadelta": lambda: tf.train.AdadeltaOptimizer(1.0),
    "AdagradDA": lambda: tf.train.AdagradDAOptimizer(0.1, tf.Variable(np.int64(1), trainable=False)),
    "ProximalAdagrad": lambda: tf.train.ProximalAdagradOptimizer(0.1, l2_regularization_strength=0.1),
    "ProximalGradientDescent": lambda: tf.train.ProximalGradientDescentOptimizer(0.01, l1_regularization_strength=0.01),
}
for name, make in OPTIMIZERS.items():
    for use_resource in False, True:
        on_cpu, on_gpu = (train(device, make, use_resource, BATCHES) for device in ("/cpu:0", "/gpu:0"))
        assert on_cpu[0][-1] != on_cpu[0][0], name
        try:
            agree(on_cpu, on_gpu, 2e-4)
        except AssertionError:
            print(name, use_resource)
            raise

# Without rewrites Unique tells the host how many rows there are.
for name in "Adagrad", "Adam":
    make = OPTIMIZERS[name]
    agree(train("/cpu:0", make, True, BATCHES), train("/gpu:0", make, True, BATCHES, tf.OptimizerOptions.L0), 2e-4)
""")


def test_gradients_of_one_row_are_summed_without_the_host():
    card.run(MODEL + """
def ops_of_a_step(optimizer, use_resource):
    with tf.Graph().as_default():
        with tf.device("/gpu:0"):
            ids = tf.placeholder(tf.int64, [None])
            step = optimizer.minimize(lookup(ids, use_resource)[1])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            metadata = tf.RunMetadata()
            session.run(step, {ids: BATCHES[0]}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
            return {node.timeline_label.split("=")[-1].split("(")[0].strip()
                    for device in metadata.step_stats.dev_stats for node in device.node_stats}

for use_resource in False, True:
    for optimizer in tf.train.AdagradOptimizer(0.1), tf.train.MomentumOptimizer(0.1, 0.9):
        found = ops_of_a_step(optimizer, use_resource)
        assert any("SparseApply" in op for op in found), found
        assert not found & {"Unique", "UnsortedSegmentSum"}, found
    found = ops_of_a_step(tf.train.AdamOptimizer(0.1), use_resource)
    assert "MusterSumRows" in found and not found & {"Unique", "UnsortedSegmentSum"}, found
""")


def test_many_rows():
    card.run(MODEL + """
ops = tf.raw_ops
ROWS, WIDTH = 3000, 5
many = np.concatenate([random.randint(0, ROWS, 1500), np.full(3200, 7), random.randint(0, ROWS, 1000)])
random.shuffle(many)
# Sorted by row on the card, with long runs of one row.
for make in (lambda: tf.train.AdagradOptimizer(0.1)), (lambda: tf.train.AdamOptimizer(0.1)):
    on_cpu, on_gpu = (train(device, make, True, [many, many[:4200]]) for device in ("/cpu:0", "/gpu:0"))
    agree(on_cpu, on_gpu, 2e-4)

# One occurrence after the other, and rows that do not exist.
def apply(device, indices, gradient):
    with tf.Graph().as_default():
        with tf.device(device):
            table, accum = (tf.get_variable(name, initializer=np.ones((ROWS, WIDTH), np.float32), use_resource=True)
                            for name in ("table", "accum"))
            step = ops.ResourceSparseApplyAdagrad(var=table.handle, accum=accum.handle, lr=0.1, grad=gradient, indices=indices)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(step)
            return session.run([table, accum])

for size in 300, 4200:
    indices, gradient = many[:size], random.randn(size, WIDTH).astype(np.float32)
    on_cpu = apply("/cpu:0", indices, gradient)
    agree(on_cpu, apply("/gpu:0", indices, gradient), 1e-4)
    bad = np.array([-1, ROWS, ROWS + 5, 2**40, -2**40])
    more = np.concatenate([bad[:3], indices, bad[3:]]), np.concatenate([gradient[:3], gradient, gradient[:2]])
    agree(on_cpu, apply("/gpu:0", *more), 1e-4)
""")


def test_partitioned_tables_and_combined_rows():
    card.run(MODEL + """
def combined(device):
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        with tf.device(device):
            start = np.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH).astype(np.float32)
            table = tf.get_variable("table", [ROWS, WIDTH], initializer=tf.random_uniform_initializer(seed=1), partitioner=tf.fixed_size_partitioner(3))
            whole = tf.get_variable("whole", initializer=start)
            ids = tf.placeholder(tf.int64, [None])
            found = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
            loss = tf.reduce_sum(tf.square(found))
            places = np.array([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1], [3, 2]], np.int64)
            sparse = tf.SparseTensor(places, np.array([4, 9, 4, 1, 2, 9], np.int64), [4, 3])
            for combiner in "sum", "mean", "sqrtn":
                loss += tf.reduce_sum(tf.square(tf.nn.embedding_lookup_sparse(whole, sparse, None, combiner=combiner)))
            step = tf.train.AdagradOptimizer(0.1).minimize(loss)
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            session.run(tf.global_variables_initializer())
            losses = [float(session.run([loss, step], {ids: batch})[0]) for batch in BATCHES[:4]]
            return losses, session.run(list(table)), session.run(whole)

for got, want in zip(combined("/gpu:0"), combined("/cpu:0")):
    agree(want, got, 2e-4)
""")
