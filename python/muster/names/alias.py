"""Makes `tensorflow` and the paths below it that scripts commonly import mean Muster's modules."""
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

from muster.names import absent, companions, proto_names

# Paths that are Muster's modules themselves. Others below `tensorflow` are looked for under the same name in Muster.
_SAME = {
    "tensorflow": "muster",
    "tensorflow.compat.v1": "muster",
    "tensorflow.contrib.slim": "muster.contrib.slim",
    "tensorflow.contrib.framework.python.ops": "muster.contrib.framework",
    "tensorflow.contrib.layers.python.layers": "muster.contrib.layers",
    "tensorflow.contrib.rnn.python.ops": "muster.contrib.rnn",
    "tensorflow.contrib.slim.python.slim": "muster.contrib.slim",
    "tensorflow.contrib.tensorboard.plugins.projector": "muster.contrib.projector",
    "tensorflow.contrib.learn.python.learn.datasets.mnist": "muster.examples.tutorials.mnist.input_data",
    "tensorflow.contrib.learn.python.learn.datasets.base": "muster.examples.tutorials.mnist.input_data",
}

# Folders of tensorflow.python and of the generated code: they hold modules and nothing else.
_FOLDERS = frozenset("tensorflow." + name for name in (
    "python", "python.framework", "python.ops", "python.client", "python.platform", "python.training", "python.lib",
    "python.lib.io", "python.util", "python.summary", "python.summary.writer", "python.saved_model", "python.data",
    "python.data.ops", "python.debug", "python.layers", "python.tools", "python.checkpoint", "core", "core.framework", "core.protobuf", "core.util",
    "core.example", "core.lib", "core.lib.core", "tsl", "tsl.protobuf", "python.training.checkpoint_state",
    "contrib.framework.python", "contrib.layers.python", "contrib.rnn.python", "contrib.slim.python",
    "contrib.learn.python", "contrib.learn.python.learn", "contrib.learn.python.learn.datasets"))

