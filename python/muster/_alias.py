"""Makes `tensorflow` and the paths below it that scripts commonly import mean Muster's modules."""
import importlib
import importlib.abc
import importlib.machinery
import sys

# Deep imports of scripts of that age, and where their content is.
_PATHS = {
    "tensorflow": "muster",
    "tensorflow.compat": "muster.compat",
    "tensorflow.compat.v1": "muster",
    "tensorflow.python": "muster",
    "tensorflow.python.framework": "muster",
    "tensorflow.python.framework.ops": "muster.framework",
    "tensorflow.python.framework.dtypes": "muster.dtypes",
    "tensorflow.python.framework.tensor_shape": "muster.tensor_shape",
    "tensorflow.python.framework.errors": "muster.errors",
    "tensorflow.python.framework.constant_op": "muster.convert",
    "tensorflow.python.ops": "muster",
    "tensorflow.python.ops.array_ops": "muster.array_ops",
    "tensorflow.python.ops.math_ops": "muster.math_ops",
    "tensorflow.python.client": "muster.client",
    "tensorflow.python.client.session": "muster.session",
    "tensorflow.python.platform": "muster.platform",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self):
        self._own_specs = {}

    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow" or name.startswith("tensorflow."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        name = spec.name
        mapped = _PATHS.get(name)
        if mapped is None:
            # tensorflow.train -> muster.train, tensorflow.python.ops.x -> muster.x
            tail = name.split(".", 1)[1]
            candidates = ["muster." + tail, "muster." + tail.rsplit(".", 1)[-1]]
        else:
            candidates = [mapped]
        for candidate in candidates:
            try:
                module = importlib.import_module(candidate)
                self._own_specs[name] = module.__spec__
                return module
            except ModuleNotFoundError as e:
                if e.name != candidate and not candidate.startswith(str(e.name)):
                    raise
        raise ModuleNotFoundError("No module named %r (Muster has no such part of TensorFlow)" % name, name=name)

    def exec_module(self, module):
        # The import system has put its own spec on the module; it keeps the one it was made with.
        module.__spec__ = self._own_specs.pop(module.__spec__.name)


def install():
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules["tensorflow"] = importlib.import_module("muster")
