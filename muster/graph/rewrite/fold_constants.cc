#include <algorithm>

#include "absl/container/flat_hash_set.h"

#include "muster/base/status.h"
#include "muster/graph/evaluator.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

constexpr int64_t kMaxBytes = 10 << 20;
// Below this a constant may be much larger than what it is made from.
constexpr int64_t kSmallBytes = 64 << 10;

// Ops whose result can be far larger than their inputs: they are folded only when the size is known
// beforehand.
bool MayGrow(const Node& node) {
  static const auto* ops = new absl::flat_hash_set<absl::string_view>{"Fill",
                                                                      "Range",
                                                                      "LinSpace",
                                                                      "Tile",
                                                                      "BroadcastTo",
                                                                      "Pad",
                                                                      "PadV2",
                                                                      "MirrorPad",
                                                                      "OneHot",
                                                                      "ScatterNd",
                                                                      "SparseToDense",
                                                                      "DynamicStitch",
                                                                      "ParallelDynamicStitch",
                                                                      "Bincount",
                                                                      "MatrixDiag",
                                                                      "Diag",
                                                                      "SequenceMask",
                                                                      "ResizeBilinear",
                                                                      "ResizeNearestNeighbor",
                                                                      "UnsortedSegmentSum",
                                                                      "SegmentSum",
                                                                      "Outer"};
  return ops->contains(node.op());
}

int64_t Bytes(const Tensor& tensor) {
  if (tensor.dtype() != DType::kString) return static_cast<int64_t>(tensor.size_bytes());
  int64_t bytes = static_cast<int64_t>(tensor.size_bytes());
  return bytes + 64 * tensor.num_elements();
}

int64_t AllowedBytes(int64_t input_bytes) {
  return std::min(kMaxBytes, std::max(kSmallBytes, 2 * input_bytes));
}

// Whether the static shapes, as far as they are known, promise results that are small enough.
bool PromisesToFit(const Node& node, int64_t allowed) {
  for (int i = 0; i < node.num_outputs(); ++i) {
    const std::optional<Shape> shape = node.output_shape(i).ToShape();
    if (!shape) {
      if (MayGrow(node)) return false;
      continue;
    }
    const auto size = static_cast<int64_t>(DTypeSize(BaseType(node.output_types()[i])));
    const std::optional<int64_t> bytes = MultiplyWithoutOverflow(shape->num_elements(), size);
    if (!bytes || *bytes > allowed) return false;
  }
  return true;
}

class Folder {
 public:
  explicit Folder(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    for (Node* node : rewriter_.Order()) {
      // Values without readers are not computed.
      if (node->consumers().empty() || ConstValue(*node) != nullptr) continue;
      std::vector<Tensor> values = FromShapes(*node);
      if (values.empty()) values = FromConstants(*node);
      if (!values.empty()) RETURN_IF_ERROR(ReplaceBy(*node, std::move(values)));
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  std::vector<Tensor> FromShapes(const Node& node) const {
    const std::string& op = node.op();
    if (op != "Shape" && op != "ShapeN" && op != "Size" && op != "Rank") return {};
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output input = rewriter_.Input(node, i);
      // Nothing can be made to wait for one output of a Switch; a reference must be read to see if
      // it has a value.
      if (MayKillOutputs(*input.node) || IsRef(input.dtype())) return {};
    }
    std::vector<Tensor> values;
    for (int i = 0; i < node.num_outputs(); ++i) {
      std::optional<Tensor> value = EvaluateFromShape(node, i);
      if (!value) return {};
      values.push_back(*std::move(value));
    }
    return values;
  }

  std::vector<Tensor> FromConstants(const Node& node) const {
    ConstantEvaluator* evaluator = ConstantEvaluator::Installed();
    if (evaluator == nullptr || node.num_inputs() == 0) return {};
    std::vector<Tensor> inputs;
    int64_t input_bytes = 0;
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Tensor* value = ConstValue(*rewriter_.Input(node, i).node);
      if (value == nullptr) return {};
      input_bytes += Bytes(*value);
      inputs.push_back(*value);
    }
    const int64_t allowed = AllowedBytes(input_bytes);
    if (!IsFoldable(node) || IsControlFlow(node) || input_bytes > kMaxBytes ||
        !PromisesToFit(node, allowed))
      return {};
    // An error is reported by the step that runs into it.
    absl::StatusOr<std::vector<Tensor>> values = evaluator->Evaluate(node, inputs);
    if (!values.ok()) return {};
    for (int i = 0; i < node.num_outputs(); ++i) {
      if ((*values)[i].dtype() != node.output_types()[i] || Bytes((*values)[i]) > allowed)
        return {};
    }
    return *std::move(values);
  }

  // What the constants wait for in place of `node`.
  std::vector<Node*> WaitsFor(const Node& node) const {
    std::vector<Node*> list;
    absl::flat_hash_set<const Node*> seen;
    const auto add = [&](Node* before) {
      if (seen.insert(before).second) list.push_back(before);
    };
    for (Node* before : rewriter_.ControlInputs(node)) add(before);
    for (int i = 0; i < node.num_inputs(); ++i) {
      Node* source = rewriter_.Input(node, i).node;
      if (ConstValue(*source) == nullptr) {
        add(source);
      } else {
        for (Node* before : rewriter_.ControlInputs(*source)) add(before);
      }
    }
    return list;
  }

  absl::Status ReplaceBy(Node& node, std::vector<Tensor> values) {
    std::vector<Node*> waits_for = WaitsFor(node);
    const auto spec_of = [&](int i) {
      NodeSpec spec;
      spec.op = "Const";
      spec.attrs = {{"dtype", values[i].dtype()}, {"value", std::move(values[i])}};
      spec.control_inputs = waits_for;
      return spec;
    };
    if (values.size() == 1) return rewriter_.Substitute(node, spec_of(0)).status();
    std::vector<bool> is_read(values.size(), false);
    for (const Node::Consumer& reader : node.consumers()) is_read[reader.output] = true;
    for (size_t i = 0; i < is_read.size(); ++i) {
      if (!is_read[i]) continue;
      NodeSpec spec = spec_of(static_cast<int>(i));
      spec.name = rewriter_.graph().UniqueName(absl::StrCat(node.name(), "/output_", i));
      ASSIGN_OR_RETURN(Node * constant, rewriter_.Add(node, std::move(spec)));
      rewriter_.Replace(Output(&node, static_cast<int>(i)), Output(constant, 0));
    }
    rewriter_.WaitInstead(node, std::move(waits_for));
    return absl::OkStatus();
  }

  GraphRewriter& rewriter_;
};

}  // namespace

absl::Status FoldConstants(GraphRewriter& rewriter) {
  return Folder(rewriter).Run();
}

}  // namespace muster
