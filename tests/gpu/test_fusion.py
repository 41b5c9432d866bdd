"""Element-wise nodes of steps that repeat are computed together (muster/ops/fusion), with the same bits."""
import json

import card

# Rounds of the same steps: the first ones run node by node, the last ones with joined functions.
ROUNDS = """
import json, time
import numpy as np
import muster as tf
from muster import _muster

def joined():
    return sum(report["joined_calls"] for report in _muster.gpu_reports())

def rounds(session, begin, step, count=3, least=1):
    '''Bytes of what `step(i)` gives must be those of the first round, also when calls have been joined.'''
    before, first, after, end = joined(), None, 0, time.monotonic() + 120
    while after < 2:
        session.run(begin)
        results = [[np.asarray(part).tobytes() for part in session.run(*step(i))] for i in range(count)]
        first = first or results
        assert results == first, "joined functions give other bits"
        after += joined() >= before + least
        assert time.monotonic() < end, "nothing was joined"
    print(json.dumps(len(first)))
"""


def _passes(program):
    assert [json.loads(line) for line in card.run(ROUNDS + program).splitlines() if line.isdigit()]


def test_chains_with_broadcasts_types_and_variables():
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [None, 24])
    bias = tf.Variable(random.randn(24).astype(np.float32))
    total = tf.Variable(tf.zeros([5, 24]))
    mean = tf.reduce_mean(x, 1, keepdims=True)
    centred = x - mean
    scaled = centred * tf.rsqrt(tf.reduce_mean(tf.square(centred), 1, keepdims=True) + 1e-3) + bias
    half = tf.cast(tf.nn.relu(scaled) * tf.sigmoid(x), tf.half)
    chosen = tf.where(scaled > 0.1, scaled, tf.nn.elu(scaled) - tf.tanh(x))
    sums = tf.add_n([chosen, x, tf.cast(half * half + 1, tf.float32)])
    added = tf.assign_add(total, sums * 0.25)
    with tf.control_dependencies([added]):
        kept = tf.identity(half)
    last = tf.maximum(added, 0.5) / 3.0
begin = tf.global_variables_initializer()
data = [random.randn(5, 24).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: ([last, kept, chosen], {x: data[i]}))
""")


def test_updates_written_out():
    """As optimizers in Python: slots are assigned what was computed of them."""
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    gradient = tf.placeholder(tf.float32, [7, 9])
    value, m, v = (tf.Variable(start) for start in (tf.ones([7, 9]), tf.zeros([7, 9]), tf.zeros([7, 9])))
    next_m = 0.9 * m + 0.1 * gradient
    next_v = 0.999 * v + 0.001 * tf.square(gradient)
    update = next_m / (tf.sqrt(next_v) + 1e-6) + 0.01 * value
    train = [tf.assign(value, value - 0.1 * update), tf.assign(m, next_m), tf.assign(v, next_v)]
begin = tf.global_variables_initializer()
data = [random.randn(7, 9).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: (train, {gradient: data[i]}), least=3)
""")


def test_values_that_others_need_are_kept():
    """Products and sums read what a chain computes, in the middle of it and at other places than its own."""
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [6, 6])
    a = tf.exp(-x) + 1.0
    b = tf.nn.relu(a * x)
    product = tf.matmul(a, b)
    c = tf.sqrt(a) * product + tf.transpose(b)
    row = c[0] * 2.0
    d = c * row - tf.reduce_sum(c, 0)
    grad, = tf.gradients(d, x)
begin = tf.no_op()
data = [random.rand(6, 6).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: ([d, grad, b], {x: data[i]}))
""")


def test_random_programs():
    """Nodes at random, over tensors of several shapes and types, some of them read again later, and variables between them."""
    _passes("""
shapes = [[4, 6], [6], [4, 1], [], [1, 6], [3, 4, 6]]
unary = [tf.nn.relu, tf.tanh, tf.sigmoid, tf.square, tf.abs, tf.negative, tf.floor, tf.nn.elu, tf.nn.softsign, tf.identity]
binary = [tf.add, tf.subtract, tf.multiply, tf.maximum, tf.minimum, tf.squared_difference]

