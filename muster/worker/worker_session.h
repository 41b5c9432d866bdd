// What a worker keeps for one session of a master: identity, peers and registered graphs.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/task/task_session.h"
#include "muster/transport/api/peers.h"
#include "muster/worker/variable_names.h"

namespace muster {

// A graph that a master has registered.
struct RegisteredGraph {
  std::shared_ptr<TaskGraph> graph;
  std::string collective_group_leader;  // empty: the one the task was started with
};

// Thread-safe.
class WorkerSession {
 public:
  struct Options {
    TaskName self;
    std::shared_ptr<Peers> peers;
    std::shared_ptr<const TaskDevices> devices;  // of the process
    Scheduler* scheduler = nullptr;              // runs kernels
    bool has_own_cluster = false;                // `self` is a name that the session has given
    std::shared_ptr<ResourceManager> shared;     // state of the process; null: the session's own
    std::string master_task;
    uint64_t master_incarnation = 0;
    std::shared_ptr<const Caller> owner;       // whose limits hold
    std::shared_ptr<VariableNames> variables;  // null: not recorded
  };
  explicit WorkerSession(Options options);

  const std::string& task() const { return task_; }
  const std::shared_ptr<Peers>& peers() const { return options_.peers; }
  const std::shared_ptr<TaskSession>& on_task() const { return on_task_; }
  const std::string& master_task() const { return options_.master_task; }
  const Caller& owner() const { return *options_.owner; }
  uint64_t master_incarnation() const { return options_.master_incarnation; }
  bool has_own_cluster() const { return options_.has_own_cluster; }
  // The same master, started anew since this session was made.
  bool IsLeftBehindBy(absl::string_view master_task, uint64_t master_incarnation) const {
    return options_.master_task == master_task && options_.master_incarnation != master_incarnation;
  }

  // The handle: 16 hex digits, from one up.
  absl::StatusOr<std::string> Register(RegisterGraphRequest request);
  absl::Status Deregister(const std::string& handle);
  // Aborted when there is none.
  absl::StatusOr<std::shared_ptr<const RegisteredGraph>> Find(const std::string& handle) const;
  int64_t num_graphs() const;

 private:
  absl::Status CheckDevices(const Graph& graph) const;
  void FixIncarnations(Graph& graph) const;
  void ReconnectSenders(const Graph& graph) const;

  const Options options_;
  const std::string task_;
  const std::shared_ptr<TaskSession> on_task_;
  mutable Mutex mutex_;
  uint64_t last_handle_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<const RegisteredGraph>> graphs_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
