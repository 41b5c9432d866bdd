#include "muster/train/model/variables.h"

#include <map>
#include <utility>

#include "absl/strings/str_join.h"

#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/train/model/operand.h"

namespace muster {
namespace {

absl::StatusOr<Output> InitialOutput(const Scope& scope, const InitialValue& initial) {
  if (const auto* function = std::get_if<InitialValueFunction>(&initial)) {
    ASSIGN_OR_RETURN(const Output value, (*function)(scope));
    RETURN_IF_ERROR(scope.status());
    if (!value) return InvalidArgument("initial_value must be specified.");
    return value;
  }
  if (const auto* output = std::get_if<Output>(&initial)) {
    if (!*output) return InvalidArgument("initial_value must be specified.");
    return *output;
  }
  return scope.Const(std::get<Tensor>(initial), "initial_value");
}

// Nodes beside a variable that does not exist yet: they name it, since there is no node to ask.
Scope BesideVariable(const Scope& own) {
  const std::string name = own.prefix().substr(0, own.prefix().size() - 1);
  return own.WithAttr("_class", AttrValue(std::vector<std::string>{absl::StrCat("loc:@", name)}));
}

absl::StatusOr<Output> Guarded(const Scope& scope, Output initial, const VariableOptions& options) {
  if (!options.guard) return initial;
  return options.guard(scope, initial);
}

// Where reads are cached; nothing when they are not.
std::optional<Scope> Caching(const Scope& own, const VariableOptions& options) {
  if (options.caching_function) return own.WithDeviceFunction(options.caching_function);
  if (!options.caching_device.empty()) return own.WithDevice(options.caching_device);
  return std::nullopt;
}

absl::Status MakeReference(const Scope& own, const InitialValue& initial,
                           const VariableOptions& options, TrainVariable& variable) {
  Scope at = own;
  if (std::holds_alternative<InitialValueFunction>(initial)) {
    at = BesideVariable(own);
    ASSIGN_OR_RETURN(variable.initial_value,
                     InitialOutput(at.NameScope("Initializer").WithoutDevices(), initial));
  } else {
    ASSIGN_OR_RETURN(variable.initial_value, InitialOutput(own, initial));
  }
  RETURN_IF_ERROR(own.status());
  variable.dtype = variable.initial_value.base_dtype();
  if (options.validate_shape) {
    variable.shape = variable.initial_value.shape();
    if (!variable.shape.fully_known()) {
      return InvalidArgument("initial_value must have a shape specified: ",
                             variable.initial_value.name());
    }
  }
  variable.handle = OpNamed(at, "VariableV2", {},
                            {{"shape", AttrValue(variable.shape)}, {"dtype", variable.dtype}});
  RETURN_IF_ERROR(own.status());
  ASSIGN_OR_RETURN(const Output assigned, Guarded(own, variable.initial_value, options));
  variable.initializer =
      own.Add("Assign", {variable.handle, assigned}, {{"validate_shape", options.validate_shape}});
  variable.snapshot = Caching(own, options)
                          .value_or(own.ColocatedWith(variable.node()))
                          .Op("Identity", {variable.handle}, {}, "read");
  return own.status();
}

absl::Status MakeResource(const Scope& own, const InitialValue& initial,
                          const VariableOptions& options, TrainVariable& variable) {
  variable.is_resource = true;
  const Scope at = BesideVariable(own);
  ASSIGN_OR_RETURN(variable.initial_value,
                   InitialOutput(at.NameScope("Initializer").WithoutDevices(), initial));
  RETURN_IF_ERROR(own.status());
  variable.dtype = variable.initial_value.base_dtype();
  variable.shape = options.shape.value_or(variable.initial_value.shape());
  const std::string name = own.prefix().substr(0, own.prefix().size() - 1);
  variable.handle = OpNamed(at, "VarHandleOp", {},
                            {{"shape", AttrValue(variable.shape)},
                             {"dtype", variable.dtype},
                             {"shared_name", AttrValue(name)}});
  RETURN_IF_ERROR(own.status());
  const std::string device = variable.node().device();
  own.NameScope("IsInitialized").Add("VarIsInitializedOp", {variable.handle});
  const Scope assigning = own.NameScope("Assign").WithoutColocation().WithDevice(device);
  ASSIGN_OR_RETURN(const Output assigned, Guarded(assigning, variable.initial_value, options));
  variable.initializer = AddNamed(assigning, "AssignVariableOp", {variable.handle, assigned});
  variable.snapshot = own.NameScope("Read").WithDevice(device).Op(
      "ReadVariableOp", {variable.handle}, {{"dtype", variable.dtype}});
  if (const std::optional<Scope> caching = Caching(own, options)) {
    variable.cached = caching->Op("Identity", {variable.snapshot});
  }
  return own.status();
}

}  // namespace

std::string SaveSlice::Spec() const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < offset.size(); ++i)
    parts.push_back(absl::StrCat(offset[i], ",", shape[i]));
  return absl::StrCat(absl::StrJoin(full_shape, " "), " ", absl::StrJoin(parts, ":"));
}

