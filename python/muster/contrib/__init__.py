"""tf.contrib: the members that programs commonly use; an error names any other one as missing."""
import importlib
import sys

from muster.names import absent as _absent


def _from(module, attribute=None):
    def load():
        loaded = importlib.import_module("muster." + module)
        return loaded if attribute is None else getattr(loaded, attribute)

    return load


def _part(name, members):
    made = _absent.Absent("contrib." + name, _absent.REASONS["contrib"], members)
    sys.modules["muster.contrib." + name] = made
    return made


_mnist = _from("examples.tutorials.mnist.input_data")
_datasets = _part("learn.datasets", {
    "mnist": _mnist, "base": _mnist, "load_dataset": _from("examples.tutorials.mnist.input_data", "load_dataset")})
_preprocessing = _part("learn.preprocessing", {name: _from("contrib.vocabulary", name) for name in (
    "CategoricalVocabulary", "VocabularyProcessor", "tokenizer")})
_learn = _part("learn", {"datasets": lambda: _datasets, "preprocessing": lambda: _preprocessing})
_framework = _part("framework", {
    "get_or_create_global_step": _from("train.training_util", "get_or_create_global_step"),
    "get_global_step": _from("train.training_util", "get_global_step"),
    "create_global_step": _from("train.training_util", "create_global_step"),
    "assert_global_step": _from("train.training_util", "assert_global_step"),
    "nest": _from("nest")})
_framework._members.update({name: _from("contrib.arg_scopes", name) for name in (
    "add_arg_scope", "arg_scope", "arg_scoped_arguments", "current_arg_scope", "has_arg_scope")})
_framework._members.update({name: _from("contrib.model_variables", name) for name in (
    "variable model_variable get_variables get_model_variables get_trainable_variables get_local_variables "
    "get_variables_by_name get_variables_by_suffix get_unique_variable get_variables_to_restore filter_variables "
    "assign_from_checkpoint_fn assign_from_values_fn local_variable add_model_variable list_variables load_variable "
    "load_checkpoint").split()})
_framework._members["init_from_checkpoint"] = _from("train.checkpoint_init", "init_from_checkpoint")
_LAYERS = (
    "apply_regularization avg_pool2d batch_norm conv2d conv2d_transpose convolution2d convolution2d_transpose dropout "
    "embed_sequence flatten fully_connected l1_l2_regularizer l1_regularizer l2_regularizer layer_norm linear max_pool2d "
    "one_hot_encoding optimize_loss repeat separable_conv2d separable_convolution2d softmax stack sum_regularizer "
    "summarize_collection summarize_tensor summarize_tensors variance_scaling_initializer xavier_initializer "
    "xavier_initializer_conv2d").split()
_layers = _part("layers", {name: _from("contrib.layers_impl", name) for name in _LAYERS})
# Modules of tf.contrib.layers.python.layers and tf.contrib.framework.python.ops, which people import from.
_layers._members.update({name: lambda: _layers for name in ("layers", "initializers", "regularizers", "utils")})
_framework._members.update({name: lambda: _framework for name in ("variables", "ops")})
_RNN = (
    "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper EmbeddingWrapper GRUCell InputProjectionWrapper LSTMCell "
    "LSTMStateTuple LayerNormBasicLSTMCell MultiRNNCell OutputProjectionWrapper RNNCell ResidualWrapper "
    "stack_bidirectional_dynamic_rnn static_bidirectional_rnn static_rnn transpose_batch_time").split()
_rnn = _part("rnn", {name: _from("contrib.rnn_impl", name) for name in _RNN})
_legacy_seq2seq = _part("legacy_seq2seq", {
    "sequence_loss": _from("contrib.seq2seq_impl", "legacy_sequence_loss"),
    "sequence_loss_by_example": _from("contrib.seq2seq_impl", "sequence_loss_by_example"),
    "rnn_decoder": _from("contrib.seq2seq_impl", "rnn_decoder"),
    "basic_rnn_seq2seq": _from("contrib.seq2seq_impl", "basic_rnn_seq2seq")})
