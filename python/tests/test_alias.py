"""Scripts that import tensorflow: `python -m muster._run` gives them Muster."""
import subprocess
import sys

import pytest

_DEEP = """
import tensorflow as tf
import tensorflow
import tensorflow.compat.v1 as tf1
from tensorflow.compat import v1
from tensorflow.python.client import timeline, device_lib
from tensorflow.python.client import session as session_lib
from tensorflow.python.framework import ops, dtypes, tensor_shape, errors, errors_impl, graph_util, constant_op
from tensorflow.python.framework import importer, random_seed, tensor_util, sparse_tensor
from tensorflow.python.ops import array_ops, math_ops, variables, variable_scope, control_flow_ops, init_ops, nn_ops
from tensorflow.python.platform import gfile, tf_logging, flags, app, test
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.lib.io import file_io
from tensorflow.python.util import compat, nest
from tensorflow.python.training import optimizer, gradient_descent, training_util
from tensorflow.python.training import saver as saver_lib
from tensorflow.python.framework import meta_graph
from tensorflow.python.saved_model import builder as saved_model_builder, loader, tag_constants, signature_constants
import tensorflow.python.framework.ops as ops_again
from tensorflow.core.framework import graph_pb2, node_def_pb2, attr_value_pb2, types_pb2, step_stats_pb2, summary_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, saver_pb2, tensorflow_server_pb2, cluster_pb2
from tensorflow.core.util import event_pb2
from tensorflow.core.example import example_pb2
from tensorflow.examples.tutorials.mnist import input_data, mnist
from tensorflow.contrib.tensorboard.plugins import projector
import tensorflow.contrib.tensorboard.plugins.projector as projector_again
from tensorflow.contrib.framework import get_or_create_global_step
import tensorflow.train
import tensorflow.nn as nn
from tensorflow.io import gfile as new_gfile

assert tensorflow is tf and tf1 is tf and v1 is tf and tf.compat.v1 is tf
assert ops.Graph is tf.Graph and ops.get_default_graph() is tf.get_default_graph() and ops_again is ops
assert ops.convert_to_tensor is tf.convert_to_tensor and ops.GraphKeys is tf.GraphKeys
assert dtypes.float32 is tf.float32 and errors.AbortedError is tf.errors.AbortedError is errors_impl.AbortedError
assert session_lib.Session is tf.Session and constant_op.constant is tf.constant
assert math_ops.matmul is tf.matmul and variable_scope.get_variable is tf.get_variable
assert gfile.Exists is tf.gfile.Exists and app.run is tf.app.run and logging.info is tf.logging.info
assert flags.FLAGS is tf.flags.FLAGS is tf.app.flags.FLAGS
assert compat.as_bytes("a") == b"a" and tf.compat.as_str_any(3) == "3"
assert new_gfile.exists is tf.io.gfile.exists and nn.relu is tf.nn.relu
assert graph_pb2.GraphDef is tf.GraphDef and node_def_pb2.NodeDef is tf.NodeDef
assert attr_value_pb2.AttrValue is tf.AttrValue and types_pb2.DT_FLOAT == 1 and types_pb2.DataType.Name(1) == "DT_FLOAT"
assert config_pb2.ConfigProto is tf.ConfigProto and config_pb2.RunOptions.FULL_TRACE == 3
assert summary_pb2.HistogramProto is tf.HistogramProto and event_pb2.Event is tf.Event
assert example_pb2.Example is tf.train.Example and cluster_pb2.ClusterDef is tf.train.ClusterDef
assert optimizer.Optimizer is tf.train.Optimizer
assert saver_lib.Saver is tf.train.Saver and saver_lib.latest_checkpoint is tf.train.latest_checkpoint
assert issubclass(saver_lib.BulkSaverBuilder, saver_lib.BaseSaverBuilder) and saver_lib.BaseSaverBuilder.SaveableObject
assert callable(meta_graph.read_meta_graph_file) and saved_model_builder.SavedModelBuilder is tf.saved_model.Builder
assert loader.load is tf.saved_model.loader.load and tag_constants.SERVING == tf.saved_model.tag_constants.SERVING
assert signature_constants.PREDICT_METHOD_NAME == "tensorflow/serving/predict"
assert gradient_descent.GradientDescentOptimizer is tf.train.GradientDescentOptimizer
assert tf.contrib.framework.get_or_create_global_step is tf.train.get_or_create_global_step is get_or_create_global_step
assert training_util.get_global_step() is None and get_or_create_global_step().name == "global_step:0"
assert tf.contrib.layers.xavier_initializer()([2, 3]).shape.as_list() == [2, 3]
assert callable(tf.contrib.learn.datasets.mnist.read_data_sets)
assert tf.__version__.startswith("1.15") and tf.VERSION == tf.__version__
assert device_lib.list_local_devices()[0].device_type == "CPU"
logits = mnist.inference(tf.zeros([2, mnist.IMAGE_PIXELS]), 4, 4)
train = mnist.training(mnist.loss(logits, [1, 2]), 0.1)
assert logits.op.name == "softmax_linear/add" and train.type == "AssignAdd"
assert mnist.evaluation(logits, [1, 2]).dtype == tf.int32
import os, tempfile
config = projector.ProjectorConfig()
config.embeddings.add(tensor_name="e", metadata_path="m.tsv").sprite.single_image_dim.extend([28, 28])
with tempfile.TemporaryDirectory() as folder:
    projector.visualize_embeddings(tf.summary.FileWriter(folder), config)
    with open(os.path.join(folder, "projector_config.pbtxt")) as file:
        assert 'tensor_name: "e"' in file.read()
assert projector_again is projector is tf.contrib.tensorboard.plugins.projector
new_gfile.makedirs(path=tempfile.gettempdir())
assert new_gfile.exists(path=tempfile.gettempdir()) and new_gfile.isdir(path=tempfile.gettempdir())
print("all there")
"""


