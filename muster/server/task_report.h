// What a task says of itself, put together from its parts.
#pragma once

#include <string>

#include "muster/transport/api/task_status.h"

namespace muster {

class Master;
class Worker;

// Counts as they are; the rate of steps needs more than one look (see ClusterWatch).
TaskStatus ReportOf(const TaskName& self, const Master& master, const Worker& worker);

// One task as an object, as it reports to `muster launch`; `muster status --json` has the same
// members for each task. Null for what is not known.
std::string TaskJson(const TaskStatus& status);
// One object with the members "target", "asked", "global_step", "jobs" and "tasks".
std::string ClusterJson(const ClusterStatus& cluster, absl::string_view target);

}  // namespace muster
