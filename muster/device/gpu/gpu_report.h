// What the cards of the process hold and have done, for those who watch it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

struct GpuReport {
  int number = 0;
  std::string name;             // "NVIDIA H200"
  int64_t memory_bytes = 0;     // of the card
  int64_t taken_bytes = 0;      // of it, held by this process
  int64_t used_bytes = 0;       // of these, in tensors
  int64_t peak_used_bytes = 0;  // since the start
  int64_t calls = 0;            // of functions, copies and libraries
  int64_t replayed_calls = 0;   // of them, as parts of graphs
  int64_t graphs = 0;           // that were made
  int64_t joined_calls = 0;     // that replays did without, since other functions do their work
};

// Of the cards that the process has used; starts none.
std::vector<GpuReport> GpuReports();

}  // namespace muster
