// The steps of a session: plans, whole steps, partial runs, callables.
#include "absl/strings/match.h"

#include "muster/master/gather.h"
#include "muster/master/session.h"

namespace muster {
namespace {

// A client that asks for something else each time must not fill the workers' memory.
constexpr size_t kMaxPlans = 1000;
// Waits of 1, 2, ... seconds: half a minute in all.
constexpr int kAskLeaderAgain = 7;

template <typename Request>
StepNames NamesOf(Request& request) {
  StepNames names;
  names.feeds = request.feeds;
  names.fetches = request.fetches;
  names.targets = request.targets;
  return names;
}

absl::Status NoDebugger() {
  return Unimplemented("debug_options with watches: there is no debugger");
}

// Real masters wait for ever for a tensor that is named without its number.
absl::Status CheckTensorNames(const StepNames& names) {
  for (const auto& [what, list] : {std::pair("feed", &names.feeds), {"fetch", &names.fetches}}) {
    for (const std::string& name : *list) {
      if (absl::StrContains(name, ':')) continue;
      return InvalidArgument("Cannot ", what, " '", name,
                             "': the name of a tensor says which output of the node it is, as in '",
                             name, ":0'");
    }
  }
  return absl::OkStatus();
}

// Values by the names that the client used.
std::vector<NamedTensor> Named(const std::vector<std::string>& asked, StepResult& result) {
  std::vector<NamedTensor> tensors;
  absl::flat_hash_set<absl::string_view> seen;
  for (const std::string& name : asked) {
    if (!seen.insert(name).second) continue;
    tensors.push_back({name, result.fetches[FullTensorName(name)]});
  }
  return tensors;
}

// Takes the fed tensors out of the request: their reader then is the only owner.
ClusterStepOptions RunOptionsFor(RunStepRequest& request) {
  ClusterStepOptions options;
  for (NamedTensor& feed : request.feeds)
    options.feeds[FullTensorName(feed.name)] = std::move(feed.tensor);
  StepNames names;
  names.fetches = request.fetches;
  options.fetches = names.Canonical().fetches;
  options.trace = request.options.trace;
  options.output_partition_graphs = request.options.output_partition_graphs;
  return options;
}

}  // namespace

// --- Plans

void MasterSession::GetPlan(const StepNames& names, int64_t collective_graph_key, PlanDone done) {
  StepNames canonical = names.Canonical();
  std::string key = absl::StrCat(canonical.ToString(), "#", collective_graph_key);
  absl::StatusOr<std::shared_ptr<ClusterPlan>> ready = nullptr;
  bool is_new = false;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) {
      ready = FailedPrecondition("Session is closed.");
    } else {
      const auto [found, inserted] = plans_.try_emplace(key);
      PlanEntry& entry = found->second;
      is_new = inserted;
      if (entry.plan != nullptr) {
        plan_uses_.splice(plan_uses_.begin(), plan_uses_, entry.use);
        ready = entry.plan;
      } else {
        entry.waiting.push_back(std::move(done));
      }
    }
  }
  if (!ready.ok() || *ready != nullptr) return std::move(done)(std::move(ready));
  if (!is_new) return;
  scheduler_.Schedule([self = shared_from_this(), key = std::move(key),
                       names = std::move(canonical), collective_graph_key]() mutable {
    self->MakePlan(std::move(key), std::move(names), collective_graph_key);
  });
}

