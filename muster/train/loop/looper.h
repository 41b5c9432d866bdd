// Work that is repeated until a coordinator stops it.
#pragma once

#include <optional>

#include "muster/train/loop/coordinator.h"

namespace muster {

// What a loop calls; empty ones are left out.
struct LoopCalls {
  std::function<absl::Status()> start;  // first
  std::function<absl::Status()> run;    // again and again
  std::function<absl::Status()> stop;   // after a stop, unless one of the others failed
};

// Runs the loop on the calling thread: at 0, interval, 2 * interval, ... from now, one that is late
// at once; without an interval one after the other. An error asks the coordinator to stop; where
// it takes none any more (see RequestStop) it is returned.
absl::Status RunLoop(Coordinator& coordinator, std::optional<absl::Duration> interval,
                     const LoopCalls& calls);

// The same on a thread of its own, which is registered and started.
std::shared_ptr<Thread> StartLooper(std::shared_ptr<Coordinator> coordinator,
                                    std::optional<absl::Duration> interval, LoopCalls calls,
                                    std::string name);

}  // namespace muster