def program(seed):
    random = np.random.RandomState(seed)
    feeds = [tf.placeholder(tf.float32, shape) for shape in shapes]
    pool, changes = list(feeds), []
    variables = [tf.Variable(random.randn(4, 6).astype(np.float32)) for _ in range(2)]
    pool += [variable.read_value() for variable in variables]
    for _ in range(40):
        kind, a, b = random.randint(10), pool[random.randint(len(pool))], pool[-1 - random.randint(min(6, len(pool)))]
        if kind < 3:
            made = unary[random.randint(len(unary))](a)
        elif kind < 7:
            made = binary[random.randint(len(binary))](a, b)
        elif kind == 7:
            made = tf.cast(tf.cast(a, tf.half) * tf.constant(0.5, tf.half), tf.float32)
        elif kind == 8:
            made = tf.where(tf.greater(a + b, 0.25), a + b, b + a * 0.5)
        else:
            made = tf.reduce_sum(a) * 0.001 + b
        pool.append(tf.clip_by_value(made, -4.0, 4.0))
    wide = [t for t in pool if t.shape.as_list() == [4, 6]]
    with tf.control_dependencies(wide):
        changes = [tf.assign(variables[0], wide[-1] * 0.5), tf.assign_sub(variables[1], wide[-2] * 0.25)]
    fetches = [pool[-1 - 3 * i] for i in range(4)] + changes
    data = [[np.array(np.random.RandomState(seed * 10 + i).randn(*shape), np.float32) for shape in shapes] for i in range(2)]
    return fetches, lambda i: dict(zip(feeds, data[i]))

for seed in (1, 2, 3):
    with tf.Graph().as_default(), tf.device("/gpu:0"):
        fetches, feed = program(seed)
        begin = tf.global_variables_initializer()
        with tf.Session() as session:
            rounds(session, begin, lambda i: (fetches, feed(i)), count=2)
""")


def test_updates_of_several_variables_are_one():
    for optimizer in ("AdamOptimizer(0.01)", "MomentumOptimizer(0.1, 0.9, use_nesterov=True)"):
        _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [5, 8])
    at, variables = x, []
    for width in (3000, 7, 2):
        variables += [tf.Variable(np.linspace(-1, 1, int(at.shape[1]) * width).reshape(-1, width).astype(np.float32)), tf.Variable(tf.zeros([width]))]
        at = tf.tanh(tf.matmul(at, variables[-2]) + variables[-1])
    loss = tf.reduce_mean(tf.square(at - 0.5))
    train = tf.train.%s.minimize(loss)
begin = tf.global_variables_initializer()
data = [random.randn(5, 8).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    def step(i):
        session.run(train, {x: data[i]})
        return (variables,)
    rounds(session, begin, step, least=5)
""" % optimizer)


def test_assignments_at_the_end_of_a_step():
    """What a group before has computed it writes to the variable itself, unless the old value is still read in between."""
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [6, 6])
    m, v, old = (tf.Variable(random.randn(6, 6).astype(np.float32)) for _ in range(3))
    next_m = 0.9 * m + 0.1 * x
    next_v = tf.sqrt(tf.square(v) * 0.5 + tf.square(x))
    next_old = tf.tanh(old * x) - 0.25
    product = tf.matmul(next_m, next_v, transpose_b=True) + tf.matmul(next_old, x)
    later = tf.matmul(tf.nn.relu(product), old)
    train = [tf.assign(m, next_m), tf.assign(v, next_v), tf.assign(old, next_old)]
begin = tf.global_variables_initializer()
data = [random.randn(6, 6).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: (train + [later, product], {x: data[i]}), least=5)
""")


def test_functions_of_other_files_stand_between_groups():
    """They have the same kind of loop, but their functions are not among those that can be joined."""
    _passes("""
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [6, 6])
    a = tf.nn.relu(x * 2.0 + 1.0)
    b = tf.tanh(tf.lgamma(a + 0.5) * 0.25) - x
begin = tf.no_op()
data = [np.random.RandomState(i).rand(6, 6).astype(np.float32) for i in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: ([b], {x: data[i]}))
""")


def test_parts_of_tensors():
    """Gates are parts of a product and of its bias, states are parts of the next product's operand; sizes that are and are not
    multiples of 16 bytes, and 16-bit floats."""
    for width, dtype in ((6, "float32"), (8, "float32"), (5, "bfloat16")):
        _passes("""
