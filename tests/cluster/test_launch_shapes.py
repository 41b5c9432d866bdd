"""The same program as threads of one process, in shared processes and in processes of its own: the same losses."""
import os
import re
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "shapes_program.py")

FLAGS_PROGRAM = """
import os, sys, threading
import tensorflow as tf
import flags_of_a_module
tf.app.flags.DEFINE_string("ps_hosts", "", "")
tf.app.flags.DEFINE_string("worker_hosts", "", "")
tf.app.flags.DEFINE_string("job_name", "", "")
tf.app.flags.DEFINE_integer("task_index", 0, "")
FLAGS = tf.app.flags.FLAGS

def main(_):
    assert ("--task_index=%d" % FLAGS.task_index) in sys.argv, sys.argv
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        print("must not come here")
    seen = []
    thread = threading.Thread(target=lambda: seen.append((FLAGS.task_index, tf.get_default_graph())))
    thread.start()
    thread.join()
    assert seen == [(FLAGS.task_index, tf.get_default_graph())]
    FLAGS.of_a_module = FLAGS.task_index
    tf.constant(1.0, name="only")
    with tf.Session(server.target) as sess:
        sess.run("only:0")
    tf.reset_default_graph()
    tf.constant(1.0, name="only")
    print("worker %d of %s sees %d %s" % (FLAGS.task_index, FLAGS.job_name, FLAGS.of_a_module, FLAGS.extra))
    if FLAGS.extra == "fail" and FLAGS.task_index == 1:
        sys.exit(9)

tf.app.flags.DEFINE_string("extra", "default", "")
tf.app.run()
"""

PORTS_PROGRAM = """
import os, sys
import tensorflow as tf
job = sys.argv[3].partition("=")[2]
cluster = {name: [sys.argv[at].partition("=")[2]] for name, at in (("ps", 1), ("worker", 2))}
server = tf.train.Server(cluster, job_name=job, task_index=0)
if job == "ps":
    server.join()
with tf.device("/job:ps/task:0"):
    there = tf.constant(1.0) + 1.0
with tf.device("/job:worker/task:0"):
    here = there * 2.0
with tf.Session(server.target) as sess:
    assert sess.run(here) == 4.0
    files = ["/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")]
    links = [os.readlink(name) for name in files if os.path.lexists(name)]
inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
tcp = [line.split()[9] for name in ("/proc/net/tcp", "/proc/net/tcp6") if os.path.exists(name) for line in open(name)]
print("tcp sockets: %d" % len(inodes & set(tcp)))
"""


def launch(muster_program, *words, timeout=180):
    return subprocess.run([muster_program, "launch", *words], capture_output=True, text=True, timeout=timeout)


def losses(done):
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(re.findall(r"\] step (\d+) loss (\S+)", done.stdout))
    assert sorted(map(int, found)) == list(range(12)), done.stdout
    return found


@pytest.fixture(scope="module")
def expected(muster_program):
    """With a process for each task."""
    return losses(launch(muster_program, "--ps", "2", "--workers", "3", PROGRAM))


@pytest.mark.parametrize("shape", [("--standalone",), ("--processes", "2"), ("--processes", "3")])
def test_every_shape_gives_the_same_losses(muster_program, expected, shape):
    done = launch(muster_program, "--ps", "2", "--workers", "3", *shape, PROGRAM)
    assert losses(done) == expected
    for worker in range(3):
        assert "[worker %d] worker %d has ended" % (worker, worker) in done.stdout


@pytest.fixture
def flags_program(tmp_path):
    (tmp_path / "flags_of_a_module.py").write_text(
        "import tensorflow as tf\ntf.app.flags.DEFINE_integer('of_a_module', -1, '')\n")
    path = tmp_path / "program.py"
    path.write_text(FLAGS_PROGRAM)
    return str(path)


def test_tasks_of_one_process_have_their_own_flags(muster_program, flags_program):
    done = launch(muster_program, "--standalone", "--ps", "1", "--workers", "3", flags_program, "--extra=given")
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in range(3):
        assert "[worker %d] worker %d of worker sees %d given" % (worker, worker, worker) in done.stdout
    assert "must not come here" not in done.stdout


def test_a_task_that_fails_ends_its_process(muster_program, flags_program):
    done = launch(muster_program, "--standalone", "--workers", "2", flags_program, "--extra=fail")
    assert done.returncode == 9, done.stdout + done.stderr


def test_no_port_is_taken(muster_program, tmp_path):
    program = tmp_path / "ports.py"
    program.write_text(PORTS_PROGRAM)
    done = launch(muster_program, "--standalone", "--workers", "1", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tcp sockets: 0" in done.stdout


def test_programs_cannot_share_a_process(muster_program):
    done = launch(muster_program, "--standalone", muster_program)
    assert done.returncode == 2
    assert "LocalCluster" in done.stderr
