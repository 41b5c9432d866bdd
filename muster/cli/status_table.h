// A cluster as a table for people.
#pragma once

#include <string>

#include "muster/transport/task_status.h"

namespace muster {

// Lines, each with its end. `colours`: for terminals.
std::string StatusTable(const ClusterStatus& cluster, const std::string& target, bool colours);

}  // namespace muster
