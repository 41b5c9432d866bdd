"""tf.saved_model: a graph with its variables, signatures and files in a folder, and back."""
import os
import types

from muster import _protos, compat, dtypes, file_io, tf_logging
from muster.graph import convert, framework, meta_graph
from muster.graph.framework import GraphKeys
from muster.names import absent as _absent
from muster.variables import variable_collections

__getattr__ = _absent.explain(__name__)

SAVED_MODEL_SCHEMA_VERSION = 1
SAVED_MODEL_FILENAME_PB, SAVED_MODEL_FILENAME_PBTXT = "saved_model.pb", "saved_model.pbtxt"
ASSETS_DIRECTORY, ASSETS_KEY = "assets", "saved_model_assets"
VARIABLES_DIRECTORY, VARIABLES_FILENAME = "variables", "variables"
MAIN_OP_KEY, LEGACY_INIT_OP_KEY = "saved_model_main_op", "legacy_init_op"
TRAIN_OP_KEY = "saved_model_train_op"
INIT_OP_SIGNATURE_KEY, TRAIN_OP_SIGNATURE_KEY = "__saved_model_init_op", "__saved_model_train_op"


def _namespace(name, **members):
    module = types.ModuleType("tensorflow.saved_model." + name, "tf.saved_model.%s." % name)
    module.__dict__.update(members)

    def __getattr__(missing):
        raise _absent.error("saved_model." + name, missing)

    module.__getattr__ = __getattr__
    return module


constants = _namespace("constants", **{key: value for key, value in list(globals().items()) if key.isupper()})
tag_constants = _namespace("tag_constants", SERVING="serve", TRAINING="train", EVAL="eval", GPU="gpu", TPU="tpu")
signature_constants = _namespace(
    "signature_constants", DEFAULT_SERVING_SIGNATURE_DEF_KEY="serving_default",
    CLASSIFY_INPUTS="inputs", CLASSIFY_METHOD_NAME="tensorflow/serving/classify", CLASSIFY_OUTPUT_CLASSES="classes",
    CLASSIFY_OUTPUT_SCORES="scores", PREDICT_INPUTS="inputs", PREDICT_METHOD_NAME="tensorflow/serving/predict",
    PREDICT_OUTPUTS="outputs", REGRESS_INPUTS="inputs", REGRESS_METHOD_NAME="tensorflow/serving/regress",
    REGRESS_OUTPUTS="outputs")
globals().update({key: value for key, value in vars(tag_constants).items() if key.isupper()})
globals().update({key: value for key, value in vars(signature_constants).items() if key.isupper()})


# --- Signatures. ---
def build_tensor_info(tensor):
    from muster.ops import sparse_tensor

    proto = _protos.get("tensorflow.TensorInfo")(dtype=int(tensor.dtype.base_dtype))
    proto.tensor_shape.CopyFrom(tensor.get_shape().as_proto())
    if isinstance(tensor, sparse_tensor.SparseTensor):
        proto.coo_sparse.values_tensor_name = tensor.values.name
        proto.coo_sparse.indices_tensor_name = tensor.indices.name
        proto.coo_sparse.dense_shape_tensor_name = tensor.dense_shape.name
    else:
        proto.name = tensor.name
    return proto


def get_tensor_from_tensor_info(tensor_info, graph=None, import_scope=None):
    graph = graph or framework.get_default_graph()

    def named(name):
        return graph.get_tensor_by_name(meta_graph.prepend_name_scope(name, import_scope))

    encoding = tensor_info.WhichOneof("encoding")
    if encoding == "name":
        return named(tensor_info.name)
    if encoding == "coo_sparse":
        from muster.ops import sparse_tensor

        parts = tensor_info.coo_sparse
        return sparse_tensor.SparseTensor(named(parts.indices_tensor_name), named(parts.values_tensor_name),
                                          named(parts.dense_shape_tensor_name))
    raise ValueError("Invalid TensorInfo.encoding: %s" % encoding)


def build_signature_def(inputs=None, outputs=None, method_name=None):
    proto = _protos.get("tensorflow.SignatureDef")()
    for target, given in ((proto.inputs, inputs), (proto.outputs, outputs)):
        for key, info in (given or {}).items():
            target[key].CopyFrom(info)
    if method_name is not None:
        proto.method_name = method_name
    return proto


def _infos(tensors):
    return {key: build_tensor_info(tensor) for key, tensor in tensors.items()}


def _check_given(name, value):
    if value is None:
        raise ValueError("%s cannot be None or empty." % name)
    return convert.convert_to_tensor(value)


def _string_input(kind, examples):
    examples = _check_given(kind + " inputs", examples)
    if examples.dtype.base_dtype != dtypes.string:
        raise ValueError("%s input tensors must be of type string." % kind)
    return build_tensor_info(examples)


