"""tf.train.QueueRunner: threads that run enqueue ops, over the C++ queue runner."""
import functools
import weakref

from muster import _muster, _protos, errors, tf_logging
from muster.graph import framework
from muster.session import session
from muster.train import coordinator


class _QueueRunnerThread(coordinator.Thread):
    def __init__(self, handle, sess):
        super(_QueueRunnerThread, self).__init__(handle, name=handle.name)
        self._sess = sess  # keeps the session open: it closes with its last reference

    def run(self):
        try:
            self._handle.run()
        finally:
            self._sess = None

    run._tells_its_end = True


def _node(element):
    return (element if isinstance(element, framework.Operation) else element.op)._node


def _codes(exception_types):
    """The status codes of the classes; a class that stands for several, as OpError does, gives all of them."""
    return [code for code in range(1, len(errors._CODES))
            if issubclass(errors.exception_type_from_error_code(code), exception_types)]


def _with_op(graph, error):
    # The graph holds its queue runners: they hold it weakly.
    return error if graph() is None else session.with_failing_op(graph(), error)


class QueueRunner(object):
    """Enqueue ops of one queue, each run by a thread of its own until the queue closes or training stops."""

    def __init__(self, queue=None, enqueue_ops=None, close_op=None, cancel_op=None, queue_closed_exception_types=None,
                 queue_runner_def=None, import_scope=None):
        if queue_runner_def:
            if queue or enqueue_ops:
                raise ValueError("queue_runner_def and queue are mutually exclusive.")
            self._init_from_proto(queue_runner_def, import_scope)
        else:
            self._init_from_args(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types)
        graph = self._enqueue_ops[0].graph if self._enqueue_ops else framework.get_default_graph()
        self._runner = _muster.new_queue_runner(
            self.name, [_node(op) for op in self._enqueue_ops], _node(self._close_op), _node(self._cancel_op),
            _codes(self._queue_closed_exception_types), functools.partial(_with_op, weakref.ref(graph)))

    def _init_from_args(self, queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types):
        if not queue or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        types = queue_closed_exception_types
        if types is not None and (not isinstance(types, tuple) or not types or
                                  not all(issubclass(t, errors.OpError) for t in types)):
            raise TypeError("queue_closed_exception_types, when provided, must be a tuple of tf.error types, "
                            "but saw: %s" % (types,))
        self._queue = queue
        self._enqueue_ops = enqueue_ops
        self._close_op = queue.close() if close_op is None else close_op
        self._cancel_op = queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        self._queue_closed_exception_types = types or (errors.OutOfRangeError,)

    def _init_from_proto(self, proto, import_scope):
        graph = framework.get_default_graph()

        def element(name):
            return graph.as_graph_element(import_scope + "/" + name if import_scope else name)

        self._queue = element(proto.queue_name)
        self._enqueue_ops = [element(name) for name in proto.enqueue_op_name]
        self._close_op = element(proto.close_op_name)
        self._cancel_op = element(proto.cancel_op_name)
        self._queue_closed_exception_types = tuple(
            errors.exception_type_from_error_code(code) for code in proto.queue_closed_exception_types) or (
                errors.OutOfRangeError,)

    @property
    def queue(self):
        return self._queue

    @property
    def enqueue_ops(self):
        return self._enqueue_ops

    @property
    def close_op(self):
        return self._close_op

    @property
    def cancel_op(self):
        return self._cancel_op

    @property
    def queue_closed_exception_types(self):
        return self._queue_closed_exception_types

    @property
    def exceptions_raised(self):
        """What threads without a coordinator failed with."""
        return self._runner.exceptions

    @property
    def name(self):
        return self._queue.name

    def create_threads(self, sess, coord=None, daemon=False, start=False):
        """One thread for each enqueue op and, with a coordinator, one that cancels the queue when it stops."""
        handles = self._runner.create_threads(sess._session, None if coord is None else coord._coordinator)
        threads = [_QueueRunnerThread(handle, sess) for handle in handles]
        for thread in threads:
            if coord is not None:
                coord.register_thread(thread)
            if daemon:
                thread.daemon = True
            if start:
                thread.start()
        return threads

    def to_proto(self, export_scope=None):
        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        prefix = (export_scope or "") + "/"

        def stripped(name):
            return name[len(prefix):] if export_scope and name.startswith(prefix) else name

        proto = _protos.get("tensorflow.QueueRunnerDef")()
        proto.queue_name = stripped(self.name)
        proto.enqueue_op_name.extend(stripped(op.name) for op in self._enqueue_ops)
        proto.close_op_name = stripped(self._close_op.name)
        proto.cancel_op_name = stripped(self._cancel_op.name)
        proto.queue_closed_exception_types.extend(
            errors.error_code_from_exception_type(t) for t in self._queue_closed_exception_types)
        return proto

    @staticmethod
    def from_proto(queue_runner_def, import_scope=None):
        return QueueRunner(queue_runner_def=queue_runner_def, import_scope=import_scope)


def add_queue_runner(qr, collection=framework.GraphKeys.QUEUE_RUNNERS):
    framework.add_to_collection(collection, qr)


def start_queue_runners(sess=None, coord=None, daemon=True, start=True,
                        collection=framework.GraphKeys.QUEUE_RUNNERS):
    """Starts the threads of all queue runners in the collection."""
    if sess is None:
        sess = framework.get_default_session()
        if not sess:
            raise ValueError("Cannot start queue runners: No default session is registered. Use `with "
                             "sess.as_default()` or pass an explicit session to tf.start_queue_runners(sess=sess)")
    if not isinstance(sess, session.BaseSession):
        # These have started them already.
        if sess.__class__.__name__ in ("MonitoredSession", "SingularMonitoredSession"):
            return []
        raise TypeError("sess must be a `tf.Session` object. Given class: {}".format(sess.__class__))
    queue_runners = framework.get_collection(collection)
    if not queue_runners:
        tf_logging.warning("`tf.train.start_queue_runners()` was called when no queue runners were defined. You can "
                           "safely remove the call to this deprecated function.")
    with sess.graph.as_default():
        threads = []
        for runner in queue_runners:
            threads.extend(runner.create_threads(sess, coord=coord, daemon=daemon, start=start))
    return threads


__all__ = ["QueueRunner", "add_queue_runner", "start_queue_runners"]