random = np.random.RandomState(0)
width, dtype = %d, tf.%s
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [3, 4 * width])
    inputs = tf.split(tf.cast(x, dtype), 4, 1)
    kernel = tf.Variable(random.randn(2 * width, 4 * width).astype(np.float32) * 0.3)
    bias = tf.Variable(random.randn(4 * width).astype(np.float32))
    c, h = tf.zeros([3, width], dtype), tf.zeros([3, width], dtype)
    for given in inputs:
        gates = tf.nn.bias_add(tf.matmul(tf.concat([given, h], 1), tf.cast(kernel, dtype)), tf.cast(bias, dtype))
        i, j, f, o = tf.split(gates, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
    states = tf.cast(tf.concat([c, h], 1), tf.float32)
    loss = tf.reduce_sum(tf.square(states))
    gradients = tf.gradients(loss, [kernel, bias, x])
begin = tf.global_variables_initializer()
data = [random.randn(3, 4 * width).astype(np.float32) for _ in range(3)]
with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
    rounds(session, begin, lambda i: ([states] + gradients, {x: data[i]}), least=40)
""" % (width, dtype))


def test_heads_of_attention():
    """A bias before a transpose is added by the function that transposes."""
    for dtype in ("float32", "bfloat16"):
        _passes("""
random = np.random.RandomState(0)
dtype = tf.%s
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [6, 24])
    kernels = [tf.Variable(random.randn(24, 24).astype(np.float32) * 0.2) for _ in range(3)]
    biases = [tf.Variable(random.randn(24).astype(np.float32)) for _ in range(3)]
    def heads(kernel, bias):
        product = tf.nn.bias_add(tf.matmul(tf.cast(x, dtype), tf.cast(kernel, dtype)), tf.cast(bias, dtype))
        return tf.transpose(tf.reshape(product, [2, 3, 3, 8]), [0, 2, 1, 3])
    query, key, value = (heads(*each) for each in zip(kernels, biases))
    scores = tf.matmul(query, key, transpose_b=True) * tf.constant(0.35, dtype)
    context = tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3]), [6, 24])
    loss = tf.reduce_sum(tf.square(tf.cast(context, tf.float32)))
    gradients = tf.gradients(loss, kernels + biases)
begin = tf.global_variables_initializer()
data = [random.randn(6, 24).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: ([context] + gradients, {x: data[i]}), least=6)
""" % dtype)


def test_parts_that_are_read_otherwise_as_well():
    """The whole is needed besides its parts, parts overlap, or are of a value that is changed later."""
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [4, 12])
    bias = tf.Variable(random.randn(12).astype(np.float32))
    whole = tf.nn.bias_add(x, bias)
    a, b, c = tf.split(whole, 3, 1)
    over = whole[:, 2:6] * a + whole[1:2, 3:7]
    product = tf.matmul(whole, tf.concat([over, b, c], 1), transpose_b=True)
    row = tf.concat([product, tf.nn.relu(product) * 0.5, a - b], 1)
    columns = tf.transpose(row)[1:9] + 0.25
    with tf.control_dependencies([columns]):
        changed = tf.assign_add(bias, tf.concat([a[0] * 2.0, b[1], c[2]], 0) * 0.125)
begin = tf.global_variables_initializer()
data = [random.randn(4, 12).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: ([over, row, columns, changed], {x: data[i]}))
""")


def test_selections_and_floats_are_one():
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [4, 12])
    y = tf.tanh(x) * 2.0
    z = tf.where(y > 0.5, y + x, tf.zeros_like(x) - y)
    z = tf.sqrt(tf.where(z > 0.0, z, -z) + 1.0)
begin = tf.no_op()
data = [random.randn(4, 12).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    before = [sum(report[name] for report in _muster.gpu_reports()) for name in ("calls", "joined_calls")]
    rounds(session, begin, lambda i: ([z], {x: data[i]}))
    calls = [sum(report["calls"] for report in _muster.gpu_reports())]
    at = joined()
    session.run(z, {x: data[0]})
    done = sum(report["calls"] for report in _muster.gpu_reports()) - calls[0]
    assert done - (joined() - at) <= 3, (done, joined() - at)  # copies in and out, and one function
""")


def test_long_sequences():
    """More calls than wait: they run as several sequences. Steps that differ at their end only share the others."""
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [4, 4])
    kernel = tf.Variable(np.eye(4, dtype=np.float32) * 0.5)
    at = x
    for i in range(300):
        at = tf.tanh(tf.matmul(at, kernel) + x) * (1.0 - i / 1000.0)
    one, other = at * 2.0 - x, tf.sigmoid(at) * x
begin = tf.global_variables_initializer()
data = [random.randn(4, 4).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: ([one if i else other], {x: data[i]}), least=300)
""")


