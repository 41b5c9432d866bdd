"""tf.train.replica_device_setter and the ways to spread variables over parameter servers."""
from muster import framework, server_lib, tf_logging

__all__ = ["replica_device_setter"]

_PS_OPS = (
    "Variable", "VariableV2", "AutoReloadVariable", "MutableHashTable", "MutableHashTableV2",
    "MutableHashTableOfTensors", "MutableHashTableOfTensorsV2", "MutableDenseHashTable", "MutableDenseHashTableV2",
    "VarHandleOp", "BoostedTreesEnsembleResourceHandleOp", "BoostedTreesQuantileStreamResourceHandleOp",
    "ResourceConditionalAccumulator", "DecisionTreeResource")


class _RoundRobin(object):
    """0, 1, ..., n - 1, 0, ... in the order in which it is asked."""

    def __init__(self, tasks):
        self._tasks = tasks
        self._asked = 0

    def __call__(self, op):
        self._asked += 1
        return (self._asked - 1) % self._tasks


class GreedyLoadBalancingStrategy(object):
    """Chooses the task with the least load so far, the first of them where several have it."""

    def __init__(self, num_tasks, load_fn):
        self._load_fn = load_fn
        self._loads = [0] * num_tasks

    def __call__(self, op):
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


def byte_size_load_fn(op):
    """The bytes of a variable op's value; its shape must be known."""
    shape = op.get_attr("shape") if op.type == "VarHandleOp" else op.outputs[0].get_shape()
    dtype = op.get_attr("dtype") if op.type == "VarHandleOp" else op.outputs[0].dtype
    from muster import dtypes, tensor_shape

    shape = tensor_shape.TensorShape(shape)
    shape.assert_is_fully_defined()
    return shape.num_elements() * dtypes.as_dtype(dtype).base_dtype.size


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
    strategy = _RoundRobin(ps_tasks) if ps_strategy is None else ps_strategy
    if not callable(strategy):
        raise TypeError("ps_strategy must be callable")
    ps_types = frozenset(_PS_OPS if ps_ops is None else ps_ops)

    def choose(op):
        if op.device and not merge_devices:
            return op.device
        current = framework.DeviceSpec.from_string(op.device or "")
        if ps_device and op.type in ps_types:
            chosen = framework.DeviceSpec.from_string(ps_device)
            if chosen.job and current.job in (None, chosen.job):
                chosen.task = strategy(op)
        else:
            chosen = framework.DeviceSpec.from_string(worker_device or "")
        chosen.merge_from(current)
        return chosen.to_string()

    return choose