# Modules of tensorflow.python: where their names are, most fitting first; after these, tf itself and tf.train.
_MODULES = {
    "framework": {
        "ops": "graph.framework graph.convert graph.gradients_impl", "dtypes": "dtypes", "tensor_shape": "graph.tensor_shape",
        "errors": "errors", "errors_impl": "errors", "constant_op": "graph.convert", "importer": "graph.importer",
        "graph_util": "graph_util", "graph_util_impl": "graph_util", "tensor_util": "graph.tensor_util",
        "random_seed": "graph.framework", "sparse_tensor": "ops.sparse_tensor", "device": "graph.framework",
        "common_shapes": "graph.tensor_shape", "load_library": "ops.script_ops", "test_util": "test", "function": "graph.functions",
        "meta_graph": "graph.meta_graph", "op_def_library": "graph.op_library"},
    "client": {"session": "session.session session.fetches_feeds", "timeline": "session.timeline", "device_lib": "session.device_lib"},
    "platform": {
        "gfile": "gfile", "tf_logging": "tf_logging", "logging": "tf_logging", "flags": "flags", "app": "app",
        "test": "test", "googletest": "test", "resource_loader": "resource_loader", "sysconfig": "sysconfig"},
    "ops": {
        "array_ops": "ops.array_ops ops.slice_ops", "math_ops": "ops.math_ops", "state_ops": "ops.state_ops", "variables": "variables.variables variables.variable_collections",
        "variable_scope": "variables.variable_scopes", "control_flow_ops": "ops.control_flow_ops", "init_ops": "variables.init_ops",
        "gradients": "graph.gradients_impl", "gradients_impl": "graph.gradients_impl", "nn": "nn", "nn_ops": "nn.nn_ops nn",
        "nn_impl": "nn.nn_ops nn", "random_ops": "ops.random_ops", "clip_ops": "ops.clip_ops", "check_ops": "ops.check_ops",
        "logging_ops": "ops.logging_ops", "string_ops": "ops.string_ops", "sparse_ops": "ops.sparse_ops ops.sparse_tensor",
        "embedding_ops": "nn.embedding_ops", "tensor_array_ops": "ops.tensor_array_ops", "functional_ops": "ops.functional_ops",
        "map_fn": "ops.functional_ops", "linalg_ops": "ops.linalg_ops", "data_flow_ops": "ops.data_flow_ops",
        "session_ops": "session.session_ops", "inplace_ops": "ops.inplace_ops",
        "io_ops": "ops.io_ops", "parsing_ops": "ops.parsing_ops", "image_ops": "image", "script_ops": "ops.script_ops",
        "template": "variables.template", "partitioned_variables": "variables.partitioned", "resource_variable_ops": "variables.resource_variable variables.variables",
        "gen_array_ops": "graph.op_library", "gen_math_ops": "graph.op_library", "gen_nn_ops": "graph.op_library",
        "lookup_ops": "lookup", "rnn": "nn.rnn", "rnn_cell": "nn.rnn_cell", "rnn_cell_impl": "nn.rnn_cell",
        "gen_state_ops": "graph.op_library", "gen_data_flow_ops": "graph.op_library", "gen_random_ops": "graph.op_library",
        "gen_image_ops": "graph.op_library", "gen_io_ops": "graph.op_library", "gen_parsing_ops": "graph.op_library",
        "gen_string_ops": "graph.op_library", "gen_sparse_ops": "graph.op_library", "gen_control_flow_ops": "graph.op_library",
        "metrics": "metrics", "metrics_impl": "metrics", "special_math_ops": "ops.special_ops", "sort_ops": "ops.special_ops",
        "bitwise_ops": "generated.bitwise_ops", "stateless_random_ops": "ops.stateless_random_ops",
        "custom_gradient": "graph.custom_gradients", "losses": "losses", "weights_broadcast_ops": "ops.weights_broadcast",
        "summary_ops": "summary", "summary_op_util": "summary",
        "confusion_matrix": "ops.confusion", "candidate_sampling_ops": "nn.candidate_sampling",
        "collective_ops": "ops.collective_ops"},
    "training": {name: "train.%s train train.training_util" % name for name in (
        "training", "training_util", "saver", "server_lib", "session_run_hook", "basic_session_run_hooks",
        "monitored_session", "session_manager", "supervisor", "coordinator", "queue_runner", "queue_runner_impl",
        "device_setter", "input", "moving_averages", "optimizer", "gradient_descent", "adam", "adagrad", "momentum",
        "rmsprop", "ftrl", "adadelta", "adagrad_da", "proximal_adagrad", "proximal_gradient_descent",
        "learning_rate_decay", "training_ops", "checkpoint_ops", "warm_starting_util", "sync_replicas_optimizer", "summary_io",
        "slot_creator")},
    "checkpoint": {"checkpoint_management": "train.checkpoint_management"},
    "data.ops": {"dataset_ops": "data.dataset data", "iterator_ops": "data.iterator data", "readers": "data.readers"},
    "tools": {"inspect_checkpoint": "train.inspect_checkpoint", "freeze_graph": "graph.freeze_graph"},
    "": {"pywrap_tensorflow": "train.checkpoint_utils"},
    "lib.io": {"file_io": "file_io", "tf_record": "python_io", "python_io": "python_io"},
    "util": {"compat": "compat", "nest": "nest", "deprecation": "names.python_util", "tf_inspect": "names.python_util", "tf_export": "names.python_util",
             "tf_contextlib": "names.python_util", "tf_decorator": "names.python_util"},
    "ops.losses": {"losses": "losses", "losses_impl": "losses", "util": "losses"},
    "summary": {"summary": "summary", "summary_iterator": "summary", "text_summary": "summary"},
    "summary.writer": {"writer": "summary", "writer_cache": "summary", "event_file_writer": "summary"},
    "saved_model": {name: "saved_model" for name in (
        "saved_model", "builder", "builder_impl", "loader", "loader_impl", "signature_def_utils",
        "signature_def_utils_impl", "utils", "utils_impl", "simple_save", "constants", "main_op", "main_op_impl",
        "tag_constants", "signature_constants")},
    "layers": {"layers": "layers", "base": "layers", "core": "layers", "normalization": "layers", "utils": "layers", "convolutional": "layers", "pooling": "layers"},
}
_MODULES["training"].update({
    "summary_io": "summary train",
    "checkpoint_management": "train.checkpoint_management", "checkpoint_utils": "train.checkpoint_utils",
    "py_checkpoint_reader": "train.checkpoint_utils"})


