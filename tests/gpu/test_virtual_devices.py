"""Several devices on one emulated card."""
import json

import card


def _lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith(("[", "{", '"'))]


PREPARE = """
import json
import numpy as np
import muster as tf

def config_of(*cards, **options):
    config = tf.ConfigProto(**options)
    for megabytes in cards:
        config.gpu_options.experimental.virtual_devices.add().memory_limit_mb.extend(megabytes)
    return config

def failure(config):
    try:
        with tf.Session(config=config) as session:
            session.run(tf.constant(1) + 1)
        return "no error"
    except tf.errors.OpError as error:
        return type(error).__name__ + ": " + error.message
"""


def test_devices_with_a_limit_each():
    program = PREPARE + """
def use(device, megabytes):
    with tf.device(device):
        return tf.Variable(tf.ones([megabytes, 1 << 18])).initializer

small, large = use("/gpu:1", 16), use("/gpu:1", 50)
first = use("/gpu:0", 50)
with tf.Session(config=config_of([200, 40])) as session:
    print(json.dumps([[d.name, d.memory_limit_bytes] for d in session.list_devices() if d.device_type == "GPU"]))
    for change in (small, first):
        session.run(change)
    try:
        session.run(large)
    except tf.errors.ResourceExhaustedError as error:
        print(json.dumps(error.message))
    session.run(small)
"""
    devices, error = _lines(card.run(program))
    assert devices == [["/job:localhost/replica:0/task:0/device:GPU:%d" % i, megabytes << 20] for i, megabytes in ((0, 200), (1, 40))]
    assert "device:GPU:1 by allocator GPU_1_bfc: 50.00MiB more would exceed the 40.00MiB" in error


def test_wrong_lists_are_refused_in_tensorflows_words():
    program = PREPARE + """
config = config_of([100, 100])
config.gpu_options.per_process_gpu_memory_fraction = 0.5
print(json.dumps(failure(config)))
print(json.dumps(failure(config_of([100], [100], [100]))))
print(json.dumps(failure(config_of([100]))))
config = config_of([100])
config.gpu_options.visible_device_list = "1,0"
print(json.dumps(failure(config)))
print(json.dumps(failure(config_of([100], [], device_count={"GPU": 1}))))
print(json.dumps(failure(config_of([-1], [100]))))
print(json.dumps(failure(config_of([float("nan")], [100]))))
print(json.dumps(failure(config_of([1] * 1000, [100]))))
print(json.dumps(failure(config_of([100, 100], [100]))))
"""
    assert _lines(card.run(program, MUSTER_EMULATED_GPU_COUNT="2")) == [
        "InvalidArgumentError: It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set.",
        "UnknownError: Not enough GPUs to create virtual devices. num_gpus_to_use: 2 #virtual_devices: 3",
        "UnknownError: The number of valid GPUs doesn't match the number of elements in the virtual_devices list. #valid GPUs: 2 "
        "virtual_devices.size(): 1",
        "InvalidArgumentError: The number of GPUs in visible_device_list doesn't match the number of elements in the virtual_devices "
        "list. #GPUs in visible_device_list: 2 virtual_devices.size(): 1",
        "UnknownError: Not enough GPUs to create virtual devices. num_gpus_to_use: 1 #virtual_devices: 2",
        "InvalidArgumentError: memory_limit_mb of a virtual GPU is -1: it must be from 1 to 16777216, of at most 64 devices",
        "InvalidArgumentError: memory_limit_mb of a virtual GPU is nan: it must be from 1 to 16777216, of at most 64 devices",
        "InvalidArgumentError: memory_limit_mb of a virtual GPU is 1: it must be from 1 to 16777216, of at most 64 devices",
        "no error",
    ]


