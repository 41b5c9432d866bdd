"""tf.contrib.slim: layers, arg_scope, and loops that train and evaluate."""
import time
import types

from muster import dtypes, metrics as _metrics
from muster import losses as _losses
from muster import summary, tf_logging
import muster.contrib.layers_impl as layers_impl
import muster.contrib.slim_parts as slim_parts
from muster.contrib.arg_scopes import add_arg_scope, arg_scope, arg_scoped_arguments, has_arg_scope  # noqa: F401
from muster.contrib.layers_impl import (  # noqa: F401
    avg_pool2d, batch_norm, conv2d, conv2d_transpose, convolution2d, convolution2d_transpose, dropout, flatten,
    fully_connected, l1_l2_regularizer, l1_regularizer, l2_regularizer, layer_norm, linear, max_pool2d, one_hot_encoding,
    repeat, separable_conv2d, separable_convolution2d, softmax, stack, variance_scaling_initializer, xavier_initializer, xavier_initializer_conv2d)
from muster.contrib.model_variables import (  # noqa: F401
    add_model_variable, assign_from_checkpoint_fn, assign_from_values_fn, filter_variables, get_local_variables,
    get_model_variables, get_trainable_variables, get_unique_variable, get_variables, get_variables_by_name,
    get_variables_by_suffix, get_variables_to_restore, local_variable, model_variable, variable)
from muster.graph import framework
from muster.graph.framework import GraphKeys
from muster.nn import nn_ops
from muster.ops import array_ops, control_flow_ops, math_ops
from muster.train import monitored_session, saver as _saver, supervisor, training_util
from muster.train.training_util import create_global_step, get_global_step, get_or_create_global_step  # noqa: F401
from muster.variables import variable_collections

_USE_GLOBAL_STEP = object()
_DEFAULT = object()


def multiply_gradients(grads_and_vars, gradient_multipliers):
    result = []
    for gradient, owner in grads_and_vars:
        factor = gradient_multipliers.get(owner, gradient_multipliers.get(owner.op.name))
        if factor is not None:
            if gradient is None:
                raise ValueError("Requested multiple of `None` gradient.")
            if isinstance(gradient, framework.IndexedSlices):
                gradient = framework.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
            else:
                gradient *= factor
        result.append((gradient, owner))
    return result


def clip_gradient_norms(gradients_to_variables, max_norm):
    from muster.ops import clip_ops

    result = []
    for gradient, owner in gradients_to_variables:
        if isinstance(gradient, framework.IndexedSlices):
            gradient = framework.IndexedSlices(clip_ops.clip_by_norm(gradient.values, max_norm), gradient.indices,
                                               gradient.dense_shape)
        elif gradient is not None:
            gradient = clip_ops.clip_by_norm(gradient, max_norm)
        result.append((gradient, owner))
    return result


def create_train_op(total_loss, optimizer, global_step=_USE_GLOBAL_STEP, update_ops=None, variables_to_train=None,
                    clip_gradient_norm=0, summarize_gradients=False, gate_gradients=1, aggregation_method=None,
                    colocate_gradients_with_ops=False, gradient_multipliers=None, check_numerics=True):
    """The op that runs the updates, applies the gradients and gives the loss."""
    if global_step is _USE_GLOBAL_STEP:
        global_step = training_util.get_or_create_global_step()
    known = set(framework.get_collection(GraphKeys.UPDATE_OPS))
    update_ops = known if update_ops is None else set(update_ops)
    if not known.issubset(update_ops):
        tf_logging.warning("update_ops in create_train_op does not contain all the update_ops in GraphKeys.UPDATE_OPS")
    if update_ops:
        with framework.control_dependencies(list(update_ops)):
            barrier = control_flow_ops.no_op(name="update_barrier")
        total_loss = control_flow_ops.with_dependencies([barrier], total_loss)
    variables_to_train = variables_to_train or variable_collections.trainable_variables()
    if not variables_to_train:
        raise ValueError("No variables to train")
    gradients = optimizer.compute_gradients(total_loss, variables_to_train, gate_gradients=gate_gradients,
                                            aggregation_method=aggregation_method,
                                            colocate_gradients_with_ops=colocate_gradients_with_ops)
    if gradient_multipliers:
        gradients = multiply_gradients(gradients, gradient_multipliers)
    if clip_gradient_norm > 0:
        gradients = clip_gradient_norms(gradients, clip_gradient_norm)
    if summarize_gradients:
        for gradient, owner in gradients:
            if gradient is not None:
                values = gradient.values if isinstance(gradient, framework.IndexedSlices) else gradient
                summary.histogram(owner.op.name + "/gradient", values)
    updates = optimizer.apply_gradients(gradients, global_step=global_step)
    with framework.name_scope("train_op"):
        if check_numerics:
            total_loss = array_ops.check_numerics(total_loss, "LossTensor is inf or nan")
        train_op = control_flow_ops.with_dependencies([updates], total_loss)
    ops = framework.get_collection_ref(GraphKeys.TRAIN_OP)
    if train_op not in ops:
        ops.append(train_op)
    return train_op


