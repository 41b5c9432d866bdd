// A process that this one starts, reads and stops.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "muster/base/status.h"

namespace muster {

// In a process group of its own; ends with the thread that started it. Standard output and error
// arrive together at `output`, which does not block.
struct ChildProcess {
  pid_t pid = -1;
  int output = -1;
};

// `environment` is added to this process's own. Unknown when the program cannot be started.
absl::StatusOr<ChildProcess> StartChild(
    const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& environment);

// To the process and all that it started.
void SignalChild(const ChildProcess& child, int signal);

}  // namespace muster
