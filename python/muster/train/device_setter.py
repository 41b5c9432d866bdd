"""tf.train.replica_device_setter and the ways to spread variables over parameter servers."""
from muster import _muster, tf_logging
from muster.graph import framework
from muster.train import server_lib

__all__ = ["replica_device_setter"]


class GreedyLoadBalancingStrategy(object):
    """Chooses the task with the least load so far, the first of them where several have it."""

    def __init__(self, num_tasks, load_fn):
        self._load_fn = load_fn
        self._loads = _muster.GreedyLoads(num_tasks)

    def __call__(self, op):
        return self._loads.place(self._load_fn(op))


def byte_size_load_fn(op):
    """The bytes of a variable op's value; its shape must be known."""
    return int(_muster.byte_size_load(op._node))


def replica_device_setter(ps_tasks=0, ps_device="/job:ps", worker_device="/job:worker", merge_devices=True,
                          cluster=None, ps_ops=None, ps_strategy=None):
    """A device function that puts variables on parameter servers; None when there are none."""
    if cluster is not None:
        spec = server_lib.ClusterSpec(cluster)
        ps_job = framework.DeviceSpec.from_string(ps_device).job
        ps_tasks = spec.num_tasks(ps_job) if ps_job in spec.jobs else 0
    if ps_tasks == 0:
        return None
    if not merge_devices:
        tf_logging.warning("DEPRECATION: It is recommended to set merge_devices=true in replica_device_setter")
    strategy = None
    if ps_strategy is not None:
        if not callable(ps_strategy):
            raise TypeError("ps_strategy must be callable")
        strategy = lambda node: ps_strategy(framework.get_default_graph()._operation(node))  # noqa: E731
    choose = _muster.replica_device_setter(ps_tasks, ps_device or "", worker_device or "", merge_devices,
                                           None if ps_ops is None else list(ps_ops), strategy)
    return lambda op: choose(op._node)