def train_step(sess, train_op, global_step, train_step_kwargs):
    """One step: (loss, whether to stop)."""
    start = time.time()
    total_loss, step = sess.run([train_op, global_step])
    if train_step_kwargs.get("should_log") is not None and sess.run(train_step_kwargs["should_log"]):
        tf_logging.info("global step %d: loss = %.4f (%.3f sec/step)", step, total_loss, time.time() - start)
    should_stop = train_step_kwargs.get("should_stop")
    return total_loss, bool(sess.run(should_stop)) if should_stop is not None else False


def train(train_op, logdir, train_step_fn=train_step, train_step_kwargs=_DEFAULT, log_every_n_steps=1, graph=None,
          master="", is_chief=True, global_step=None, number_of_steps=None, init_op=_DEFAULT, init_feed_dict=None,
          local_init_op=_DEFAULT, init_fn=None, ready_op=_DEFAULT, summary_op=_DEFAULT, save_summaries_secs=600,
          summary_writer=_DEFAULT, startup_delay_steps=0, saver=None, save_interval_secs=600, sync_optimizer=None,
          session_config=None, session_wrapper=None, trace_every_n_steps=None, ignore_live_threads=False):
    """Trains under a Supervisor until `number_of_steps`; gives the last loss."""
    if train_op is None:
        raise ValueError("train_op cannot be None.")
    if logdir is None and summary_op is not _DEFAULT and summary_op is not None:
        raise ValueError("Cannot provide summary_op because logdir=None")
    if trace_every_n_steps is not None:
        raise NotImplementedError("trace_every_n_steps is not supported; use tf.train.ProfilerHook")
    if startup_delay_steps > 0 and sync_optimizer is not None:
        raise ValueError("startup_delay_steps must be zero when sync_optimizer is supplied.")
    graph = graph or framework.get_default_graph()
    options = {}
    for name, value in (("init_op", init_op), ("local_init_op", local_init_op), ("ready_op", ready_op),
                        ("summary_op", summary_op), ("summary_writer", summary_writer)):
        if value is not _DEFAULT:
            options[name] = value
    with graph.as_default():
        if global_step is None:
            global_step = training_util.get_or_create_global_step()
        if train_step_kwargs is _DEFAULT:
            train_step_kwargs = {}
            with framework.name_scope("train_step"):
                if number_of_steps:
                    train_step_kwargs["should_stop"] = math_ops.greater_equal(global_step, number_of_steps)
                if log_every_n_steps > 0:
                    train_step_kwargs["should_log"] = math_ops.equal(math_ops.mod(global_step, log_every_n_steps), 0)
        tokens, runner = None, None
        if sync_optimizer is not None:
            sync = sync_optimizer[0] if isinstance(sync_optimizer, (list, tuple)) else sync_optimizer
            runner, tokens = sync.get_chief_queue_runner(), sync.get_init_tokens_op()
            if "local_init_op" not in options:
                options["local_init_op"] = sync.chief_init_op if is_chief else sync.local_step_init_op
                options["ready_for_local_init_op"] = sync.ready_for_local_init_op
        keeper = saver or _saver.Saver()
        sv = supervisor.Supervisor(
            graph=graph, is_chief=is_chief, logdir=logdir, init_feed_dict=init_feed_dict, init_fn=init_fn,
            global_step=global_step, saver=keeper, save_summaries_secs=save_summaries_secs,
            save_model_secs=save_interval_secs, **options)
        if startup_delay_steps > 0 and not is_chief:
            raise NotImplementedError("startup_delay_steps is not supported")
        total_loss = None
        with sv.managed_session(master, start_standard_services=False, config=session_config) as sess:
            tf_logging.info("Starting Session.")
            if session_wrapper is not None:
                sess = session_wrapper(sess)
            if is_chief and logdir:
                sv.start_standard_services(sess)
            sv.start_queue_runners(sess)
            if is_chief and runner is not None:
                sv.start_queue_runners(sess, [runner])
                sess.run(tokens)
            try:
                while not sv.should_stop():
                    total_loss, stop = train_step_fn(sess, train_op, global_step, train_step_kwargs)
                    if stop:
                        tf_logging.info("Stopping Training.")
                        sv.request_stop()
                        break
            except Exception as e:
                from muster import errors

                if not isinstance(e, errors.OutOfRangeError):
                    raise
                tf_logging.info("Caught OutOfRangeError. Stopping Training. %s", e)
            if logdir and sv.is_chief:
                tf_logging.info("Finished training! Saving model to disk.")
                sv.saver.save(sess, sv.save_path, global_step=sv.global_step)
    return total_loss


