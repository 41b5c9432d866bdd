// The nodes that a saver adds to a graph, named and ordered as TensorFlow 1.15 does.
#include <algorithm>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "muster/device/device_name.h"
#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/train/model/variables.h"
#include "muster/train/saving/save_leftovers.h"
#include "muster/train/saving/saver.h"

namespace muster {
namespace {

struct Shard {
  std::string device;
  std::vector<Saveable> saveables;
};

absl::StatusOr<std::string> CpuOf(const std::string& device) {
  ASSIGN_OR_RETURN(DeviceName name, DeviceName::Parse(device));
  name.type = "CPU";
  name.index = 0;
  return name.ToString();
}

absl::Status CheckNames(const std::vector<Saveable>& sorted) {
  absl::flat_hash_set<const Node*> seen;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const Saveable& saveable = sorted[i];
    if (i > 0 && sorted[i - 1].name == saveable.name) {
      const auto sliced = [](const Saveable& s) {
        return s.specs.size() == 1 && !s.specs[0].slice.empty();
      };
      if (sliced(saveable) != sliced(sorted[i - 1])) {
        return InvalidArgument("Mixing slices and non-slices with the same name: ", saveable.name);
      }
      if (!sliced(saveable)) {
        return InvalidArgument("At least two variables have the same name: ", saveable.name);
      }
    }
    if (saveable.op != nullptr && !seen.insert(saveable.op).second) {
      return InvalidArgument("The same saveable will be restored with two names: ", saveable.name);
    }
  }
  return absl::OkStatus();
}

// By device, in the order of the devices' names.
absl::StatusOr<std::vector<Shard>> ByDevice(std::vector<Saveable> saveables) {
  std::map<std::string, Shard> shards;
  for (Saveable& saveable : saveables) {
    std::optional<std::string> device;
    for (const SaveSpec& spec : saveable.specs) {
      ASSIGN_OR_RETURN(const DeviceName parsed, DeviceName::Parse(spec.device));
      const std::string name = parsed.ToString();
      if (device.has_value() && *device != name) {
        return InvalidArgument("All tensors of a saveable object must be on the same device: ",
                               saveable.name);
      }
      device = name;
    }
    if (!device.has_value()) {
      return InvalidArgument("All tensors of a saveable object must be on the same device: ",
                             saveable.name);
    }
    Shard& shard = shards[*device];
    shard.device = *device;
    shard.saveables.push_back(std::move(saveable));
  }
  std::vector<Shard> sorted;
  for (auto& [device, shard] : shards) sorted.push_back(std::move(shard));
  return sorted;
}

// Reads a variable again, in a scope that orders it.
absl::StatusOr<Output> ReadAgain(const Scope& scope, Output value) {
  const std::string& op = value.node->op();
  const bool is_resource = op == "ReadVariableOp";
  Output from = value;
  if (is_resource || (op == "Identity" && IsRef(value.node->input(0).dtype())))
    from = value.node->input(0);
  if (!is_resource && !IsRef(from.dtype())) return value;
  const Scope beside = scope.ColocatedWith(*from.node).WithFreshStatus();
  const Output read =
      is_resource ? beside.Op("ReadVariableOp", {from}, {{"dtype", AttrValue(value.dtype())}})
                  : beside.Op("Identity", {from});
  RETURN_IF_ERROR(beside.status());
  return read;
}

// Makes the reads that must come first, and orders the others after them.
absl::Status OrderReads(const Scope& scope, std::vector<Saveable>& saveables) {
  std::vector<Node*> first;
  for (Saveable& saveable : saveables) {
    if (!saveable.comes_first) continue;
    for (SaveSpec& spec : saveable.specs) {
      ASSIGN_OR_RETURN(const Output tensor, spec.tensor(scope));
      first.push_back(tensor.node);
      spec.tensor = [tensor](const Scope&) { return tensor; };
    }
  }
  if (first.empty()) return absl::OkStatus();
  for (Saveable& saveable : saveables) {
    if (saveable.comes_first) continue;
    for (SaveSpec& spec : saveable.specs) {
      spec.tensor = [first, inner = spec.tensor](const Scope& at) -> absl::StatusOr<Output> {
        const Scope after = at.WithControlDependencies(first);
        ASSIGN_OR_RETURN(const Output tensor, inner(after));
        return ReadAgain(after, tensor);
      };
    }
  }
  return absl::OkStatus();
}

class NodeBuilder {
 public:
  NodeBuilder(const Scope& scope, const SaverOptions& options) : scope_(scope), options_(options) {}

