"""Parts of TensorFlow that Muster does not have: their names exist and say so when something of theirs is used."""
import types


class Absent(types.ModuleType):
    """A module (or a part of one) with the members given, that names whatever else is asked of it."""

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


def reason(name):
    """Why tensorflow.<name> is not there, or None."""
    for part, text in REASONS.items():
        if name == part or name.startswith(part + "."):
            return text
    return None


REASONS = {
    "estimator": "Muster has Estimator, train_and_evaluate and numpy_input_fn, no canned models and no feature columns",
    "keras": "Muster has no Keras; build the model from tf.layers or plain ops",
    "contrib": "Muster has only the members of tf.contrib that docs/migrating.md lists",
    "distribute": "Muster has no distribution strategies; use between-graph replication with tf.train.Server",
    "lite": "Muster does not convert models for TensorFlow Lite",
    "python.eager": "Muster runs graphs only",
    "python.keras": "Muster has no Keras; build the model from tf.layers or plain ops",
}
