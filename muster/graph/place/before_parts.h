// Which values of a graph that is to be cut can be waited for before a part of it begins.
#pragma once

#include <cstdint>
#include <vector>

#include "muster/graph/graph.h"

namespace muster {

// For each node the parts whose nodes come before it.
class BeforeParts {
 public:
  BeforeParts() = default;
  // `part_of` is by node, `asks` by part: for parts that do not ask, and beyond the 63rd that does,
  // no node is early. `feeds_come_first`: what clients feed is there when the step begins.
  static BeforeParts Find(const Graph& graph, const std::vector<int>& part_of,
                          const std::vector<bool>& asks, bool feeds_come_first);

  // No node of the part comes before the node, nor one that may wait for another step (to take
  // something out of a queue, say), or for a client, or for a value whose origin is not known here.
  bool IsEarly(int node, int part) const;

 private:
  std::vector<int> bit_of_;      // by part; -1: does not ask
  std::vector<uint64_t> marks_;  // by node; empty: no part asks
};

}  // namespace muster
