"""tf.train: clusters and servers, and what muster.training has, loaded when one of its names is first asked for: a
parameter server needs none of it."""
from muster import _absent
from muster import proto_names as _proto_names
from muster.server_lib import *  # noqa: F401,F403


def _load():
    from muster import training

    for name, value in vars(training).items():
        if not name.startswith("_"):
            globals().setdefault(name, value)


_explain = _absent.explain(__name__)


def __getattr__(name):
    if name in _proto_names.TRAIN_NAMES:
        return _proto_names.get(name)
    # `from ... import *` asks for __all__, and takes what is here after that.
    if name == "__all__" or not name.startswith("__"):
        _load()
        if name in globals():
            return globals()[name]
    return _explain(name)


def __dir__():
    _load()
    return sorted(set(globals()) | _proto_names.TRAIN_NAMES)
