"""tf.train.SyncReplicasOptimizer: gradients of several workers become one update, over the C++ synchronization."""
import atexit
import functools
import sys
import weakref

from muster import _muster, dtypes, errors, tf_logging
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.ops import data_flow_ops
from muster.session import fetches_feeds, session
from muster.train import basic_session_run_hooks, optimizer, queue_runner
from muster.variables import variable_collections, variables


def _handle(gradient):
    """A gradient as C++ takes it."""
    if gradient is None:
        return None
    if isinstance(gradient, framework.Tensor):
        return gradient._output
    if isinstance(gradient, framework.IndexedSlices):
        shape = gradient.dense_shape
        return (gradient.values._output, gradient.indices._output, None if shape is None else shape._output)
    raise ValueError("Unknown grad type!")


def _gradient(graph, handle):
    """The gradient of such a handle."""
    if handle is None:
        return None
    if isinstance(handle, tuple):
        values, indices, shape = [None if h is None else graph._tensor(h) for h in handle]
        return framework.IndexedSlices(values, indices, shape)
    return graph._tensor(handle)


_running_chiefs = weakref.WeakSet()  # queue runners of this process, released at its end
_supervised_workers = []  # sessions of workers under a Supervisor that have not left, each with its graph


@atexit.register
def _release_at_exit():
    for runner in list(_running_chiefs):
        runner.release()
    for sess, _ in list(_supervised_workers):
        supervised_worker_leaves(sess, returns_tokens=getattr(sys, "last_value", None) is None)


class _ChiefQueueRunner(queue_runner.QueueRunner):
    """Applies the mean gradients and gives out tokens. When the chief ends, waiting workers are released."""

    def __init__(self, core, graph):
        def op(node):
            return graph._operation(node)

        queue = data_flow_ops.QueueBase([dtypes.int32], [()], None, graph.get_tensor_by_name(core.queue_name + ":0"))
        super(_ChiefQueueRunner, self).__init__(queue, [op(core.enqueue_op)], op(core.close_op), op(core.cancel_op))
        self._core = core
        self._runner = _muster.new_chief_queue_runner(
            core, functools.partial(queue_runner._with_op, weakref.ref(graph)))
        self._sess = None

    def create_threads(self, sess, coord=None, daemon=False, start=False):
        self._core.note_chief_started()
        self._sess = weakref.ref(sess)
        _running_chiefs.add(self)
        return super(_ChiefQueueRunner, self).create_threads(sess, coord=coord, daemon=daemon, start=start)

    def release(self):
        """For programs that end without stopping their Supervisor: its own stop does the same."""
        sess = self._sess() if self._sess is not None else None
        if sess is None or sess._closed:
            return
        try:
            self._core.release_workers(sess._session)
        except errors.OpError as e:
            tf_logging.info("Workers that wait for a token could not be released: %s", e)


def supervised_worker_joins(graph, sess):
    """Notes that `sess` takes tokens until the worker leaves, or the program ends without stopping its Supervisor."""
    _supervised_workers[:] = [worker for worker in _supervised_workers if not worker[0]._closed]
    if getattr(graph, "_sync_replicas", ()):
        _supervised_workers.append((sess, graph))


def supervised_worker_leaves(sess, returns_tokens):
    """Returns tokens for the worker, unless it has failed: then it may come back, as a new one."""
    left = [worker for worker in _supervised_workers if worker[0] is sess]
    for worker in left:
        _supervised_workers.remove(worker)
        if not returns_tokens or sess._closed:
            continue
        for optimizer_ in worker[1]._sync_replicas:
            try:
                optimizer_._core.return_tokens(sess._session)
            except errors.OpError as e:
                tf_logging.info("Tokens could not be returned: %s", e)


