"""tf.train.SessionManager: sessions whose model is restored, initialized or waited for, over the C++ one."""
from muster import _muster
from muster.graph import framework
from muster.session import fetches_feeds, session


def init_step(graph, fetches, name, feed_dict=None, options=None):
    """What C++ runs for fetches of any structure; None for None."""
    if fetches is None:
        return None
    structure = fetches_feeds._Fetches(graph, fetches)
    tensors, arrays, _ = fetches_feeds.flatten_feeds(graph, feed_dict)
    return _muster.new_init_step([t._output for t in tensors], arrays, structure.outputs, structure.targets, name,
                                 options.timeout_in_ms if options is not None else 0)


def maybe_name(obj):
    if obj is None:
        return "None"
    return obj.name if hasattr(obj, "name") else "<no name for %s>" % type(obj)


def _read_state(directory):
    from muster import train

    state = train.get_checkpoint_state(directory)
    if not state or not state.model_checkpoint_path:
        return "", []
    return state.model_checkpoint_path, list(state.all_model_checkpoint_paths)


def checkpoint_source(saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint=False,
                      max_wait_secs=7200):
    return _muster.new_checkpoint_source(
        saver.restore if saver else None, saver.recover_last_checkpoints if saver else None, _read_state,
        checkpoint_dir or "", checkpoint_filename_with_path or "", bool(wait_for_checkpoint), max_wait_secs)


class SessionManager(object):
    """Opens sessions: the chief's restores or initializes the model, the others' wait until that is done."""

    def __init__(self, local_init_op=None, ready_op=None, ready_for_local_init_op=None, graph=None,
                 recovery_wait_secs=30, local_init_run_options=None, local_init_feed_dict=None):
        if graph is None:
            graph = framework.get_default_graph()
        self._graph = graph
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._recovery_wait_secs = recovery_wait_secs
        self._target = None
        self._manager = _muster.new_session_manager(
            init_step(graph, local_init_op, str(local_init_op), local_init_feed_dict, local_init_run_options),
            init_step(graph, ready_op, str(ready_op)),
            init_step(graph, ready_for_local_init_op, str(ready_for_local_init_op)), recovery_wait_secs,
            getattr(graph, "_keeps_model", None))

    def _make(self, master, config):
        self._target = master
        return lambda: session.Session(master, graph=self._graph, config=config)

    def prepare_session(self, master, init_op=None, saver=None, checkpoint_dir=None,
                        checkpoint_filename_with_path=None, wait_for_checkpoint=False, max_wait_secs=7200, config=None,
                        init_feed_dict=None, init_fn=None):
        """A session with a model that is restored if there is a checkpoint, initialized otherwise."""
        return self._manager.prepare_session(
            self._make(master, config), init_step(self._graph, init_op, maybe_name(init_op), init_feed_dict),
            init_fn or None, str(init_fn),
            checkpoint_source(saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
                              max_wait_secs))

    def recover_session(self, master, saver=None, checkpoint_dir=None, checkpoint_filename_with_path=None,
                        wait_for_checkpoint=False, max_wait_secs=7200, config=None):
        """A session, and whether its model was restored and is ready."""
        return self._manager.recover_session(
            self._make(master, config), checkpoint_source(saver, checkpoint_dir, checkpoint_filename_with_path,
                                                          wait_for_checkpoint, max_wait_secs))

    def wait_for_session(self, master, config=None, max_wait_secs=float("Inf")):
        """A session whose model another process makes ready."""
        return self._manager.wait_for_session(self._make(master, config), max_wait_secs)


__all__ = ["SessionManager"]