def regression_signature_def(examples, predictions):
    inputs = {"inputs": _string_input("Regression", examples)}
    predictions = _check_given("Regression predictions", predictions)
    if predictions.dtype.base_dtype != dtypes.float32:
        raise ValueError("Regression output tensors must be of type float.")
    return build_signature_def(inputs, {"outputs": build_tensor_info(predictions)}, "tensorflow/serving/regress")


def classification_signature_def(examples, classes, scores):
    inputs = {"inputs": _string_input("Classification", examples)}
    if classes is None and scores is None:
        raise ValueError("Classification classes and scores cannot both be None.")
    outputs = {}
    if classes is not None:
        if convert.convert_to_tensor(classes).dtype.base_dtype != dtypes.string:
            raise ValueError("Classification classes must be of type string Tensor.")
        outputs["classes"] = build_tensor_info(convert.convert_to_tensor(classes))
    if scores is not None:
        if convert.convert_to_tensor(scores).dtype.base_dtype != dtypes.float32:
            raise ValueError("Classification scores must be of type float Tensor.")
        outputs["scores"] = build_tensor_info(convert.convert_to_tensor(scores))
    return build_signature_def(inputs, outputs, "tensorflow/serving/classify")


def predict_signature_def(inputs, outputs):
    if not inputs:
        raise ValueError("Prediction inputs cannot be None or empty.")
    if not outputs:
        raise ValueError("Prediction outputs cannot be None or empty.")
    return build_signature_def(_infos(inputs), _infos(outputs), "tensorflow/serving/predict")


def is_valid_signature(signature_def):
    return signature_def is not None and bool(signature_def.inputs) and bool(signature_def.outputs) and \
        signature_def.method_name.startswith("tensorflow/serving/")


# --- Main ops. ---
def _main_op():
    from muster.ops import control_flow_ops

    return control_flow_ops.group(variable_collections.global_variables_initializer(), variable_collections.local_variables_initializer(),
                                  variable_collections.tables_initializer())


def _main_op_with_restore(restore_op_name):
    from muster.ops import control_flow_ops

    with framework.control_dependencies([_main_op()]):
        return control_flow_ops.group(framework.get_default_graph().as_graph_element(restore_op_name))


main_op = _namespace("main_op", main_op=_main_op, main_op_with_restore=_main_op_with_restore)
main_op_with_restore = _main_op_with_restore


