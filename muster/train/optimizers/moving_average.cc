#include "muster/train/optimizers/moving_average.h"

#include <utility>

#include "muster/graph/gradients/gradients.h"
#include "muster/train/optimizers/slots.h"

namespace muster {
namespace {

Output OutputOf(const Operand& averaged) {
  if (averaged.variable() != nullptr) return averaged.variable()->handle;
  return averaged.output() != nullptr ? *averaged.output() : Output();
}

// The value of a variable after `change`: the result of a reference's node, a read for a resource.
Output After(const Scope& scope, const TrainVariable& variable, const Assigned& change) {
  if (!variable.is_resource) return change.value;
  return scope.WithControlDependencies({change.node})
      .Op("ReadVariableOp", {variable.handle}, {{"dtype", variable.dtype}});
}

// (variable - value) * rate.
Output Delta(const Scope& scope, const TrainVariable& variable, const Operand& value, Output rate) {
  return Times(scope, Minus(scope, variable, value), rate);
}

Assigned NamedAssign(const Scope& own, const TrainVariable& variable, Output value) {
  Assigned assigned;
  if (!variable.is_resource) {
    assigned.node = CallOp(own, "Assign", {{"ref", variable}, {"value", value}}, {}, own.prefix());
    if (assigned.node != nullptr) assigned.value = assigned.node->output(0);
    return assigned;
  }
  assigned.node =
      CallOp(own, "AssignVariableOp", {{"resource", variable}, {"value", value}}, {}, own.prefix());
  if (assigned.node != nullptr) assigned.value = After(own, variable, assigned);
  return assigned;
}

absl::StatusOr<Assigned> AssignDebiased(const Scope& own, const TrainVariable& variable,
                                        const Operand& value, Output rate, AverageMaker& maker) {
  ASSIGN_OR_RETURN(const AverageMaker::Debiasing more, maker.MakeDebiasing(own, variable));
  const Assigned biased =
      Assign(own, more.biased, Delta(own, more.biased, value, rate), "AssignSub");
  Assigned counted;
  if (more.local_step.is_resource) {
    const Output one = Convert(own, Operand(1), "Const", more.local_step.dtype);
    counted = Assign(own, more.local_step, one, "AssignAdd");
  } else {
    counted.node = CallOp(own, "AssignAdd", {{"ref", more.local_step}, {"value", Operand(1)}},
                          {{"use_locking", false}});
    if (counted.node != nullptr) counted.value = counted.node->output(0);
  }
  RETURN_IF_ERROR(own.status());
  const Output kept = Minus(own, Operand(1.0), rate);
  const Scope power = own.NameScope("Pow");
  const Output steps = After(power, more.local_step, counted);
  const Output remaining = OpNamed(power, "Pow", {kept, steps});
  const Output factor = Minus(own, Operand(1), remaining);
  const Output average = Over(own, After(own, more.biased, biased), factor);
  const Assigned assigned = NamedAssign(own, variable, average);
  RETURN_IF_ERROR(own.status());
  return assigned;
}

}  // namespace

absl::StatusOr<Assigned> AssignMovingAverage(const Scope& scope, const TrainVariable& variable,
                                             const Operand& value, const Operand& decay,
                                             AverageMaker* debias, absl::string_view name) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(name));
  const Output rate = decay.number() != nullptr
                          ? Convert(own, Operand(1.0 - decay.number()->value), "decay")
                          : Minus(own, Operand(1.0), decay);
  const Output rate_as = CastToOutput(own, rate, variable.dtype);
  RETURN_IF_ERROR(own.status());
  if (debias != nullptr) return AssignDebiased(own, variable, value, rate_as, *debias);
  const Output delta = Delta(own, variable, value, rate_as);
  Assigned assigned;
  if (variable.is_resource) {
    assigned = Assign(own, variable, delta, "AssignSub");
  } else {
    assigned.node =
        CallOp(own, "AssignSub", {{"ref", variable}, {"value", delta}}, {}, own.prefix());
    if (assigned.node != nullptr) assigned.value = assigned.node->output(0);
  }
  RETURN_IF_ERROR(own.status());
  return assigned;
}

