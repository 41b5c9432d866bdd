"""Parts of TensorFlow that Muster does not have: using one is an error that names it.

The error is an AttributeError, or an ImportError for an import, so that programs that look first (hasattr, getattr with
a default, try/except ImportError) find that the name is not there.
"""
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

_GRAPHS_ONLY = "Muster runs graphs only"
_KERAS = "Muster has no Keras; build the model from tf.layers or plain ops"
_CPU_ONLY = "Muster runs on CPUs, without XLA"
_QUANTIZATION = "Muster does not quantize"
_FOURIER = "Muster has the ops only: tf.raw_ops.FFT and its like"
_RAGGED = "Muster has no ragged tensors; use tf.SparseTensor, or pad"
_EIGENVALUES = "Muster computes neither eigenvalues nor singular values"
_V2_SUMMARIES = "these are TensorFlow 2's summaries; use tf.summary.FileWriter"
_DEFAULT = "Muster does not have this part of TensorFlow; docs/migrating.md says what there is"

# Why a name below tf is missing, and what to use instead. An entry also holds for all names below it.
REASONS = {
    "estimator": "Muster has Estimator, train_and_evaluate and numpy_input_fn, no canned models and no feature columns",
    "keras": _KERAS,
    "contrib": "Muster has only the members of tf.contrib that docs/migrating.md lists",
    "compat.v2": "Muster is TensorFlow 1.x; use tf or tf.compat.v1",
    "distribute": "Muster has no distribution strategies; use between-graph replication with tf.train.Server",
    "lite": "Muster does not convert models for TensorFlow Lite",
    "python.eager": _GRAPHS_ONLY,
    "python.keras": _KERAS,
    "function": _GRAPHS_ONLY + "; build the graph in Python and run it in a tf.Session",
    "wrap_function": _GRAPHS_ONLY + "; build the graph in Python and run it in a tf.Session",
    "GradientTape": _GRAPHS_ONLY + "; use tf.gradients",
    "autograph": "Muster has no AutoGraph; use tf.cond and tf.while_loop",
    "init_scope": _GRAPHS_ONLY,
    "Module": "it is of TensorFlow 2; use tf.variable_scope or tf.make_template",
    "config": "it is of TensorFlow 2; give tf.Session a tf.ConfigProto",
    "optimizers": "it is Keras', which Muster does not have; use tf.train.GradientDescentOptimizer and its like",
    "vectorized_map": "use tf.map_fn",
    "feature_column": "Muster has no feature columns; use tf.parse_example, tf.lookup and tf.nn.embedding_lookup",
    "ragged": _RAGGED, "RaggedTensor": _RAGGED, "RaggedTensorSpec": _RAGGED, "io.RaggedFeature": _RAGGED,
    "signal": _FOURIER, "spectral": _FOURIER, "fft": _FOURIER, "fft2d": _FOURIER, "fft3d": _FOURIER, "fftnd": _FOURIER,
    "ifft": _FOURIER, "ifft2d": _FOURIER, "ifft3d": _FOURIER, "ifftnd": _FOURIER, "rfftnd": _FOURIER, "irfftnd": _FOURIER,
    "quantization": _QUANTIZATION, "quantize": _QUANTIZATION, "dequantize": _QUANTIZATION,
    "self_adjoint_eig": _EIGENVALUES, "self_adjoint_eigvals": _EIGENVALUES, "eig": _EIGENVALUES, "eigvals": _EIGENVALUES,
    "linalg.eigh": _EIGENVALUES, "linalg.eigvalsh": _EIGENVALUES, "linalg.eig": _EIGENVALUES,
    "linalg.eigvals": _EIGENVALUES,
    "profiler": "trace a step with tf.RunOptions and tensorflow.python.client.timeline, or use tf.train.ProfilerHook",
    "xla": _CPU_ONLY, "tpu": _CPU_ONLY, "mlir": _CPU_ONLY,
    "mixed_precision": "Muster does not rewrite graphs for mixed precision",
    "python.debug": "Muster has no tfdbg; use tf.Print, tf.Assert and tf.add_check_numerics_ops",
    "data.AUTOTUNE": "use tf.data.experimental.AUTOTUNE",
    "data.experimental": "Muster has only the transformations that docs/migrating.md lists",
    "io.gfile.join": "use os.path.join",
    "random.set_seed": "use tf.set_random_seed",
    "random.Generator": "use op seeds, or tf.random.stateless_uniform and its like",
    "saved_model.save": "use tf.saved_model.simple_save or tf.saved_model.builder",
    "saved_model.load_v2": "use tf.saved_model.load",
    "summary.create_file_writer": _V2_SUMMARIES, "summary.record_if": _V2_SUMMARIES, "summary.write": _V2_SUMMARIES,
    "summary.trace_on": _V2_SUMMARIES, "summary.experimental": _V2_SUMMARIES, "summary.initialize": _V2_SUMMARIES,
    "train.Checkpoint": "use tf.train.Saver",
    "train.CheckpointManager": "use tf.train.Saver, which keeps max_to_keep checkpoints",
}

