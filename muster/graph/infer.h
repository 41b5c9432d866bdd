// Steps of adding a node: attributes filled in from defaults and from the inputs, inputs checked,
// shapes inferred.
#pragma once

#include <string>
#include <vector>

#include "muster/graph/graph.h"

namespace muster {

// Completes `attrs` of a node of `op`: type and number attributes that the inputs decide, then
// defaults (except those that TensorFlow 1.15 does not know). Checks kinds, minimums and allowed
// values.
absl::Status ResolveAttrs(const OpDef& op, const std::vector<NodeInput>& inputs,
                          absl::string_view node_name, AttrMap& attrs);

// The same for a node whose type and number attributes do not come from its inputs.
absl::Status CompleteAttrs(const OpDef& op, absl::string_view node_name, AttrMap& attrs);

// Number and types of the inputs fit the op and the attributes.
absl::Status CheckInputs(const Node& node);

// Runs the op's shape rule; the error names node, op and input shapes as TensorFlow does.
absl::Status InferShapes(Node& node);

// While one exists, a node that this thread adds and that its shape rule rejects keeps the error as
// the attribute kShapeError and has unknown shapes: for servers that hold the graphs of their
// clients, where a bad node concerns only the steps that run it.
class KeepShapeErrors {
 public:
  KeepShapeErrors();
  ~KeepShapeErrors();
  KeepShapeErrors(const KeepShapeErrors&) = delete;
  KeepShapeErrors& operator=(const KeepShapeErrors&) = delete;

 private:
  const bool before_;
};
inline constexpr absl::string_view kShapeError = "_muster_shape_error";
// What a node keeps; OK when its shapes are fine.
absl::Status KeptShapeError(const Node& node);

// "{{node x}} = MatMul[...](a, b)", for error texts.
std::string SummarizeNode(const Node& node);

}  // namespace muster
