// What a client asks of a step, by the names of tensors and nodes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster {

// Tensors are "node:k".
struct StepNames {
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
  std::vector<std::string> targets;
  // The second is replaced by the first.
  std::vector<std::pair<std::string, std::string>> connections;
  // Feeds and fetches come and go while the step runs.
  bool is_partial = false;

  // Sorted, tensor names in full ("y" is "y:0"), each fetch and target once. Steps with equal texts
  // share a plan.
  StepNames Canonical() const;
  std::string ToString() const;
};

// "y:0" for "y" and for "y:0".
std::string FullTensorName(absl::string_view name);

}  // namespace muster
