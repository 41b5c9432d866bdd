// How graph/ computes a node whose inputs are known, without knowing kernels: runtime/ installs the
// implementation.
#pragma once

#include <optional>
#include <vector>

#include "muster/graph/graph.h"

namespace muster {

// Thread-safe.
class ConstantEvaluator {
 public:
  virtual ~ConstantEvaluator() = default;
  // The outputs of `node` for these inputs. Any error means "not known".
  virtual absl::StatusOr<std::vector<Tensor>> Evaluate(const Node& node,
                                                       absl::Span<const Tensor> inputs) = 0;

  // Null until one is installed.
  static ConstantEvaluator* Installed();
  static void Install(ConstantEvaluator* evaluator);
};

// The value of `output` if it follows from constants and known shapes alone and every tensor on the
// way has at most `max_elements` elements. Stateful ops, placeholders and control flow are never
// followed.
std::optional<Tensor> EvaluateConstant(Output output, int64_t max_elements = 4096);

// The value of output `index` of a Shape, ShapeN, Size or Rank node whose input has a sufficient
// static shape.
std::optional<Tensor> EvaluateFromShape(const Node& node, int index);

// Whether a node may be computed ahead of time when all its inputs are known.
bool IsFoldable(const Node& node);

}  // namespace muster
