#include "muster/train/saving/saveable.h"

#include "muster/graph/build/emit.h"

namespace muster {
namespace {

bool IsReferenceOp(absl::string_view op) {
  return op == "Variable" || op == "VariableV2" || op == "AutoReloadVariable";
}

absl::StatusOr<Output> Reshaped(const Scope& scope, Output value, const RestoredShape& shape) {
  const Scope checked = scope.WithFreshStatus();
  Output reshaped;
  if (const auto* known = std::get_if<Shape>(&shape)) {
    reshaped = EmitReshape(checked, value, known->dims());
  } else {
    reshaped = checked.Op("Reshape", {value, std::get<Output>(shape)});
  }
  RETURN_IF_ERROR(checked.status());
  return reshaped;
}

// What a handle's variable holds.
absl::StatusOr<DType> HeldType(Output handle) {
  const std::vector<DTypeAndShape>& held = handle.node->output_handle(handle.index);
  if (!held.empty()) return held[0].dtype;
  return handle.node->Attr<DType>("dtype");
}

}  // namespace

bool ComesFromVariable(Output output) {
  if (!output) return false;
  const std::string& op = output.node->op();
  return IsReferenceOp(op) || op == "VarHandleOp" || op == "ReadVariableOp";
}

Saveable ReferenceSaveable(std::string name, Output variable, std::string slice, Output read) {
  Saveable saveable;
  saveable.name = name;
  saveable.op = variable.node;
  const Output saved = read ? read : variable;
  saveable.specs.push_back({.name = std::move(name),
                            .slice = std::move(slice),
                            .dtype = variable.base_dtype(),
                            .device = variable.node->device(),
                            .tensor = [saved](const Scope&) { return saved; }});
  saveable.restore =
      [variable](const Scope& scope, const std::vector<Output>& tensors,
                 const std::optional<std::vector<RestoredShape>>& shapes) -> absl::StatusOr<Node*> {
    Output value = tensors[0];
    if (shapes) {
      ASSIGN_OR_RETURN(value, Reshaped(scope, value, (*shapes)[0]));
    }
    const bool validate = !shapes && variable.shape().fully_known();
    return scope.TryAdd(
        "Assign", {variable, value},
        {{"validate_shape", AttrValue(validate)}, {"use_locking", AttrValue(true)}});
  };
  return saveable;
}

absl::StatusOr<Saveable> ResourceSaveable(std::string name, Output handle, std::string slice,
                                          Output read) {
  ASSIGN_OR_RETURN(const DType dtype, HeldType(handle));
  const std::string device = read ? read.node->device() : handle.node->device();
  Saveable saveable;
  saveable.name = name;
  saveable.op = handle.node;
  SaveSpec spec{.name = std::move(name),
                .slice = std::move(slice),
                .dtype = dtype,
                .device = device,
                .tensor = [read](const Scope&) { return read; }};
  if (!read) {
    spec.tensor = [handle, dtype, device](const Scope& scope) -> absl::StatusOr<Output> {
      const Scope here = scope.WithDevice(device).WithFreshStatus();
      const Output value =
          here.NameScope("Read").Op("ReadVariableOp", {handle}, {{"dtype", AttrValue(dtype)}});
      // A copy on the host of the same task is what is written.
      const Output saved =
          here.WithDevice("/device:CPU:0").Op("Identity", {here.Op("Identity", {value})});
      RETURN_IF_ERROR(here.status());
      return saved;
    };
  }
  saveable.specs.push_back(std::move(spec));
  saveable.restore =
      [handle, device](
          const Scope& scope, const std::vector<Output>& tensors,
          const std::optional<std::vector<RestoredShape>>& shapes) -> absl::StatusOr<Node*> {
    Output value = tensors[0];
    if (shapes) {
      ASSIGN_OR_RETURN(value, Reshaped(scope, value, (*shapes)[0]));
    }
    const Scope here = scope.WithDevice(device);
    ASSIGN_OR_RETURN(Node * copied, here.TryAdd("Identity", {value}));
    return here.TryAdd("AssignVariableOp", {handle, copied->output(0)});
  };
  return saveable;
}

absl::StatusOr<Saveable> VariableSaveable(Output variable) {
  if (!ComesFromVariable(variable)) {
    return InvalidArgument("Variable to save is not a Variable: ",
                           variable ? variable.name() : "nothing");
  }
  Node* node = variable.node;
  if (IsReferenceOp(node->op())) return ReferenceSaveable(node->name(), variable);
  if (node->op() == "VarHandleOp") return ResourceSaveable(node->name(), variable);
  const Output handle = node->input(0);
  return ResourceSaveable(handle.node->name(), handle, "", variable);
}

absl::StatusOr<Saveable> VariableSaveable(const TrainVariable& variable) {
  if (!variable.save_slice.has_value()) {
    return VariableSaveable(variable.is_resource && variable.snapshot ? variable.snapshot
                                                                      : variable.handle);
  }
  const SaveSlice& slice = *variable.save_slice;
  if (variable.is_resource) return ResourceSaveable(slice.full_name, variable.handle, slice.Spec());
  return ReferenceSaveable(slice.full_name, variable.handle, slice.Spec(), variable.snapshot);
}

}  // namespace muster