  absl::StatusOr<SaverDef> Build(std::vector<Saveable> saveables) {
    ASSIGN_OR_RETURN(const Output filename, AddFilename());
    Output saved;
    Node* restore_all = nullptr;
    if (options_.sharded) {
      ASSIGN_OR_RETURN(const std::vector<Shard> shards, ByDevice(std::move(saveables)));
      ASSIGN_OR_RETURN(saved, options_.version == CheckpointVersion::kV2
                                  ? AddShardedSave(filename, shards)
                                  : AddShardedSaveV1(filename, shards));
      ASSIGN_OR_RETURN(restore_all, AddShardedRestore(filename, shards));
    } else {
      ASSIGN_OR_RETURN(saved, AddSave(scope_, filename, saveables));
      ASSIGN_OR_RETURN(restore_all, AddRestore(scope_, filename, saveables, -1, "restore_all"));
    }
    return SaverDef{
        .filename_tensor_name = filename.name(),
        .save_tensor_name = saved.name(),
        .restore_op_name = restore_all->name(),
        .max_to_keep = options_.max_to_keep,
        .sharded = options_.sharded,
        .keep_checkpoint_every_n_hours = static_cast<float>(options_.keep_checkpoint_every_n_hours),
        .version = options_.version};
  }

 private:
  static Output Strings(const Scope& scope, const std::vector<std::string>& values,
                        absl::string_view name) {
    return scope.Const(Tensor::Vector<std::string>(values), name);
  }

  absl::StatusOr<Output> AddFilename() {
    const Scope scope = scope_.WithFreshStatus();
    const Scope own = scope.NameScope("filename");
    const Output given = own.ConstScalar<std::string>(
        options_.filename.empty() ? "model" : options_.filename, "input");
    const AttrMap scalar = {{"shape", AttrValue(PartialShape::Scalar())}};
    const Output fixed = OpNamed(own, "PlaceholderWithDefault", {given}, scalar);
    // Called "Const" as in releases in which it was one: graphs and programs feed that name.
    const Output filename = scope.Op("PlaceholderWithDefault", {fixed}, scalar, "Const");
    RETURN_IF_ERROR(scope.status());
    return filename;
  }

  absl::StatusOr<Node*> AddSaveOp(const Scope& outer, Output filename,
                                  const std::vector<Saveable>& saveables) {
    if (options_.nodes.save) return options_.nodes.save(outer, filename, saveables);
    const bool v1 = options_.version == CheckpointVersion::kV1;
    std::vector<std::string> names, slices;
    std::vector<Output> tensors;
    for (const Saveable& saveable : saveables) {
      for (const SaveSpec& spec : saveable.specs) {
        names.push_back(spec.name);
        slices.push_back(spec.slice);
        ASSIGN_OR_RETURN(const Output tensor, spec.tensor(outer));
        tensors.push_back(tensor);
      }
    }
    const Scope scope = outer.WithFreshStatus();
    const Scope own = scope.NameScope(v1 ? "save" : "SaveV2");
    const Output tensor_names = Strings(own, names, "tensor_names");
    const Output shape_and_slices =
        Strings(own, slices, v1 ? "shapes_and_slices" : "shape_and_slices");
    Node* node = AddNamed(own, v1 ? "SaveSlices" : "SaveV2",
                          {filename, tensor_names, shape_and_slices, tensors});
    RETURN_IF_ERROR(scope.status());
    return node;
  }

  absl::StatusOr<Output> AddSave(const Scope& scope, Output filename,
                                 const std::vector<Saveable>& saveables) {
    ASSIGN_OR_RETURN(Node * save, AddSaveOp(scope, filename, saveables));
    return AddWithDependencies(scope, {save}, filename);
  }

  absl::StatusOr<Output> AddShardedFilename(const Scope& outer, Output prefix, int shard,
                                            Output shards) {
    const Scope scope = outer.WithFreshStatus();
    const Scope own = scope.NameScope("ShardedFilename");
    const Output index = own.ConstScalar<int32_t>(shard, "shard");
    const Output name = OpNamed(own, "ShardedFilename", {prefix, index, shards});
    RETURN_IF_ERROR(scope.status());
    return name;
  }