def _run(tmp_path, code, *arguments):
    script = tmp_path / "script.py"
    script.write_text(code)
    return subprocess.run([sys.executable, "-m", "muster._run", str(script), *arguments], capture_output=True,
                          text=True, timeout=60, cwd=tmp_path)


def test_deep_imports(tmp_path):
    run = _run(tmp_path, _DEEP)
    assert run.stdout == "all there\n", run.stderr


def test_script(tmp_path):
    (tmp_path / "beside.py").write_text("import tensorflow as tf\nVALUE = tf.constant(20)\n")
    run = _run(tmp_path, "import sys, beside\nimport tensorflow as tf\n"
               "print(tf.Session().run(beside.VALUE + 1), sys.argv[1:], __name__, __file__.endswith('script.py'))\n",
               "--a", "b")
    assert run.stdout == "21 ['--a', 'b'] __main__ True\n", run.stderr


@pytest.mark.parametrize("code, kind, text", [
    ("tf.keras.Model", "AttributeError", "tf.keras is not available: Muster has no Keras"),
    ("from tensorflow import keras", "Missing", "tf.keras is not available: Muster has no Keras"),
    ("from tensorflow import GradientTape", "Missing", "tf.GradientTape is not available: Muster runs graphs only"),
    ("from tensorflow.train import CheckpointManager", "Missing", "tf.train.CheckpointManager is not available: use tf.train.Saver"),
    ("from tensorflow.python.ops.math_ops import nothing", "ImportError", "Muster has no such part of TensorFlow"),
    ("tf.raw_ops.Nothing", "AttributeError", "tf.raw_ops.Nothing is not available: Muster has no op 'Nothing'"),
    ("tf.losses.Huber", "AttributeError", "tf.losses.Huber is not available: Muster has no Keras"),
    ("tf.train.AdamOptimizer; tf.optimizers.Adam", "AttributeError", "tf.optimizers is not available: it is Keras'"),
    ("from tensorflow.keras import layers", "ImportError", "tensorflow.keras is not available: Muster has no Keras"),
    ("import tensorflow.keras.layers", "ImportError", "Muster has no Keras"),
    ("tf.estimator.DNNClassifier", "AttributeError", "tf.estimator.DNNClassifier is not available: Muster has Estimator"),
    ("tf.distribute.MirroredStrategy", "AttributeError", "tf.distribute is not available: Muster has no distribution strategies"),
    ("tf.contrib.crf", "AttributeError", "tf.contrib.crf is not available"),
    ("from tensorflow.contrib import crf", "ImportError", "tensorflow.contrib.crf is not available"),
    ("tf.contrib.layers.sparse_column_with_keys", "AttributeError", "tf.contrib.layers.sparse_column_with_keys is not available"),
    ("import tensorflow.nothing", "ModuleNotFoundError", "No module named 'tensorflow.nothing'"),
    ("from tensorflow.python.ops import nothing", "ImportError", "nothing"),
    ("from tensorflow.models.image.cifar10 import cifar10", "ModuleNotFoundError", "tensorflow.models"),
    ("tf.nothing", "AttributeError", "module 'tensorflow' has no attribute 'nothing'"),
    ("tf.enable_eager_execution()", "UnimplementedError", "tf.enable_eager_execution: Muster runs graphs only"),
    ("tf.load_op_library('x.so')", "NotFoundError", "x.so: cannot open shared object file"),
    ("tf.load_op_library(tf.__file__)", "UnimplementedError", "tf.load_op_library("),
    ("tf.gfile.Exists('gs://bucket/x')", "UnimplementedError", "File system scheme 'gs' not implemented"),
])
def test_what_is_not_there(code, kind, text):
    script = ("from muster.names import alias\nalias.install()\nimport tensorflow as tf\ntry:\n    %s\n"
              "except Exception as e:\n    print(type(e).__name__, e)\n" % code)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout.startswith(kind + " ") and text in run.stdout, run.stdout + run.stderr


