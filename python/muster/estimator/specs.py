"""Arguments of Estimators: modes, what a model function returns, how and where to run, what to export."""
import collections
import json
import os
import tempfile

from muster import saved_model
from muster import summary as _summary
from muster.graph import framework


class ModeKeys(object):
    TRAIN, EVAL, PREDICT = "train", "eval", "infer"


class EstimatorSpec(collections.namedtuple("EstimatorSpec", [
        "mode", "predictions", "loss", "train_op", "eval_metric_ops", "export_outputs", "training_chief_hooks",
        "training_hooks", "scaffold", "evaluation_hooks", "prediction_hooks"])):
    """What a model function returns."""

    __slots__ = ()

    def __new__(cls, mode, predictions=None, loss=None, train_op=None, eval_metric_ops=None, export_outputs=None,
                training_chief_hooks=None, training_hooks=None, scaffold=None, evaluation_hooks=None,
                prediction_hooks=None):
        if mode == ModeKeys.TRAIN and train_op is None:
            raise ValueError("Missing train_op.")
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL) and loss is None:
            raise ValueError("Missing loss.")
        if mode == ModeKeys.PREDICT and predictions is None:
            raise ValueError("Missing predictions.")
        for key, value in (eval_metric_ops or {}).items():
            if not isinstance(value, tuple) or len(value) != 2:
                raise TypeError("Values of eval_metric_ops must be (metric_value, update_op) tuples, given: %s for key: %s"
                                % (value, key))
        from muster.train.monitored_session import Scaffold

        return super(EstimatorSpec, cls).__new__(
            cls, mode, {} if predictions is None else predictions, loss, train_op, eval_metric_ops or {}, export_outputs,
            tuple(training_chief_hooks or ()), tuple(training_hooks or ()), scaffold or Scaffold(),
            tuple(evaluation_hooks or ()), tuple(prediction_hooks or ()))


# --- Exports. ---
class ExportOutput(object):
    def signature(self, receivers):
        raise NotImplementedError()


class PredictOutput(ExportOutput):
    def __init__(self, outputs):
        self.outputs = outputs if isinstance(outputs, dict) else {"output": outputs}

    def signature(self, receivers):
        return saved_model.predict_signature_def(receivers, self.outputs)


class ClassificationOutput(ExportOutput):
    def __init__(self, scores=None, classes=None):
        if scores is None and classes is None:
            raise ValueError("At least one of scores and classes must be set.")
        self.scores, self.classes = scores, classes

    def signature(self, receivers):
        (examples,) = receivers.values()
        return saved_model.classification_signature_def(examples, self.classes, self.scores)


class RegressionOutput(ExportOutput):
    def __init__(self, value):
        self.value = value

    def signature(self, receivers):
        (examples,) = receivers.values()
        return saved_model.regression_signature_def(examples, self.value)


class ServingInputReceiver(collections.namedtuple("ServingInputReceiver", [
        "features", "receiver_tensors", "receiver_tensors_alternatives"])):
    def __new__(cls, features, receiver_tensors, receiver_tensors_alternatives=None):
        if not isinstance(receiver_tensors, dict):
            receiver_tensors = {"input": receiver_tensors}
        return super(ServingInputReceiver, cls).__new__(cls, features, receiver_tensors, receiver_tensors_alternatives)


def build_raw_serving_input_receiver_fn(features, default_batch_size=None):
    """Each feature is fed as it is."""
    def receiver():
        from muster.ops import array_ops

        made = {}
        for name, tensor in features.items():
            shape = tensor.get_shape().as_list()
            shape[0] = default_batch_size
            made[name] = array_ops.placeholder(tensor.dtype, shape, name=tensor.op.name)
        return ServingInputReceiver(made, made)

    return receiver