  // Every device writes a shard into a folder of their own, then the last one merges them.
  absl::StatusOr<Output> AddShardedSave(Output prefix, const std::vector<Shard>& shards) {
    const Scope scope = scope_.WithFreshStatus();
    const Scope join = scope.NameScope("StringJoin");
    const Output folder =
        join.ConstScalar<std::string>(absl::StrCat("_temp_", NewSaveId(), "/part"), "inputs_1");
    const Output temporary = OpNamed(join, "StringJoin", {std::vector<Output>{prefix, folder}});
    const Output count =
        scope.ConstScalar<int32_t>(static_cast<int32_t>(shards.size()), "num_shards");
    RETURN_IF_ERROR(scope.status());
    std::vector<Output> prefixes;
    std::vector<Node*> saves;
    std::string last = "/device:CPU:0";
    for (size_t i = 0; i < shards.size(); ++i) {
      ASSIGN_OR_RETURN(last, CpuOf(shards[i].device));
      const Scope here = scope_.WithDevice(last);
      ASSIGN_OR_RETURN(const Output name,
                       AddShardedFilename(here, temporary, static_cast<int>(i), count));
      prefixes.push_back(name);
      ASSIGN_OR_RETURN(const Output saved, AddSave(here, name, shards[i].saveables));
      saves.push_back(saved.node);
    }
    const Scope after = scope_.WithControlDependencies(saves).WithDevice(last).WithFreshStatus();
    const Scope own = after.NameScope("MergeV2Checkpoints");
    const Output packed = own.Op("Pack", {prefixes}, {}, "checkpoint_prefixes");
    Node* merge = AddNamed(own, "MergeV2Checkpoints", {packed, prefix},
                           {{"delete_old_dirs", AttrValue(true)}});
    RETURN_IF_ERROR(after.status());
    const Output result = after.WithControlDependencies({&merge, 1}).Op("Identity", {prefix});
    RETURN_IF_ERROR(after.status());
    return result;
  }

  absl::StatusOr<Output> AddShardedSaveV1(Output filename, const std::vector<Shard>& shards) {
    ASSIGN_OR_RETURN(
        Node * count,
        scope_.TryAdd(
            "Const", {},
            {{"value", AttrValue(Tensor::Scalar<int32_t>(static_cast<int32_t>(shards.size())))},
             {"dtype", AttrValue(DType::kInt32)}},
            "num_shards"));
    std::vector<Node*> saves;
    for (size_t i = 0; i < shards.size(); ++i) {
      const Scope here = scope_.WithDevice(shards[i].device);
      ASSIGN_OR_RETURN(const Output name,
                       AddShardedFilename(here, filename, static_cast<int>(i), count->output(0)));
      ASSIGN_OR_RETURN(const Output saved, AddSave(here, name, shards[i].saveables));
      saves.push_back(saved.node);
    }
    ASSIGN_OR_RETURN(Node * spec, scope_.WithControlDependencies(saves).TryAdd(
                                      "ShardedFilespec", {filename, count->output(0)}));
    return spec->output(0);
  }

  absl::StatusOr<std::vector<Output>> AddRestoreOp(const Scope& outer, Output filename,
                                                   absl::Span<const SaveSpec> specs) {
    std::vector<std::string> names, slices;
    std::vector<DType> dtypes;
    for (const SaveSpec& spec : specs) {
      names.push_back(spec.name);
      slices.push_back(spec.slice);
      dtypes.push_back(spec.dtype);
    }
    const Scope scope = outer.WithFreshStatus();
    const Scope own = scope.NameScope("RestoreV2");
    const Output tensor_names = Strings(own, names, "tensor_names");
    const Output shape_and_slices = Strings(own, slices, "shape_and_slices");
    Node* node = AddNamed(own, "RestoreV2", {filename, tensor_names, shape_and_slices},
                          {{"dtypes", AttrValue(dtypes)}});
    RETURN_IF_ERROR(scope.status());
    std::vector<Output> tensors;
    for (int i = 0; i < node->num_outputs(); ++i) tensors.push_back(node->output(i));
    return tensors;
  }