# The shape of TensorFlow's multi-GPU trainer for CIFAR-10: variables on the CPU, a tower on each GPU, averaged gradients.
TOWERS = PREPARE + """
def train(devices, config, variables="/cpu:0"):
    with tf.Graph().as_default(), tf.device(variables):
        images = [tf.placeholder(tf.float32, [4, 6, 6, 3]) for _ in devices]
        labels = [tf.placeholder(tf.int32, [4]) for _ in devices]
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        towers, losses = [], []
        for i, device in enumerate(devices):
            with tf.device(device), tf.name_scope("tower_%d" % i), tf.variable_scope("", reuse=i > 0):
                def variable(name, shape):
                    start = np.random.RandomState(len(name)).rand(*shape).astype(np.float32) - 0.5
                    with tf.device(variables):
                        return tf.get_variable(name, initializer=tf.constant(start))
                x = tf.nn.relu(tf.nn.conv2d(images[i], variable("kernel", [3, 3, 3, 4]), [1, 1, 1, 1], "SAME"))
                x = tf.reshape(tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), [4, 36])
                logits = x @ variable("weights", [36, 5])
                losses.append(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels[i], logits=logits)))
                towers.append(optimizer.compute_gradients(losses[-1]))
        averaged = [(tf.reduce_mean(tf.stack([g for g, _ in each]), 0), each[0][1]) for each in zip(*towers)]
        step = optimizer.apply_gradients(averaged)
        values = []
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            for number in range(12):
                random = np.random.RandomState(number)
                feed = {}
                for i in range(len(devices)):
                    feed[images[i]] = random.rand(4, 6, 6, 3)
                    feed[labels[i]] = random.randint(0, 5, 4)
                values.append([float(v) for v in session.run(losses + [step], feed)[:-1]])
        return values

for variables in ("/cpu:0", "/gpu:0"):
    print(json.dumps(train(["/gpu:0", "/gpu:0"], config_of(), variables)))
    print(json.dumps(train(["/gpu:0", "/gpu:1"], config_of([300, 300]), variables)))
print(json.dumps(train(["/cpu:0", "/cpu:0"], tf.ConfigProto())))
"""


def test_towers_train_as_on_one_device():
    one, two, one_on_card, two_on_card, on_cpu = _lines(card.run(TOWERS))
    assert one == two and one_on_card == two_on_card
    assert two[-1] != two[0]
    for towers in (two, two_on_card):
        for step, step_of_cpu in zip(towers, on_cpu):
            for a, b in zip(step, step_of_cpu):
                assert abs(a - b) < 1e-4, (towers, on_cpu)


def test_values_go_between_devices_of_a_card():
    program = PREPARE + """
with tf.device("/gpu:0"):
    x = tf.random_uniform([100], seed=1)
with tf.device("/gpu:1"):
    y = x * 2.0
    v = tf.Variable(tf.zeros([100]))
    kept = tf.assign(v, x)
with tf.device("/gpu:0"):
    z = tf.reduce_sum(y - x) + tf.reduce_sum(kept)
with tf.Session(config=config_of([100, 100, 100])) as session:
    session.run(v.initializer)
    a, b, c, d = session.run([x, y, z, kept])
    for _ in range(8):
        session.run([x, kept.op])
    print(json.dumps([bool((b == 2 * a).all()), abs(float(c) - 2 * float(a.sum())) < 1e-3, bool((a == d).all())]))
"""
    assert _lines(card.run(program)) == [[True, True, True]]


def test_collectives_of_two_devices_of_a_process():
    program = PREPARE + """
from muster.ops import collective_ops

values = []
for i in range(2):
    with tf.device("/gpu:%d" % i):
        x = tf.constant(np.arange(6, dtype=np.float32) * (i + 1))
        values.append(collective_ops.all_reduce(x, 2, 1, 1, "Add", "Id"))
with tf.Session(config=config_of([100, 100])) as session:
    for _ in range(6):
        a, b = session.run(values)
    print(json.dumps([a.tolist(), b.tolist()]))
"""
    a, b = _lines(card.run(program))[0]
    assert a == b == [3.0 * i for i in range(6)]
