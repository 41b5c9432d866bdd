#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

template <typename T>
bool Holds(const Tensor& tensor, int number) {
  for (const T& value : tensor.values<T>()) {
    if (value != static_cast<T>(number)) return false;
  }
  return true;
}

// All elements are this number. Integers only: floating-point kernels flush denormals and 0 + -0 is
// 0, so that x * 1 and x + 0 are not always x.
bool HoldsOnly(const Tensor& tensor, int number) {
  if (tensor.num_elements() == 0 || tensor.num_elements() > 1 << 16) return false;
  switch (tensor.dtype()) {
    case DType::kInt8:
      return Holds<int8_t>(tensor, number);
    case DType::kInt16:
      return Holds<int16_t>(tensor, number);
    case DType::kInt32:
      return Holds<int32_t>(tensor, number);
    case DType::kInt64:
      return Holds<int64_t>(tensor, number);
    case DType::kUint8:
      return Holds<uint8_t>(tensor, number);
    case DType::kUint16:
      return Holds<uint16_t>(tensor, number);
    default:
      return false;
  }
}

class Simplifier {
 public:
  explicit Simplifier(GraphRewriter& rewriter) : rewriter_(rewriter) {
    const auto& nodes = rewriter.graph().nodes();
    for (const auto& node : nodes) {
      one_device_ = one_device_ && node->device() == nodes[0]->device();
      if (node->op() == "_Send") sent_.insert(node->inputs()[0].node);
    }
  }

