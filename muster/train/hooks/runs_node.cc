#include "muster/train/hooks/runs_node.h"

#include "muster/graph/rewrite/prune.h"

namespace muster {

std::vector<const Node*> AskedNodes(const RunArgs& args) {
  std::vector<const Node*> asked(args.targets.begin(), args.targets.end());
  for (const Output& fetch : args.fetches) asked.push_back(fetch.node);
  return asked;
}

bool RunsNode::operator()(const std::vector<const Node*>& asked, const Node* node) {
  const auto [found, is_new] = known_.try_emplace(asked, false);
  if (!is_new) return found->second;
  return found->second = IsNeeded(node, asked);
}

}  // namespace muster
