// A process that this one starts, reads and stops.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include <sys/types.h>

#include "muster/base/status.h"

namespace muster {

// In a process group of its own; ends with the thread that started it. Standard output and error
// arrive together at `output`, which does not block.
struct ChildProcess {
  pid_t pid = -1;
  int output = -1;
  int input = -1;  // its standard input, where that was asked for; else it reads nothing
};

// `environment` is added to this process's own. Unknown when the program cannot be started.
absl::StatusOr<ChildProcess> StartChild(
    const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& environment, bool with_input = false);

// Calls `line` for every whole line that can be read now; a line that is too long comes in parts.
// `partial` keeps the rest. False: there will be no more.
bool ReadLines(int fd, std::string& partial, absl::FunctionRef<void(std::string)> line,
               size_t max_line = 65536);

// To the process and all that it started.
void SignalChild(const ChildProcess& child, int signal);

}  // namespace muster
