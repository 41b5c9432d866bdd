// Gradients that may be dense or sparse, and what is done with either.
#pragma once

#include <vector>

#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/gradients/gradient_context.h"

namespace muster {

// The node that a gradient comes from. Requires: HasValue.
Node& GradientNode(const Gradient& gradient);
// Values, indices and, where present, the dense shape; one output for a dense gradient.
std::vector<Output> Components(const Gradient& gradient);
// The inverse: `like` says which kind.
Gradient FromComponents(const Gradient& like, const std::vector<Output>& components);

// A dense gradient as slices of all its rows.
absl::StatusOr<IndexedSlices> AsIndexedSlices(const Scope& scope, const Gradient& gradient,
                                              bool optimize);
// All as slices, with indices of one type.
absl::StatusOr<std::vector<IndexedSlices>> AsIndexedSlicesList(
    const Scope& scope, const std::vector<Gradient>& gradients, bool optimize);
// Merge of dense gradients, or component by component where one is sparse.
absl::StatusOr<Gradient> MergeGradients(const Scope& scope, const std::vector<Gradient>& inputs,
                                        absl::string_view name);
// Switch, colocated with the gradient or not.
struct GradientSides {
  Gradient if_false;
  Gradient if_true;
};
absl::StatusOr<GradientSides> SwitchGradients(const Scope& scope, const Gradient& gradient,
                                              Output pred, bool colocated,
                                              absl::string_view name = "Switch");

}  // namespace muster
