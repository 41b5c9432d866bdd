// Whether a run of a session makes a certain node run.
#pragma once

#include <map>
#include <vector>

#include "muster/train/hooks/hook.h"

namespace muster {

// What a run asks for: its targets and the nodes of its fetches.
std::vector<const Node*> AskedNodes(const RunArgs& args);

// Remembers what it was asked. Thread-compatible.
class RunsNode {
 public:
  bool operator()(const std::vector<const Node*>& asked, const Node* node);

 private:
  std::map<std::vector<const Node*>, bool> known_;
};

}  // namespace muster
