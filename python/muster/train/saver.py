"""tf.train.Saver and the functions that write graphs and bring them back."""
import os

import numpy as np

from muster import _muster, compat, errors, tf_logging
from muster.graph import framework, meta_graph
from muster.graph.framework import GraphKeys
from muster.session.session import BaseSession
from muster.train import saver_builder, training_util
from muster.train.checkpoint_management import (  # noqa: F401
    checkpoint_exists, generate_checkpoint_state_proto, get_checkpoint_mtimes, get_checkpoint_state, latest_checkpoint,
    remove_checkpoint, update_checkpoint_state)
from muster.train.saveable import SaveableObject, SaveSpec  # noqa: F401
from muster.train.saver_builder import BaseSaverBuilder, BulkSaverBuilder  # noqa: F401
from muster.variables import variable_collections

_V2 = 2


class Saver(object):
    """Saves variables to checkpoints and restores them. Saving, restoring and what is kept are C++'s."""

    def __init__(self, var_list=None, reshape=False, sharded=False, max_to_keep=5, keep_checkpoint_every_n_hours=10000.0,
                 name=None, restore_sequentially=False, saver_def=None, builder=None, defer_build=False, allow_empty=False,
                 write_version=_V2, pad_step_number=False, save_relative_paths=False, filename=None):
        if defer_build and var_list:
            raise ValueError("If `var_list` is provided then build cannot be deferred. Either set defer_build=False or "
                             "var_list=None.")
        self._var_list, self._reshape, self._sharded = var_list, reshape, sharded
        self._max_to_keep = max_to_keep
        self._keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self._name, self._restore_sequentially = name, restore_sequentially
        self.saver_def = saver_def
        self._builder = builder
        self._allow_empty, self._is_built, self._is_empty = allow_empty, False, False
        self._write_version = write_version
        self._pad_step_number, self._save_relative_paths = pad_step_number, save_relative_paths
        self._filename = filename
        self._object_restore_saver = None
        self._saver = None  # the C++ saver, once it is built
        if saver_def is not None:
            self._check_saver_def()
            self._write_version = saver_def.version
        if not defer_build:
            self.build()

    # --- Building. ---
    def build(self):
        if self._is_built:
            return
        self._is_built = True
        if self.saver_def is None:
            builder = self._builder or BulkSaverBuilder(self._write_version)
            if self._var_list is None:
                self._var_list = variable_collections._all_saveable_objects()
            if not self._var_list:
                if not self._allow_empty:
                    raise ValueError("No variables to save")
                self._is_empty = True
                self._saver = _muster.Saver.empty()
                return
            self._is_empty = False
            self.saver_def = builder._build_internal(
                self._var_list, reshape=self._reshape, sharded=self._sharded, max_to_keep=self._max_to_keep,
                keep_checkpoint_every_n_hours=self._keep_checkpoint_every_n_hours, name=self._name,
                restore_sequentially=self._restore_sequentially, filename=self._filename)
        elif self._name:  # here it is the scope into which the graph was imported
            for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
                setattr(self.saver_def, field, meta_graph.prepend_name_scope(getattr(self.saver_def, field), self._name))
        self._check_saver_def()
        self._saver = _muster.Saver.from_def(
            saver_builder.saver_def_from_proto(self.saver_def), pad_step_number=self._pad_step_number,
            save_relative_paths=self._save_relative_paths)

    def _check_saver_def(self):
        if getattr(getattr(self.saver_def, "DESCRIPTOR", None), "full_name", None) != "tensorflow.SaverDef":
            raise ValueError("saver_def must be a saver_pb2.SaverDef: %s" % self.saver_def)
        if not self.saver_def.save_tensor_name:
            raise ValueError("saver_def must specify the save_tensor_name: %s" % str(self.saver_def))
        if not self.saver_def.restore_op_name:
            raise ValueError("saver_def must specify the restore_op_name: %s" % str(self.saver_def))

    def as_saver_def(self):
        return self.saver_def

    def to_proto(self, export_scope=None):
        names = ("filename_tensor_name", "save_tensor_name", "restore_op_name")
        if export_scope is None:
            return self.saver_def
        if not all(getattr(self.saver_def, name).startswith(export_scope) for name in names):
            return None
        proto = type(self.saver_def)()
        proto.CopyFrom(self.saver_def)
        for name in names:
            setattr(proto, name, meta_graph.strip_name_scope(getattr(proto, name), export_scope))
        return proto

    @staticmethod
    def from_proto(saver_def, import_scope=None):
        return Saver(saver_def=saver_def, name=import_scope)

    # --- What is kept. ---
    def _native(self):
        if self._saver is None:
            raise RuntimeError("`build()` should be called before save if defer_build==True")
        return self._saver

    @property
    def last_checkpoints(self):
        return [] if self._saver is None else list(self._saver.last_checkpoints)

    @property
    def _last_checkpoints(self):
        return [] if self._saver is None else list(self._saver.last_checkpoints_with_time)

    @property
    def _next_checkpoint_time(self):
        return self._native().next_checkpoint_time

    def set_last_checkpoints(self, last_checkpoints):
        assert isinstance(last_checkpoints, list)
        self._native().last_checkpoints_with_time = [(path, np.inf) for path in last_checkpoints]

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time):
        assert isinstance(last_checkpoints_with_time, list)
        self._native().last_checkpoints_with_time = [(path, time) for path, time in last_checkpoints_with_time]

    def recover_last_checkpoints(self, checkpoint_paths):
        self._native().recover_last_checkpoints([compat.as_str(path) for path in checkpoint_paths])

    # --- Saving and restoring. ---
    def save(self, sess, save_path, global_step=None, latest_filename=None, meta_graph_suffix="meta",
             write_meta_graph=True, write_state=True, strip_default_attrs=False, save_debug_info=False):
        """Writes a checkpoint, and gives its prefix."""
        saver = self._native()
        if not isinstance(sess, BaseSession):
            raise TypeError("'sess' must be a Session; %s" % sess)
        if self._write_version != _V2:
            tf_logging.warning("*******************************************************")
            tf_logging.warning("TensorFlow's V1 checkpoint format has been deprecated.")
            tf_logging.warning("Consider switching to the more efficient V2 format:")
            tf_logging.warning("   `tf.train.Saver(write_version=tf.train.SaverDef.V2)`")
            tf_logging.warning("now on by default.")
            tf_logging.warning("*******************************************************")
        if global_step is not None and not isinstance(global_step, (int, np.integer)):
            global_step = training_util.global_step(sess, global_step)
        export = None
        if write_meta_graph:
            def export():
                with sess.graph.as_default():
                    return self.export_meta_graph(strip_default_attrs=strip_default_attrs).SerializeToString()
        try:
            path = saver.save(sess._session, compat.as_str(compat.path_to_str(save_path)),
                              None if global_step is None else int(global_step),
                              "" if latest_filename is None else compat.as_str(latest_filename), meta_graph_suffix,
                              write_state, export)
        except errors.OpError as e:
            raise sess._with_op(e) from None
        if save_debug_info and write_meta_graph:
            beside = os.path.splitext("%s.%s" % (path, meta_graph_suffix))[0] + ".debug"
            meta_graph.write_graph(meta_graph.graph_debug_info(sess.graph, [op.name for op in sess.graph.get_operations()]),
                                   os.path.dirname(beside), os.path.basename(beside), as_text=False)
        return path

    def restore(self, sess, save_path):
        """Gives variables the values of a checkpoint."""
        if self._is_empty:
            return
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        prefix = compat.as_str(compat.path_to_str(save_path))
        if hasattr(sess, "_tf_sess"):  # a monitored session
            sess = sess._tf_sess()
        if not isinstance(sess, BaseSession):
            raise TypeError("'sess' must be a Session; %s" % sess)
        try:
            self._native().restore(sess._session, prefix)
        except errors.NotFoundError as e:
            if not self._restore_by_objects(sess, prefix):
                raise sess._with_op(e) from None
        except errors.OpError as e:
            raise sess._with_op(e) from None

    def _restore_by_objects(self, sess, prefix):
        """Whether the checkpoint is one of objects, and has been restored by what they call the variables."""
        from muster.train import object_checkpoint

        if self._object_restore_saver is None:
            keys = object_checkpoint.names_to_keys(prefix)
            if keys is None or self._var_list is None:
                return False
            tf_logging.warning("Restoring an object-based checkpoint using a name-based saver. This may be somewhat "
                               "fragile, and will re-build the Saver. Instead, consider loading object-based checkpoints "
                               "using tf.train.Checkpoint().")
            renamed = object_checkpoint.renamed_saveables(self._var_list, keys, prefix)
            with sess.graph.as_default():
                self._object_restore_saver = Saver(renamed, name="save_object_based")
        self._object_restore_saver.restore(sess, prefix)
        return True

    # --- Meta graphs. ---
    def export_meta_graph(self, filename=None, collection_list=None, as_text=False, export_scope=None,
                          clear_devices=False, clear_extraneous_savers=False, strip_default_attrs=False,
                          save_debug_info=False):
        return export_meta_graph(
            filename=filename, graph_def=framework.get_default_graph().as_graph_def(add_shapes=True),
            saver_def=self.saver_def, collection_list=collection_list, as_text=as_text, export_scope=export_scope,
            clear_devices=clear_devices, clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info)