void MasterSession::MakePlan(std::string key, StepNames names, int64_t collective_graph_key) {
  auto plan = std::make_shared<ClusterPlan>();
  plan->session = handle_;
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerApi>> workers;
  for (const SessionTask& task : tasks()) workers[task.text] = task.worker;
  const auto is_muster = [&workers](absl::string_view task) {
    const auto worker = workers.find(task);
    return worker != workers.end() && worker->second->IsMuster();
  };
  absl::StatusOr<std::vector<GraphPart>> graphs = graph_.Plan(names, is_muster, *plan);
  if (!graphs.ok()) return PlanReady(key, graphs.status());
  for (const GraphPart& graph : *graphs) {
    const auto worker = workers.find(graph.task);
    if (worker == workers.end())
      return PlanReady(key, Internal("No task ", graph.task, " in this session"));
    plan->parts.push_back({graph.task, worker->second, ""});
  }
  if (collective_graph_key == 0) collective_graph_key = CollectiveGraphKey(*graphs);
  plan->collective_graph_key = collective_graph_key;
  Register(std::move(key), std::move(plan), *std::move(graphs), collective_graph_key);
}

void MasterSession::Register(std::string key, std::shared_ptr<ClusterPlan> plan,
                             std::vector<GraphPart> graphs, int64_t collective_graph_key) {
  const std::vector<PlanPart> parts = plan->parts;
  auto dones = Gather<std::string>(parts.size(), [self = shared_from_this(), key = std::move(key),
                                                  plan](Replies<std::string> replies) {
    for (size_t i = 0; i < replies.size(); ++i) plan->parts[i].graph = replies[i].value_or("");
    const absl::Status status = FirstError(replies);
    if (status.ok()) return self->PlanReady(key, plan);
    plan->Retire();
    self->PlanReady(key, status);
  });
  for (size_t i = 0; i < dones.size(); ++i) {
    RegisterGraphRequest request;
    request.session = handle_;
    request.optimize = config_.optimize_graph;
    request.collective_graph_key = collective_graph_key;
    request.collective_group_leader = config_.collective_group_leader;
    request.config = config_.serialized;
    request.graph =
        [graph = std::move(graphs[i].graph)]() mutable -> absl::StatusOr<std::unique_ptr<Graph>> {
      return std::move(graph);
    };
    CallOptions call;
    call.cancellation = calls_;
    parts[i].worker->RegisterGraph(std::move(call), std::move(request), std::move(dones[i]));
  }
}

void MasterSession::PlanReady(const std::string& key,
                              absl::StatusOr<std::shared_ptr<ClusterPlan>> plan) {
  std::vector<PlanDone> waiting;
  std::shared_ptr<ClusterPlan> evicted;
  {
    MutexLock lock(mutex_);
    const auto found = plans_.find(key);
    if (found == plans_.end()) return;  // closed: the waiting callers have been answered
    waiting = std::move(found->second.waiting);
    found->second.waiting.clear();
    if (plan.ok()) {
      found->second.plan = *plan;
      plan_uses_.push_front(key);
      found->second.use = plan_uses_.begin();
      if (plan_uses_.size() > kMaxPlans) {
        const auto oldest = plans_.find(plan_uses_.back());
        evicted = std::move(oldest->second.plan);
        plans_.erase(oldest);
        plan_uses_.pop_back();
      }
    } else {
      plans_.erase(found);
    }
  }
  if (evicted != nullptr) evicted->Retire();
  for (PlanDone& done : waiting) std::move(done)(plan);
}

// --- Steps

absl::Duration MasterSession::TimeoutOf(const StepOptions& options) const {
  return options.timeout > absl::ZeroDuration() ? options.timeout : config_.operation_timeout;
}

std::shared_ptr<ClusterStep> MasterSession::NewRun(const CallOptions& call,
                                                   ClusterStepOptions options,
                                                   ClusterStep::Finished finished) {
  {
    MutexLock lock(mutex_);
    if (closed_.ok()) {
      options.finished_steps = finished_steps_;
      // Filled in before a callback can read it: that takes the lock first.
      auto own = std::make_shared<const ClusterStep*>(nullptr);
      auto run =
          ClusterStep::Create(scheduler_, std::move(options), call.cancellation,
                              [self = shared_from_this(), own, finished = std::move(finished)](
                                  absl::StatusOr<StepResult> result) mutable {
                                self->RetireStepId((*own)->options(), result.ok());
                                if (!(*own)->fills_queues())
                                  self->steps_run_.fetch_add(1, std::memory_order_relaxed);
                                std::move(finished)(std::move(result));
                                self->Leave(*own);
                              });
      *own = run.get();
      runs_.emplace(run.get(), run);
      watch_->Wake();
      return run;
    }
  }
  std::move(finished)(FailedPrecondition("Session is closed."));
  return nullptr;
}