# --- Writing. ---
class SavedModelBuilder(object):
    """Writes a folder: the first meta graph with its variables, others that share them."""

    def __init__(self, export_dir):
        self._export_dir = compat.as_str(compat.path_to_str(export_dir))
        if file_io.file_exists(self._export_dir):
            if file_io.list_directory(self._export_dir):
                raise AssertionError("Export directory already exists, and isn't empty. Please choose a different export "
                                     "directory, or delete all the contents of the specified directory: %s"
                                     % self._export_dir)
        else:
            file_io.recursive_create_dir(self._export_dir)
        self._saved_model = _protos.get("tensorflow.SavedModel")(saved_model_schema_version=SAVED_MODEL_SCHEMA_VERSION)
        self._has_saved_variables = False

    def _add_assets(self, assets):
        """Notes files in the graph's collection, and copies them."""
        sources = {}
        for tensor in assets or ():
            value = convert.constant_value(tensor) if isinstance(tensor, framework.Tensor) else None
            if value is None or not value.size:
                raise ValueError("Asset filepath tensor %s in is invalid." % tensor)
            source = compat.as_str(value.item())
            name = self._asset_name(source, sources)
            sources[name] = source
            asset = _protos.get("tensorflow.AssetFileDef")(filename=name)
            asset.tensor_info.name = tensor.name
            packed = _protos.get("google.protobuf.Any")()
            packed.Pack(asset)
            framework.add_to_collection(ASSETS_KEY, packed)
        folder = os.path.join(self._export_dir, ASSETS_DIRECTORY)
        for name, source in sources.items():
            if not file_io.file_exists(folder):
                file_io.recursive_create_dir(folder)
            target = os.path.join(folder, name)
            if not file_io.file_exists(target):
                file_io.copy(source, target)

    @staticmethod
    def _asset_name(source, sources):
        """A name in the folder; files that differ get a number."""
        base = name = os.path.basename(source)
        number = 1
        while name in sources and sources[name] != source and \
                file_io.read_file_to_string(source, True) != file_io.read_file_to_string(sources[name], True):
            name = "%s_%d" % (base, number)
            number += 1
        return name

    @staticmethod
    def _add_main_op(main_op):
        if main_op is None:
            return
        if not isinstance(main_op, framework.Operation):
            raise TypeError("main_op needs to be an Operation: %r" % main_op)
        for key in (MAIN_OP_KEY, LEGACY_INIT_OP_KEY):
            if framework.get_collection(key):
                raise ValueError("Graph already contains one or more main ops under the collection {}.".format(key))
        framework.add_to_collection(MAIN_OP_KEY, main_op)

    @staticmethod
    def _check_signatures(signatures):
        for signature in signatures.values():
            for info in list(signature.inputs.values()) + list(signature.outputs.values()):
                if info.WhichOneof("encoding") is None:
                    raise AssertionError("All TensorInfo protos used in the SignatureDefs must have one of the 'encoding' "
                                         "fields (e.g., name or coo_sparse) set: %s" % info)
                if not info.dtype:
                    raise AssertionError("All TensorInfo protos used in the SignatureDefs must have the dtype field set: "
                                         "%s" % info)
        for key in (INIT_OP_SIGNATURE_KEY, TRAIN_OP_SIGNATURE_KEY):
            if key in signatures:
                raise KeyError("SignatureDef map key \"%s\" is reserved. Please use a different key." % key)

    def _add(self, sess, tags, signatures, assets, main_op, clear_devices, strip_default_attrs, saver):
        from muster.train import saver as saver_module

        signatures = signatures or {}
        self._check_signatures(signatures)
        self._add_assets(assets)
        self._add_main_op(main_op)
        folder = os.path.join(self._export_dir, VARIABLES_DIRECTORY)
        if sess is not None and not file_io.file_exists(folder):
            file_io.recursive_create_dir(folder)
        if saver is None:
            saver = saver_module.Saver(variable_collections._all_saveable_objects(), sharded=True, allow_empty=True)
        if sess is not None:
            saver.save(sess, os.path.join(folder, VARIABLES_FILENAME), write_meta_graph=False, write_state=False)
        proto = saver.export_meta_graph(clear_devices=clear_devices, strip_default_attrs=strip_default_attrs)
        proto.meta_info_def.tags.extend(tags)
        for key, signature in signatures.items():
            proto.signature_def[key].CopyFrom(signature)
        self._saved_model.meta_graphs.add().CopyFrom(proto)

    def add_meta_graph_and_variables(self, sess, tags, signature_def_map=None, assets_collection=None,
                                     legacy_init_op=None, clear_devices=False, main_op=None, strip_default_attrs=False,
                                     saver=None):
        if self._has_saved_variables:
            raise AssertionError("Graph state including variables and assets has already been saved. Please invoke "
                                 "`add_meta_graph()` instead.")
        self._add(sess, tags, signature_def_map, assets_collection,
                  main_op if main_op is not None else legacy_init_op, clear_devices, strip_default_attrs, saver)
        self._has_saved_variables = True

    def add_meta_graph(self, tags, signature_def_map=None, assets_collection=None, legacy_init_op=None,
                       clear_devices=False, main_op=None, strip_default_attrs=False, saver=None):
        if not self._has_saved_variables:
            raise AssertionError("Graph state including variables and assets has not been saved yet. Please invoke "
                                 "`add_meta_graph_and_variables()` first.")
        self._add(None, tags, signature_def_map, assets_collection,
                  main_op if main_op is not None else legacy_init_op, clear_devices, strip_default_attrs, saver)

    def save(self, as_text=False):
        name = SAVED_MODEL_FILENAME_PBTXT if as_text else SAVED_MODEL_FILENAME_PB
        path = meta_graph.write_graph(self._saved_model, self._export_dir, name, as_text=as_text)
        tf_logging.info("SavedModel written to: %s", path)
        return path


def simple_save(session, export_dir, inputs, outputs, legacy_init_op=None):
    """Writes a model with one signature for serving."""
    model = SavedModelBuilder(export_dir)
    model.add_meta_graph_and_variables(
        session, ["serve"], {"serving_default": predict_signature_def(inputs, outputs)},
        assets_collection=framework.get_collection(GraphKeys.ASSET_FILEPATHS), main_op=legacy_init_op,
        clear_devices=True)
    model.save()


# --- Reading. ---
def maybe_saved_model_directory(export_dir):
    return any(file_io.file_exists(os.path.join(compat.path_to_str(export_dir), name))
               for name in (SAVED_MODEL_FILENAME_PB, SAVED_MODEL_FILENAME_PBTXT))


contains_saved_model = maybe_saved_model_directory


def _parse_saved_model(export_dir):
    for name in (SAVED_MODEL_FILENAME_PB, SAVED_MODEL_FILENAME_PBTXT):
        path = os.path.join(export_dir, name)
        if file_io.file_exists(path):
            return meta_graph.read_message(path, "tensorflow.SavedModel")
    raise IOError("SavedModel file does not exist at: %s/{%s|%s}"
                  % (export_dir, SAVED_MODEL_FILENAME_PBTXT, SAVED_MODEL_FILENAME_PB))


