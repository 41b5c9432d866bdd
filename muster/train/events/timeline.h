// A traced step as Chrome's trace viewer (chrome://tracing) reads it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "muster/base/status.h"

namespace muster {

struct TimelineOptions {
  bool show_dataflow = true;  // arrows from the node that made a tensor to those that read it
  bool show_memory = false;  // tensors from their making to their last use, and bytes per allocator
  bool kernels_only = false;  // the time of kernels, without that of the runtime around them
};

// When an allocator held the most, and which nodes' outputs it then held.
struct AllocationMaximum {
  int64_t micros = 0;
  int64_t num_bytes = 0;
  std::set<std::string> tensors;
};

struct Timeline {
  std::string json;
  std::map<std::string, AllocationMaximum> maximums;  // by allocator
};

// The timeline of a serialized StepStats message. One process per device; executions that overlap
// in time are in different rows. InvalidArgument when the bytes are not such a message.
absl::StatusOr<Timeline> MakeTimeline(const std::string& step_stats,
                                      const TimelineOptions& options);

}  // namespace muster
