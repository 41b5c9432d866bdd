// Slurm's short ways to write lists.
#pragma once

#include <string>
#include <vector>

#include "muster/base/status.h"

namespace muster {

// "node[01-03,07],gpu[1-2]n[0-1]" as the names in order. InvalidArgument naming the part that is
// wrong.
absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view text);

// "2(x3),1" as {2, 2, 2, 1}: how many tasks each node has.
absl::StatusOr<std::vector<int>> ExpandTaskCounts(absl::string_view text);

}  // namespace muster
