// tf.group: one node that has run when all others have.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/graph/scope.h"

namespace muster {

// A NoOp after `nodes`. Nodes on several devices make a tree, one NoOp per device in sorted order,
// so that only one edge leaves each device.
absl::StatusOr<Node*> AddGroup(const Scope& scope, absl::Span<Node* const> nodes,
                               absl::string_view name = "group_deps");

}  // namespace muster
