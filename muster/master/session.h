// One session of a client: its graph, its tasks, its steps. docs/cluster.md tells its states.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/master/cluster_step.h"
#include "muster/master/master.h"
#include "muster/master/session_graph.h"
#include "muster/master/step_watch.h"
#include "muster/master/tasks.h"

namespace muster {

// Thread-safe.
class MasterSession : public std::enable_shared_from_this<MasterSession> {
 public:
  using Options = std::shared_ptr<const MasterOptions>;
  // Called, once, when the session must be closed without a request: its client has vanished.
  using Expired = absl::AnyInvocable<void(const std::string& handle) &&>;

  // Asks all tasks for their devices, places the graph and opens the session at the workers.
  // The session belongs to `owner`.
  static void Create(Options options, std::shared_ptr<const Caller> owner,
                     std::shared_ptr<Cancellation> cancellation, CreateSessionRequest request,
                     Expired expired, CallDone<std::shared_ptr<MasterSession>> done);

  const std::string& handle() const { return handle_; }

  void Extend(const CallOptions& call, ExtendSessionRequest request, CallDone<int64_t> done);
  void Run(const CallOptions& call, RunStepRequest request, CallDone<RunStepReply> done);
  void PartialRunSetup(PartialRunSetupRequest request, CallDone<std::string> done);
  void MakeCallable(MakeCallableRequest request, CallDone<int64_t> done);
  void RunCallable(const CallOptions& call, RunCallableRequest request,
                   CallDone<RunCallableReply> done);
  void ReleaseCallable(int64_t callable);
  ListDevicesReply Devices() const;
  // Steps under way end with `reason`. `done` when the workers have dropped the session, or when
  // they have had long enough to do so.
  void Close(absl::Status reason, Done done);

  // Every call of the client is announced and ended; `lost` when it ended because the connection
  // broke. A client that was lost and does not come back is what Expired is about.
  // `connection`, which may be null, is how the client was reached last: when it ends while no call
  // is open the client is lost too.
  void BeginCall(const std::shared_ptr<Cancellation>& connection);
  void EndCall(bool lost);

  int64_t steps_under_way() const;
  int64_t steps_run() const;

 private:
  friend class SessionCreation;
  using PlanDone = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<ClusterPlan>>) &&>;

  // A plan that is there, or is being made.
  struct PlanEntry {
    std::shared_ptr<ClusterPlan> plan;
    std::vector<PlanDone> waiting;
    std::list<std::string>::iterator use;  // valid once the plan is there
  };
  struct PartialStep {
    std::shared_ptr<ClusterPlan> plan;
    int64_t step_id = 0;
    PartialRun parts;
    bool started = false;
  };
  // One part of it.
  struct Part {
    std::shared_ptr<ClusterPlan> plan;
    int64_t step_id = 0;
    bool is_last = false;
  };
  struct Callable {
    std::shared_ptr<ClusterPlan> plan;
    std::vector<std::string> feeds;
    std::vector<std::string> fetches;
    StepOptions options;
  };

  MasterSession(Options options, std::shared_ptr<const Caller> owner, SessionConfig config,
                std::string handle, Expired expired);

  // --- session_steps.cc
  void GetPlan(const StepNames& names, int64_t collective_graph_key, PlanDone done);
  void MakePlan(std::string key, StepNames names, int64_t collective_graph_key);
  void Register(std::string key, std::shared_ptr<ClusterPlan> plan, std::vector<GraphPart> graphs,
                int64_t collective_graph_key);
  void PlanReady(const std::string& key, absl::StatusOr<std::shared_ptr<ClusterPlan>> plan);
  void RunPartial(const CallOptions& call, RunStepRequest request, CallDone<RunStepReply> done);
  absl::StatusOr<Part> TakePart(const RunStepRequest& request);
  // Null, and `finished` called, when the session is closed.
  std::shared_ptr<ClusterStep> NewRun(const CallOptions& call, ClusterStepOptions options,
                                      ClusterStep::Finished finished);
  // Starts the step, with an id that all masters of its collectives share.
  void StartRun(std::shared_ptr<ClusterStep> run,
                absl::StatusOr<std::shared_ptr<ClusterPlan>> plan);
  void AskForStepId(std::shared_ptr<ClusterStep> run, std::shared_ptr<ClusterPlan> plan,
                    int attempt);
  bool LeadsCollectives() const;
  void RetireStepId(const ClusterStepOptions& run, bool ok);
  absl::Duration TimeoutOf(const StepOptions& options) const;
  void Leave(const ClusterStep* run);

