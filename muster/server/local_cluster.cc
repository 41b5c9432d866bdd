#include "muster/server/local_cluster.h"

#include <atomic>
#include <set>

#include "absl/strings/str_cat.h"

namespace muster {

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Create(
    const std::map<std::string, int>& jobs, SessionConfig config) {
  static std::atomic<int> clusters{0};  // targets are known in the whole process
  const std::string host = absl::StrCat("local-cluster-", ++clusters);
  ClusterSpec spec;
  std::set<std::string> addresses;
  for (const auto& [job, count] : jobs) {
    if (count < 1 || count > 10000)
      return InvalidArgument("job '", job, "' cannot have ", count, " tasks: 1 to 10000 expected");
    for (int task = 0; task < count; ++task) {
      const std::string address = absl::StrCat(host, ":", addresses.size() + 1);
      spec.jobs()[job][task] = address;
      addresses.insert(address);
    }
  }
  RETURN_IF_ERROR(spec.Validate());
  if (spec.empty()) return InvalidArgument("a cluster without tasks");
  Tasks tasks;
  const auto local =
      std::make_shared<LocalTasks>(Server::SharedScheduler(), std::move(addresses), true);
  for (const TaskName& name : spec.tasks()) {
    ServerOptions options;
    options.cluster = spec;
    options.job = name.job;
    options.task = name.task;
    options.config = config;
    options.local_tasks = local;
    ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Create(std::move(options)));
    RETURN_IF_ERROR(server->Start());
    tasks.emplace(std::make_pair(name.job, name.task), std::move(server));
  }
  return std::make_unique<LocalCluster>(std::move(spec), std::move(tasks));
}

LocalCluster::~LocalCluster() {
  Stop();
}

Server* LocalCluster::task(const std::string& job, int number) const {
  const auto found = tasks_.find({job, number});
  return found == tasks_.end() ? nullptr : found->second.get();
}

absl::StatusOr<std::string> LocalCluster::target(const std::string& job, int number) const {
  const Server* server = task(job, number);
  if (server == nullptr)
    return NotFound("the cluster has no task ", TaskName{job, number}.ToString());
  return server->target();
}

void LocalCluster::Stop() {
  for (const auto& [name, server] : tasks_) server->StopWithin(absl::ZeroDuration());
}

}  // namespace muster
