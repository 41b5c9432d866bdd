#include "muster/train/runs_node.h"

#include "absl/container/flat_hash_set.h"

namespace muster {

std::vector<const Node*> AskedNodes(const RunArgs& args) {
  std::vector<const Node*> asked(args.targets.begin(), args.targets.end());
  for (const Output& fetch : args.fetches) asked.push_back(fetch.node);
  return asked;
}

bool RunsNode::operator()(const std::vector<const Node*>& asked, const Node* node) {
  const auto [found, is_new] = known_.try_emplace(asked, false);
  if (!is_new) return found->second;
  absl::flat_hash_set<const Node*> seen(asked.begin(), asked.end());
  std::vector<const Node*> open = asked;
  while (!open.empty()) {
    const Node* const next = open.back();
    open.pop_back();
    if (next == node) return found->second = true;
    for (const Output& input : next->inputs())
      if (seen.insert(input.node).second) open.push_back(input.node);
    for (const Node* before : next->control_inputs())
      if (seen.insert(before).second) open.push_back(before);
  }
  return false;
}

}  // namespace muster