class _View(types.ModuleType):
    """A module of tensorflow.python: its names come from the modules given, then from tf and tf.train."""

    def __init__(self, name, modules):
        super(_View, self).__init__(name, "Names of %s." % name)
        self.__dict__["_modules"] = modules

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        for module in self.__dict__["_modules"]:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError("module %r has no attribute %r (Muster has no such part of TensorFlow)"
                             % (self.__name__, name))


class _Folder(types.ModuleType):
    """A package without content of its own: its modules are found when they are named."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return importlib.import_module(self.__name__ + "." + name)
        except ModuleNotFoundError as e:
            raise AttributeError(str(e))


def _module_or_none(name):
    try:
        return importlib.import_module(name)
    except absent.Missing:
        return None
    except ModuleNotFoundError as e:
        # Only a part that Muster does not have; what such a part imports must be there.
        if e.name is None or not (name + ".").startswith(e.name + "."):
            raise
        return None


def _public_module(tail):
    """tf.<tail> where that is a module, whatever it is called here; or None."""
    found = sys.modules["muster"]
    for part in tail.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, types.ModuleType) else None


def _view(name):
    """The module of tensorflow.python with that name, or None."""
    prefix = "tensorflow.python."
    if not name.startswith(prefix):
        return None
    folder, _, leaf = name[len(prefix):].rpartition(".")
    sources = _MODULES.get(folder, {}).get(leaf)
    if sources is None:
        return None
    found = [_module_or_none("muster." + source) for source in sources.split()]
    if sources and not any(found):
        return None
    return _View(name, [m for m in found if m is not None] +
                 [m for m in (sys.modules["muster"], _module_or_none("muster.train")) if m is not None])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self):
        self._own_specs = {}

    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow" or name.startswith("tensorflow."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        name = spec.name
        tail = name.partition(".")[2]
        if name in _SAME:
            return self._own(name, importlib.import_module(_SAME[name]))
        if name in _FOLDERS:
            return _Folder(name)
        if name.startswith(("tensorflow.core.", "tensorflow.python.training.", "tensorflow.tsl.")):
            generated = proto_names.generated_module(tail.replace(".", "/"))
            if generated is not None:
                return generated
        view = _view(name)
        if view is not None:
            return view
        module = None
        if not tail.startswith(("python.", "core.")):
            module = _module_or_none("muster." + tail) or _public_module(tail)
        if module is not None:
            return self._own(name, module)
        reason = absent.reason(tail)
        if reason is not None:
            raise ImportError("%s is not available: %s" % (name, reason), name=name)
        parent, _, leaf = name.rpartition(".")
        if isinstance(sys.modules.get(parent), _View):
            raise ImportError("cannot import name %r from %r (Muster has no such part of TensorFlow)" % (leaf, parent), name=name)
        raise ModuleNotFoundError("No module named %r (Muster has no such part of TensorFlow)" % name, name=name)

    def _own(self, name, module):
        self._own_specs[name] = module.__spec__
        return module

    def exec_module(self, module):
        # The import system has put its own spec on the module; one of Muster keeps that with which it was made.
        name = module.__spec__.name
        if name in self._own_specs:
            module.__spec__ = self._own_specs.pop(name)


def install():
    """From now on `import tensorflow` gives Muster, and what TensorFlow brought along can be imported too."""
    companions.install()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules["tensorflow"] = importlib.import_module("muster")
