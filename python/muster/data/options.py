"""tf.data.Options: how a pipeline is run, as opposed to what it yields."""


class _Settings(object):
    """Attributes with names that are known, unset as None."""

    _names = ()
    _groups = {}

    def __init__(self):
        for name in self._names:
            object.__setattr__(self, name, None)
        for name, kind in self._groups.items():
            object.__setattr__(self, name, kind())

    def __setattr__(self, name, value):
        if name not in self._names and name not in self._groups:
            raise AttributeError("Cannot set the property %s on %s." % (name, type(self).__name__))
        object.__setattr__(self, name, value)

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __ne__(self, other):
        return not self == other

    __hash__ = None

    def merge(self, other):
        """These settings with those that `other` sets."""
        merged = type(self)()
        for name in self._names:
            value = getattr(other, name)
            setattr(merged, name, getattr(self, name) if value is None else value)
        for name in self._groups:
            setattr(merged, name, getattr(self, name).merge(getattr(other, name)))
        return merged


class MapVectorizationOptions(_Settings):
    _names = ("enabled", "use_choose_fastest")


class OptimizationOptions(_Settings):
    _rewrites = ("filter_fusion", "filter_with_random_uniform_fusion", "hoist_random_uniform", "map_and_batch_fusion",
                 "map_and_filter_fusion", "map_fusion", "map_parallelization", "noop_elimination", "parallel_batch",
                 "shuffle_and_repeat_fusion")
    _defaults = ("map_and_batch_fusion", "noop_elimination", "shuffle_and_repeat_fusion")
    _names = _rewrites + ("apply_default_optimizations", "autotune", "autotune_algorithm", "autotune_buffers",
                          "autotune_cpu_budget")
    _groups = {"map_vectorization": MapVectorizationOptions}

    def _static_optimizations(self):
        chosen = {name for name in self._rewrites if getattr(self, name)}
        if self.apply_default_optimizations is not False:
            chosen.update(name for name in self._defaults if getattr(self, name) is not False)
        return chosen


class DistributeOptions(_Settings):
    _names = ("auto_shard", "num_devices")


class StatsOptions(_Settings):
    _names = ("aggregator", "prefix", "counter_prefix", "latency_all_edges")


class ThreadingOptions(_Settings):
    _names = ("max_intra_op_parallelism", "private_threadpool_size")


class Options(_Settings):
    _names = ("experimental_deterministic", "experimental_slack", "experimental_stateful_whitelist")
    _groups = {"experimental_distribute": DistributeOptions, "experimental_optimization": OptimizationOptions,
               "experimental_stats": StatsOptions, "experimental_threading": ThreadingOptions}

    def _static_optimizations(self):
        """Names of the rewrites that OptimizeDataset is to do."""
        chosen = self.experimental_optimization._static_optimizations()
        if self.experimental_deterministic is False:
            chosen.add("make_sloppy")
        return sorted(chosen)