void MasterSession::Run(const CallOptions& call, RunStepRequest request,
                        CallDone<RunStepReply> done) {
  if (request.options.has_debug_watches) return std::move(done)(NoDebugger());
  if (!request.partial_run.empty()) return RunPartial(call, std::move(request), std::move(done));
  ClusterStepOptions options = RunOptionsFor(request);
  options.step_id = NewStepId();
  options.timeout = TimeoutOf(request.options);
  StepNames names;
  for (const NamedTensor& feed : request.feeds) names.feeds.push_back(feed.name);
  names.fetches = request.fetches;
  names.targets = request.targets;
  if (absl::Status status = CheckTensorNames(names); !status.ok())
    return std::move(done)(std::move(status));
  const int64_t collective_graph_key = request.options.collective_graph_key;
  const auto run = NewRun(call, std::move(options),
                          [asked = std::move(request.fetches),
                           done = std::move(done)](absl::StatusOr<StepResult> result) mutable {
                            if (!result.ok()) return std::move(done)(result.status());
                            RunStepReply reply;
                            reply.tensors = Named(asked, *result);
                            reply.metadata = std::move(result->metadata);
                            std::move(done)(std::move(reply));
                          });
  if (run == nullptr) return;
  GetPlan(names, collective_graph_key,
          [self = shared_from_this(), run](absl::StatusOr<std::shared_ptr<ClusterPlan>> plan) {
            self->StartRun(run, std::move(plan));
          });
}

// --- Steps that other masters run too

void MasterSession::StartRun(std::shared_ptr<ClusterStep> run,
                             absl::StatusOr<std::shared_ptr<ClusterPlan>> plan) {
  const int64_t key = plan.ok() ? (*plan)->collective_graph_key : 0;
  if (key == 0) return run->Start(std::move(plan));
  absl::StatusOr<int64_t> id = -1;
  if (LeadsCollectives()) {
    id = sequences_->NextOfLeader(key);
  } else if (const std::optional<int64_t> next = sequences_->Next(key)) {
    id = *next;
  } else {
    return AskForStepId(std::move(run), *std::move(plan), 0);
  }
  if (!id.ok()) return run->Start(id.status());
  run->UseCommonId(key, *id);
  run->Start(std::move(plan));
}

bool MasterSession::LeadsCollectives() const {
  return config_.collective_group_leader.empty() ||
         config_.collective_group_leader == self_.ToString();
}

void MasterSession::AskForStepId(std::shared_ptr<ClusterStep> run,
                                 std::shared_ptr<ClusterPlan> plan, int attempt) {
  const std::shared_ptr<WorkerApi> leader = peers_->Worker(config_.collective_group_leader);
  if (leader == nullptr) {
    return run->Start(InvalidArgument("collective_group_leader ", config_.collective_group_leader,
                                      " is not a task of the cluster"));
  }
  CallOptions call;
  call.cancellation = calls_;
  WorkerApi& to = *leader;
  const int64_t key = plan->collective_graph_key;
  to.GetStepSequence(
      std::move(call), {key},
      [self = shared_from_this(), leader, run = std::move(run), plan = std::move(plan), attempt,
       key](const absl::StatusOr<std::vector<StepSequence>>& sequences) mutable {
        // The leader may be late.
        if (absl::IsUnavailable(sequences.status()) && attempt < kAskLeaderAgain && !run->over()) {
          self->scheduler_.ScheduleAfter(
              absl::Seconds(attempt + 1),
              [self, run = std::move(run), plan = std::move(plan), attempt]() mutable {
                self->AskForStepId(std::move(run), std::move(plan), attempt + 1);
              });
          return;
        }
        if (!sequences.ok()) return run->Start(sequences.status());
        for (const StepSequence& sequence : *sequences) {
          if (sequence.graph_key != key) continue;
          self->sequences_->Learn(key, sequence.next_step_id);
          run->UseCommonId(key, sequence.next_step_id);
          return run->Start(std::move(plan));
        }
        run->Start(Internal("The leader ", self->config_.collective_group_leader,
                            " of collectives does not know the graph key ", key));
      });
}