def _get_saver_or_default():
    """The one saver of the graph's collection, or a new one that is put there."""
    savers = framework.get_collection(GraphKeys.SAVERS)
    if len(savers) > 1:
        raise RuntimeError("More than one item in collection {}. Please indicate which one to use by passing it to the "
                           "constructor.".format(GraphKeys.SAVERS))
    if savers:
        return savers[0]
    saver = Saver(sharded=True, allow_empty=True)
    framework.add_to_collection(GraphKeys.SAVERS, saver)
    return saver


def export_meta_graph(filename=None, meta_info_def=None, graph_def=None, saver_def=None, collection_list=None,
                      as_text=False, graph=None, export_scope=None, clear_devices=False, clear_extraneous_savers=False,
                      strip_default_attrs=False, save_debug_info=False, **kwargs):
    """A MetaGraphDef of the graph; written to `filename` too when one is given."""
    proto, _ = meta_graph.export_scoped_meta_graph(
        filename=filename, meta_info_def=meta_info_def, graph_def=graph_def, saver_def=saver_def,
        collection_list=collection_list, as_text=as_text, graph=graph, export_scope=export_scope,
        clear_devices=clear_devices, clear_extraneous_savers=clear_extraneous_savers,
        strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info, **kwargs)
    return proto


def import_meta_graph(meta_graph_or_file, clear_devices=False, import_scope=None, **kwargs):
    """Brings a meta graph into the default graph; gives its saver, or None when there is nothing to save."""
    return _import_meta_graph_with_return_elements(meta_graph_or_file, clear_devices, import_scope, **kwargs)[0]


def _import_meta_graph_with_return_elements(meta_graph_or_file, clear_devices=False, import_scope=None,
                                            return_elements=None, **kwargs):
    proto = meta_graph.as_meta_graph_def(meta_graph_or_file)
    imported, elements = meta_graph.import_scoped_meta_graph_with_return_elements(
        proto, clear_devices=clear_devices, import_scope=import_scope, return_elements=return_elements, **kwargs)
    if proto.HasField("saver_def"):
        scope = import_scope
        if imported:  # the scope that was asked for may have been taken: a variable knows what it became
            name, variable = next(iter(imported.items()))
            scope = variable.name[:-len(name)]
        return Saver(saver_def=proto.saver_def, name=scope), elements
    if variable_collections._all_saveable_objects(scope=import_scope):
        return Saver(), elements
    tf_logging.info("Saver not created because there are no variables in the graph to restore")
    return None, elements


__all__ = ["Saver", "export_meta_graph", "import_meta_graph"]
