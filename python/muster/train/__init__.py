"""tf.train: clusters and servers, and what muster.train.exports has, loaded when one of its names is first asked for: a
parameter server needs none of it."""
import importlib as _importlib

from muster.names import absent as _absent
from muster.names import proto_names as _proto_names
from muster.train.server_lib import *  # noqa: F401,F403


def _load():
    from muster.train import exports

    for name, value in vars(exports).items():
        if not name.startswith("_"):
            globals()[name] = value


_explain = _absent.explain(__name__)


def __getattr__(name):
    if name in _proto_names.TRAIN_NAMES:
        return _proto_names.get(name)
    if name == "queue_runner":  # a module of this folder that is a name of tf.train
        return _importlib.import_module("muster.train.queue_runner")
    if _absent.is_module(__name__, name):  # `from muster.train import saver`
        raise AttributeError(name)
    # `from ... import *` asks for __all__, and takes what is here after that.
    if name == "__all__" or not name.startswith("__"):
        _load()
        if name in globals():
            return globals()[name]
    return _explain(name)


def __dir__():
    _load()
    return sorted(set(globals()) | _proto_names.TRAIN_NAMES)