// Every try has an id of its own. A follower that has failed asks the leader, which may have gone
// on or not.
void MasterSession::RetireStepId(const ClusterStepOptions& run, bool ok) {
  const int64_t key = run.collective_graph_key;
  if (key == 0) return;
  if (ok || LeadsCollectives()) {
    sequences_->Retire(key, run.step_id);
  } else {
    sequences_->Forget(key);
  }
}

// --- Partial runs

void MasterSession::PartialRunSetup(PartialRunSetupRequest request, CallDone<std::string> done) {
  StepNames names = NamesOf(request);
  names.is_partial = true;
  if (absl::Status status = CheckTensorNames(names); !status.ok())
    return std::move(done)(std::move(status));
  GetPlan(names, 0,
          [self = shared_from_this(), names = names.Canonical(),
           done = std::move(done)](absl::StatusOr<std::shared_ptr<ClusterPlan>> plan) mutable {
            if (!plan.ok()) return std::move(done)(plan.status());
            absl::StatusOr<PartialRun> parts = self->graph_.NewPartialRun(names);
            if (!parts.ok()) return std::move(done)(parts.status());
            PartialStep partial{*std::move(plan), NewStepId(), *std::move(parts)};
            std::string handle;
            {
              MutexLock lock(self->mutex_);
              if (self->closed_.ok()) {
                handle = absl::StrCat(self->next_partial_run_++);
                self->partial_runs_.emplace(handle, std::move(partial));
              }
            }
            if (handle.empty()) return std::move(done)(FailedPrecondition("Session is closed."));
            std::move(done)(std::move(handle));
          });
}

absl::StatusOr<MasterSession::Part> MasterSession::TakePart(const RunStepRequest& request) {
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
  for (const NamedTensor& feed : request.feeds) feeds.push_back(FullTensorName(feed.name));
  for (const std::string& fetch : request.fetches) fetches.push_back(FullTensorName(fetch));
  MutexLock lock(mutex_);
  const auto found = partial_runs_.find(request.partial_run);
  if (found == partial_runs_.end())
    return InvalidArgument("Must run PartialRunSetup before performing partial runs");
  PartialStep& partial = found->second;
  RETURN_IF_ERROR(partial.parts.Take(feeds, fetches));
  partial.started = true;
  Part part{partial.plan, partial.step_id, partial.parts.is_over()};
  if (part.is_last) partial_runs_.erase(found);
  return part;
}

void MasterSession::RunPartial(const CallOptions& call, RunStepRequest request,
                               CallDone<RunStepReply> done) {
  absl::StatusOr<Part> part = TakePart(request);
  if (!part.ok()) return std::move(done)(part.status());
  const bool is_last = part->is_last;
  ClusterStepOptions options = RunOptionsFor(request);
  options.step_id = part->step_id;
  options.timeout = TimeoutOf(request.options);
  options.is_partial = true;
  options.is_last_partial = is_last;
  const auto run = NewRun(call, std::move(options),
                          [self = shared_from_this(), handle = request.partial_run, is_last,
                           asked = std::move(request.fetches),
                           done = std::move(done)](absl::StatusOr<StepResult> result) mutable {
                            if (!result.ok()) {
                              MutexLock lock(self->mutex_);
                              self->partial_runs_.erase(handle);
                            }
                            if (!result.ok()) return std::move(done)(result.status());
                            RunStepReply reply;
                            reply.tensors = Named(asked, *result);
                            reply.metadata = std::move(result->metadata);
                            reply.has_metadata = is_last || !reply.metadata.empty();
                            std::move(done)(std::move(reply));
                          });
  if (run != nullptr) run->Start(std::shared_ptr<const ClusterPlan>(part->plan));
}

