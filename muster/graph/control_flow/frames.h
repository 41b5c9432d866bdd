// In which loop each node of a graph runs.
#pragma once

#include <string>
#include <vector>

#include "muster/graph/graph.h"

namespace muster {

struct Frames {
  struct Frame {
    std::string name;
    int parent = -1;
    int64_t parallel_iterations = 1;
  };
  std::vector<Frame> frames;  // 0 is the root
  std::vector<int> inside;    // by node id: where the node runs
  std::vector<int> outputs;   // by node id: where its outputs are; differs for Enter and Exit
};

// Nodes that nothing leads to count as outside of loops.
Frames FindFrames(const Graph& graph);

}  // namespace muster
