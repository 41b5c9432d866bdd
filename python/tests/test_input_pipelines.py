"""Queue-style input pipelines read on Muster what they read on TensorFlow; readers wait and end as they should."""
import json
import os
import pathlib
import subprocess
import threading
import time

import pytest

import input_programs
import muster as tf

_HERE = pathlib.Path(__file__).resolve().parent
_NAMES = [program.__name__ for program in input_programs.PROGRAMS]


@pytest.fixture(scope="module")
def theirs(tf_python, tmp_path_factory):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([tf_python, str(_HERE / "input_programs.py"), str(tmp_path_factory.mktemp("theirs"))],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return input_programs.run(tf, str(tmp_path_factory.mktemp("ours")))


@pytest.mark.parametrize("name", _NAMES)
def test_reads_what_tensorflow_reads(name, ours, theirs):
    assert ours[name] == theirs[name]


@pytest.fixture
def graph():
    with tf.Graph().as_default() as made:
        yield made


def _reader(kind):
    queue = tf.FIFOQueue(9, tf.string, shapes=[[]])
    return queue, kind().read(queue)


def _background(function):
    found = []

    def call():
        try:
            found.append(function())
        except (tf.errors.OpError, RuntimeError) as e:
            found.append(e)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, found


def test_a_read_waits_for_work(graph):
    queue, (key, _) = _reader(tf.IdentityReader)
    with tf.Session() as sess:
        thread, found = _background(lambda: sess.run(key))
        time.sleep(0.05)
        assert thread.is_alive()
        sess.run(queue.enqueue("work"))
        thread.join(60)
        assert found == [b"work"]


def test_closing_the_queue_ends_a_read(graph):
    queue, (key, _) = _reader(tf.IdentityReader)
    with tf.Session() as sess:
        thread, found = _background(lambda: sess.run(key))
        time.sleep(0.05)
        sess.run(queue.close())
        thread.join(60)
        assert isinstance(found[0], tf.errors.OutOfRangeError)


def test_closing_the_session_ends_reads_that_wait_their_turn(graph):
    _, (key, _) = _reader(tf.IdentityReader)
    sess = tf.Session()
    waiting = [_background(lambda: sess.run(key)) for _ in range(3)]
    time.sleep(0.05)
    sess.close()
    for thread, found in waiting:
        thread.join(60)
        assert not thread.is_alive()
        # The last: it had not begun when the session was closed.
        assert isinstance(found[0], (tf.errors.CancelledError, tf.errors.AbortedError, RuntimeError)), found


def test_a_timeout_ends_a_read_and_the_next_one_goes_on(graph):
    queue, (key, _) = _reader(tf.IdentityReader)
    with tf.Session() as sess:
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(key, options=tf.RunOptions(timeout_in_ms=50))
        sess.run(queue.enqueue("later"))
        assert sess.run(key) == b"later"


def test_many_empty_files(graph, tmp_path):
    names = []
    for i in range(2000):
        names.append(str(tmp_path / str(i)))
        open(names[-1], "wb").close()
    (tmp_path / "last").write_bytes(b"line\n")
    queue = tf.FIFOQueue(3000, tf.string, shapes=[[]])
    key, value = tf.TextLineReader().read(queue)
    with tf.Session() as sess:
        sess.run(queue.enqueue_many([names + [str(tmp_path / "last")]]))
        assert sess.run(value) == b"line"


def test_a_missing_file_is_reported_and_passed_over(graph, tmp_path):
    (tmp_path / "there").write_bytes(b"x\n")
    queue, (_, value) = _reader(tf.TextLineReader)
    with tf.Session() as sess:
        sess.run(queue.enqueue_many([[str(tmp_path / "missing"), str(tmp_path / "there")]]))
        with pytest.raises(tf.errors.NotFoundError):
            sess.run(value)
        assert sess.run(value) == b"x"


def test_damaged_records(graph, tmp_path):
    with tf.python_io.TFRecordWriter(str(tmp_path / "good")) as writer:
        writer.write(b"first")
        writer.write(b"second")
    data = bytearray((tmp_path / "good").read_bytes())
    data[-6] ^= 1
    (tmp_path / "bad").write_bytes(bytes(data))
    queue, (_, value) = _reader(tf.TFRecordReader)
    with tf.Session() as sess:
        sess.run(queue.enqueue(str(tmp_path / "bad")))
        assert sess.run(value) == b"first"
        with pytest.raises(tf.errors.DataLossError, match="corrupted record at"):
            sess.run(value)


def test_identity_reader_saves_its_state(graph):
    queue = tf.FIFOQueue(9, tf.string, shapes=[[]])
    reader = tf.IdentityReader()
    key, _ = reader.read(queue)
    state = reader.serialize_state()
    given = tf.placeholder(tf.string, [])
    restore, reset, produced = reader.restore_state(given), reader.reset(), reader.num_records_produced()
    with tf.Session() as sess:
        sess.run(queue.enqueue_many([["a", "b"]]))
        sess.run(key)
        saved = sess.run(state)
        sess.run(reset)
        assert sess.run(produced) == 0
        sess.run(restore, {given: saved})
        assert sess.run(produced) == 1
        for garbage in (b"\xff\xff\xff", b"\x08\x01\x10\x05", b"\x08" + b"\xff" * 9 + b"\x01"):
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run(restore, {given: garbage})
