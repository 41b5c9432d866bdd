#include "absl/container/flat_hash_set.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

using Names = absl::flat_hash_set<absl::string_view>;

// Cheap per element, so that for small tensors the overhead of a node dominates; and none that can
// fail.
const Names& BinaryOps() {
  static const auto* names = new Names{"Add", "AddV2", "Sub", "Mul", "RealDiv"};
  return *names;
}
const Names& UnaryOps() {
  static const auto* names = new Names{"Tanh", "Sigmoid", "Exp",  "Log",   "Neg",
                                       "Abs",  "Square",  "Sqrt", "Rsqrt", "Reciprocal"};
  return *names;
}

// An error about shapes must name the node that the user wrote: only shapes that are known to fit
// are fused.
bool ShapesFit(const PartialShape& x, const PartialShape& y) {
  const auto is_scalar = [](const PartialShape& s) { return s.known_rank() && s.rank() == 0; };
  if (is_scalar(x) || is_scalar(y)) return true;
  return x.fully_known() && y.fully_known() && x.dims() == y.dims();
}

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    for (Node* node : rewriter_.Order()) {
      if (!UnaryOps().contains(node->op())) continue;
      const Node& first = *node->input(0).node;
      if (CanFuse(first, *node)) RETURN_IF_ERROR(Replace(first, *node));
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  bool CanFuse(const Node& first, const Node& second) const {
    if (!BinaryOps().contains(first.op()) || first.device() != second.device()) return false;
    if (!RunsOnCpu(first)) return false;
    const DType type = second.output_types()[0];
    // Shorter floats would be rounded between two nodes.
    if ((type != DType::kFloat && type != DType::kDouble) || first.output_types()[0] != type)
      return false;
    if (!rewriter_.IsHidden(first)) return false;
    for (const Output& input : first.inputs())
      if (IsRef(input.dtype())) return false;
    return ShapesFit(first.input(0).shape(), first.input(1).shape());
  }

  absl::Status Replace(const Node& first, Node& second) {
    NodeSpec spec;
    spec.op = "MusterFusedElementwise";
    spec.inputs = {rewriter_.Input(first, 0), rewriter_.Input(first, 1)};
    spec.attrs["binary_op"] = first.op();
    spec.attrs["unary_op"] = second.op();
    spec.control_inputs = rewriter_.ControlInputsOfAll({&first, &second});
    const PartialShape shape = second.output_shape(0);
    ASSIGN_OR_RETURN(Node * fused, rewriter_.Substitute(second, std::move(spec)));
    fused->set_output_shape(0, shape);
    return absl::OkStatus();
  }

  GraphRewriter& rewriter_;
};

}  // namespace

absl::Status FuseElementwise(GraphRewriter& rewriter) {
  return ElementwiseFuser(rewriter).Run();
}

}  // namespace muster
