// Whether a run of a session makes a certain node run.
#pragma once

#include <map>
#include <vector>

#include "muster/train/hook.h"

namespace muster {

// Remembers what it was asked. Thread-compatible.
class RunsNode {
 public:
  bool operator()(const RunArgs& args, const Node* node);

 private:
  std::map<std::vector<const Node*>, bool> known_;  // by what a run asks for
};

}  // namespace muster
