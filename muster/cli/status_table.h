// A cluster as a table for people.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

#include "muster/transport/api/task_status.h"

namespace muster {

// What a table is written for.
struct TableSpace {
  bool colours = false;
  // Of a terminal; 0: no limit. Columns that do not fit are left out, the least telling ones first,
  // and lines are cut. Of tasks that do not fit in the rows (less one, for the cursor) the
  // unhealthy are shown, and how many there are more.
  size_t columns = 0;
  size_t rows = 0;
};

// Lines, each with its end.
std::string StatusTable(const ClusterStatus& cluster, const std::string& target,
                        const TableSpace& space);

// The part of a line that fits, "..." at its end where it was cut, without control characters.
std::string FittedLine(absl::string_view line, size_t columns);

}  // namespace muster
