// The groups that one task is in, connected by meshes over its data port.
#pragma once

#include <memory>
#include <string>

#include "muster/base/scheduler.h"
#include "muster/runtime/direct_groups.h"

namespace muster::collective {

struct TaskGroupsOptions {
  // Where other processes reach this task; empty: they cannot, and no port is opened.
  std::string host;
  bool encrypted = false;          // what leaves this machine's memory
  bool shared_memory = true;       // between processes of this machine, unless encrypted
  Scheduler* scheduler = nullptr;  // runs what waits for a collective; outlives the object
  absl::Duration silence = absl::Seconds(30);
  absl::Duration lateness = absl::Seconds(60);
};

// The port is opened when the first endpoint is asked for.
std::shared_ptr<DirectGroups> NewTaskGroups(TaskGroupsOptions options);

}  // namespace muster::collective
