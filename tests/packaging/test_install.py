"""What users install: the wheel of the checkout and that of the source distribution, each in an empty environment, from which
a cluster is trained."""
import os
import subprocess
import sys
import zipfile

import gen_python_ops
import pytest

# Elements come from tf.data, variables are on the ps; run by each task.
TRAINER = """
import sys
import tensorflow as tf
tf.app.flags.DEFINE_string("ps_hosts", "", "")
tf.app.flags.DEFINE_string("worker_hosts", "", "")
tf.app.flags.DEFINE_string("job_name", "", "")
tf.app.flags.DEFINE_integer("task_index", 0, "")
FLAGS = tf.app.flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        x = tf.data.Dataset.range(1, 5).repeat().map(lambda i: tf.cast(i, tf.float32)).make_one_shot_iterator().get_next()
        w = tf.Variable(0.0)
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.01).minimize(tf.square(w * x - 3 * x), global_step=step)
    hooks = [tf.train.StopAtStepHook(last_step=200)]
    # A worker may be done before the other one has started.
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    with tf.train.MonitoredTrainingSession(server.target, is_chief=FLAGS.task_index == 0, hooks=hooks, config=config) as session:
        while not session.should_stop():
            value, _ = session.run([w, train])
    assert abs(value - 3) < 0.1, value
    print("trained with", sys.prefix, "to", round(float(value)))


tf.app.run(main)
"""


def _run(words, folder, timeout=900):
    """In `folder`, without what this checkout's environment adds."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith(("MUSTER_", "TF_"))}
    done = subprocess.run([str(word) for word in words], cwd=folder, env=kept, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, "%s\n%s\n%s" % (words, done.stdout[-4000:], done.stderr[-4000:])
    return done.stdout


def _wheel(source, folder):
    # The environment of the checkout has the build's requirements; with the same paths of headers ccache knows every file.
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source],
         folder)
    wheel, = folder.glob("*.whl")
    return wheel


def _check_files(wheel, root):
    """The modules of the tree, and what is compiled; nothing else."""
    with zipfile.ZipFile(wheel) as files:
        packed = {name for name in files.namelist() if ".dist-info/" not in name}
    modules = {str(path.relative_to(root / "python")) for path in (root / "python" / "muster").rglob("*.py")}
    sections = {row.section for row in gen_python_ops.read(root / "python" / "op_functions.txt")} | {"__init__", "optimizers"}
    modules |= {"muster/generated/%s.py" % section for section in sections}
    assert modules <= packed, "left out: %s" % sorted(modules - packed)
    stubs = {name for name in packed if name.endswith(".pyi")} | {"muster/py.typed"}
    assert {"muster/__init__.pyi", "muster/train/__init__.pyi", "muster/math.pyi", "muster/py.typed"} <= packed
    rest = packed - modules - stubs
    compiled = {name.split(".")[0] for name in rest}
    assert compiled == {"muster/bin/muster", "muster/libmuster", "muster/_muster", "muster/muster_protos"}, rest


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_trains_from_an_empty_environment(kind, root, tmp_path):
    built = tmp_path / "built"
    built.mkdir()
    source = root
    if kind == "sdist":
        code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
        _run([sys.executable, "-c", code, built], root)
        source, = built.glob("*.tar.gz")
    wheel = _wheel(source, built)
    _check_files(wheel, root)
    environment, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    elsewhere.mkdir()
    _run(["python3", "-m", "venv", environment], elsewhere)
    _run([environment / "bin" / "pip", "install", "--quiet", wheel], elsewhere)
    (elsewhere / "trainer.py").write_text(TRAINER)
    printed = _run([environment / "bin" / "muster", "launch", "--ps", "1", "--workers", "2", "trainer.py"], elsewhere, 120)
    for worker in (0, 1):
        assert "[worker %d] trained with %s to 3" % (worker, environment) in printed
