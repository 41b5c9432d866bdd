#include "muster/server/core_share.h"

#include <algorithm>

#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

std::string HostOf(const std::string& address) {
  const absl::StatusOr<HostPort> entry = ParseHostPort(address);
  return entry.ok() ? entry->host : "";
}

}  // namespace

int CoreShare(const ClusterSpec& cluster, const TaskName& self, int cores) {
  const auto job = cluster.jobs().find(self.job);
  if (job == cluster.jobs().end()) return std::max(1, cores);
  const auto own = job->second.find(self.task);
  if (own == job->second.end()) return std::max(1, cores);
  const std::string host = HostOf(own->second);
  const auto here =
      std::count_if(job->second.begin(), job->second.end(),
                    [&host](const auto& task) { return HostOf(task.second) == host; });
  return std::max(1, cores / static_cast<int>(here));
}

}  // namespace muster
