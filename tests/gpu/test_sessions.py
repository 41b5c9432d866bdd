"""Sessions on the emulated card."""
import json

import card

MODEL = """
import json
import numpy as np
import muster as tf

def model(device):
    with tf.Graph().as_default() as graph, tf.device(device):
        tf.set_random_seed(1)
        x = tf.placeholder(tf.float32, [None, 8])
        y = tf.placeholder(tf.int32, [None])
        w1 = tf.Variable(np.linspace(-1, 1, 8 * 16).reshape(8, 16).astype(np.float32))
        b1 = tf.Variable(tf.zeros([16]))
        w2 = tf.Variable(np.linspace(1, -1, 16 * 4).reshape(16, 4).astype(np.float32))
        b2 = tf.Variable(tf.zeros([4]))
        logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        return graph, x, y, loss

def data(step):
    random = np.random.RandomState(step)
    return random.rand(10, 8).astype(np.float32), random.randint(0, 4, 10).astype(np.int32)
"""


def _lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith(("[", "{", '"'))]


def test_training_is_as_on_the_cpu():
    program = MODEL + """
def train(device, optimizer):
    graph, x, y, loss = model(device)
    with graph.as_default():
        with tf.device(device):
            step = optimizer().minimize(loss)
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=False)) as session:
            session.run(tf.global_variables_initializer())
            return [float(session.run([loss, step], dict(zip((x, y), data(i))))[0]) for i in range(12)]

for make in (lambda: tf.train.GradientDescentOptimizer(0.5), lambda: tf.train.MomentumOptimizer(0.1, 0.9),
             lambda: tf.train.AdamOptimizer(0.01), lambda: tf.train.AdagradOptimizer(0.1),
             lambda: tf.train.RMSPropOptimizer(0.01)):
    print(json.dumps([train("/cpu:0", make), train("/gpu:0", make)]))
"""
    found = _lines(card.run(program))
    assert len(found) == 5
    for on_cpu, on_gpu in found:
        assert on_cpu[-1] != on_cpu[0]
        for a, b in zip(on_cpu, on_gpu):
            assert abs(a - b) <= 1e-4 * max(1, abs(a)), (on_cpu, on_gpu)


def test_devices_and_placement():
    program = """
import json
import muster as tf
from muster.session import device_lib

print(json.dumps([d.name for d in device_lib.list_local_devices()]))
with tf.device("/gpu:0"):
    product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    text = tf.constant("x")
with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
    metadata = tf.RunMetadata()
    value = session.run(product, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    print(json.dumps([float(value[0, 0]), sorted(d.device for d in metadata.step_stats.dev_stats)]))
    print(json.dumps([d.name for d in session.list_devices()]))
with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0}, allow_soft_placement=True)) as session:
    print(json.dumps([float(session.run(product)[0, 0]), [d.name for d in session.list_devices()]]))
"""
    local, placed, devices, hidden = _lines(card.run(program))
    assert "/device:GPU:0" in local
    assert placed[0] == 11.0 and any("GPU:0" in name for name in placed[1])
    assert any("GPU:0" in name for name in devices)
    assert hidden[0] == 11.0 and not any("GPU" in name for name in hidden[1])


def test_a_checkpoint_moves_between_devices(tmp_path):
    program = MODEL + """
def saved(device, path, restore):
    graph, x, y, loss = model(device)
    with graph.as_default():
        with tf.device(device):
            step = tf.train.AdamOptimizer(0.1).minimize(loss)
        saver = tf.train.Saver()
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            session.run(tf.global_variables_initializer())
            if restore:
                saver.restore(session, path)
            else:
                for i in range(3):
                    session.run(step, dict(zip((x, y), data(i))))
                saver.save(session, path)
            print(json.dumps([float(session.run(loss, dict(zip((x, y), data(9)))))]))

saved("/gpu:0", PATH + "/a", False)
saved("/cpu:0", PATH + "/a", True)
saved("/gpu:0", PATH + "/a", True)
"""
    found = _lines(card.run(program.replace("PATH", repr(str(tmp_path)))))
    assert len(found) == 3
    for loss in found[1:]:
        assert abs(loss[0] - found[0][0]) < 1e-5


def test_variables_of_one_name_on_two_devices():
    program = """
import json
import muster as tf

values = []
for use_resource in (False, True):
    with tf.Graph().as_default():
        handles = []
        for device in ("/cpu:0", "/gpu:0"):
            with tf.device(device):
                with tf.variable_scope(device.strip("/").replace(":", ""), use_resource=use_resource):
                    v = tf.get_variable("v", [2], initializer=tf.constant_initializer(1.0 if "cpu" in device else 2.0))
                    values.append((v, tf.assign_add(v, [1.0, 1.0])))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for v, change in values[-2:]:
                session.run(change.op)
            print(json.dumps([session.run(v).tolist() for v, _ in values[-2:]]))
"""
    assert _lines(card.run(program)) == [[[2, 2], [3, 3]]] * 2


