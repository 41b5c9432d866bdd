"""The memory of the emulated card: what an error says when it runs out, limits of sessions, and that all of it goes back."""
import json
import re

import card

HELD = """
import ctypes
import json
import os
import muster as tf

emulated = ctypes.CDLL(os.environ["MUSTER_CUDA_DRIVER"])
emulated.emulated_bytes_taken.restype = emulated.emulated_bytes_pinned.restype = ctypes.c_size_t

def held():
    return [emulated.emulated_bytes_taken(), emulated.emulated_bytes_pinned()]
"""


def _lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith(("[", "{", '"'))]


def test_lack_of_memory_names_the_node_and_the_largest_users():
    program = """
import json
import muster as tf

with tf.device("/gpu:0"):
    zeros = tf.zeros_initializer()
    kept = tf.get_variable("kept", [1024, 4096], initializer=zeros)
    for i in range(16):
        tf.get_variable("v%d" % i, [(1 << 15) + 1024 * i], initializer=zeros)
    large = tf.matmul(tf.zeros([4096, 4096]), tf.zeros([4096, 4096]), name="product")
    small = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        try:
            session.run(large.op)
            print(json.dumps(["no error"]))
        except tf.errors.ResourceExhaustedError as error:
            print(json.dumps([error.message]))
        print(json.dumps([float(session.run(small)[0, 0])]))
"""
    found = _lines(card.run(program, MUSTER_EMULATED_GPU_BYTES=str(112 << 20)))
    for i in range(3):
        message = found[2 * i][0]
        assert re.match(r"OOM when allocating tensor with shape\[4096,4096\] and type float on "
                        r"/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc: no 64.00MiB in one piece are left; "
                        r"the card has [0-9.]+[KM]iB free of 112.00MiB, this process uses [0-9.]+MiB: ", message), message
        assert "16.00MiB by kept/Initializer/zeros" in message and re.search(r" by \d+ others", message), message
        assert "[[{{node " in message
        assert found[2 * i + 1] == [11.0]


def test_each_session_has_its_own_part():
    card.emulated_only()
    program = HELD + """
def use(megabytes, fraction):
    config = tf.ConfigProto()
    config.gpu_options.per_process_gpu_memory_fraction = fraction
    with tf.Graph().as_default(), tf.device("/gpu:0"):
        x = tf.Variable(tf.ones([megabytes, 1 << 18]), name="x")
        with tf.Session(config=config) as session:
            try:
                session.run(x.initializer)
                return ["ok", session.list_devices()[-1].memory_limit_bytes]
            except tf.errors.ResourceExhaustedError as error:
                return [error.message]

with tf.Session() as other:  # it has no limit, and keeps the card in use
    print(json.dumps(use(24, 1 / 32)))
    print(json.dumps(use(100, 1 / 32)))
    print(json.dumps(use(100, 1 / 8)))
    print(json.dumps(use(100, 0)))
"""
    small, large, more, free = _lines(card.run(program))
    assert small == ["ok", 64 << 20] and more == ["ok", 256 << 20] and free == ["ok", 2 << 30]
    assert "100.00MiB more would exceed the 64.00MiB that the device may have; in use are " in large[0], large
    assert "on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc" in large[0]


def test_the_last_session_gives_all_back():
    card.emulated_only()
    program = HELD + """
import numpy as np

with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [None, 64])
    w = tf.Variable(tf.ones([64, 64]))
    y = tf.tanh(x @ w)
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(y)))
    start = tf.global_variables_initializer()
most = [0, 0]
ends = []
for i in range(12):
    with tf.Session() as session:
        session.run(start)
        for size in (8, 8, 8, 8, 20000):
            fetched = session.run([y, train], {x: np.ones([size, 64], np.float32)})[0]
        most = [max(a, b) for a, b in zip(most, held())]
    if i % 2:
        del fetched
    del session
    ends.append(held())
print(json.dumps([most, ends]))
"""
    most, ends = _lines(card.run(program))[0]
    assert most[0] > 45 << 20 and most[1] > 6 << 20
    # What cuBLAS computes in belongs to the process; what was fetched may still be there.
    assert all(taken <= 40 << 20 for taken, _ in ends), ends
    assert all(pinned <= 2 << 20 for _, pinned in ends[1::2]), ends
    assert ends[3] == ends[-1], ends


def test_lack_of_pinned_memory_is_an_error():
    program = """
import json
import muster as tf
import numpy as np

x = tf.placeholder(tf.float32, [None])
with tf.device("/gpu:0"):
    y = x + 1.0
    made = tf.zeros([1 << 24]) + x[0]
with tf.Session() as session:
    for feed, fetch in ((np.ones(1 << 24, np.float32), tf.reduce_max(y)), (np.ones(4, np.float32), made)):
        try:
            session.run(fetch, {x: feed})
            print(json.dumps(["no error"]))
        except tf.errors.ResourceExhaustedError as error:
            print(json.dumps([error.message]))
        print(json.dumps(session.run(y, {x: np.ones(2, np.float32)}).tolist()))
"""
    found = _lines(card.run(program, MUSTER_EMULATED_GPU_PINNED_BYTES=str(3 << 20)))
    assert "bytes for a copy to /job:localhost/replica:0/task:0/device:GPU:0 on the host by allocator gpu_host_bfc" in found[0][0], found
    assert "OOM when allocating tensor with shape[16777216] and type float on the host by allocator gpu_host_bfc" in found[2][0], found
    assert found[1] == found[3] == [2.0, 2.0]
