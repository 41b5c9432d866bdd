"""muster.data.ShardQueue: shards of the data that the workers of a cluster take, work on and report done."""
import collections
import json

from muster import _muster, compat, dtypes
from muster.graph import convert, framework
from muster.graph.framework import GraphKeys
from muster.train import basic_session_run_hooks, saveable
from muster.variables import resources

Shard = collections.namedtuple("Shard", ["epoch", "index", "value", "ticket"])


class ShardQueue(object):
    """A work queue of data shards that lives on the cluster, where its variables are.

    `shards` is a list of strings (files, say), or a number: then their values are b"0", b"1", and so on. Every worker
    makes the queue in the same way and takes shards as fast as it works:

        queue = tf.data.ShardQueue(files, epochs=3, shuffle=True)
        with tf.train.MonitoredTrainingSession(..., hooks=[queue.hook()]) as session:
            for shard in queue.shards(session):
                ...train on shard.value

    Every shard of an epoch is done exactly once. A shard that its worker has neither reported done nor
    renewed within `lease_secs` counts as lost and is handed out again, so it may be done twice; report() counts and
    names these. The hook renews the shards of its worker. With `epochs=0` there is no end. With `shuffle` every epoch
    has another order, which follows from `seed` where one is given. With `backup`, at the end of an epoch an idle
    worker also gets a shard that takes another worker much longer than usual.

    A Saver saves the queue like a variable. After a restore the shards that were done since the checkpoint are handed
    out again: their updates are lost too.

    `device` says where the queue lives: by default on a parameter server, as the device function places it, elsewhere
    at task 0 of the job whose device is in effect.
    """

    def __init__(self, shards, epochs=1, shuffle=False, seed=None, lease_secs=30, backup=False, device=None, name=None):
        count = 0
        if isinstance(shards, int):
            shards, count = [], shards
        self._graph = framework.get_default_graph()
        self._core = _muster.new_shard_queue(
            self._graph._scope, [compat.as_bytes(shard) for shard in shards], count, int(epochs), bool(shuffle),
            0 if seed is None else int(seed), float(lease_secs), bool(backup), name or "shard_queue", device or "")
        self._num_shards = count or len(shards)
        self.initializer = self._graph._operation(self._core.initializer)
        self._gentle_initializer = self._graph._operation(self._core.gentle_initializer)
        resources.register_resource(self.handle, self.initializer, self._graph._tensor(self._core.is_initialized))
        framework.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, _ShardQueueSaveable(self))

    @property
    def handle(self):
        return self._graph._tensor(self._core.handle)

    @property
    def name(self):
        return self._core.name

    @property
    def num_shards(self):
        return self._num_shards

    # --- Use, with a session. ---
    def shards(self, session):
        """Takes shards until all epochs are done: (epoch, index, value, ticket). One is reported done when the loop
        comes round for the next, and given back when the loop is left in between."""
        while not _should_stop(session):
            shard = self.take_from(session)
            if shard is None:
                return
            finished = False
            try:
                yield shard
                finished = True
            finally:
                if not finished:
                    self._leave(session, shard)
            self.done_at(session, shard)

    def take_from(self, session):
        """The next shard, or None when all epochs are done. Waits while others have the last ones of an epoch."""
        taken = self._run(session, self._core.take)
        return None if taken is None else Shard(*taken)

    def done_at(self, session, shard):
        """Reports a shard done. False: another worker had done it, or a restored checkpoint has undone it."""
        return self._run(session, self._core.done, shard.ticket)

    def give_back(self, session, shard):
        """Gives a shard back, so that another worker can take it."""
        self._run(session, self._core.give_back, shard.ticket)

    def renew_at(self, session):
        """Renews the leases of the shards that were taken here; the hook does so periodically."""
        self._run(session, self._core.renew)

    def report(self, session):
        """The account, as a dict; docs/training.md has its fields."""
        return json.loads(self._run(session, self._core.report))

    def hook(self):
        """A hook that renews the leases of the shards that were taken here, while steps run."""
        return _ShardQueueHook(self._core)

    def _leave(self, session, shard):
        # The session itself may have failed; the lease ends in any case.
        from muster import errors
        try:
            self.give_back(session, shard)
        except (errors.OpError, RuntimeError, AttributeError, ValueError):
            pass

    @staticmethod
    def _run(session, call, *args):
        if not hasattr(session, "run_step_fn"):
            return call(session._session, *args)
        return session.run_step_fn(lambda step_context: call(step_context.session._session, *args))

    # --- Tensors, for programs that take shards within their own steps. ---
    def take(self):
        """Tensors of the next shard; each run takes another one. Only renew() renews its lease."""
        return Shard(*[self._graph._tensor(output) for output in self._core.add_take(self._graph._scope)])

    def done(self, ticket):
        """A tensor that reports the shard of `ticket` done; false as with done_at."""
        ticket = convert.convert_to_tensor(ticket, dtypes.int64)
        return self._graph._tensor(self._core.add_done(self._graph._scope, ticket._output))

    def renew(self, tickets):
        """A tensor that renews the leases of `tickets` and says which of them are still held."""
        tickets = convert.convert_to_tensor(tickets, dtypes.int64)
        return self._graph._tensor(self._core.add_renew(self._graph._scope, tickets._output))


def _should_stop(session):
    return hasattr(session, "should_stop") and session.should_stop()


class _ShardQueueHook(basic_session_run_hooks._NativeHook):
    def __init__(self, core):
        self._core = _muster.new_shard_queue_hook(core)


class _ShardQueueSaveable(saveable._NativeSaveable):
    _is_native = True

    def __init__(self, queue):
        self._native = queue._core.saveable()

        def state():
            with framework.colocate_with(queue.handle):
                from muster.graph.op_library import call
                return call("MusterShardState", handle=queue.handle)

        spec = saveable.SaveSpec(state, "", queue.name, dtype=dtypes.string, device=queue.handle.device)
        super(_ShardQueueSaveable, self).__init__(queue.handle, [spec], queue.name)


__all__ = ["Shard", "ShardQueue"]
