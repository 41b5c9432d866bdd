// The tasks of a session: which ones, and their devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/device/device_name.h"
#include "muster/master/master.h"

namespace muster {

struct SessionTask {
  TaskName name;
  std::string text;  // "/job:ps/replica:0/task:0"
  std::shared_ptr<WorkerApi> worker;
  std::vector<DeviceAttributes> devices;  // once it has been asked
};

// The filters of a session. Tasks and devices match when they contradict no part of one of them;
// everything does where there are none.
class DeviceFilters {
 public:
  static absl::StatusOr<DeviceFilters> Parse(const std::vector<std::string>& filters);
  bool Match(const TaskName& task) const;
  bool Match(absl::string_view device) const;

 private:
  bool Match(const DeviceName& name) const;
  std::vector<DeviceName> filters_;
};

// All tasks of `peers` that match, and `self`, which comes first.
std::vector<SessionTask> SelectTasks(Peers& peers, const TaskName& self,
                                     const DeviceFilters& filters);

// Asks all tasks for their devices and waits for those that are not there yet, naming them in the
// log as time goes by. The first error ends it. Devices get the names of the tasks that were asked,
// whatever those call themselves; what does not match the filters is left out, except for the first
// task's.
void AskForDevices(std::shared_ptr<const MasterOptions> options, std::string purpose,
                   std::vector<SessionTask> tasks, DeviceFilters filters,
                   std::shared_ptr<Cancellation> cancellation,
                   CallDone<std::vector<SessionTask>> done);

}  // namespace muster