  std::vector<SessionTask> tasks() const;
  // The steps under way.
  std::vector<std::shared_ptr<ClusterStep>> RunsLocked() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // --- session_create.cc
  // Of `all`, those that nodes of the graph name and the session does not have yet.
  std::vector<SessionTask> NewTasks(std::vector<SessionTask> all) const;
  // Opens the session at these tasks, whose devices are known, and makes them the session's.
  void AddTasks(std::vector<SessionTask> added, std::shared_ptr<Cancellation> cancellation,
                Done done);
  void ExtendTasks(absl::Status status, std::shared_ptr<Cancellation> cancellation);
  void ExtendPlaced(const absl::Status& status);
  // --- session.cc
  void ConnectionEnded(const Cancellation* connection);
  // The client has some time to come back.
  void AwaitClientLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveConnection();
  // Has the master close the session.
  void Expire();
  void DeleteWorkerSessions(Done done);
  void FinishClose();

  const Options options_;
  const std::shared_ptr<const Caller> owner_;
  Scheduler& scheduler_;
  const SessionConfig config_;
  const std::string handle_;
  const std::shared_ptr<StepSequences> sequences_;
  const std::shared_ptr<FinishedSteps> finished_steps_;
  SessionGraph graph_;
  std::shared_ptr<StepWatch> watch_;  // set when the session is made
  // For calls that belong to no single step.
  const std::shared_ptr<Cancellation> calls_ = std::make_shared<Cancellation>();
  // Set while the session is made.
  std::shared_ptr<Peers> peers_;
  TaskName self_;
  bool has_own_cluster_ = false;
  DeviceFilters filters_;

  mutable Mutex mutex_;
  std::vector<SessionTask> tasks_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);  // why; OK while open
  bool deleting_ ABSL_GUARDED_BY(mutex_) = false;
  bool close_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Done> close_done_ ABSL_GUARDED_BY(mutex_);
  std::optional<Scheduler::TimerId> close_timer_ ABSL_GUARDED_BY(mutex_);

  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  // The extension that is under way, or was the last one.
  struct Extension {
    int64_t from_version = -1;
    size_t fingerprint = 0;
    std::vector<CallDone<int64_t>> done;  // of all callers that requested it
  };
  bool extending_ ABSL_GUARDED_BY(mutex_) = false;
  Extension extension_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, PlanEntry> plans_ ABSL_GUARDED_BY(mutex_);
  std::list<std::string> plan_uses_ ABSL_GUARDED_BY(mutex_);  // the latest first
  absl::flat_hash_map<const ClusterStep*, std::shared_ptr<ClusterStep>> runs_
      ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> steps_run_{0};  // without those that only fill queues
  absl::flat_hash_map<std::string, PartialStep> partial_runs_ ABSL_GUARDED_BY(mutex_);
  int64_t next_partial_run_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<int64_t, Callable> callables_ ABSL_GUARDED_BY(mutex_);
  int64_t next_callable_ ABSL_GUARDED_BY(mutex_) = 0;

  int64_t open_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool client_lost_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Cancellation> connection_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<CancelCallback> connection_ended_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_call_ ABSL_GUARDED_BY(mutex_);
  std::optional<Scheduler::TimerId> orphan_timer_ ABSL_GUARDED_BY(mutex_);
  Expired expired_ ABSL_GUARDED_BY(mutex_);
};

// The config that holds for a session: the client's, over that of the server.
SessionConfig MergeConfigs(const SessionConfig& server, SessionConfig client);
// The text of steps that a closed session took with it.
absl::Status ClosedByCall();

}  // namespace muster