class SyncReplicasOptimizer(optimizer.Optimizer):
    """Waits for gradients of `replicas_to_aggregate` workers and applies their mean with `opt`."""

    def __init__(self, opt, replicas_to_aggregate, total_num_replicas=None, variable_averages=None,
                 variables_to_average=None, use_locking=False, name="sync_replicas", replica_id=None):
        if replica_id is not None:
            tf_logging.warning("SyncReplicasOptimizer: replica_id=%s is ignored; TensorFlow 1.0 has dropped it.",
                               replica_id)
        if total_num_replicas is None:
            total_num_replicas = replicas_to_aggregate
        super(SyncReplicasOptimizer, self).__init__(use_locking, name)
        self._opt = opt
        self._replicas_to_aggregate = replicas_to_aggregate
        self._total_num_replicas = total_num_replicas
        self._tokens_per_step = max(total_num_replicas, replicas_to_aggregate)
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._gradients_applied = False
        self._global_step = None
        self._local_step = None
        self._core = _muster.new_sync_replicas(replicas_to_aggregate, total_num_replicas, name)
        self._chief_queue_runner = None
        tf_logging.info("SyncReplicasV2: replicas_to_aggregate=%s; total_num_replicas=%s; tokens_per_step=%s",
                        replicas_to_aggregate, total_num_replicas, self._tokens_per_step)

    # --- What the wrapped optimizer does. ---
    def compute_gradients(self, *args, **kwargs):
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, *args, **kwargs):
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self):
        return self._opt.variables()

    # --- Synchronization. ---
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars) if grads_and_vars else grads_and_vars
        if not grads_and_vars:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        self._global_step = global_step
        graph = framework.get_default_graph()
        trained = [v for _, v in grads_and_vars]

        def apply(scope, handles):
            with graph._in_scope(scope):
                means = [_gradient(graph, handle) for handle in handles]
                update = self._opt.apply_gradients(list(zip(means, trained)), global_step)
            return (update if isinstance(update, framework.Operation) else update.op)._node

        def make_local_step(scope):
            with graph._in_scope(scope):
                self._local_step = variables.Variable(0, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES],
                                                      dtype=global_step.dtype.base_dtype, name="sync_rep_local_step")
            return self._local_step

        def average(scope):
            with graph._in_scope(scope):
                return self._variable_averages.apply(self._variables_to_average)._node

        train = self._core.apply_gradients(
            graph._building_scope(), [_handle(g) for g, _ in grads_and_vars], trained, global_step,
            variable_collections.global_variables(), apply, make_local_step,
            None if self._variable_averages is None else average)
        self.local_step_init_op = graph._operation(self._core.local_step_init)
        self.chief_init_op = graph._operation(self._core.chief_init)
        self.ready_for_local_init_op = graph._tensor(self._core.ready_for_local_init)
        self._sync_token_queue = data_flow_ops.QueueBase([global_step.dtype.base_dtype], [()], None,
                                                         graph._tensor(self._core.token_queue))
        self._chief_queue_runner = _ChiefQueueRunner(self._core, graph)
        self._gradients_applied = True
        graph._sync_replicas = getattr(graph, "_sync_replicas", []) + [self]
        operation = graph._operation(train)
        return operation.outputs[0] if operation.outputs else operation

    def get_chief_queue_runner(self):
        if not self._gradients_applied:
            raise ValueError("Should be called after apply_gradients().")
        return self._chief_queue_runner

    def get_init_tokens_op(self, num_tokens=-1):
        if not self._gradients_applied:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        graph = framework.get_default_graph()
        return graph._operation(self._core.init_tokens(graph._scope, num_tokens))

    def make_session_run_hook(self, is_chief, num_tokens=-1):
        return _SyncReplicasOptimizerHook(self, is_chief, num_tokens)


class _SyncReplicasOptimizerHook(basic_session_run_hooks._NativeHook):
    """Starts a worker's part of synchronous training with its session; the chief's also starts the updates."""

    def __init__(self, sync_optimizer, is_chief, num_tokens):
        self._sync_optimizer = sync_optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens

    @property
    def _core(self):
        """Made when it is first needed: the program may still have to apply its gradients."""
        if "_hook" not in self.__dict__:
            optimizer_ = self._sync_optimizer
            runner = optimizer_._chief_queue_runner if self._is_chief else None
            self._hook = _muster.new_sync_replicas_hook(
                optimizer_._core, framework.get_default_graph()._scope, self._is_chief, self._num_tokens,
                None if runner is None else runner._runner)
        return self._hook


class MissingChiefHook(basic_session_run_hooks._NativeHook):
    """Ends the session of a chief that waits for updates that no thread makes, and says why."""

    def __init__(self, sync_optimizer):
        self._core = _muster.new_missing_chief_hook(sync_optimizer._core)


def watch_for_missing_chief(graph, sess, coord):
    """The same for the session of a program that runs its steps itself, under a Supervisor."""
    watches = [_muster.watch_for_missing_chief(optimizer_._core, sess._session, coord._coordinator)
               for optimizer_ in getattr(graph, "_sync_replicas", ())]
    if not watches:
        return

    def run(fetches, feed_dict=None, options=None, run_metadata=None):
        if all(watch.chief_started for watch in watches):
            del sess.run  # from now on sess.run is the session's own method
            return sess.run(fetches, feed_dict, options, run_metadata)
        asked = fetches_feeds._Fetches(graph, fetches, sess)
        for watch in watches:
            watch.step_starts(asked.outputs, asked.targets)
        try:
            return type(sess).run(sess, fetches, feed_dict, options, run_metadata)
        except errors.OpError:
            coord.raise_requested_exception()
            raise
        finally:
            for watch in watches:
                watch.step_ends()

    sess.run = run


SyncReplicasOptimizerV2 = SyncReplicasOptimizer

__all__ = ["SyncReplicasOptimizer", "SyncReplicasOptimizerV2"]
