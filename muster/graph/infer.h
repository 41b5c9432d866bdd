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

// "{{node x}} = MatMul[...](a, b)", for error texts.
std::string SummarizeNode(const Node& node);

}  // namespace muster
