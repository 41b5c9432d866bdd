#include "muster/train/optimizers/optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"

#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/gradients/sparse_gradients.h"

namespace muster {
namespace {

absl::Status CheckTrainable(DType dtype, const std::string& name) {
  if (IsFloating(BaseType(dtype))) return absl::OkStatus();
  return InvalidArgument("Invalid type ", DTypeName(BaseType(dtype)), " for ", name,
                         ", expected: half, bfloat16, float, double.");
}

std::string Names(absl::Span<const GradientAndVariable> gradients) {
  return absl::StrJoin(gradients, ", ", [](std::string* text, const GradientAndVariable& entry) {
    text->append(entry.variable.handle.name());
  });
}

bool HasAny(absl::Span<const GradientAndVariable> gradients) {
  return std::any_of(gradients.begin(), gradients.end(),
                     [](const GradientAndVariable& entry) { return HasValue(entry.gradient); });
}

// The node called like the whole update, which counts the step after `updated`.
absl::StatusOr<Node*> CountStep(const Scope& own, Node* updated, const TrainVariable& step) {
  const Scope at = own.WithControlDependencies({updated}).ColocatedWith(step.node());
  Node* node = nullptr;
  if (step.is_resource) {
    const Output one = Convert(at, Operand(1), "Const", step.dtype);
    node =
        CallOp(at, "AssignAddVariableOp", {{"resource", step}, {"value", one}}, {}, own.prefix());
  } else {
    node = CallOp(at, "AssignAdd", {{"ref", step}, {"value", Operand(1)}}, {}, own.prefix());
  }
  RETURN_IF_ERROR(at.status());
  return node;
}

}  // namespace

Optimizer::Optimizer(std::string name, bool use_locking)
    : name_(std::move(name)),
      use_locking_(use_locking),
      graph_slots_(std::make_unique<GraphSlots>()) {}

absl::StatusOr<std::vector<GradientAndVariable>> Optimizer::ComputeGradients(
    const Scope& scope, Output loss, absl::Span<const TrainVariable> variables,
    const ComputeOptions& options) const {
  RETURN_IF_ERROR(CheckTrainable(loss.dtype(), loss.name()));
  if (variables.empty()) return InvalidArgument("No variables to optimize.");
  GradientOptions how;
  how.gate_gradients = options.gate == GateGradients::kOp;
  how.aggregation_method = options.aggregation_method;
  how.colocate_gradients_with_ops = options.colocate_gradients_with_ops;
  if (HasValue(options.grad_loss)) how.grad_ys = {options.grad_loss};
  std::vector<Output> xs;
  for (const TrainVariable& variable : variables) xs.push_back(variable.handle);
  ASSIGN_OR_RETURN(std::vector<Gradient> gradients, Gradients(scope, {loss}, xs, std::move(how)));
  if (options.gate == GateGradients::kGraph) {
    ASSIGN_OR_RETURN(gradients, GateAll(scope, gradients));
  }
  std::vector<GradientAndVariable> result;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (HasValue(gradients[i])) {
      RETURN_IF_ERROR(CheckTrainable(variables[i].dtype, variables[i].handle.name()));
    }
    result.push_back({std::move(gradients[i]), variables[i]});
  }
  return result;
}

absl::StatusOr<Node*> Optimizer::ApplyGradients(const Scope& scope,
                                                absl::Span<const GradientAndVariable> gradients,
                                                const ApplyOptions& options) {
  if (gradients.empty()) return InvalidArgument("No variables provided.");
  if (!HasAny(gradients)) {
    return InvalidArgument("No gradients provided for any variable: ", Names(gradients), ".");
  }
  std::vector<TrainVariable> variables;
  for (const GradientAndVariable& entry : gradients) {
    if (HasValue(entry.gradient)) variables.push_back(entry.variable);
  }
  RETURN_IF_ERROR(CreateSlots(scope.WithoutControlDependencies(), variables));
  ASSIGN_OR_RETURN(const Scope own,
                   scope.TryNameScope(options.name.empty() ? name_ : options.name));
  RETURN_IF_ERROR(Prepare(own));
  std::vector<Node*> updates;
  for (const GradientAndVariable& entry : gradients) {
    if (!HasValue(entry.gradient)) continue;
    ASSIGN_OR_RETURN(const Scope named,
                     own.TryNameScope(absl::StrCat("update_", entry.variable.name())));
    ASSIGN_OR_RETURN(Node * update, Update(named.ColocatedWith(entry.variable.node()),
                                           entry.gradient, entry.variable));
    updates.push_back(update);
  }
  if (!options.global_step.has_value()) return Finish(own, updates, own.prefix());
  ASSIGN_OR_RETURN(Node * updated, Finish(own, updates, "update"));
  return CountStep(own, updated, *options.global_step);
}

