"""tf.estimator.Estimator: a model function is trained, evaluated, asked for predictions and exported, each in a graph of
its own."""
import inspect
import os
import time

import numpy as np

from muster import metrics, nest, saved_model, summary, tf_logging
from muster.estimator.specs import (EstimatorSpec, ModeKeys, PredictOutput, RunConfig, ServingInputReceiver,
                                   add_loss_summary, model_folder)
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.ops import control_flow_ops
from muster.session import session
from muster.train import (
    basic_session_run_hooks, checkpoint_management, device_setter, monitored_session, saver as saver_lib,
    session_run_hook, training_util)


def _call_with(function, given, **optional):
    """Calls `function` with those of the `optional` arguments that it accepts."""
    known = inspect.signature(function).parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    return function(*given, **{name: value for name, value in optional.items() if name in known or takes_all})


class _StopAfter(session_run_hook.SessionRunHook):
    """Ends the session after `steps` runs."""

    def __init__(self, steps):
        self._left = steps

    def after_run(self, run_context, run_values):
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()


class Estimator(object):
    def __init__(self, model_fn, model_dir=None, config=None, params=None, warm_start_from=None):
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        if isinstance(config, dict):
            config = RunConfig(**config)
        config = config or RunConfig()
        self._model_dir = model_folder(model_dir, config)
        self._config = config.replace(model_dir=self._model_dir)
        self._model_fn, self._params, self._warm_start_from = model_fn, dict(params or {}), warm_start_from

    config = property(lambda self: self._config)
    model_dir = property(lambda self: self._model_dir)
    params = property(lambda self: dict(self._params))
    model_fn = property(lambda self: lambda features, labels, mode, config: self._call_model(features, labels, mode))

    # --- Building. ---
    def _call_input(self, input_fn, mode):
        """(features, labels) of an input function: a dataset or tensors."""
        from muster.data.dataset import Dataset

        result = _call_with(input_fn, (), mode=mode, params=self.params, config=self._config)
        if isinstance(result, Dataset):
            iterator = result.make_initializable_iterator()
            framework.add_to_collection(GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            result = iterator.get_next()
        if isinstance(result, (list, tuple)):
            if len(result) != 2:
                raise ValueError("input_fn should return (features, labels) as a len 2 tuple.")
            return result[0], result[1]
        return result, None

    def _call_model(self, features, labels, mode):
        known = inspect.signature(self._model_fn).parameters
        if labels is not None and "labels" not in known and not any(
                p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()):
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        tf_logging.info("Calling model_fn.")
        made = _call_with(self._model_fn, (), features=features, labels=labels, mode=mode, params=self.params,
                          config=self._config)
        tf_logging.info("Done calling model_fn.")
        if not isinstance(made, EstimatorSpec):
            raise ValueError("model_fn should return an EstimatorSpec.")
        return made

    def _device(self):
        config = self._config
        if config.device_fn is not None:
            return config.device_fn
        if config.num_ps_replicas == 0 or config.task_type == "evaluator":
            return None
        return device_setter.replica_device_setter(
            ps_tasks=config.num_ps_replicas, cluster=config.cluster_spec,
            worker_device="/job:%s/task:%d" % (config.task_type, config.task_id))

    def _new_graph(self):
        graph = framework.Graph()
        graph.seed = self._config.tf_random_seed
        return graph

    def _session_config(self):
        if self._config.session_config is not None or self._config.num_ps_replicas == 0:
            return self._config.session_config
        from muster import ConfigProto

        config = self._config
        own = "/job:%s" % config.task_type + ("/task:%d" % config.task_id if config.task_type == "worker" else "")
        return ConfigProto(allow_soft_placement=True, device_filters=["/job:ps", own])

    # --- Training. ---
    def train(self, input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None):
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ValueError("Must specify %s > 0, given: %s" % (name, value))
        if max_steps is not None and self._reached() >= max_steps:
            tf_logging.info("Skipping training since max_steps has already saved.")
            return self
        hooks = list(hooks or ())
        if steps is not None or max_steps is not None:
            hooks.append(basic_session_run_hooks.StopAtStepHook(steps, max_steps))
        with self._new_graph().as_default() as graph, graph.device(self._device()):
            training_util.create_global_step()
            features, labels = self._call_input(input_fn, ModeKeys.TRAIN)
            if self._warm_start_from is not None and self._reached() == 0:
                made = self._call_model(features, labels, ModeKeys.TRAIN)
                self._warm_start()
            else:
                made = self._call_model(features, labels, ModeKeys.TRAIN)
            loss = self._run_training(made, hooks, list(saving_listeners or ()))
        tf_logging.info("Loss for final step: %s.", loss)
        return self

    def _reached(self):
        """The step of the last checkpoint; 0 without one."""
        path = self.latest_checkpoint()
        if path is None:
            return 0
        from muster.train import checkpoint_utils

        return int(checkpoint_utils.load_variable(path, GraphKeys.GLOBAL_STEP))

    def _warm_start(self):
        from muster.train import checkpoint_init, checkpoint_utils

        path = self._warm_start_from
        held = {name for name, _ in checkpoint_utils.list_variables(path)}
        names = [v.op.name for v in framework.get_collection(GraphKeys.TRAINABLE_VARIABLES) if v.op.name in held]
        checkpoint_init.init_from_checkpoint(path, {name: name for name in names})

    def _run_training(self, made, hooks, listeners):
        config = self._config
        add_loss_summary(made.loss)
        hooks += [basic_session_run_hooks.NanTensorHook(made.loss)]
        if config.log_step_count_steps is not None:
            hooks.append(basic_session_run_hooks.LoggingTensorHook(
                {"loss": made.loss, "step": training_util.get_global_step()}, every_n_iter=config.log_step_count_steps))
        hooks += made.training_hooks
        scaffold = made.scaffold
        if scaffold.saver is None and not framework.get_collection(GraphKeys.SAVERS):
            framework.add_to_collection(GraphKeys.SAVERS, saver_lib.Saver(
                sharded=True, max_to_keep=config.keep_checkpoint_max, defer_build=True, save_relative_paths=True,
                keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours))
        chief_hooks = list(made.training_chief_hooks)
        if config.save_checkpoints_secs or config.save_checkpoints_steps:
            chief_hooks.append(basic_session_run_hooks.CheckpointSaverHook(
                self._model_dir, save_secs=config.save_checkpoints_secs, save_steps=config.save_checkpoints_steps,
                scaffold=scaffold, listeners=listeners))
        loss = None
        with monitored_session.MonitoredTrainingSession(
                master=config.master, is_chief=config.is_chief, checkpoint_dir=self._model_dir, scaffold=scaffold,
                hooks=hooks, chief_only_hooks=chief_hooks, save_checkpoint_secs=0,
                save_summaries_steps=config.save_summary_steps, config=self._session_config(),
                max_wait_secs=config.session_creation_timeout_secs,
                log_step_count_steps=config.log_step_count_steps) as running:
            while not running.should_stop():
                _, loss = running.run([made.train_op, made.loss])
        return loss

    # --- Evaluating and predicting. ---
    def _checkpoint(self, checkpoint_path):
        path = checkpoint_path or self.latest_checkpoint()
        if path is None:
            raise ValueError("Could not find trained model in model_dir: %s." % self._model_dir)
        return path

    def _restored(self, made, path, hooks):
        creator = monitored_session.ChiefSessionCreator(scaffold=made.scaffold, config=self._config.session_config,
                                                        checkpoint_filename_with_path=path)
        return monitored_session.MonitoredSession(creator, hooks=hooks)

    def evaluate(self, input_fn, steps=None, hooks=None, checkpoint_path=None, name=None):
        if steps is not None and steps <= 0:
            raise ValueError("Must specify steps > 0, given: %s" % steps)
        path = self._checkpoint(checkpoint_path)
        with self._new_graph().as_default():
            step = training_util.create_global_step()
            features, labels = self._call_input(input_fn, ModeKeys.EVAL)
            made = self._call_model(features, labels, ModeKeys.EVAL)
            measured = dict(made.eval_metric_ops)
            if "loss" in measured:
                raise ValueError("Metric with name \"loss\" is not allowed, because Estimator already defines a default "
                                 "metric with the same name.")
            measured["loss"] = metrics.mean(made.loss)
            update = control_flow_ops.group(*[update for _, update in measured.values()])
            values = {key: value for key, (value, _) in measured.items()}
            values[GraphKeys.GLOBAL_STEP] = step
            final = basic_session_run_hooks.FinalOpsHook(values)
            all_hooks = list(hooks or ()) + list(made.evaluation_hooks) + [final]
            if steps is not None:
                all_hooks.append(_StopAfter(steps))
            with self._restored(made, path, all_hooks) as running:
                while not running.should_stop():
                    running.run(update)
        results = final.final_ops_values
        tf_logging.info("Saving dict for global step %d: %s", results[GraphKeys.GLOBAL_STEP], ", ".join(
            "%s = %s" % item for item in sorted(results.items())))
        self._write(os.path.join(self._model_dir, "eval_" + name if name else "eval"), results)
        return results

    @staticmethod
    def _write(folder, results):
        from muster import Summary

        proto = Summary()
        for key in sorted(results):
            if key != GraphKeys.GLOBAL_STEP and np.ndim(results[key]) == 0:
                proto.value.add(tag=key, simple_value=float(results[key]))
        writer = summary.FileWriterCache.get(folder)
        writer.add_summary(proto, int(results[GraphKeys.GLOBAL_STEP]))
        writer.flush()

    def predict(self, input_fn, predict_keys=None, hooks=None, checkpoint_path=None, yield_single_examples=True):
        """Yields the predictions for each example (or batch)."""
        path = self._checkpoint(checkpoint_path)
        with self._new_graph().as_default():
            training_util.create_global_step()
            features, _ = self._call_input(input_fn, ModeKeys.PREDICT)
            made = self._call_model(features, None, ModeKeys.PREDICT)
            wanted = made.predictions
            if predict_keys is not None:
                if not isinstance(wanted, dict):
                    raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
                wanted = {key: value for key, value in wanted.items() if key in predict_keys}
                if not wanted:
                    raise ValueError("Expected to run at least one output from %s, provided %s." % (
                        list(made.predictions), predict_keys))
            # Without a queue or dataset the input never ends: one batch is all there is.
            endless = not framework.get_collection(GraphKeys.QUEUE_RUNNERS) and not framework.get_collection(
                GraphKeys.TABLE_INITIALIZERS)
            with self._restored(made, path, list(hooks or ()) + list(made.prediction_hooks)) as running:
                while not running.should_stop():
                    batch = running.run(wanted)
                    if not yield_single_examples:
                        yield batch
                    else:
                        for i in range(len(nest.flatten(batch)[0])):
                            yield {key: value[i] for key, value in batch.items()} if isinstance(batch, dict) else batch[i]
                    if endless:
                        break

    # --- Exporting. ---
    def export_saved_model(self, export_dir_base, serving_input_receiver_fn, assets_extra=None, as_text=False,
                           checkpoint_path=None, strip_default_attrs=True):
        path = self._checkpoint(checkpoint_path)
        folder = self._stamped(export_dir_base)
        with self._new_graph().as_default() as graph:
            training_util.create_global_step()
            receiver = serving_input_receiver_fn()
            if not isinstance(receiver, ServingInputReceiver):
                raise ValueError("serving_input_receiver_fn must return a ServingInputReceiver")
            made = self._call_model(receiver.features, None, ModeKeys.PREDICT)
            outputs = dict(made.export_outputs or {
                saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: PredictOutput(made.predictions)})
            if len(outputs) == 1:
                outputs.setdefault(saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY, next(iter(outputs.values())))
            signatures = {key: output.signature(receiver.receiver_tensors) for key, output in outputs.items()}
            made.scaffold.finalize()
            with session.Session(graph=graph, config=self._config.session_config) as running:
                made.scaffold.saver.restore(running, path)
                running.run(made.scaffold.local_init_op)
                builder = saved_model.SavedModelBuilder(folder)
                graph._unsafe_unfinalize()
                builder.add_meta_graph_and_variables(
                    running, [saved_model.SERVING], signature_def_map=signatures,
                    main_op=made.scaffold.local_init_op, saver=made.scaffold.saver,
                    assets_collection=framework.get_collection(GraphKeys.ASSET_FILEPATHS))
                builder.save(as_text)
        for target, source in (assets_extra or {}).items():
            from muster import gfile

            to = os.path.join(folder, "assets.extra", target)
            gfile.MakeDirs(os.path.dirname(to))
            gfile.Copy(source, to)
        tf_logging.info("SavedModel written to: %s", folder)
        return folder.encode()

    def export_savedmodel(self, export_dir_base, serving_input_receiver_fn, assets_extra=None, as_text=False,
                          checkpoint_path=None, strip_default_attrs=False):
        return self.export_saved_model(export_dir_base, serving_input_receiver_fn, assets_extra, as_text,
                                       checkpoint_path, strip_default_attrs)

    @staticmethod
    def _stamped(base):
        """The path of a new folder, named by the current time in seconds."""
        stamp = int(time.time())
        while os.path.exists(os.path.join(str(base), str(stamp))):
            stamp += 1
        return os.path.join(str(base), str(stamp))

    # --- Checkpoints and variables. ---
    def latest_checkpoint(self):
        return checkpoint_management.latest_checkpoint(self._model_dir)

    def get_variable_names(self):
        from muster.train import checkpoint_utils

        return [name for name, _ in checkpoint_utils.list_variables(self._checkpoint(None))]

    def get_variable_value(self, name):
        from muster.train import checkpoint_utils

        return checkpoint_utils.load_variable(self._checkpoint(None), name)

    def eval_dir(self, name=None):
        return os.path.join(self._model_dir, "eval" if not name else "eval_" + name)
