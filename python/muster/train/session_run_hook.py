"""tf.train.SessionRunHook and what hooks are given; how a hook written in Python is called by the C++ session."""
import collections
import threading
import weakref

from muster import _protos
from muster.session import fetches_feeds, session
from muster.train import coordinator


class SessionRunHook(object):
    """Called around the runs of a monitored session; derive and override what is needed."""

    def begin(self):
        """Once, before the session exists; the graph may still be changed."""

    def after_create_session(self, session, coord):
        """After every creation of the session, also when it recovers."""

    def before_run(self, run_context):
        """May return SessionRunArgs to be run together with what the caller asked for."""
        return None

    def after_run(self, run_context, run_values):
        """Gets what before_run has asked for."""

    def end(self, session):
        """Once, when the loop has ended without an error."""


class SessionRunArgs(collections.namedtuple("SessionRunArgs", ["fetches", "feed_dict", "options"])):
    """What a run is asked for."""

    def __new__(cls, fetches, feed_dict=None, options=None):
        return super(SessionRunArgs, cls).__new__(cls, fetches, feed_dict, options)


class SessionRunValues(collections.namedtuple("SessionRunValues", ["results", "options", "run_metadata"])):
    """What a hook gets after a run."""


class SessionRunContext(object):
    """One run, as hooks see it."""

    def __init__(self, original_args, session):
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self):
        return self._original_args

    @property
    def session(self):
        return self._session

    @property
    def stop_requested(self):
        return self._stop_requested

    def request_stop(self):
        self._stop_requested = True


class _RunContext(SessionRunContext):
    """A context whose request to stop reaches the C++ session."""

    def __init__(self, original_args, session, flag):
        super(_RunContext, self).__init__(original_args, session)
        self.flag = flag

    @property
    def stop_requested(self):
        return bool(self.flag)

    def request_stop(self):
        self.flag.set()


def options_tuple(options):
    """RunOptions as the extension takes them."""
    if options is None:
        return None
    return options.timeout_in_ms, options.trace_level > 0, options.output_partition_graphs


def options_message(options):
    message = _protos.get("tensorflow.RunOptions")()
    message.timeout_in_ms, traced, message.output_partition_graphs = options
    message.trace_level = 3 if traced else 0  # FULL_TRACE
    return message


def metadata_message(serialized):
    message = _protos.get("tensorflow.RunMetadata")()
    if serialized:
        message.ParseFromString(serialized)
    return message


# Coordinators by the id of their C++ coordinator, which they keep alive.
_coordinators = weakref.WeakValueDictionary()


def new_coordinator():
    """The coordinator of a monitored session, for which no exception counts as a clean end."""
    made = coordinator.Coordinator(clean_stop_exception_types=[])
    _coordinators[id(made._coordinator)] = made
    return made


def coordinator_of(core):
    return _coordinators[id(core)]


class CurrentRun(threading.local):
    """The arguments of the run under way on this thread, and the context made from them."""

    def __init__(self):
        self.args = None
        self.context = None

    def context_for(self, core, flag):
        # A run that is tried again with a new session has a new flag.
        if self.context is None or not self.context.flag.same(flag):
            self.context = _RunContext(self.args, session.session_of(core), flag)
        return self.context


class HookAdapter(object):
    """What C++ calls in place of a Python hook: sessions become tf.Session, nested fetches lists of tensors."""

    def __init__(self, hook, current):
        self._hook = hook
        self._current = current
        self._fetches = fetches_feeds.FetchCache()
        self._build = None

    def begin(self):
        self._hook.begin()

    def after_create_session(self, core, coord):
        self._hook.after_create_session(session.session_of(core), coordinator_of(coord))

    def before_run(self, core, flag):
        context = self._current.context_for(core, flag)
        args = self._hook.before_run(context)
        self._build = None
        if args is None:
            return None
        outputs, targets, feeds = [], [], []
        if args.fetches is not None:
            outputs, targets, self._build = self._fetches.flatten(context.session.graph, args.fetches)
        if args.feed_dict:
            feeds = fetches_feeds.flat_feeds(context.session.graph, args.feed_dict)
        return outputs, targets, feeds, options_tuple(args.options)

    def after_run(self, core, flag, values, options, metadata):
        results = self._build(values) if self._build is not None else None
        self._hook.after_run(self._current.context_for(core, flag),
                             SessionRunValues(results, options_message(options), metadata_message(metadata)))

    def end(self, core):
        self._hook.end(session.session_of(core))


__all__ = ["SessionRunHook", "SessionRunArgs", "SessionRunValues", "SessionRunContext"]