absl::StatusOr<TrainVariable> MakeVariable(const Scope& scope, absl::string_view name,
                                           const InitialValue& initial_value,
                                           const VariableOptions& options) {
  ASSIGN_OR_RETURN(const Scope own, scope.WithoutControlDependencies().TryNameScope(
                                        name.empty() ? "Variable" : name));
  return MakeVariableIn(own, initial_value, options);
}

absl::StatusOr<TrainVariable> MakeVariableIn(const Scope& own, const InitialValue& initial_value,
                                             const VariableOptions& options) {
  const Scope bare = own.WithoutControlDependencies();
  TrainVariable variable;
  RETURN_IF_ERROR(options.use_resource ? MakeResource(bare, initial_value, options, variable)
                                       : MakeReference(bare, initial_value, options, variable));
  return variable;
}

Output Value(const Scope& scope, const TrainVariable& variable) {
  if (!variable.is_resource) return variable.snapshot;
  if (variable.cached) return variable.cached;
  return scope.WithoutColocation()
      .WithDevice(variable.node().device())
      .Op("ReadVariableOp", {variable.handle}, {{"dtype", variable.dtype}});
}

Output ReadValue(const Scope& scope, const TrainVariable& variable) {
  if (!variable.is_resource) return scope.Op("Identity", {variable.handle}, {}, "read");
  const Output value = scope.NameScope("Read")
                           .WithDevice(variable.node().device())
                           .Op("ReadVariableOp", {variable.handle}, {{"dtype", variable.dtype}});
  return scope.Op("Identity", {value});
}

Assigned Assign(const Scope& scope, const TrainVariable& variable, Output value,
                absl::string_view kind, bool use_locking) {
  Assigned assigned;
  if (!variable.is_resource) {
    assigned.node = scope.Add(kind, {variable.handle, value}, {{"use_locking", use_locking}});
    if (assigned.node != nullptr) assigned.value = assigned.node->output(0);
    return assigned;
  }
  assigned.node = scope.Add(absl::StrCat(kind, "VariableOp"), {variable.handle, value});
  if (assigned.node == nullptr) return assigned;
  assigned.value = scope.WithControlDependencies({assigned.node})
                       .Op("ReadVariableOp", {variable.handle}, {{"dtype", variable.dtype}});
  return assigned;
}

Output IsInitialized(const Scope& scope, const TrainVariable& variable) {
  return scope.Op(variable.is_resource ? "VarIsInitializedOp" : "IsVariableInitialized",
                  {variable.handle});
}

absl::StatusOr<Output> InitializedValue(const Scope& scope, const TrainVariable& variable) {
  const Scope bare = scope.WithoutControlDependencies();
  const Output initialized = IsInitialized(bare, variable);
  RETURN_IF_ERROR(bare.status());
  ASSIGN_OR_RETURN(const std::vector<Output> merged,
                   Cond(
                       bare, initialized,
                       [&](const Scope& branch) -> absl::StatusOr<std::vector<BranchResult>> {
                         const Output value = ReadValue(branch, variable);
                         RETURN_IF_ERROR(branch.status());
                         return std::vector<BranchResult>{value};
                       },
                       [&](const Scope&) -> absl::StatusOr<std::vector<BranchResult>> {
                         return std::vector<BranchResult>{variable.initial_value};
                       }));
  return merged[0];
}

absl::StatusOr<Node*> Group(const Scope& scope, absl::Span<Node* const> nodes,
                            absl::string_view name) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(name));
  const auto no_op = [&](const Scope& at, absl::string_view node_name) {
    return at.TryAdd("NoOp", {}, {}, node_name);
  };
  if (nodes.empty()) return no_op(own, own.prefix());
  std::map<std::string, std::vector<Node*>> by_device;
  for (Node* node : nodes) by_device[node->device()].push_back(node);
  if (by_device.size() == 1) {
    const auto& [device, all] = *by_device.begin();
    return no_op(own.WithControlDependencies(all).WithDevice(device), own.prefix());
  }
  std::vector<Node*> per_device;
  for (const auto& [device, some] : by_device) {
    ASSIGN_OR_RETURN(Node * node,
                     no_op(own.WithControlDependencies(some).WithDevice(device), "NoOp"));
    per_device.push_back(node);
  }
  return no_op(own.WithControlDependencies(per_device), own.prefix());
}