def test_tables_are_looked_up_and_changed_together():
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    ids = tf.placeholder(tf.int64, [7, 5])
    tables = [tf.Variable(random.randn(11, 4).astype(np.float32)) for _ in range(5)]
    rows = [tf.nn.embedding_lookup(table, ids[:, i]) for i, table in enumerate(tables)]
    loss = tf.reduce_sum(tf.square(tf.concat(rows, 1)))
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
begin = tf.global_variables_initializer()
data = [random.randint(0, 11, (7, 5)) for _ in range(3)]
with tf.Session() as session:
    def step(i):
        session.run(train, {ids: data[i]})
        return (tables,)
    rounds(session, begin, step, least=12)
""")


def test_an_optimizer_written_out_is_one_function_a_variable():
    """What it reads waits for the gradient, and assignments come when the old values have been read."""
    _passes("""
random = np.random.RandomState(0)
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [300, 200])
    kernels = [tf.Variable(random.randn(200, 200).astype(np.float32) * 0.1) for _ in range(3)]
    at = x
    for kernel in kernels:
        at = tf.matmul(at, kernel)
    updates = []
    for gradient, variable in zip(tf.gradients(tf.reduce_sum(tf.square(at)), kernels), kernels):
        m, v = (tf.Variable(tf.zeros([200, 200]), trainable=False) for _ in range(2))
        next_m = 0.9 * m + 0.1 * gradient
        next_v = 0.999 * v + 0.001 * tf.square(gradient)
        update = next_m / (tf.sqrt(next_v) + 1e-6) + 0.01 * variable
        updates += [tf.assign(variable, variable - 0.001 * update), tf.assign(m, next_m), tf.assign(v, next_v)]
    train = tf.group(*updates)
begin = tf.global_variables_initializer()
data = [random.randn(300, 200).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    def step(i):
        session.run(train, {x: data[i]})
        return (kernels,)
    rounds(session, begin, step, least=30)
    calls, at = sum(report["calls"] for report in _muster.gpu_reports()), joined()
    session.run(train, {x: data[0]})
    left = sum(report["calls"] for report in _muster.gpu_reports()) - calls - (joined() - at)
    print("left", left)
    assert left <= 18, left
""")


def test_sums_over_rows():
    """Layer normalization and softmax with their gradients, of rows that fill the lanes and rows that do not, also of 16-bit floats."""
    for rows, width, dtype, least in ((40, 64, "float32", 30), (9, 30, "float32", 24), (7, 200, "float32", 24), (12, 48, "bfloat16", 20)):
        _passes("""
random = np.random.RandomState(0)
rows, width, dtype = %d, %d, tf.%s
with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [rows, width])
    kernel, bias, beta, gamma = (tf.Variable(random.randn(*shape).astype(np.float32) * 0.3) for shape in (
        [width, width], [width], [width], [width]))
    at = tf.nn.bias_add(tf.matmul(x, kernel), bias) + x
    mean, variance = tf.nn.moments(at, [-1], keep_dims=True)
    at = tf.nn.batch_normalization(at, mean, variance, beta, gamma, 1e-6)
    logits = tf.cast(tf.matmul(at, kernel), dtype) * tf.constant(0.25, dtype)
    chances = tf.nn.softmax(logits)
    logs = tf.nn.log_softmax(tf.cast(logits, tf.float32) - at) * 0.5
    low, high = tf.reduce_min(at, 1), tf.reduce_max(at, 1, keepdims=True)
    spread = tf.square(at - high) * 0.1 + tf.expand_dims(low, 1)
    loss = tf.reduce_sum(tf.cast(chances, tf.float32) * tf.sin(at)) + tf.reduce_sum(spread)
    gradients = tf.gradients(loss, [x, kernel, bias, beta, gamma])
begin = tf.global_variables_initializer()
data = [random.randn(rows, width).astype(np.float32) for _ in range(3)]
with tf.Session() as session:
    rounds(session, begin, lambda i: ([at, chances, logs, low, spread] + gradients, {x: data[i]}), least=%d)
""" % (rows, width, dtype, least))
