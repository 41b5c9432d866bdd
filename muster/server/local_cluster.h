// A whole cluster in this process, without a socket between its tasks.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "muster/server/server.h"

namespace muster {

// Every task is a Server that others of the cluster call directly; each has devices, variables and
// a master of its own, as in a process of its own. Sessions are opened at their targets:
//
//   auto cluster = LocalCluster::Create({{"ps", 1}, {"worker", 2}});
//   options.session = *OptionsForTarget(*(*cluster)->target("worker", 0));
//
// Thread-safe.
class LocalCluster {
 public:
  // Jobs with their numbers of tasks, all started. InvalidArgument for a job without tasks.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Create(
      const std::map<std::string, int>& jobs, SessionConfig config = {});
  using Tasks = std::map<std::pair<std::string, int>, std::unique_ptr<Server>>;
  LocalCluster(ClusterSpec spec, Tasks tasks) : spec_(std::move(spec)), tasks_(std::move(tasks)) {}
  ~LocalCluster();  // stops it
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // Its addresses are names that mean something in this process only.
  const ClusterSpec& spec() const { return spec_; }
  // Null when there is no such task.
  Server* task(const std::string& job, int number) const;
  // NotFound when there is no such task.
  absl::StatusOr<std::string> target(const std::string& job, int number) const;
  // Steps under way are cancelled; Join of the tasks returns.
  void Stop();

 private:
  const ClusterSpec spec_;
  const Tasks tasks_;
};

}  // namespace muster
