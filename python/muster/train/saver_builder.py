"""Builders of a Saver's nodes. The nodes are made in C++; a builder that scripts derive may make its own."""
from muster import _muster
from muster.graph import framework
from muster.graph.op_library import call
from muster.train import saveable


class BaseSaverBuilder(object):
    """Restores every tensor by an op of its own. Scripts may override save_op, restore_op and bulk_restore."""

    SaveSpec = saveable.SaveSpec
    SaveableObject = saveable.SaveableObject
    VariableSaveable = saveable.VariableSaveable
    ResourceVariableSaveable = saveable.ResourceVariableSaveable
    _bulk = False

    def __init__(self, write_version=2):
        self._write_version = write_version

    # --- What may be overridden. ---
    def save_op(self, filename_tensor, saveables):
        specs = [spec for item in saveables for spec in item.specs]
        return call("SaveV2", prefix=filename_tensor, tensor_names=[s.name for s in specs],
                    shape_and_slices=[s.slice_spec for s in specs], tensors=[s.tensor for s in specs])

    def restore_op(self, filename_tensor, saveable, preferred_shard):
        return [_restore_v2(filename_tensor, [spec])[0] for spec in saveable.specs]

    def bulk_restore(self, filename_tensor, saveables, preferred_shard, restore_sequentially):
        tensors = []
        for item in saveables:
            device = framework.DeviceSpec.from_string(item.device or "")
            device.device_type, device.device_index = "CPU", 0
            with framework.device(device.to_string() if item.device else None):
                tensors.extend(self.restore_op(filename_tensor, item, preferred_shard))
        return tensors

    # --- Building. ---
    def build(self, names_to_saveables, reshape=False, sharded=False, max_to_keep=5,
              keep_checkpoint_every_n_hours=10000.0, name=None, restore_sequentially=False, filename="model"):
        return self._build_internal(names_to_saveables, reshape, sharded, max_to_keep, keep_checkpoint_every_n_hours,
                                    name, restore_sequentially, filename)

    def _overrides(self, *methods):
        return any(getattr(type(self), m) is not getattr(base, m) for m in methods
                   for base in (BulkSaverBuilder if self._bulk else BaseSaverBuilder,))

    def _build_internal(self, names_to_saveables, reshape=False, sharded=False, max_to_keep=5,
                        keep_checkpoint_every_n_hours=10000.0, name=None, restore_sequentially=False, filename="model",
                        build_save=True, build_restore=True):
        if not (build_save and build_restore):
            raise ValueError("save and restore operations need to be built together  when eager execution is not "
                             "enabled.")
        graph = framework.get_default_graph()
        graph._check_not_finalized()
        if not isinstance(names_to_saveables, dict):
            names_to_saveables = saveable.op_list_to_dict(names_to_saveables)
        saveables = saveable.validate_and_slice_inputs(names_to_saveables)
        by_key = {(item.name, item.specs[0].slice_spec if item.specs else ""): item for item in saveables}

        def own(natives):
            return [by_key[n.name, n.slice] for n in natives]

        def save(scope, filename_output, natives):
            with graph._in_scope(scope):
                return self.save_op(graph._tensor(filename_output), own(natives))._node

        def restore(scope, filename_output, natives, preferred_shard):
            with graph._in_scope(scope):
                tensors = self.bulk_restore(graph._tensor(filename_output), own(natives), preferred_shard,
                                            restore_sequentially)
            return [t._output for t in tensors]

        made = _muster.build_saver_nodes(
            graph._building_scope(), [saveable.native(graph, item) for item in saveables], name=name or "",
            filename=filename or "", reshape=reshape, sharded=sharded, bulk_restore=self._bulk,
            restore_sequentially=restore_sequentially, max_to_keep=max_to_keep or 0,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours, version=self._write_version,
            save=save if self._overrides("save_op") else None,
            restore=restore if self._overrides("restore_op", "bulk_restore") else None)
        _add_partitioned_values(graph)
        return saver_def_to_proto(made)


class BulkSaverBuilder(BaseSaverBuilder):
    """Restores everything by one op."""

    _bulk = True

    def bulk_restore(self, filename_tensor, saveables, preferred_shard, restore_sequentially):
        with framework.device("/device:CPU:0"):
            return _restore_v2(filename_tensor, [spec for item in saveables for spec in item.specs])


def _restore_v2(filename_tensor, specs):
    found = call("RestoreV2", prefix=filename_tensor, tensor_names=[s.name for s in specs],
                 shape_and_slices=[s.slice_spec for s in specs], dtypes=[s.dtype.base_dtype for s in specs])
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _add_partitioned_values(graph):
    """A partitioned variable in a collection is looked up by its name when the graph is imported."""
    from muster.variables import partitioned_variable

    for key in graph.get_all_collection_keys():
        for element in graph.get_collection(key):
            if isinstance(element, partitioned_variable.PartitionedVariable) and graph._g.find(element.name) is None:
                element.as_tensor()


_FIELDS = ("filename_tensor_name", "save_tensor_name", "restore_op_name", "max_to_keep", "sharded",
           "keep_checkpoint_every_n_hours", "version")


def saver_def_to_proto(made):
    from muster import _protos

    return _protos.get("tensorflow.SaverDef")(**{field: getattr(made, field) for field in _FIELDS})


def saver_def_from_proto(proto):
    made = _muster.SaverDef()
    for field in _FIELDS:
        setattr(made, field, getattr(proto, field))
    return made
