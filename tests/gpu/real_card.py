"""What only a real card shows."""
import json
import re
import subprocess
import sys

import card

# A function that writes where there is no memory, put into the context that the process uses.
PLANT = r"""
import ctypes
import muster as tf

PTX = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry planted() {
  .reg .b64 %a;
  .reg .b32 %b;
  mov.u64 %a, 16;
  mov.u32 %b, 1;
  st.global.u32 [%a], %b;
  ret;
}
'''

def plant():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    def check(result):
        assert result == 0, result
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"planted"))
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
    cuda.cuCtxSynchronize()  # what comes now comes after the error
"""


def test_a_planted_error_ends_the_program():
    card.real_only()
    program = PLANT + """
with tf.device("/gpu:0"):
    v = tf.Variable(tf.ones([1000]))
    train = tf.assign(v, tf.tanh(v) * tf.exp(-v))
with tf.Session() as session:
    session.run(v.initializer)
    for step in range(10):
        session.run(train.op)
    plant()
    for step in range(10):
        try:
            session.run(v)
        except tf.errors.InternalError as error:
            print("ERROR " + error.message)
"""
    done = subprocess.run([sys.executable, "-c", program], env=card.environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 10 and len(set(errors)) == 1, done.stdout
    assert re.search(r"CUDA_ERROR_ILLEGAL_ADDRESS.*cannot use the card any more", errors[0]), errors
    assert done.stderr.count("CUDA_ERROR_ILLEGAL_ADDRESS") == 1, done.stderr


def test_a_planted_error_ends_a_task():
    card.real_only()
    program = PLANT + """
server = tf.train.Server.create_local_server()
with tf.device("/gpu:0"):
    v = tf.Variable(tf.ones([1000]))
with tf.Session(server.target) as session:
    session.run(v.initializer)
    plant()
    session.run(v)
"""
    done = subprocess.run([sys.executable, "-c", program], env=card.environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 75, (done.returncode, done.stdout, done.stderr)


def test_sessions_leave_nothing_on_the_card():
    card.real_only()
    program = """
import json
import numpy as np
import muster as tf
from muster import _muster

with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [64, 32])
    w = tf.Variable(tf.random_normal([32, 16], seed=1))
    y = tf.reduce_sum(tf.tanh(x @ w))
    train = tf.train.AdamOptimizer().minimize(y)
    start = tf.global_variables_initializer()
feed = {x: np.ones([64, 32], np.float32)}
taken = []
for i in range(2000):
    with tf.Session() as session:
        session.run(start)
        for _ in range(4):
            session.run(train, feed)
    taken.append(_muster.gpu_reports()[0]["taken_bytes"])
print(json.dumps([taken[10], max(taken[10:]), taken[-1]]))
"""
    first, most, last = json.loads(card.run(program, timeout=400))
    assert first == most == last, (first, most, last)


def test_a_full_card_leaves_the_session_alive():
    card.real_only()
    program = """
import json
import muster as tf

with tf.device("/gpu:0"):
    small = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    parts = [tf.Variable(tf.ones([1 << 20, 1024]), name="part%d" % i) for i in range(60)]  # 4 GiB each
with tf.Session() as session:
    made = 0
    try:
        for part in parts:
            session.run(part.initializer)
            made += 1
    except tf.errors.ResourceExhaustedError as error:
        print(json.dumps([made, error.message, float(session.run(small)[0, 0])]))
with tf.Session() as session:
    session.run(parts[0].initializer)
    print(json.dumps(float(session.run(parts[0][5, 5]))))
"""
    full, again = [json.loads(line) for line in card.run(program).splitlines()]
    made, message, product = full
    assert made > 1 and product == 11.0 and again == 1.0
    assert "OOM when allocating tensor with shape[1048576,1024] and type float on " in message and "4.00GiB by ones" in message, message


def test_later_steps_are_replayed():
    card.real_only()
    program = """
import json
import numpy as np
import muster as tf
from muster import _muster

with tf.device("/gpu:0"):
    x = tf.placeholder(tf.float32, [64, 32])
    h = x
    for _ in range(3):
        h = tf.layers.dense(h, 64, tf.nn.relu)
    loss = tf.reduce_mean(tf.square(h))
    train = tf.train.AdamOptimizer().minimize(loss)
with tf.Session(config=tf.ConfigProto(allow_soft_placement=False)) as session:
    session.run(tf.global_variables_initializer())
    counts = []
    for step in range(400):
        session.run([loss, train], {x: np.full([64, 32], step, np.float32)})
        if step in (99, 399):
            report = _muster.gpu_reports()[0]
            counts.append([report["calls"], report["replayed_calls"]])
(calls, replayed), (all_calls, all_replayed) = counts
print(json.dumps((all_replayed - replayed) / (all_calls - calls)))
"""
    assert json.loads(card.run(program)) >= 0.95