absl::StatusOr<Node*> ApplyMovingAverages(const Scope& scope, absl::Span<const Operand> averaged,
                                          const Operand& decay, const MovingAverageOptions& options,
                                          AverageMaker& maker) {
  struct Pair {
    TrainVariable average;
    Operand value;
    bool debias;
  };
  std::vector<Pair> pairs;
  for (const Operand& value : averaged) {
    const Output output = OutputOf(value);
    if (!output || !IsFloating(BaseType(value.dtype()))) {
      return WithErrorKind(InvalidArgument("The variables must be half, float, or double: ",
                                           output ? output.name() : "a number"),
                           kTypeError);
    }
    ASSIGN_OR_RETURN(const AverageMaker::Average average,
                     maker.GetOrMake(scope.WithoutControlDependencies(), value, options.name));
    pairs.push_back({average.variable, value,
                     options.zero_debias && average.is_new && value.variable() == nullptr});
  }
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(options.name));
  Output rate = Convert(own, decay, "decay");
  if (options.num_updates.has_value()) {
    const Operand updates = Cast(own, *options.num_updates, DType::kFloat, "num_updates");
    const Output more = Plus(own, Operand(1.0), updates);
    const Output quick = Over(own, more, Plus(own, Operand(10.0), updates));
    rate = CallOpOutput(own, "Minimum", {{"x", rate}, {"y", quick}});
  }
  RETURN_IF_ERROR(own.status());
  std::vector<Node*> updates;
  for (const Pair& pair : pairs) {
    ASSIGN_OR_RETURN(const Assigned update, AssignMovingAverage(own, pair.average, pair.value, rate,
                                                                pair.debias ? &maker : nullptr));
    updates.push_back(update.node);
  }
  return Group(own, updates, own.prefix());
}

class ExponentialMovingAverage::GraphAverages : public AverageMaker {
 public:
  absl::StatusOr<AverageMaker::Average> GetOrMake(const Scope& scope, const Operand& averaged,
                                                  absl::string_view name) override {
    const Output key = OutputOf(averaged);
    const auto at = std::make_pair(static_cast<const Node*>(key.node), key.index);
    if (const auto found = averages_.find(at); found != averages_.end()) {
      return AverageMaker::Average{found->second, false};
    }
    TrainVariable made;
    if (const TrainVariable* variable = averaged.variable()) {
      ASSIGN_OR_RETURN(const Output initial, InitializedValue(scope, *variable));
      ASSIGN_OR_RETURN(made, MakeSlot(scope, *variable, initial, name));
    } else {
      ASSIGN_OR_RETURN(made, ZerosFor(scope, key, name));
    }
    variables_.push_back(made);
    averages_.emplace(at, made);
    return AverageMaker::Average{made, true};
  }

  absl::StatusOr<Debiasing> MakeDebiasing(const Scope& scope,
                                          const TrainVariable& average) override {
    const Scope root = scope.WithPrefix("").ColocatedWith(average.node());
    const std::optional<Shape> shape = average.shape.ToShape();
    if (!shape.has_value()) {
      return InvalidArgument("The shape of ", average.name(), " must be known to debias it");
    }
    Debiasing made;
    const VariableOptions options{.use_resource = average.is_resource};
    ASSIGN_OR_RETURN(made.biased, MakeVariable(root, absl::StrCat(average.name(), "/biased"),
                                               Zeros(*shape, average.dtype), options));
    ASSIGN_OR_RETURN(made.local_step,
                     MakeVariable(root, absl::StrCat(average.name(), "/local_step"),
                                  Zeros(Shape(), average.dtype), options));
    variables_.push_back(made.biased);
    variables_.push_back(made.local_step);
    return made;
  }

  const std::vector<TrainVariable>& variables() const { return variables_; }
  const TrainVariable* Find(const Output& key) const {
    const auto found = averages_.find({key.node, key.index});
    return found == averages_.end() ? nullptr : &found->second;
  }

 private:
  // The average of a tensor starts at zero and is not colocated with the tensor.
  static absl::StatusOr<TrainVariable> ZerosFor(const Scope& scope, Output tensor,
                                                absl::string_view name) {
    const Scope root = scope.WithPrefix("");
    const std::optional<Shape> shape = tensor.shape().ToShape();
    InitialValue initial;
    if (shape.has_value()) {
      initial = Zeros(*shape, tensor.base_dtype());
    } else {
      initial = EmitZeros(scope, EmitShape(scope, tensor), tensor.base_dtype());
      RETURN_IF_ERROR(scope.status());
    }
    const std::string unique =
        root.graph().UniqueName(absl::StrCat(tensor.node->name(), "/", name)) + "/";
    VariableOptions options;
    options.validate_shape = shape.has_value();
    return MakeVariable(root, unique, initial, options);
  }

  std::map<std::pair<const Node*, int>, TrainVariable> averages_;
  std::vector<TrainVariable> variables_;
};

ExponentialMovingAverage::ExponentialMovingAverage(Operand decay, MovingAverageOptions options)
    : decay_(std::move(decay)),
      options_(std::move(options)),
      averages_(std::make_unique<GraphAverages>()) {}

ExponentialMovingAverage::~ExponentialMovingAverage() = default;

absl::StatusOr<Node*> ExponentialMovingAverage::Apply(const Scope& scope,
                                                      absl::Span<const Operand> averaged) {
  return ApplyMovingAverages(scope, averaged, decay_, options_, *averages_);
}

absl::StatusOr<TrainVariable> ExponentialMovingAverage::Average(const Operand& averaged) const {
  const Output key = OutputOf(averaged);
  if (const TrainVariable* found = averages_->Find(key)) return *found;
  return NotFound("No average is kept of ", key ? key.name() : "a number");
}

const std::vector<TrainVariable>& ExponentialMovingAverage::variables() const {
  return averages_->variables();
}

}  // namespace muster