class SavedModelLoader(object):
    """Brings a model into a graph and a session."""

    def __init__(self, export_dir):
        self._export_dir = compat.as_str(compat.path_to_str(export_dir))
        self._variables_path = os.path.join(self._export_dir, VARIABLES_DIRECTORY, VARIABLES_FILENAME)
        self._saved_model = _parse_saved_model(self._export_dir)

    export_dir = property(lambda self: self._export_dir)
    variables_path = property(lambda self: self._variables_path)
    saved_model = property(lambda self: self._saved_model)

    def get_meta_graph_def_from_tags(self, tags):
        for proto in self._saved_model.meta_graphs:
            if set(proto.meta_info_def.tags) == set(tags):
                return proto
        raise RuntimeError("MetaGraphDef associated with tags " + str(tags).strip("[]") +
                           " could not be found in SavedModel. To inspect available tag-sets in the SavedModel, please "
                           "use the SavedModel CLI: `saved_model_cli`")

    def load_graph(self, graph, tags, import_scope=None, **saver_kwargs):
        from muster.train import saver

        with graph.as_default():
            return saver._import_meta_graph_with_return_elements(
                self.get_meta_graph_def_from_tags(tags), import_scope=import_scope, **saver_kwargs)

    def restore_variables(self, sess, saver, import_scope=None):
        with sess.graph.as_default():
            if saver is None and not variable_collections._all_saveable_objects(scope=import_scope) or \
                    not file_io.file_exists(self._variables_path + ".index"):
                tf_logging.info("The specified SavedModel has no variables; no checkpoints were restored.")
            elif saver is not None:
                saver.restore(sess, self._variables_path)
            else:
                raise ValueError("No tf.train.Saver object was passed to the function "
                                 "SavedModelLoader.restore_variables. Since there are variables in the graph, a saver is "
                                 "required.")

    def _assets(self, proto, import_scope):
        assets = list(proto.asset_file_def)
        if not assets and ASSETS_KEY in proto.collection_def:
            for packed in proto.collection_def[ASSETS_KEY].any_list.value:
                asset = _protos.get("tensorflow.AssetFileDef")()
                packed.Unpack(asset)
                assets.append(asset)
        return {meta_graph.prepend_name_scope(a.tensor_info.name, import_scope):
                os.path.join(self._export_dir, ASSETS_DIRECTORY, a.filename) for a in assets}

    def _init_op(self, graph, proto, import_scope):
        if INIT_OP_SIGNATURE_KEY in proto.signature_def:
            info = proto.signature_def[INIT_OP_SIGNATURE_KEY].outputs[INIT_OP_SIGNATURE_KEY]
            return graph.as_graph_element(meta_graph.prepend_name_scope(info.name, import_scope))
        for key in (MAIN_OP_KEY, LEGACY_INIT_OP_KEY):
            if key in proto.collection_def:
                names = proto.collection_def[key].node_list.value
                if len(names) != 1:
                    raise RuntimeError("Expected exactly one SavedModel init op. Found: {}".format(list(names)))
                return graph.as_graph_element(meta_graph.prepend_name_scope(names[0], import_scope))
        return None

    def run_init_ops(self, sess, tags, import_scope=None):
        proto = self.get_meta_graph_def_from_tags(tags)
        init_op = self._init_op(sess.graph, proto, import_scope)
        if init_op is not None:
            sess.run([init_op], feed_dict=self._assets(proto, import_scope))

    def load(self, sess, tags, import_scope=None, **saver_kwargs):
        with sess.graph.as_default():
            saver, _ = self.load_graph(sess.graph, tags, import_scope, **saver_kwargs)
            self.restore_variables(sess, saver, import_scope)
            self.run_init_ops(sess, tags, import_scope)
        return self.get_meta_graph_def_from_tags(tags)


def load(sess, tags, export_dir, import_scope=None, **saver_kwargs):
    """Loads the meta graph with exactly these tags; gives its MetaGraphDef."""
    return SavedModelLoader(export_dir).load(sess, tags, import_scope, **saver_kwargs)


Builder = SavedModelBuilder
builder = _namespace("builder", SavedModelBuilder=SavedModelBuilder)
loader = _namespace("loader", load=load, maybe_saved_model_directory=maybe_saved_model_directory,
                    SavedModelLoader=SavedModelLoader)
signature_def_utils = _namespace(
    "signature_def_utils", build_signature_def=build_signature_def, predict_signature_def=predict_signature_def,
    regression_signature_def=regression_signature_def, classification_signature_def=classification_signature_def,
    is_valid_signature=is_valid_signature)
utils = _namespace("utils", build_tensor_info=build_tensor_info, get_tensor_from_tensor_info=get_tensor_from_tensor_info)