// --- Callables

void MasterSession::MakeCallable(MakeCallableRequest request, CallDone<int64_t> done) {
  if (request.options.has_debug_watches) return std::move(done)(NoDebugger());
  if (request.has_feed_or_fetch_devices) {
    return std::move(done)(
        Unimplemented("CallableOptions.feed_devices and fetch_devices are not supported in "
                      "distributed sessions"));
  }
  StepNames names = NamesOf(request);
  if (absl::Status status = CheckTensorNames(names); !status.ok())
    return std::move(done)(std::move(status));
  names.connections = request.connections;
  Callable callable;
  for (const std::string& feed : request.feeds) callable.feeds.push_back(FullTensorName(feed));
  for (const std::string& fetch : request.fetches)
    callable.fetches.push_back(FullTensorName(fetch));
  callable.options = request.options;
  GetPlan(names, request.options.collective_graph_key,
          [self = shared_from_this(), callable = std::move(callable),
           done = std::move(done)](absl::StatusOr<std::shared_ptr<ClusterPlan>> plan) mutable {
            if (!plan.ok()) return std::move(done)(plan.status());
            callable.plan = *std::move(plan);
            int64_t handle = -1;
            {
              MutexLock lock(self->mutex_);
              if (self->closed_.ok()) {
                handle = self->next_callable_++;
                self->callables_[handle] = std::move(callable);
              }
            }
            if (handle < 0) return std::move(done)(FailedPrecondition("Session is closed."));
            std::move(done)(handle);
          });
}

void MasterSession::RunCallable(const CallOptions& call, RunCallableRequest request,
                                CallDone<RunCallableReply> done) {
  std::optional<Callable> callable;
  {
    MutexLock lock(mutex_);
    const auto found = callables_.find(request.callable);
    if (found != callables_.end()) callable = found->second;
  }
  if (!callable)
    return std::move(done)(InvalidArgument("No such callable handle: ", request.callable));
  // More than it takes is what TensorFlow lets pass.
  if (request.feeds.size() < callable->feeds.size()) {
    return std::move(done)(InvalidArgument("Expected ", callable->feeds.size(),
                                           " feed tensors, but got ", request.feeds.size()));
  }
  ClusterStepOptions options;
  options.step_id = NewStepId();
  options.timeout = TimeoutOf(callable->options);
  options.trace = callable->options.trace;
  options.output_partition_graphs = callable->options.output_partition_graphs;
  for (size_t i = 0; i < callable->feeds.size(); ++i)
    options.feeds[callable->feeds[i]] = std::move(request.feeds[i]);
  StepNames names;
  names.fetches = callable->fetches;
  options.fetches = names.Canonical().fetches;
  const auto run = NewRun(call, std::move(options),
                          [fetches = callable->fetches,
                           done = std::move(done)](absl::StatusOr<StepResult> result) mutable {
                            if (!result.ok()) return std::move(done)(result.status());
                            RunCallableReply reply;
                            for (const std::string& fetch : fetches)
                              reply.fetches.push_back(result->fetches[fetch]);
                            reply.metadata = std::move(result->metadata);
                            std::move(done)(std::move(reply));
                          });
  if (run != nullptr) StartRun(run, callable->plan);
}

void MasterSession::ReleaseCallable(int64_t callable) {
  std::optional<Callable> released;  // dropped without the lock
  MutexLock lock(mutex_);
  const auto found = callables_.find(callable);
  if (found == callables_.end()) return;
  released = std::move(found->second);
  callables_.erase(found);
}

}  // namespace muster