def build_parsing_serving_input_receiver_fn(feature_spec, default_batch_size=None):
    """Serialized Examples are fed."""
    def receiver():
        from muster import dtypes
        from muster.ops import array_ops, parsing_ops

        examples = array_ops.placeholder(dtypes.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(parsing_ops.parse_example(examples, feature_spec), {"examples": examples})

    return receiver


# --- Running. ---
_UNSET = object()


class RunConfig(object):
    """The folder of the model, and intervals for saving and logging; TF_CONFIG gives the cluster and this task."""

    _DEFAULTS = dict(
        model_dir=None, tf_random_seed=None, save_summary_steps=100, save_checkpoints_steps=None,
        save_checkpoints_secs=None, session_config=None, keep_checkpoint_max=5, keep_checkpoint_every_n_hours=10000,
        log_step_count_steps=100, train_distribute=None, device_fn=None, protocol=None, eval_distribute=None,
        experimental_distribute=None, experimental_max_worker_delay_secs=None, session_creation_timeout_secs=7200)

    def __init__(self, model_dir=None, tf_random_seed=None, save_summary_steps=100, save_checkpoints_steps=_UNSET,
                 save_checkpoints_secs=_UNSET, **options):
        if save_checkpoints_steps is _UNSET and save_checkpoints_secs is _UNSET:
            save_checkpoints_steps, save_checkpoints_secs = None, 600
        elif save_checkpoints_secs is _UNSET:
            save_checkpoints_secs = None
        elif save_checkpoints_steps is _UNSET:
            save_checkpoints_steps = None
        if save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")
        for name in options:
            if name not in self._DEFAULTS:
                raise TypeError("__init__() got an unexpected keyword argument '%s'" % name)
        if any(options.get(name) is not None for name in ("train_distribute", "eval_distribute")):
            raise NotImplementedError("RunConfig with a distribution strategy: Muster has none; use parameter servers")
        self.__dict__.update(self._DEFAULTS, **options)
        given = json.loads(os.environ.get("TF_CONFIG") or "{}")
        self.model_dir = str(model_dir) if model_dir else given.get("model_dir")
        self.tf_random_seed, self.save_summary_steps = tf_random_seed, save_summary_steps
        self.save_checkpoints_steps, self.save_checkpoints_secs = save_checkpoints_steps, save_checkpoints_secs
        self._read_cluster(given)

    def _read_cluster(self, given):
        from muster.train.server_lib import ClusterSpec

        self.cluster_spec = ClusterSpec(given.get("cluster", {}))
        task = given.get("task", {})
        jobs = self.cluster_spec.as_dict()
        self.task_type, self.task_id = str(task.get("type", "worker")), int(task.get("index", 0))
        self.num_ps_replicas = self.cluster_spec.num_tasks("ps") if "ps" in jobs else 0
        trains = [job for job in ("chief", "master", "worker") if job in jobs]
        self.num_worker_replicas = sum(self.cluster_spec.num_tasks(job) for job in trains) or 1
        # Clusters without a chief have it in the first worker.
        self.is_chief = (not jobs or (bool(trains) and self.task_type == trains[0] and self.task_id == 0)
                         or self.task_type == "evaluator")
        alone = not jobs or self.task_type in ("ps", "evaluator")
        self.master = "" if alone else "grpc://" + self.cluster_spec.task_address(self.task_type, self.task_id)
        self.evaluation_master = ""

    def replace(self, **changes):
        result = RunConfig.__new__(RunConfig)
        result.__dict__.update(self.__dict__)
        for name, value in changes.items():
            if name not in self._DEFAULTS:
                raise ValueError("Replacing %s is not supported." % name)
            setattr(result, name, value)
        if changes.get("save_checkpoints_steps") is not None and "save_checkpoints_secs" not in changes:
            result.save_checkpoints_secs = None
        if changes.get("save_checkpoints_secs") is not None and "save_checkpoints_steps" not in changes:
            result.save_checkpoints_steps = None
        return result


class TrainSpec(collections.namedtuple("TrainSpec", ["input_fn", "max_steps", "hooks"])):
    def __new__(cls, input_fn, max_steps=None, hooks=None):
        if max_steps is not None and max_steps <= 0:
            raise ValueError("Must specify max_steps > 0, given: %s" % max_steps)
        return super(TrainSpec, cls).__new__(cls, input_fn, max_steps, tuple(hooks or ()))


class EvalSpec(collections.namedtuple("EvalSpec", ["input_fn", "steps", "name", "hooks", "exporters", "start_delay_secs",
                                                   "throttle_secs"])):
    def __new__(cls, input_fn, steps=100, name=None, hooks=None, exporters=None, start_delay_secs=120, throttle_secs=600):
        if exporters is not None and not isinstance(exporters, (list, tuple)):
            exporters = [exporters]
        return super(EvalSpec, cls).__new__(cls, input_fn, steps, name, tuple(hooks or ()), tuple(exporters or ()),
                                            start_delay_secs, throttle_secs)


class Exporter(object):
    """FinalExporter and LatestExporter: a SavedModel under <model>/export/<name>."""

    def __init__(self, name, serving_input_receiver_fn, assets_extra=None, as_text=False, exports_to_keep=5,
                 only_at_the_end=True):
        self.name, self._receiver, self._assets_extra, self._as_text = name, serving_input_receiver_fn, assets_extra, as_text
        self._keep, self._only_at_the_end = exports_to_keep, only_at_the_end

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        if self._only_at_the_end and not is_the_final_export:
            return None
        made = estimator.export_saved_model(export_path, self._receiver, self._assets_extra, self._as_text,
                                            checkpoint_path)
        if not self._only_at_the_end and self._keep:
            from muster import gfile

            for name in sorted(n.strip("/") for n in gfile.ListDirectory(export_path))[:-self._keep]:
                gfile.DeleteRecursively(os.path.join(export_path, name))
        return made


def FinalExporter(name, serving_input_receiver_fn, assets_extra=None, as_text=False):
    return Exporter(name, serving_input_receiver_fn, assets_extra, as_text)


def LatestExporter(name, serving_input_receiver_fn, assets_extra=None, as_text=False, exports_to_keep=5):
    return Exporter(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep, False)


def model_folder(model_dir, config):
    """The folder of the model; a new temporary one when neither argument names one."""
    if model_dir and config.model_dir and model_dir != config.model_dir:
        raise ValueError("`model_dir` are set both in constructor and `RunConfig`, but with different values. In "
                         "constructor: '%s', in `RunConfig`: '%s' " % (model_dir, config.model_dir))
    return str(model_dir or config.model_dir or tempfile.mkdtemp())


def add_loss_summary(loss):
    collected = framework.get_collection(framework.GraphKeys.SUMMARIES)
    if not any(getattr(s, "op", None) is not None and s.op.name == "loss" for s in collected):
        _summary.scalar("loss", loss)