# --- Evaluation ---
def evaluate_once(master, checkpoint_path, logdir, num_evals=1, initial_op=None, initial_op_feed_dict=None,
                  eval_op=None, eval_op_feed_dict=None, final_op=None, final_op_feed_dict=None, summary_op=_DEFAULT,
                  summary_op_feed_dict=None, variables_to_restore=None, session_config=None, hooks=None):
    """Restores a checkpoint, runs `eval_op` `num_evals` times, then `final_op`."""
    if summary_op is _DEFAULT:
        summary_op = summary.merge_all()
    keeper = _saver.Saver(variables_to_restore) if variables_to_restore is not None else None
    scaffold = monitored_session.Scaffold(init_op=None if initial_op is None else initial_op, saver=keeper,
                                          init_feed_dict=initial_op_feed_dict)
    creator = monitored_session.ChiefSessionCreator(scaffold=scaffold, checkpoint_filename_with_path=checkpoint_path,
                                                    master=master, config=session_config)
    value = None
    with monitored_session.MonitoredSession(session_creator=creator, hooks=hooks) as session:
        if eval_op is not None:
            for i in range(num_evals):
                tf_logging.info("Evaluation [%d/%d]", i + 1, num_evals)
                session.run(eval_op, eval_op_feed_dict)
        if summary_op is not None and logdir:
            step = session.run(training_util.get_or_create_global_step()) if training_util.get_global_step() is not None else None
            text = session.run(summary_op, summary_op_feed_dict)
            writer = summary.FileWriterCache.get(logdir)
            writer.add_summary(text, step)
            writer.flush()
        if final_op is not None:
            value = session.run(final_op, final_op_feed_dict)
    return value


def evaluation_loop(master, checkpoint_dir, logdir, num_evals=1, initial_op=None, initial_op_feed_dict=None,
                    init_fn=None, eval_op=None, eval_op_feed_dict=None, final_op=None, final_op_feed_dict=None,
                    summary_op=_DEFAULT, summary_op_feed_dict=None, variables_to_restore=None, eval_interval_secs=60,
                    max_number_of_evaluations=None, session_config=None, timeout=None, timeout_fn=None, hooks=None):
    """Evaluates every new checkpoint."""
    from muster.train import checkpoint_management

    value = None
    for count, path in enumerate(checkpoint_management.checkpoints_iterator(
            checkpoint_dir, min_interval_secs=eval_interval_secs, timeout=timeout, timeout_fn=timeout_fn), 1):
        value = evaluate_once(master, path, logdir, num_evals, initial_op, initial_op_feed_dict, eval_op,
                              eval_op_feed_dict, final_op, final_op_feed_dict, summary_op, summary_op_feed_dict,
                              variables_to_restore, session_config, hooks)
        if max_number_of_evaluations is not None and count >= max_number_of_evaluations:
            break
    return value


def _aggregate(names_to_values):
    values, updates = {}, {}
    for name, (value, update) in names_to_values.items():
        values[name], updates[name] = value, update
    return values, updates


def _streaming(function):
    def streaming(predictions, labels, weights=None, metrics_collections=None, updates_collections=None, name=None):
        return function(labels, predictions, weights=weights, metrics_collections=metrics_collections,
                        updates_collections=updates_collections, name=name)

    return streaming