def test_all_steps_find_a_variable_in_one_place():
    program = """
import json
import muster as tf

# The product of rows has no kernel for GPUs and this type: the variable is on the CPU in every step, also in those without it.
table = tf.Variable(tf.constant([[1.0, 2.0], [3.0, 4.0]], tf.float16), use_resource=True)
train = tf.raw_ops.ResourceScatterMul(resource=table.handle, indices=[1], updates=tf.constant([[0.5, 0.5]], tf.float16))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(train)
    print(json.dumps(session.run(table).tolist()))
    later = tf.reduce_sum(table)
    print(json.dumps([float(session.run(later))]))
"""
    table, total = _lines(card.run(program))
    assert table[0] == [1.0, 2.0] and table[1][0] < 3.0
    assert abs(total[0] - sum(map(sum, table))) < 1e-5


def test_a_session_survives_lack_of_memory():
    program = """
import json
import muster as tf

with tf.device("/gpu:0"):
    large = tf.matmul(tf.zeros([4096, 4096]), tf.zeros([4096, 4096]))
    small = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
with tf.Session() as session:
    for _ in range(3):
        try:
            session.run(large.op)
            print(json.dumps(["no error"]))
        except tf.errors.ResourceExhaustedError as error:
            print(json.dumps([error.message]))
        print(json.dumps([float(session.run(small)[0, 0])]))
"""
    found = _lines(card.run(program, MUSTER_EMULATED_GPU_BYTES=str(96 << 20)))
    for i in range(3):
        assert "OOM when allocating tensor with shape[4096,4096]" in found[2 * i][0], found
        assert found[2 * i + 1] == [11.0]


def test_functions_are_kept_in_a_cache(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    program = """
import muster as tf
with tf.device("/gpu:0"):
    v = tf.Variable([1.0, 2.0])
    change = tf.assign_add(v, [1.0, 1.0])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(change)
"""

    def run():
        card.run(program, MUSTER_CACHE=str(cache))
        return {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}

    first = run()
    assert first
    assert run() == first
    damaged = next(iter(cache.iterdir()))
    damaged.write_bytes(damaged.read_bytes()[:-40])
    again = run()
    assert set(again) == set(first) and again[damaged.name] != first[damaged.name]
    cache.chmod(0o777)  # anybody could put code there
    assert run() == again


def test_values_are_read_before_they_are_assigned():
    """Without an order between the two, and whatever is made of the old value."""
    card.run("""
        import numpy as np
        import muster as tf
        with tf.device("/gpu:0"):
            one = tf.Variable(tf.ones([4, 4]))
            two = tf.get_variable("two", [4, 4], initializer=tf.ones_initializer(), use_resource=True)
            changes, reads = [], []
            for variable in (one, two):
                value = tf.convert_to_tensor(variable)
                view = tf.reshape(value, [16])
                changes.append(tf.assign(variable, value * 2.0 + 1.0))
                reads += [tf.matmul(value, value), view + 0.0, tf.reduce_sum(view * view), 3.0 * value + tf.matmul(value, value)]
            with tf.control_dependencies(changes):
                after = tf.convert_to_tensor(one) + 0.0
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            x = np.ones([4, 4], np.float32)
            for _ in range(6):
                results = session.run(reads + [after] + changes)
                for i in (0, 4):
                    np.testing.assert_array_equal(results[i], x @ x)
                    np.testing.assert_array_equal(results[i + 1], x.ravel())
                    np.testing.assert_array_equal(results[i + 2], (x * x).sum())
                    np.testing.assert_array_equal(results[i + 3], 3 * x + x @ x)
                x = 2 * x + 1
                np.testing.assert_array_equal(results[8], x)
    """)


def test_what_reads_a_variable_may_wait_for_its_change_elsewhere():
    """The CPU computes after an assignment what is joined with the value of before it: the assignment must not wait for that."""
    card.run("""
        import numpy as np
        import muster as tf
        with tf.device("/gpu:0"):
            v = tf.Variable(tf.ones([4]))
            old = v * 3.0
            change = tf.assign(v, tf.fill([4], 5.0))
        with tf.device("/cpu:0"), tf.control_dependencies([change]):
            there = tf.constant(2.0) + 1.0
        with tf.device("/gpu:0"):
            joined = tf.convert_to_tensor(v) * there
        config = tf.ConfigProto(operation_timeout_in_ms=20000)
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run(joined)
    """)


def test_a_program_may_end_while_functions_are_compiled(tmp_path):
    tmp_path.chmod(0o700)
    card.run("""
import muster as tf
with tf.device("/gpu:0"):
    v = tf.Variable([1.0, 2.0])
    change = tf.assign(v, tf.tanh(v) * tf.exp(-v) + tf.sqrt(tf.abs(v)))
with tf.Session() as session:
    session.run(v.initializer)
    for _ in range(5):  # from the third on, functions for joined nodes are wanted
        session.run(change.op)
    session.run(v)
""", MUSTER_CACHE=str(tmp_path))