def test_names_of_tensorflow_0(tmp_path):
    """1.0 has dropped them; programs that use them run, with one warning."""
    script = tmp_path / "old.py"
    script.write_text("""
import numpy as np
import tensorflow as tf
a, b = tf.constant([3., 1.]), tf.constant([2., 5.])
rows = tf.pack([tf.mul(a, b), tf.sub(a, b), tf.neg(a), tf.select(tf.greater(a, b), a, b), tf.mul(a, a)])
first, second = tf.unpack(tf.constant([[1, 2], [3, 4]]))
squares = tf.batch_matmul(tf.ones([2, 3, 4]), tf.ones([2, 3, 4]), adj_y=True)
sizes = tf.complex_abs(tf.constant([3 + 4j]))
with tf.Session() as sess:
    sess.run(tf.initialize_all_variables())
    assert sess.run(rows).tolist() == [[6, 5], [1, -4], [-3, -1], [3, 5], [9, 1]]
    assert sess.run(second).tolist() == [3, 4]
    assert (sess.run(squares) == np.full([2, 3, 3], 4)).all()
    assert sess.run(sizes).tolist() == [5]
    assert sess.run([tf.arg_max(a, 0), tf.arg_min(a, 0)]) == [0, 1]
assert tf.image.per_image_whitening is tf.image.per_image_standardization
""")
    run = subprocess.run([sys.executable, "-m", "muster._run", str(script)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("tf.mul is tf.multiply since TensorFlow 1.0.") == 1, run.stderr


def test_six_and_absl_are_there(tmp_path):
    """TensorFlow 1.x brought them along; where they are not installed, Muster stands in."""
    run = _run(tmp_path, """
import six
import six.moves.queue as queue
from six.moves import cPickle as pickle, range, urllib, xrange
from six.moves.urllib.parse import quote
from absl import app, flags, logging
import tensorflow as tf

flags.DEFINE_integer("steps", 3, "How many.")


@six.add_metaclass(type)
class Trainer(object):
    pass


def main(argv):
    logging.set_verbosity(logging.INFO)
    assert list(six.iteritems({1: 2})) == [(1, 2)] and isinstance("a", six.string_types)
    assert urllib.parse.quote is quote and urllib.request.urlretrieve and queue.Queue and list(xrange(2)) == [0, 1] and pickle.dumps(1)
    print(flags.FLAGS.steps, tf.app.flags.FLAGS.steps, argv[1:], Trainer.__name__)


if __name__ == "__main__":
    app.run(main)
""", "--steps=5", "more")
    assert run.returncode == 0, run.stderr
    assert run.stdout == "5 5 ['more'] Trainer\n"


def test_import_is_light():
    """google.protobuf and rarely used parts are loaded lazily."""
    script = ("import sys, muster\n"
              "print([m for m in ('google.protobuf', 'unittest', 'muster.train', 'muster.flags') if m in sys.modules])")
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout == "[]\n", run.stdout + run.stderr


def test_a_server_is_light():
    """A parameter server needs no training code; the rest of tf.train is loaded lazily."""
    script = ("import sys, muster as tf\n"
              "server = tf.train.Server.create_local_server()\n"
              "print(tf.train.ClusterSpec({'a': ['b:1']}), 'muster.train.exports' in sys.modules, hasattr(tf.train, 'none'))\n"
              "names = {}\n"
              "exec('from muster.train import *', names)\n"
              "wanted = ['AdamOptimizer', 'Coordinator', 'Saver', 'Server', 'get_global_step', 'queue_runner']\n"
              "print([n for n in wanted if n not in names or n not in dir(tf.train) or not hasattr(tf.train, n)])\n")
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout == "ClusterSpec({'a': ['b:1']}) False False\n[]\n", run.stdout + run.stderr


def test_logging(tmp_path):
    run = _run(tmp_path, """
import tensorflow as tf
tf.logging.info("not shown")
tf.logging.warn("shown %d", 1)
tf.logging.set_verbosity(tf.logging.INFO)
tf.logging.info("now %s", "this")
for i in range(4):
    tf.logging.log_first_n(tf.logging.ERROR, "first %d", 2, i)
    tf.logging.log_every_n(tf.logging.INFO, "every %d", 3, i)
    tf.logging.log_if(tf.logging.DEBUG, "never", True)
tf.logging.fatal("worst")
assert tf.logging.get_verbosity() == tf.logging.INFO == 20 and tf.logging.FATAL == 50
""")
    assert run.stderr.splitlines() == [
        "WARNING:tensorflow:shown 1", "INFO:tensorflow:now this", "ERROR:tensorflow:first 0", "INFO:tensorflow:every 0",
        "ERROR:tensorflow:first 1", "INFO:tensorflow:every 3", "CRITICAL:tensorflow:worst"]


def test_test_module(tmp_path):
    run = _run(tmp_path, """
import numpy as np
import tensorflow as tf

class Test(tf.test.TestCase):
    def testSession(self):
        with self.session() as session:
            self.assertAllEqual(session.run(tf.constant([1, 2])), [1, 2])
            self.assertAllClose(tf.constant([1.0, 2.0]), [1.0, 2.0 + 1e-7])
            self.assertAllClose({"a": [1.0], "b": (2.0, [3.0, 4.0])}, {"a": [1.0], "b": (2.0, [3.0, 4.0])})
            with self.assertRaisesOpError("must feed"):
                session.run(tf.placeholder(tf.float32))
        with self.assertRaises(AssertionError):
            self.assertAllClose([1.0], [1.1])
        with self.assertRaises(AssertionError):
            self.assertAllEqual([1, 2], [[1, 2]])
        self.assertProtoEquals("name: 'a' op: 'b'", tf.NodeDef(name="a", op="b"))
        self.assertNotAllClose([1.0], [2.0])
        self.assertAllInRange(np.arange(3), 0, 2)
        with self.cached_session() as one, self.cached_session() as other:
            self.assertIs(one, other)

    def testGraphIsFresh(self):
        self.assertEqual([], tf.get_default_graph().get_operations())
        self.assertFalse(tf.test.is_gpu_available())

if __name__ == "__main__":
    tf.test.main()
""")
    assert run.returncode == 0 and "OK" in run.stderr, run.stderr
