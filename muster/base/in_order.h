// Iterates hash maps in the order of their keys: results of a simulation must not depend on the
// layout of memory.
#pragma once

#include <algorithm>
#include <vector>

namespace muster {

// The entries of `map`, which must not change meanwhile.
template <typename Map>
auto InOrder(Map& map) {
  std::vector<decltype(&*map.begin())> entries;
  entries.reserve(map.size());
  for (auto& entry : map) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  return entries;
}

}  // namespace muster