def _namespace(name, **members):
    made = types.ModuleType("tensorflow.contrib.slim." + name)
    made.__dict__.update(members)
    return made


def _old_loss(function, labels_name, predictions_name):
    """The order of arguments that slim's losses had: predictions first."""
    def loss(predictions, labels, weights=1.0, scope=None, **kwargs):
        return function(**dict({labels_name: labels, predictions_name: predictions}, weights=weights, scope=scope, **kwargs))

    return loss


streaming_metrics = {
    "streaming_mean": _metrics.mean,
    "streaming_mean_tensor": _metrics.mean_tensor,
    "streaming_auc": lambda predictions, labels, weights=None, num_thresholds=200, metrics_collections=None,
    updates_collections=None, curve="ROC", name=None: _metrics.auc(
        labels, predictions, weights, num_thresholds, metrics_collections, updates_collections, curve, name),
    "streaming_recall_at_k": lambda predictions, labels, k, weights=None, metrics_collections=None,
    updates_collections=None, name=None: _metrics.mean(
        math_ops.cast(nn_ops.in_top_k(predictions, labels, k), dtypes.float32), weights, metrics_collections,
        updates_collections, name or ("recall_at_%d" % k)),
    "streaming_mean_iou": lambda predictions, labels, num_classes, weights=None, metrics_collections=None,
    updates_collections=None, name=None: _metrics.mean_iou(labels, predictions, num_classes, weights, metrics_collections,
                                                           updates_collections, name),
}
for _name in ("accuracy", "precision", "recall", "mean_squared_error", "root_mean_squared_error", "mean_absolute_error",
              "true_positives", "false_positives", "true_negatives", "false_negatives"):
    streaming_metrics["streaming_" + _name] = _streaming(getattr(_metrics, _name))


def accuracy(predictions, labels, weights=None, name=None):
    """The part of predictions that is right, in this batch."""
    with framework.name_scope(name, "accuracy", [predictions, labels]):
        right = math_ops.cast(math_ops.equal(predictions, labels), dtypes.float32)
        if weights is None:
            return math_ops.reduce_mean(right)
        weights = math_ops.cast(weights, dtypes.float32)
        return math_ops.div(math_ops.reduce_sum(right * weights), math_ops.reduce_sum(array_ops.ones_like(right) * weights))


learning = _namespace("learning", create_train_op=create_train_op, train=train, train_step=train_step,
                      clip_gradient_norms=clip_gradient_norms, multiply_gradients=multiply_gradients)
evaluation = _namespace("evaluation", evaluate_once=evaluate_once, evaluation_loop=evaluation_loop)
metrics = _namespace("metrics", aggregate_metric_map=_aggregate, accuracy=accuracy,
                     aggregate_metrics=lambda *pairs: tuple(list(part) for part in zip(*pairs)), **streaming_metrics)
losses = _namespace(
    "losses", softmax_cross_entropy=_old_loss(_losses.softmax_cross_entropy, "onehot_labels", "logits"),
    sparse_softmax_cross_entropy=_old_loss(_losses.sparse_softmax_cross_entropy, "labels", "logits"),
    sigmoid_cross_entropy=_old_loss(_losses.sigmoid_cross_entropy, "multi_class_labels", "logits"),
    mean_squared_error=_old_loss(_losses.mean_squared_error, "labels", "predictions"),
    absolute_difference=_old_loss(_losses.absolute_difference, "labels", "predictions"),
    log_loss=_old_loss(_losses.log_loss, "labels", "predictions"),
    hinge_loss=_old_loss(_losses.hinge_loss, "labels", "logits"), add_loss=_losses.add_loss,
    get_losses=_losses.get_losses, get_total_loss=_losses.get_total_loss,
    get_regularization_losses=_losses.get_regularization_losses, compute_weighted_loss=_losses.compute_weighted_loss)
layers = _namespace("layers", **{name: value for name, value in vars(layers_impl).items() if not name.startswith("_")})
for _name, _members in slim_parts.PARTS.items():
    globals()[_name] = _namespace(_name, **{member.__name__: member for member in _members})
for _name in ("scalar", "histogram", "image"):
    setattr(summaries, "add_%s_summary" % _name, getattr(slim_parts, "add_%s_summary" % _name))  # noqa: F821