# Modules here that have another name in TensorFlow.
_TF_NAMES = {"gfile_v2": "io.gfile", "ops.linalg_ops": "linalg"}
# In TensorFlow 2 classes of these are Keras'; in 1.x they hold functions.
_KERAS_CLASSES = frozenset(("losses", "metrics", "initializers"))


def is_module(package, name):
    """Whether the folder of a package has that module; imports try the package's __getattr__ before the folder."""
    path = sys.modules[package].__path__
    return importlib.machinery.PathFinder.find_spec(package + "." + name, path) is not None


def reason(name):
    """Why tf.<name> is missing, or None where TensorFlow has no such name either."""
    parent, _, leaf = name.rpartition(".")
    at = name
    while at:
        if at in REASONS:
            return REASONS[at]
        at = at.rpartition(".")[0]
    if parent in _KERAS_CLASSES and leaf[:1].isupper():
        return "Muster has no Keras; tf.%s has functions" % parent
    # Not `from muster import`, which would ask tf for the name first.
    names = importlib.import_module("muster.names.missing_names").NAMES
    return _DEFAULT if leaf in names.get(parent, "").split() else None


def error(module, name):
    """The AttributeError for tf.<module>.<name>; `module` is '' for tf itself."""
    full = module + "." + name if module else name
    why = None if name.startswith("__") else reason(full)
    if why is None:
        return AttributeError("module 'tensorflow%s' has no attribute %r" % (module and "." + module, name))
    return AttributeError("tf.%s is not available: %s" % (full, why))


def explain(module):
    """A __getattr__ for `module` whose errors name what is missing and why.

    The module also becomes a package without modules, so that the import system asks `Finder` for names that
    `from ... import` does not find in it.
    """
    sys.modules[module].__dict__.setdefault("__path__", [])
    tail = module.partition(".")[2]
    tf_name = _TF_NAMES.get(tail, tail)

    def __getattr__(name):
        raise error(tf_name, name)

    return __getattr__


class Missing(ModuleNotFoundError):
    """For `from tensorflow... import NAME`. Its `name` differs from the one looked for: the import system would
    ignore the error otherwise."""

    def __init__(self, tf_name, why):
        super(Missing, self).__init__("tf.%s is not available: %s" % (tf_name, why), name="tensorflow." + tf_name)


class Finder(importlib.abc.MetaPathFinder):
    """The last finder: explains `from tensorflow... import NAME` where Muster's module has no such name."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("muster."):
            return None
        tail = name.partition(".")[2]
        parent, _, leaf = tail.rpartition(".")
        if leaf.startswith("_"):  # of Muster itself
            return None
        tf_name = (_TF_NAMES.get(parent, parent) + "." if parent else "") + leaf
        why = reason(tf_name)
        if why is not None:
            raise Missing(tf_name, why)
        return None


class Absent(types.ModuleType):
    """A module (or a part of one) with the members given; any other name is an error that says why it is missing."""

    def __init__(self, name, reason, members=None):
        super(Absent, self).__init__("tensorflow." + name, "tf.%s: %s" % (name, reason))
        self.__dict__["_tf_name"], self.__dict__["_reason"] = name, reason
        self.__dict__["_members"] = dict(members or {})
        self.__path__ = []

    def __getattr__(self, name):
        if name in self.__dict__["_members"]:
            value = self.__dict__["_members"][name]()
            setattr(self, name, value)
            return value
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError("tf.%s.%s is not available: %s" % (self._tf_name, name, self._reason))

    def __dir__(self):
        return sorted(self.__dict__["_members"])
