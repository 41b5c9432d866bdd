#include "muster/train/optimizers/slots.h"

#include <set>
#include <utility>

#include "muster/graph/build/emit.h"

namespace muster {
namespace {

// The initial value of a slot, made beside its variable.
absl::StatusOr<InitialValue> InitialOf(const Scope& scope, const TrainVariable& variable,
                                       const SlotSpec& spec) {
  const std::optional<Shape> shape = variable.shape.ToShape();
  if (const auto* value = std::get_if<Output>(&spec.initial)) return *value;
  if (const auto* filled = std::get_if<SlotSpec::Filled>(&spec.initial)) {
    if (shape.has_value()) {
      return filled->ones ? Ones(*shape, variable.dtype)
                          : Constant(filled->value, *shape, variable.dtype);
    }
    if (filled->ones) {
      const Scope own = scope.NameScope("ones_like");
      const Output dims = EmitShape(own, Value(own, variable));
      const Output ones = OpNamed(own, "Fill", {dims, EmitScalar(own, variable.dtype, 1)});
      RETURN_IF_ERROR(own.status());
      return ones;
    }
    const double number = filled->value;
    return InitialValueFunction([variable, number](const Scope& at) -> absl::StatusOr<Output> {
      const Output dims = EmitShape(at, Value(at, variable), "Shape", DType::kInt32, false);
      const Output all = CallOpOutput(at, "Fill", {{"dims", dims}, {"value", Operand(number)}});
      return CastToOutput(at, all, variable.dtype);
    });
  }
  if (shape.has_value()) return Zeros(*shape, variable.dtype);
  ASSIGN_OR_RETURN(const Output initialized, InitializedValue(scope, variable));
  const Output value = EmitZeros(scope, EmitShape(scope, initialized), variable.dtype);
  RETURN_IF_ERROR(scope.status());
  return value;
}

}  // namespace

absl::StatusOr<TrainVariable> MakeSlot(const Scope& scope, const TrainVariable& primary,
                                       const InitialValue& initial, absl::string_view name) {
  // Variables are named from the root, whatever scope is open.
  const Scope root = scope.WithPrefix("");
  const std::string unique = root.graph().UniqueName(absl::StrCat(primary.name(), "/", name)) + "/";
  const auto* value = std::get_if<Output>(&initial);
  const bool known_shape =
      value != nullptr ? value->shape().fully_known() : primary.shape.fully_known();
  ASSIGN_OR_RETURN(
      TrainVariable slot,
      MakeVariable(root.ColocatedWith(primary.node()), unique, initial,
                   {.use_resource = primary.is_resource, .validate_shape = known_shape}));
  if (primary.save_slice.has_value()) {
    slot.save_slice = primary.save_slice;
    slot.save_slice->full_name += slot.name().substr(primary.name().size());
  }
  return slot;
}

absl::StatusOr<TrainVariable> GraphSlots::GetOrMake(const Scope& scope,
                                                    const TrainVariable& variable,
                                                    const SlotSpec& spec) {
  const auto key = std::make_pair(static_cast<const Node*>(variable.handle.node), spec.slot);
  if (const auto found = slots_.find(key); found != slots_.end()) return found->second;
  ASSIGN_OR_RETURN(const InitialValue initial, InitialOf(scope, variable, spec));
  ASSIGN_OR_RETURN(TrainVariable slot, MakeSlot(scope, variable, initial, spec.op_name));
  variables_.push_back(slot);
  slots_.emplace(key, slot);
  return slot;
}

absl::StatusOr<TrainVariable> GraphSlots::Get(const TrainVariable& variable,
                                              absl::string_view slot) {
  const auto found = slots_.find({variable.handle.node, std::string(slot)});
  if (found == slots_.end()) {
    return NotFound("Variable ", variable.name(), " has no slot '", slot, "'");
  }
  return found->second;
}

absl::StatusOr<TrainVariable> GraphSlots::GetOrMakeShared(const Scope& scope,
                                                          const SharedSpec& spec,
                                                          const TrainVariable& beside) {
  const auto key = std::make_pair(static_cast<const Graph*>(&scope.graph()), spec.name);
  if (const auto found = shared_.find(key); found != shared_.end()) return found->second;
  InitialValue value;
  const Operand& initial = spec.initial;
  if (const Number* number = initial.number()) {
    ASSIGN_OR_RETURN(value, TryScalarTensor(DType::kFloat, number->value));
  } else if (initial.tensor() != nullptr) {
    value = *initial.tensor();
  } else {
    value = Convert(scope, initial);
  }
  ASSIGN_OR_RETURN(const TrainVariable variable,
                   MakeVariable(scope.ColocatedWith(beside.node()), spec.name, value,
                                {.use_resource = beside.is_resource}));
  variables_.push_back(variable);
  shared_.emplace(key, variable);
  return variable;
}

absl::StatusOr<TrainVariable> GraphSlots::GetShared(const Graph& graph, absl::string_view name) {
  const auto found = shared_.find({&graph, std::string(name)});
  if (found == shared_.end()) return NotFound("The optimizer has no variable '", name, "'");
  return found->second;
}

std::vector<std::string> GraphSlots::names() const {
  std::set<std::string> names;
  for (const auto& [key, slot] : slots_) names.insert(key.second);
  return {names.begin(), names.end()};
}

}  // namespace muster
