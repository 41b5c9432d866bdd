#include "muster/transport/wire/cluster_proto.h"

#include "tensorflow/core/protobuf/cluster.pb.h"

namespace muster {

absl::StatusOr<ClusterSpec> ClusterFromProto(const tensorflow::ClusterDef& proto) {
  std::map<std::string, ClusterSpec::Tasks> jobs;
  for (const auto& job : proto.job()) {
    if (job.name().empty()) return InvalidArgument("The cluster has a job without a name");
    const auto [found, is_new] = jobs.try_emplace(job.name());
    if (!is_new) return InvalidArgument("The cluster has two jobs named '", job.name(), "'");
    for (const auto& [number, address] : job.tasks()) {
      if (number < 0) {
        return InvalidArgument("Job '", job.name(), "' of the cluster has a task with number ",
                               number, "; numbers start at 0");
      }
      found->second[number] = address;
    }
  }
  return ClusterSpec(std::move(jobs));
}

void ClusterToProto(const ClusterSpec& cluster, tensorflow::ClusterDef& proto) {
  proto.Clear();
  for (const auto& [name, tasks] : cluster.jobs()) {
    auto& job = *proto.add_job();
    job.set_name(name);
    for (const auto& [number, address] : tasks) (*job.mutable_tasks())[number] = address;
  }
}

}  // namespace muster
