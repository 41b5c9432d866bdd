"""tf.contrib.training.HParams: named hyperparameters, changed from a text like "rate=0.1,layers=[2,3]"."""
import json
import re

_ASSIGNMENT = re.compile(r"(?P<name>[a-zA-Z][\w.]*)\s*(?:\[(?P<index>\d+)\])?\s*=\s*"
                         r"(?:\[(?P<list>[^\]]*)\]|(?P<value>[^,\[]*))\s*(?:,|$)")


def _cast(name, kind, text):
    text = text.strip() if isinstance(text, str) else text
    if kind is bool:
        if isinstance(text, bool):
            return text
        if text in ("true", "True", "1"):
            return True
        if text in ("false", "False", "0"):
            return False
        raise ValueError("Could not parse %r as a boolean for hparam %s" % (text, name))
    if kind is int and isinstance(text, float) and text != int(text):
        raise ValueError("Could not cast hparam '%s' of type int from value %r" % (name, text))
    try:
        return kind(text)
    except ValueError:
        raise ValueError("Could not parse hparam '%s' of type '%s' with value '%s'" % (name, kind.__name__, text))


class HParams(object):
    def __init__(self, hparam_def=None, model_structure=None, **kwargs):
        if hparam_def is not None:
            raise NotImplementedError("HParams from an HParamDef are not supported")
        self.__dict__["_types"] = {}
        self.__dict__["_model_structure"] = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name, value):
        if getattr(self, name, None) is not None:
            raise ValueError("Hyperparameter name is reserved: %s" % name)
        if isinstance(value, (list, tuple)):
            if not value:
                raise ValueError("Multi-valued hyperparameters cannot be empty: %s" % name)
            self._types[name] = (type(value[0]), True)
        else:
            self._types[name] = (type(value), False)
        setattr(self, name, value)

    def set_hparam(self, name, value):
        kind, is_list = self._types[name]
        if isinstance(value, list):
            if not is_list:
                raise ValueError("Must not pass a list for single-valued parameter: %s" % name)
            setattr(self, name, [_cast(name, kind, v) for v in value])
        elif is_list:
            raise ValueError("Must pass a list for multi-valued parameter: %s." % name)
        else:
            setattr(self, name, value if kind is type(None) else _cast(name, kind, value))

    def del_hparam(self, name):
        if hasattr(self, name):
            delattr(self, name)
            del self._types[name]

    def parse(self, values):
        position = 0
        while position < len(values):
            match = _ASSIGNMENT.match(values, position)
            if match is None:
                raise ValueError("Malformed hyperparameter value: %s" % values[position:])
            position = match.end()
            name = match.group("name")
            if name not in self._types:
                raise ValueError("Unknown hyperparameter type for %s" % name)
            if match.group("index") is not None:
                changed = list(getattr(self, name))
                changed[int(match.group("index"))] = _cast(name, self._types[name][0], match.group("value"))
                setattr(self, name, changed)
            elif match.group("list") is not None:
                self.set_hparam(name, [part for part in match.group("list").split(",") if part.strip()])
            else:
                self.set_hparam(name, match.group("value"))
        return self

    def override_from_dict(self, values_dict):
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json):
        return self.override_from_dict(json.loads(values_json))

    def values(self):
        return {name: getattr(self, name) for name in self._types}

    def to_json(self, indent=None, separators=None, sort_keys=False):
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def get(self, key, default=None):
        return getattr(self, key) if key in self._types else default

    def keys(self):
        return self._types.keys()

    def __contains__(self, key):
        return key in self._types

    def __str__(self):
        return str(sorted(self.values().items()))

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, self)
