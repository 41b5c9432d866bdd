"""tf.train.AllReduceOptimizer: every worker has the whole model and gradients are averaged over all of them."""
from muster import _muster, dtypes
from muster.graph import convert, framework
from muster.graph.framework import GraphKeys
from muster.ops import control_flow_ops
from muster.train import basic_session_run_hooks, optimizer, server_lib, sync_replicas, training_util
from muster.variables import resources, variable_collections, variables


class AllReduceOptimizer(optimizer.Optimizer):
    """Averages gradients over all workers before `opt` applies them on each; no parameter server is needed.

    Gradients of small variables travel together, up to `bucket_bytes`. With `average_every=k` workers train by
    themselves, and after every k steps their parameters are averaged instead. Variables that lie at another task (on a
    parameter server) are not copied to the workers: their mean gradients are applied there by `staying_optimizer`, which
    must be another optimizer. `stays(name, device)` decides otherwise which variables these are.

    Every worker's session needs the hook of make_session_run_hook.
    """

    def __init__(self, opt, bucket_bytes=1 << 20, average_every=0, staying_optimizer=None, stays=None,
                 use_locking=False, name="all_reduce"):
        super(AllReduceOptimizer, self).__init__(use_locking, name)
        if staying_optimizer is opt:
            raise ValueError("staying_optimizer must be an optimizer of its own: both count their updates.")
        self._opt = opt
        self._staying_optimizer = staying_optimizer
        self._core = _muster.new_all_reduce(name, bucket_bytes, average_every, stays)

    # --- What the wrapped optimizer does. ---
    def compute_gradients(self, *args, **kwargs):
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, *args, **kwargs):
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self):
        staying = [] if self._staying_optimizer is None else self._staying_optimizer.variables()
        return self._opt.variables() + staying

    # --- Averaging. ---
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars)
        if not grads_and_vars:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            global_step = training_util.get_or_create_global_step()
        graph = framework.get_default_graph()

        def apply_with(opt):
            def apply(scope, handles, trained, counts_step):
                with graph._in_scope(scope):
                    means = [sync_replicas._gradient(graph, handle) for handle in handles]
                    update = opt.apply_gradients(list(zip(means, trained)), global_step if counts_step else None)
                return (update if isinstance(update, framework.Operation) else update.op)._node

            return apply

        def make_local(scope, name, initial):
            with graph._in_scope(scope):
                return variables.Variable(initial, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES], name=name)

        train = self._core.apply_gradients(
            graph._scope, [sync_replicas._handle(g) for g, _ in grads_and_vars], [v for _, v in grads_and_vars],
            global_step, apply_with(self._opt),
            None if self._staying_optimizer is None else apply_with(self._staying_optimizer), make_local)
        return graph._operation(train)

    def make_session_run_hook(self, server, least=0, grace_secs=3.0, patience_secs=600.0):
        """The hook that forms the group: of all tasks of the server's job, or of those that are left.

        `server` is the worker's tf.train.Server. A group of fewer than `least` workers (half of them when 0) never
        trains. When a group is formed and some workers are missing, it waits `grace_secs` for them; without a group
        after `patience_secs` the session fails.
        """
        return _AllReduceHook(self._core, server, least, grace_secs, patience_secs)


class _AllReduceHook(basic_session_run_hooks._NativeHook):
    """Forms the group when a session is made, and again when a worker is lost or joins."""

    def __init__(self, core, server, least, grace_secs, patience_secs):
        self._all_reduce = core
        self._arguments = (least, grace_secs, patience_secs)
        own = server.server_def
        spec = server_lib.ClusterSpec(own.cluster)
        indices = spec.task_indices(own.job_name)
        addresses = [server.target if i == own.task_index else "grpc://" + spec.task_address(own.job_name, i)
                     for i in indices]
        self._tasks = [("/job:%s/replica:0/task:%d" % (own.job_name, i), a) for i, a in zip(indices, addresses)]
        self._index = indices.index(own.task_index)

    def _variables(self):
        """The variables, once the graph has all of them. Also puts ops into the scaffold's collections with which a new
        session keeps values that exist, and each worker initializes its own variables without waiting for a chief."""
        from muster.train import monitored_session

        graph = framework.get_default_graph()
        graph._keeps_model = self._all_reduce.has_trained  # then the chief restores no older checkpoint

        def gentle(with_staying):
            return graph._operation(
                self._all_reduce.gentle_initializer(graph._scope, variable_collections.global_variables(), with_staying))

        # Shard queues keep their state too.
        shared = [r._replace(create=graph.get_operation_by_name(r.handle.op.name + "/gentle_init"))
                  if r.handle.op.type == "MusterShardQueue" else r for r in resources.shared_resources()]
        ready = convert.constant([], dtypes.string, name="ready_for_local_init")
        for key, op in ((GraphKeys.INIT_OP, control_flow_ops.group(
                            gentle(True), resources.initialize_resources(shared))),
                        (GraphKeys.READY_FOR_LOCAL_INIT_OP, ready),
                        (GraphKeys.LOCAL_INIT_OP, control_flow_ops.group(
                            gentle(False), monitored_session.Scaffold.default_local_init_op()))):
            if not framework.get_collection(key):
                framework.add_to_collection(key, op)
        return variable_collections.global_variables()

    @property
    def _core(self):
        if "_hook" not in self.__dict__:
            self._hook = _muster.new_all_reduce_hook(
                self._all_reduce, framework.get_default_graph()._scope, self._tasks, self._index, *self._arguments,
                self._variables)
        return self._hook


__all__ = ["AllReduceOptimizer"]