_seq2seq = _part("seq2seq", {"sequence_loss": _from("contrib.seq2seq_impl", "sequence_loss")})
_metrics = _part("metrics", {
    name: (lambda name=name: importlib.import_module("muster.contrib.slim").metrics.__dict__[name]) for name in (
        "accuracy aggregate_metric_map aggregate_metrics streaming_accuracy streaming_auc streaming_false_negatives "
        "streaming_false_positives streaming_mean streaming_mean_absolute_error streaming_mean_iou "
        "streaming_mean_squared_error streaming_mean_tensor streaming_precision streaming_recall streaming_recall_at_k "
        "streaming_root_mean_squared_error streaming_true_negatives streaming_true_positives").split()})
_losses = _part("losses", {
    name: (lambda name=name: importlib.import_module("muster.contrib.slim").losses.__dict__[name]) for name in (
        "absolute_difference add_loss compute_weighted_loss get_losses get_regularization_losses get_total_loss hinge_loss "
        "log_loss mean_squared_error sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy").split()})


def _slim():
    loaded = importlib.import_module("muster.contrib.slim")
    sys.modules.setdefault("muster.contrib.slim", loaded)
    return loaded


_training = _part("training", {
    "HParams": _from("contrib.hparams", "HParams"),
    "GreedyLoadBalancingStrategy": _from("train.device_setter", "GreedyLoadBalancingStrategy"),
    "byte_size_load_fn": _from("train.device_setter", "byte_size_load_fn")})

_LOOKUP = (
    "HashTable MutableHashTable MutableDenseHashTable KeyValueTensorInitializer TextFileInitializer TextFileIndex "
    "TextFileStringTableInitializer TextFileIdTableInitializer IdTableWithHashBuckets HasherSpec StrongHashSpec "
    "FastHashSpec LookupInterface index_table_from_file index_table_from_tensor index_to_string_table_from_file "
    "index_to_string_table_from_tensor").split()
_lookup = _part("lookup", {name: _from("lookup", name) for name in _LOOKUP})

_DATA = ("AUTOTUNE Counter batch_and_drop_remainder enumerate_dataset ignore_errors map_and_batch "
         "padded_batch_and_drop_remainder parallel_interleave prefetch_to_device shuffle_and_repeat unbatch").split()
_data = _part("data", dict(
    {name: _from("data.experimental", name) for name in _DATA},
    **{name: _from("data", name) for name in (
        "Dataset", "FixedLengthRecordDataset", "Iterator", "TFRecordDataset", "TextLineDataset")}))

_distributions = _part("distributions", {name: _from("distributions", name) for name in (
    "Bernoulli", "Categorical", "Distribution", "Normal", "RegisterKL", "kl_divergence")})
_util = _part("util", dict({name: _from("graph.tensor_util", name) for name in ("make_ndarray", "make_tensor_proto")},
                           constant_value=_from("graph.convert", "constant_value")))
_staging = _part("staging", {"StagingArea": _from("ops.data_flow_ops", "StagingArea")})
_plugins = _part("tensorboard.plugins", {"projector": _from("contrib.projector")})
_tensorboard = _part("tensorboard", {"plugins": lambda: _plugins})

sys.modules[__name__] = _absent.Absent("contrib", _absent.REASONS["contrib"], {
    "framework": lambda: _framework, "layers": lambda: _layers, "learn": lambda: _learn,
    "data": lambda: _data, "lookup": lambda: _lookup, "rnn": lambda: _rnn, "legacy_seq2seq": lambda: _legacy_seq2seq,
    "seq2seq": lambda: _seq2seq, "metrics": lambda: _metrics, "losses": lambda: _losses, "slim": _slim,
    "tensorboard": lambda: _tensorboard,
    "training": lambda: _training, "staging": lambda: _staging, "distributions": lambda: _distributions,
    "util": lambda: _util})
sys.modules[__name__].__path__ = __path__  # the modules beside this one
