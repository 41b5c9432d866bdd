#include "muster/graph/evaluator.h"

#include <atomic>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace muster {
namespace {

std::atomic<ConstantEvaluator*> installed_evaluator{nullptr};

Tensor ShapeTensor(const Shape& shape, DType dtype) {
  if (dtype == DType::kInt64) return Tensor::Vector<int64_t>(shape.dims());
  const std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::Vector<int32_t>(dims);
}

Tensor IntegerScalar(int64_t value, DType dtype) {
  return dtype == DType::kInt64 ? Tensor::Scalar<int64_t>(value)
                                : Tensor::Scalar<int32_t>(static_cast<int32_t>(value));
}

class Evaluation {
 public:
  explicit Evaluation(int64_t max_elements) : max_elements_(max_elements) {}

  const std::vector<Tensor>* Outputs(const Node& node, int wanted) {
    const auto found = known_.find(&node);
    if (found != known_.end()) return found->second.empty() ? nullptr : &found->second;
    if (++visited_ > 2000) return nullptr;
    known_[&node];  // cycles end here: unknown while being computed
    std::vector<Tensor> outputs = Compute(node, wanted);
    for (const Tensor& tensor : outputs) {
      if (tensor.num_elements() > max_elements_) outputs.clear();
      if (outputs.empty()) break;
    }
    std::vector<Tensor>& slot = known_[&node];
    slot = std::move(outputs);
    return slot.empty() ? nullptr : &slot;
  }

 private:
  std::vector<Tensor> Compute(const Node& node, int wanted) {
    if (node.op() == "Const") {
      const Tensor* value =
          node.FindAttr("value") != nullptr ? node.FindAttr("value")->get<Tensor>() : nullptr;
      return value != nullptr ? std::vector<Tensor>{*value} : std::vector<Tensor>{};
    }
    if (std::optional<Tensor> value = EvaluateFromShape(node, wanted)) {
      std::vector<Tensor> outputs(node.num_outputs(), *value);
      return outputs;
    }
    ConstantEvaluator* evaluator = ConstantEvaluator::Installed();
    if (evaluator == nullptr || !IsFoldable(node) || node.num_inputs() == 0) return {};
    std::vector<Tensor> inputs;
    for (const Output& input : node.inputs()) {
      if (!input) return {};  // not copied yet: graphs with inlined functions are not in order
      const std::vector<Tensor>* values = Outputs(*input.node, input.index);
      if (values == nullptr) return {};
      inputs.push_back((*values)[input.index]);
    }
    absl::StatusOr<std::vector<Tensor>> outputs = evaluator->Evaluate(node, inputs);
    return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>{};
  }

  const int64_t max_elements_;
  int visited_ = 0;
  // Empty: not known.
  absl::flat_hash_map<const Node*, std::vector<Tensor>> known_;
};

}  // namespace

ConstantEvaluator* ConstantEvaluator::Installed() {
  return installed_evaluator.load(std::memory_order_acquire);
}
void ConstantEvaluator::Install(ConstantEvaluator* evaluator) {
  installed_evaluator.store(evaluator, std::memory_order_release);
}

std::optional<Tensor> EvaluateFromShape(const Node& node, int index) {
  const std::string& op = node.op();
  if (op != "Shape" && op != "ShapeN" && op != "Size" && op != "Rank") return std::nullopt;
  const Output& source = node.input(op == "ShapeN" ? index : 0);
  if (!source) return std::nullopt;
  const PartialShape& input = source.shape();
  const DType dtype = node.output_types()[index];
  if (op == "Rank" && input.known_rank()) return Tensor::Scalar<int32_t>(input.rank());
  const std::optional<Shape> shape = input.ToShape();
  if (!shape) return std::nullopt;
  if (dtype == DType::kInt32) {
    // Sizes that do not fit are reported by the kernel.
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    if (op == "Size" && shape->num_elements() > kMax) return std::nullopt;
    for (int64_t size : shape->dims()) {
      if (size > kMax) return std::nullopt;
    }
  }
  if (op == "Size") return IntegerScalar(shape->num_elements(), dtype);
  return ShapeTensor(*shape, dtype);
}

bool IsFoldable(const Node& node) {
  static const auto* never = new absl::flat_hash_set<absl::string_view>{"Placeholder",
                                                                        "PlaceholderV2",
                                                                        "PlaceholderWithDefault",
                                                                        "Switch",
                                                                        "Merge",
                                                                        "Enter",
                                                                        "Exit",
                                                                        "NextIteration",
                                                                        "LoopCond",
                                                                        "RefSwitch",
                                                                        "RefMerge",
                                                                        "RefEnter",
                                                                        "RefExit",
                                                                        "RefNextIteration",
                                                                        "RefIdentity",
                                                                        "RefSelect",
                                                                        "_Arg",
                                                                        "_Retval",
                                                                        "_SwitchN",
                                                                        "ControlTrigger",
                                                                        "NoOp",
                                                                        "PreventGradient",
                                                                        "ImmutableConst",
                                                                        "ReadFile",
                                                                        "MatchingFiles",
                                                                        "GuaranteeConst",
                                                                        "CheckNumerics"};
  if (node.def().is_stateful || never->contains(node.op())) return false;
  for (DType type : node.input_types()) {
    if (IsRef(type) || BaseType(type) == DType::kResource || BaseType(type) == DType::kVariant)
      return false;
  }
  for (DType type : node.output_types()) {
    if (IsRef(type) || BaseType(type) == DType::kResource || BaseType(type) == DType::kVariant)
      return false;
  }
  return node.num_outputs() > 0;
}

std::optional<Tensor> EvaluateConstant(Output output, int64_t max_elements) {
  if (!output) return std::nullopt;
  Evaluation evaluation(max_elements);
  const std::vector<Tensor>* values = evaluation.Outputs(*output.node, output.index);
  if (values == nullptr) return std::nullopt;
  return (*values)[output.index];
}

}  // namespace muster
