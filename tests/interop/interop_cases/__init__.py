"""What a client may do with a cluster, as functions that depend neither on the client nor on the servers.

A case is `case(tf, c)`: `tf` is tensorflow.compat.v1 or muster, `c` a Context. It runs in a graph of its own and asserts.
The cluster has the jobs ps (one task) and worker (two tasks); its master is worker 0 unless the case chooses another.
"""

import importlib

MODULES = ("sessions", "fetching", "values", "state", "flow", "control_flow", "failures", "options", "concurrency", "queues",
           "layers")
PS, WORKER, OTHER = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"


class Case(object):
    def __init__(self, function, only, client):
        self.function, self.only, self.client = function, only, client
        self.name = "%s.%s" % (function.__module__.rpartition(".")[2], function.__name__)


_cases = {}


def case(function=None, only=None, client=None):
    """Registers a case. `only`: names of clusters where it makes sense; `client`: stock or muster where it is of one."""
    def register(f):
        one = Case(f, only, client)
        _cases[one.name] = one
        return f

    return register(function) if function is not None else register


def all_cases():
    for module in MODULES:
        importlib.import_module("interop_cases." + module)
    return dict(_cases)


class Context(object):
    def __init__(self, tf, client, kinds, targets):
        self.tf, self.client, self.kinds, self.targets = tf, client, kinds, targets

    @property
    def target(self):
        return self.targets["worker/0"]

    def session(self, target=None, graph=None, **options):
        options.setdefault("operation_timeout_in_ms", 30000)
        return self.tf.Session(self.targets[target] if target else self.target, graph=graph,
                               config=self.tf.ConfigProto(**options))

    def reset(self):
        for target in self.targets.values():
            self.tf.Session.reset(target)


def raised(kind, function, *arguments, **words):
    """The error of that class that the call raises."""
    try:
        result = function(*arguments, **words)
    except kind as e:
        return e
    raise AssertionError("%s was expected, the call gave %r" % (kind, result))