absl::StatusOr<Node*> Initializer(const Scope& scope, absl::Span<const TrainVariable> variables,
                                  absl::string_view name) {
  std::vector<Node*> nodes;
  for (const TrainVariable& variable : variables) {
    if (variable.initializer == nullptr) {
      return InvalidArgument("Variable ", variable.name(), " has no initializer");
    }
    nodes.push_back(variable.initializer);
  }
  return Group(scope, nodes, name);
}

namespace {

// x[begin:end] of a vector; an absent bound is masked.
Output SliceOf(const Scope& scope, Output x, std::optional<int> begin, std::optional<int> end) {
  const Scope own = scope.NameScope("strided_slice");
  AttrMap masks;
  if (!begin.has_value()) masks.emplace("begin_mask", 1);
  if (!end.has_value()) masks.emplace("end_mask", 1);
  const Output from = own.ConstVector({begin.value_or(0)}, "stack");
  const Output to = own.ConstVector({end.value_or(0)}, "stack_1");
  const Output strides = own.ConstVector({1}, "stack_2");
  return OpNamed(own, "StridedSlice", {x, from, to, strides}, std::move(masks));
}

// tf.boolean_mask of a vector.
Output MaskedRows(const Scope& scope, Output values, Output mask) {
  const Scope own = scope.NameScope("boolean_mask");
  const Output leading_part = SliceOf(own, EmitShape(own, values), 0, 1);
  const Scope prod = own.NameScope("Prod");
  const Output axes = prod.ConstVector({0}, "reduction_indices");
  const Output leading = OpNamed(prod, "Prod", {leading_part, axes});
  const Output before = SliceOf(own, EmitShape(own, values), std::nullopt, 0);
  const Output after = SliceOf(own, EmitShape(own, values), 1, std::nullopt);
  const Scope concat = own.NameScope("concat");
  const Output packed = concat.Op("Pack", {std::vector<Output>{leading}}, {}, "values_1");
  const Output axis = concat.ConstScalar<int32_t>(0, "axis");
  const Output dims =
      OpNamed(concat, "ConcatV2", {std::vector<Output>{before, packed, after}, axis});
  const Output rows = own.Op("Reshape", {values, dims});
  const Output flat_mask = EmitReshape(own, mask, {-1});
  const Output where = own.Op("Where", {flat_mask});
  const Output indices =
      own.Op("Squeeze", {where}, {{"squeeze_dims", AttrValue(std::vector<int64_t>{1})}});
  const Scope gather = own.NameScope("GatherV2");
  const Output gather_axis = gather.ConstScalar<int32_t>(0, "axis");
  return OpNamed(gather, "GatherV2", {rows, indices, gather_axis});
}

}  // namespace

absl::StatusOr<Output> ReportUninitialized(const Scope& scope,
                                           absl::Span<const TrainVariable> variables,
                                           absl::string_view name) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(name));
  std::vector<Output> initialized;
  std::vector<std::string> names;
  for (const TrainVariable& variable : variables) {
    initialized.push_back(IsInitialized(own, variable));
    names.push_back(variable.name());
  }
  RETURN_IF_ERROR(own.status());
  const Scope on_cpu = own.WithDevice("/device:CPU:0");
  Output result;
  if (variables.empty()) {
    result = on_cpu.Const(Tensor::Vector<std::string>({}));
  } else {
    const Output stacked = on_cpu.Op("Pack", {initialized}, {}, "stack");
    const Output mask = on_cpu.Op("LogicalNot", {stacked});
    result = MaskedRows(on_cpu, on_cpu.Const(Tensor::Vector<std::string>(names)), mask);
  }
  RETURN_IF_ERROR(on_cpu.status());
  return result;
}

absl::StatusOr<TrainVariable> MakeGlobalStep(const Scope& scope, bool use_resource) {
  return MakeVariable(scope.WithPrefix(""), "global_step", Zeros(Shape(), DType::kInt64),
                      {.use_resource = use_resource});
}

}  // namespace muster