absl::StatusOr<Node*> Optimizer::Minimize(const Scope& scope, Output loss,
                                          absl::Span<const TrainVariable> variables,
                                          const ApplyOptions& apply,
                                          const ComputeOptions& compute) {
  ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                   ComputeGradients(scope, loss, variables, compute));
  if (!HasAny(gradients)) {
    return InvalidArgument(
        "No gradients provided for any variable, check your graph for ops that do not support "
        "gradients, between variables ",
        Names(gradients), " and loss ", loss.name(), ".");
  }
  return ApplyGradients(scope, gradients, apply);
}

absl::StatusOr<size_t> Optimizer::Find(absl::string_view name) const {
  for (size_t i = 0; i < hyperparameters_.size(); ++i) {
    if (hyperparameters_[i].name == name) return i;
  }
  return NotFound("Optimizer ", name_, " has no hyperparameter '", name, "'");
}

absl::Status Optimizer::SetValue(absl::string_view name, Operand value) {
  ASSIGN_OR_RETURN(const size_t at, Find(name));
  hyperparameters_[at].value = std::move(value);
  return absl::OkStatus();
}

absl::StatusOr<Operand> Optimizer::GetValue(absl::string_view name) const {
  ASSIGN_OR_RETURN(const size_t at, Find(name));
  return hyperparameters_[at].value;
}

absl::Status Optimizer::SetTensor(absl::string_view name, Output tensor) {
  ASSIGN_OR_RETURN(const size_t at, Find(name));
  hyperparameters_[at].tensor = tensor;
  return absl::OkStatus();
}

absl::StatusOr<Output> Optimizer::GetTensor(absl::string_view name) const {
  ASSIGN_OR_RETURN(const size_t at, Find(name));
  return hyperparameters_[at].tensor;
}

void Optimizer::AddHyperparameter(std::string name, Operand value) {
  hyperparameters_.push_back({std::move(name), std::move(value), Output()});
}

Output Optimizer::Hyper(const Scope& scope, absl::string_view name, DType dtype) const {
  absl::StatusOr<Output> tensor = GetTensor(name);
  if (tensor.ok() && !*tensor) {
    tensor = FailedPrecondition("Optimizer ", name_, " was not prepared: '", name, "' is not set");
  }
  if (!tensor.ok()) {
    scope.UpdateStatus(tensor.status());
    return Output();
  }
  return CastToOutput(scope, *tensor, dtype);
}

absl::Status Optimizer::CreateSlots(const Scope&, absl::Span<const TrainVariable>) {
  return absl::OkStatus();
}

absl::Status Optimizer::Prepare(const Scope& scope) {
  for (Hyperparameter& hyper : hyperparameters_) {
    hyper.tensor = Convert(scope, hyper.value, hyper.name);
  }
  return scope.status();
}

absl::StatusOr<Node*> Optimizer::Update(const Scope& scope, const Gradient& gradient,
                                        const TrainVariable& variable) {
  if (const auto* slices = std::get_if<IndexedSlices>(&gradient)) {
    return ApplySparseDuplicates(scope, *slices, variable);
  }
  return ApplyDense(scope, std::get<Output>(gradient), variable);
}

absl::StatusOr<Node*> Optimizer::ApplySparseDuplicates(const Scope& scope,
                                                       const IndexedSlices& gradient,
                                                       const TrainVariable& variable) {
  const IndexedSlices summed = SumDuplicates(scope, gradient);
  RETURN_IF_ERROR(scope.status());
  return ApplySparse(scope, summed, variable);
}

absl::StatusOr<Node*> Optimizer::Finish(const Scope& scope, absl::Span<Node* const> updates,
                                        absl::string_view name) {
  return Group(scope, updates, name);
}

IndexedSlices SumDuplicates(const Scope& scope, const IndexedSlices& gradient) {
  Node* unique = scope.Add("Unique", {gradient.indices}, {{"out_idx", DType::kInt32}});
  if (unique == nullptr) return gradient;
  const Output count = EmitElement(scope, EmitShape(scope, unique->output(0)), 0);
  const Output summed = scope.Op("UnsortedSegmentSum", {gradient.values, unique->output(1), count});
  return {summed, unique->output(0), gradient.dense_shape};
}

absl::StatusOr<std::vector<Gradient>> GateAll(const Scope& scope,
                                              absl::Span<const Gradient> gradients) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope("tuple"));
  std::vector<Node*> nodes;
  for (const Gradient& gradient : gradients) {
    if (HasValue(gradient)) nodes.push_back(&GradientNode(gradient));
  }
  if (nodes.empty()) return InvalidArgument("Must have at least one Tensor");
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->id() < b->id(); });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  ASSIGN_OR_RETURN(Node * gate, Group(own, nodes));
  std::vector<Gradient> gated;
  for (const Gradient& gradient : gradients) {
    if (!HasValue(gradient)) {
      gated.emplace_back();
      continue;
    }
    // Rows wait; their indices and shape come along.
    std::vector<Output> parts = Components(gradient);
    ASSIGN_OR_RETURN(parts[0], AddWithDependencies(own, {gate}, parts[0]));
    gated.push_back(FromComponents(gradient, parts));
  }
  return gated;
}

}  // namespace muster
