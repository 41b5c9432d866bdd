"""tf.estimator.train_and_evaluate, alone or as one task of a cluster, and inputs from arrays."""
import os
import time

import numpy as np

from muster import tf_logging
from muster.train import basic_session_run_hooks


class _EvaluateAfterSaving(basic_session_run_hooks.CheckpointSaverListener):
    def __init__(self, evaluator, throttle_secs):
        self._evaluator, self._throttle, self._last = evaluator, throttle_secs, time.time()

    def after_save(self, session, global_step_value):
        if time.time() - self._last >= self._throttle:
            self._last = time.time()
            self._evaluator.evaluate(is_final=False)


class _Evaluator(object):
    """Evaluates each checkpoint once, and exports."""

    def __init__(self, estimator, eval_spec, max_steps):
        self._estimator, self._spec, self._max_steps, self._done, self.result = estimator, eval_spec, max_steps, None, None

    def evaluate(self, is_final):
        path = self._estimator.latest_checkpoint()
        if path is None:
            return None
        if path != self._done:
            self._done = path
            self.result = self._estimator.evaluate(self._spec.input_fn, self._spec.steps, self._spec.hooks, path,
                                                   self._spec.name)
        for exporter in self._spec.exporters:
            exporter.export(self._estimator, os.path.join(self._estimator.model_dir, "export", exporter.name), path,
                            self.result, is_final)
        return self.result

    def follow(self):
        """Evaluates the checkpoints that other tasks write, until these have reached `max_steps`."""
        time.sleep(self._spec.start_delay_secs)
        while True:
            began = time.time()
            result = self.evaluate(is_final=False)
            if result is not None and self._max_steps and result["global_step"] >= self._max_steps:
                return self.evaluate(is_final=True)
            time.sleep(max(0.0, self._spec.throttle_secs - (time.time() - began)))


def _served(config):
    from muster.train.server_lib import Server

    return Server(config.cluster_spec, job_name=config.task_type, task_index=config.task_id,
                  config=config.session_config)


def train_and_evaluate(estimator, train_spec, eval_spec):
    """Does what this task's role in TF_CONFIG asks for. Without a cluster: trains, evaluating at times and at the end.

    Returns (results of the last evaluation or None, None)."""
    config = estimator.config
    evaluator = _Evaluator(estimator, eval_spec, train_spec.max_steps)
    if config.cluster_spec.jobs:
        if config.task_type == "ps":
            _served(config).join()
            return None, None
        if config.task_type == "evaluator":
            return evaluator.follow(), None
        server = _served(config)
        tf_logging.info("Serving at %s.", server.target)
        estimator.train(train_spec.input_fn, train_spec.hooks, max_steps=train_spec.max_steps)
        # Without an evaluator in the cluster, the chief evaluates.
        alone = config.is_chief and "evaluator" not in config.cluster_spec.jobs
        return (evaluator.evaluate(is_final=True) if alone else None), None
    listener = _EvaluateAfterSaving(evaluator, eval_spec.throttle_secs)
    estimator.train(train_spec.input_fn, train_spec.hooks, max_steps=train_spec.max_steps, saving_listeners=[listener])
    return evaluator.evaluate(is_final=True), None


def numpy_input_fn(x, y=None, batch_size=128, num_epochs=1, shuffle=None, queue_capacity=1000, num_threads=1):
    """An input function that reads arrays: x (and y) may be dicts of them."""
    if not isinstance(shuffle, bool):
        raise ValueError("shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
                         "training); got %s" % shuffle)
    rows = {len(value) for part in (x, y) if part is not None for value in (
        part.values() if isinstance(part, dict) else [part])}
    if len(rows) != 1:
        raise ValueError("Length of tensors in x and y is mismatched: %s" % sorted(rows))

    def arrays(part):
        return {key: np.asarray(value) for key, value in part.items()} if isinstance(part, dict) else np.asarray(part)

    def input_fn():
        from muster.data.dataset import Dataset

        dataset = Dataset.from_tensor_slices(arrays(x) if y is None else (arrays(x), arrays(y)))
        if shuffle:
            dataset = dataset.shuffle(max(queue_capacity, 1))
        return dataset.repeat(num_epochs).batch(batch_size)

    return input_fn
