#include "muster/train/group.h"

#include <map>
#include <string>

namespace muster {

absl::StatusOr<Node*> AddGroup(const Scope& scope, absl::Span<Node* const> nodes,
                               absl::string_view name) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(name));
  if (nodes.empty()) return own.TryAdd("NoOp", {}, {}, own.prefix());
  std::map<std::string, std::vector<Node*>> by_device;
  for (Node* node : nodes) by_device[node->device()].push_back(node);
  if (by_device.size() == 1) {
    const auto& [device, members] = *by_device.begin();
    return own.WithControlDependencies(members).WithDevice(device).TryAdd("NoOp", {}, {},
                                                                          own.prefix());
  }
  std::vector<Node*> ends;
  for (const auto& [device, members] : by_device) {
    ASSIGN_OR_RETURN(Node * end,
                     own.WithControlDependencies(members).WithDevice(device).TryAdd("NoOp", {}));
    ends.push_back(end);
  }
  return own.WithControlDependencies(ends).TryAdd("NoOp", {}, {}, own.prefix());
}

}  // namespace muster