  absl::StatusOr<std::vector<Output>> AddRestoreOps(const Scope& scope, Output filename,
                                                    const std::vector<Saveable>& saveables,
                                                    int preferred_shard) {
    if (options_.nodes.restore)
      return options_.nodes.restore(scope, filename, saveables, preferred_shard);
    if (options_.bulk_restore) {
      std::vector<SaveSpec> specs;
      for (const Saveable& saveable : saveables)
        specs.insert(specs.end(), saveable.specs.begin(), saveable.specs.end());
      return AddRestoreOp(scope.WithDevice("/device:CPU:0"), filename, specs);
    }
    std::vector<Output> tensors;
    for (const Saveable& saveable : saveables) {
      Scope here = scope.WithoutDevices();
      if (!saveable.specs.empty() && !saveable.specs[0].device.empty()) {
        ASSIGN_OR_RETURN(const std::string device, CpuOf(saveable.specs[0].device));
        here = scope.WithDevice(device);
      }
      for (const SaveSpec& spec : saveable.specs) {
        ASSIGN_OR_RETURN(const std::vector<Output> one, AddRestoreOp(here, filename, {&spec, 1}));
        tensors.push_back(one[0]);
      }
    }
    return tensors;
  }

  // The shapes that restored values of `saveable` are given.
  absl::StatusOr<std::vector<RestoredShape>> AddShapes(const Scope& outer,
                                                       const Saveable& saveable) {
    std::vector<RestoredShape> shapes;
    const Scope scope = outer.WithFreshStatus();
    for (const SaveSpec& spec : saveable.specs) {
      ASSIGN_OR_RETURN(const Output tensor, spec.tensor(scope));
      if (const std::optional<Shape> known = tensor.shape().ToShape()) {
        shapes.emplace_back(*known);
      } else {
        shapes.emplace_back(EmitShape(scope, tensor));
      }
    }
    RETURN_IF_ERROR(scope.status());
    return shapes;
  }

  absl::StatusOr<Node*> AddRestore(const Scope& scope, Output filename,
                                   const std::vector<Saveable>& saveables, int preferred_shard,
                                   absl::string_view name) {
    ASSIGN_OR_RETURN(const std::vector<Output> tensors,
                     AddRestoreOps(scope, filename, saveables, preferred_shard));
    std::vector<Node*> assigned;
    size_t next = 0;
    for (const Saveable& saveable : saveables) {
      std::optional<std::vector<RestoredShape>> shapes;
      if (options_.reshape) {
        ASSIGN_OR_RETURN(shapes, AddShapes(scope, saveable));
      }
      const size_t end = next + saveable.specs.size();
      if (end > tensors.size()) {
        return InvalidArgument("A saver's restore gave ", tensors.size(),
                               " tensors, which is less than its saveables have");
      }
      const std::vector<Output> own(tensors.begin() + static_cast<std::ptrdiff_t>(next),
                                    tensors.begin() + static_cast<std::ptrdiff_t>(end));
      next = end;
      ASSIGN_OR_RETURN(Node * node, saveable.restore(scope, own, shapes));
      assigned.push_back(node);
    }
    return Group(scope, assigned, name);
  }

  absl::StatusOr<Node*> AddShardedRestore(Output filename, const std::vector<Shard>& shards) {
    std::vector<Node*> restored;
    for (size_t i = 0; i < shards.size(); ++i) {
      ASSIGN_OR_RETURN(Node * node,
                       AddRestore(scope_.WithDevice(shards[i].device), filename,
                                  shards[i].saveables, static_cast<int>(i), "restore_shard"));
      restored.push_back(node);
    }
    return Group(scope_, restored, "restore_all");
  }

  const Scope& scope_;
  const SaverOptions& options_;
};

}  // namespace

absl::StatusOr<SaverDef> BuildSaverNodes(const Scope& scope, std::vector<Saveable> saveables,
                                         const SaverOptions& options) {
  if (options.version == CheckpointVersion::kLegacy) {
    return InvalidArgument("A saver writes format V1 or V2, not the legacy one");
  }
  std::stable_sort(saveables.begin(), saveables.end(),
                   [](const Saveable& a, const Saveable& b) { return a.name < b.name; });
  RETURN_IF_ERROR(CheckNames(saveables));
  ASSIGN_OR_RETURN(const Scope own,
                   scope.TryNameScope(options.name.empty() ? "save" : options.name));
  RETURN_IF_ERROR(OrderReads(own, saveables));
  return NodeBuilder(own, options).Build(std::move(saveables));
}

}  // namespace muster
