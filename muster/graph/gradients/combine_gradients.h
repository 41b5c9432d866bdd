// What is done with several gradients at once: adding them up, and making them wait for each other.
#pragma once

#include <vector>

#include "muster/graph/gradients/gradients.h"

namespace muster {

// The sum of the gradients that arrived at an output of the node of this name: None for none of
// them, sparse where all are.
absl::StatusOr<Gradient> SumGradients(const Scope& scope, absl::string_view node,
                                      const std::vector<Gradient>& list, AggregationMethod method);

// tf.tuple: every gradient waits for all of them.
absl::StatusOr<std::vector<Gradient>> GateGradients(const Scope& scope,
                                                    const std::vector<Gradient>& gradients);

}  // namespace muster