  absl::Status Run() {
    for (Node* node : rewriter_.Order()) {
      if (rewriter_.is_result(*node)) continue;
      if (node->op() == "NoOp") {
        ShortenWaiting(*node);
      } else if (ConstValue(*node) != nullptr) {
        // A node that waits for a constant waits for the constant's control inputs instead.
        if (rewriter_.num_waiting(*node) > 0)
          rewriter_.WaitInstead(*node, rewriter_.ControlInputs(*node));
      } else if (!IsControlFlow(*node) && !node->def().is_stateful) {
        PassBy(*node, InputHandedOn(*node));
      }
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  // Readers of `node` read what it hands on.
  void PassBy(Node& node, int handed_on) {
    if (handed_on < 0 || !rewriter_.ControlInputs(node).empty()) return;
    // Nodes that are fetched or sent run where they were placed, and appear in traces.
    if (sent_.contains(&node)) return;
    const Output input = rewriter_.Input(node, handed_on);
    // Reading a reference is work that must happen at this point.
    if (IsRef(input.dtype()) || IsRef(node.output_types()[0])) return;
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (i != handed_on && FreeConstant(node, i) == nullptr) return;
    }
    if (rewriter_.num_waiting(node) > 0) {
      if (MayKillOutputs(*input.node)) return;
      rewriter_.WaitInstead(node, {input.node});
    }
    rewriter_.Replace(Output(&node, 0), input);
  }

  // Where k nodes are waited for by n: k * n edges instead of k + n, if that is not more.
  void ShortenWaiting(const Node& node) {
    std::vector<Node*> before = rewriter_.ControlInputs(node);
    const size_t k = before.size();
    const auto n = static_cast<size_t>(rewriter_.num_waiting(node));
    // With several devices a group of nodes may be there to make one transfer of many.
    if (k <= 1 || (one_device_ && k * n <= k + n)) rewriter_.WaitInstead(node, std::move(before));
  }

  // A constant that is there from the start: dropping it as an input changes nothing but the input.
  const Tensor* FreeConstant(const Node& node, int i) const {
    const Node& source = *rewriter_.Input(node, i).node;
    return rewriter_.ControlInputs(source).empty() ? ConstValue(source) : nullptr;
  }

  // The input whose value output 0 always has; -1 when there is none.
  int InputHandedOn(const Node& node) const {
    using Rule = int (Simplifier::*)(const Node&) const;
    static const auto* rules =
        new absl::flat_hash_map<absl::string_view, Rule>{{"Identity", &Simplifier::Always},
                                                         {"StopGradient", &Simplifier::Always},
                                                         {"PreventGradient", &Simplifier::Always},
                                                         {"AddN", &Simplifier::OneInput},
                                                         {"Cast", &Simplifier::SameType},
                                                         {"Reshape", &Simplifier::SameShape},
                                                         {"Transpose", &Simplifier::InOrder},
                                                         {"Sum", &Simplifier::NoAxes},
                                                         {"Mean", &Simplifier::NoAxes},
                                                         {"Prod", &Simplifier::NoAxes},
                                                         {"Max", &Simplifier::NoAxes},
                                                         {"Min", &Simplifier::NoAxes},
                                                         {"Mul", &Simplifier::TimesOne},
                                                         {"Div", &Simplifier::ByOne},
                                                         {"FloorDiv", &Simplifier::ByOne},
                                                         {"Add", &Simplifier::PlusZero},
                                                         {"AddV2", &Simplifier::PlusZero},
                                                         {"Sub", &Simplifier::MinusZero}};
    const auto rule = rules->find(node.op());
    return rule == rules->end() ? -1 : (this->*rule->second)(node);
  }

  int Always(const Node&) const { return 0; }
  int OneInput(const Node& node) const { return node.num_inputs() == 1 ? 0 : -1; }
  int SameType(const Node& node) const {
    return BaseType(node.input_types()[0]) == BaseType(node.output_types()[0]) ? 0 : -1;
  }

  int SameShape(const Node& node) const {
    const Tensor* wanted = FreeConstant(node, 1);
    const PartialShape& shape = rewriter_.Input(node, 0).shape();
    if (wanted == nullptr || !shape.known_rank()) return -1;
    const absl::StatusOr<Dims> dims = IntegerValues(*wanted);
    if (!dims.ok() || static_cast<int>(dims->size()) != shape.rank() ||
        !wanted->shape().is_vector())
      return -1;
    int open = 0;
    bool is_empty = false;
    for (int i = 0; i < shape.rank(); ++i) {
      is_empty |= shape[i] == 0;
      if ((*dims)[i] == -1) {
        ++open;
      } else if ((*dims)[i] != shape[i]) {
        return -1;
      }
    }
    // One size may be left open: the others say what it is, unless there are no elements.
    return open == 0 || (open == 1 && !is_empty) ? 0 : -1;
  }

  int InOrder(const Node& node) const {
    const Tensor* order = FreeConstant(node, 1);
    if (order == nullptr || rewriter_.Input(node, 0).shape().rank() != order->num_elements())
      return -1;
    const absl::StatusOr<Dims> axes = IntegerValues(*order);
    if (!axes.ok()) return -1;
    for (size_t i = 0; i < axes->size(); ++i) {
      if ((*axes)[i] != static_cast<int64_t>(i)) return -1;
    }
    return 0;
  }

  // The sum of one term is the term itself, down to the sign of zero.
  int NoAxes(const Node& node) const {
    const Tensor* axes = FreeConstant(node, 1);
    return axes != nullptr && axes->num_elements() == 0 ? 0 : -1;
  }

  // Input `i` is a constant of this number only, and the other one has the shape of the result.
  bool IsNumber(const Node& node, int i, int number) const {
    const Tensor* value = FreeConstant(node, i);
    if (value == nullptr || !HoldsOnly(*value, number)) return false;
    if (value->rank() == 0) return true;
    const PartialShape& other = rewriter_.Input(node, 1 - i).shape();
    return other.fully_known() && other == node.output_shape(0);
  }
  int TimesOne(const Node& node) const {
    return IsNumber(node, 1, 1) ? 0 : IsNumber(node, 0, 1) ? 1 : -1;
  }
  int ByOne(const Node& node) const { return IsNumber(node, 1, 1) ? 0 : -1; }
  int PlusZero(const Node& node) const {
    return IsNumber(node, 1, 0) ? 0 : IsNumber(node, 0, 0) ? 1 : -1;
  }
  int MinusZero(const Node& node) const { return IsNumber(node, 1, 0) ? 0 : -1; }

  GraphRewriter& rewriter_;
  absl::flat_hash_set<const Node*> sent_;
  bool one_device_ = true;
};

// A node without readers that runs only because of control edges: if it has no effects, waiting for
// its inputs suffices. Groups of gradients are full of them (the gradient of the images, say).
// Errors that such a node would have reported are lost, as in TensorFlow's own optimizer.
bool IsIdle(const GraphRewriter& rewriter, const Node& node) {
  if (rewriter.is_result(node) || rewriter.num_waiting(node) == 0 || !node.consumers().empty())
    return false;
  if (node.def().is_stateful || IsControlFlow(node) || node.num_inputs() == 0) return false;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Output input = rewriter.Input(node, i);
    // A variable is read at a certain time, and a dead value must reach the nodes that wait.
    if (IsMutable(node.input_types()[i]) || IsMutable(input.dtype()) || MayKillOutputs(*input.node))
      return false;
  }
  return true;
}

void DropIdleNodes(GraphRewriter& rewriter) {
  // Each round uncovers the nodes that only idle ones read; chains are short.
  for (int round = 0; round < 20; ++round) {
    bool found = false;
    for (Node* node : rewriter.Order()) {
      if (!IsIdle(rewriter, *node)) continue;
      std::vector<Node*> before = rewriter.ControlInputs(*node);
      for (int i = 0; i < node->num_inputs(); ++i) before.push_back(rewriter.Input(*node, i).node);
      rewriter.WaitInstead(*node, std::move(before));
      found = true;
    }
    if (!found) return;
    rewriter.Commit();
  }
}

}  // namespace

absl::Status Simplify(GraphRewriter& rewriter) {
  RETURN_IF_ERROR(Simplifier(rewriter).Run());
  DropIdleNodes(rewriter);
  return absl::OkStatus();
}

}  // namespace muster
