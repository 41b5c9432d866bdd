#include "muster/client/local_session.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "absl/container/flat_hash_set.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/check.h"
#include "muster/base/threads/waiting_thread.h"
#include "muster/client/graph_placement.h"
#include "muster/client/step_links.h"
#include "muster/client/step_plan.h"
#include "muster/collective/step/collective_groups.h"
#include "muster/graph/rewrite/lower.h"
#include "muster/runtime/executor.h"
#include "muster/runtime/vector_call_frame.h"
#include "muster/task/feeds.h"
#include "muster/task/partial_run.h"
#include "muster/task/task_session.h"
#include "muster/task/task_step.h"

namespace muster {
namespace {

constexpr absl::string_view kTask = "/job:localhost/replica:0/task:0";

absl::Status Closed() {
  return absl::CancelledError("Session has been closed.");
}

// The functions of the session's graph, as it was when it had `num_nodes` nodes.
struct Functions {
  int num_nodes = 0;
  size_t num_functions = 0;
  std::shared_ptr<const LoweredGraph> lowered;  // null: the graph runs as it is
  std::shared_ptr<FunctionRuntime> runtime;     // of those that were not inlined
};

class LocalPlan : public StepPlan {
 public:
  using StepPlan::StepPlan;
  std::shared_ptr<TaskGraph> graph;
  // The names of feeds and fetches in the graph that runs, in the order of the signature.
  std::vector<std::string> feed_names;
  std::vector<std::string> fetch_names;
  std::vector<std::vector<size_t>> feeds_behind;  // for each fetch; of partial runs only
};

std::vector<std::string> NamesOf(absl::Span<const Output> outputs) {
  std::vector<std::string> names;
  for (const Output& output : outputs) names.push_back(output.name());
  return names;
}

std::vector<std::string> NamesOf(const TaskDevices& devices) {
  std::vector<std::string> names;
  for (const Device* const device : devices.list()) names.push_back(device->name());
  return names;
}

// A step that is fed and fetched in parts.
struct PartialStep {
  PartialStep(int64_t id, std::shared_ptr<LocalPlan> step_plan)
      : plan(std::move(step_plan)),
        step(id, NewLocalRendezvous()),
        parts(NamesOf(plan->signature.feeds), NamesOf(plan->signature.fetches),
              plan->feeds_behind) {}

  const std::shared_ptr<LocalPlan> plan;
  TaskStep step;
  Mutex mutex;
  PartialRun parts ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<std::string, absl::StatusOr<Tensor>> fetched ABSL_GUARDED_BY(mutex);
  std::optional<absl::Status> ended ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<WaitingThread>> waiting ABSL_GUARDED_BY(mutex);

  // Both wake the threads that wait for parts.
  void SetEnded(absl::Status status) {
    {
      MutexLock lock(mutex);
      ended = std::move(status);
    }
    WakeAll();
  }
  void SetFetched(const std::string& name, absl::StatusOr<Tensor> tensor) {
    {
      MutexLock lock(mutex);
      fetched.emplace(name, std::move(tensor));
    }
    WakeAll();
  }
  void WakeAll() {
    std::vector<std::shared_ptr<WaitingThread>> threads;
    {
      MutexLock lock(mutex);
      threads = waiting;
    }
    for (const auto& thread : threads) thread->Wake();
  }

  // Whether these fetches are there, or never will be.
  bool Has(const std::vector<std::string>& fetches, bool is_last) {
    MutexLock lock(mutex);
    if (ended) return true;
    if (is_last) return false;
    for (const std::string& fetch : fetches)
      if (!fetched.contains(fetch)) return false;
    return true;
  }
};

class LocalSession : public Session {
 public:
  LocalSession(const Graph& graph, SessionOptions options, Scheduler& scheduler,
               std::shared_ptr<const TaskDevices> devices)
      : graph_(graph),
        options_(std::move(options)),
        scheduler_(scheduler),
        resources_(std::make_shared<ResourceManager>()),
        task_(std::make_shared<TaskSession>(std::move(devices), resources_, scheduler)),
        placement_(NamesOf(task_->devices()), options_.allow_soft_placement) {}

  ~LocalSession() override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Close().IgnoreError();
    // Partial runs hold pointers into this object until their executors are done.
    {
      MutexLock lock(mutex_);
      while (steps_under_way_ > 0) idle_.Wait(mutex_);
    }
    // Iterators may still read ahead, with functions that need the devices: a plan that a caller
    // still holds must not keep them.
    for (const auto& [key, plan] : plans_) plan->graph.reset();
    task_->Clear();
    functions_.reset();
    resources_->Clear();
  }

  absl::StatusOr<std::shared_ptr<StepPlan>> Prepare(const StepSignature& signature) override {
    return PrepareWith(signature, StepBoundary::kCallFrame);
  }

  absl::StatusOr<std::vector<Tensor>> Run(StepPlan& step_plan, std::vector<Tensor> feeds,
                                          const RunOptions& options,
                                          RunMetadata* metadata) override {
    auto& plan = static_cast<LocalPlan&>(step_plan);
    RETURN_IF_ERROR(CheckFeeds(plan.signature.feeds, feeds));
    const bool has_transfers = plan.graph->partitions->has_transfers();
    TaskStep step(NewId(), has_transfers ? NewLocalRendezvous() : nullptr);
    step.Begin(task_, plan.graph);
    VectorCallFrame frame(std::move(feeds), plan.signature.fetches.size());
    step.Use(frame);
    if (metadata != nullptr) {
      metadata->start_nanos = scheduler_.clock().NowNanos();
      if (options.trace) step.RecordTrace();
    }
    if (has_transfers) step.AbortRendezvousWhenCancelled();
    if (plan.graph->has_collectives) step.Use(NewCollectives());
    RETURN_IF_ERROR(Enter(step.cancellation()));
    std::optional<LinkedCancellation> caller, link;
    if (options.cancellation != nullptr) caller.emplace(options.cancellation, step.cancellation());
    if (const auto ended = links_.Of(plan)) link.emplace(ended, step.cancellation());
    const absl::Status status = RunToEnd(step, TimeoutOf(options));
    Leave(step.cancellation());
    if (metadata != nullptr) {
      if (options.trace) metadata->nodes = step.TakeTraces();
      if (options.keep_partition_graphs)
        metadata->partition_graphs = plan.graph->partitions->graphs();
    }
    RETURN_IF_ERROR(status);
    return frame.TakeResults();
  }

  absl::StatusOr<std::string> PartialRunSetup(const StepSignature& signature) override {
    ASSIGN_OR_RETURN(const std::shared_ptr<LocalPlan> plan,
                     PrepareWith(signature, StepBoundary::kRendezvous));
    const int64_t id = NewId();
    auto partial = std::make_shared<PartialStep>(id, plan);
    partial->step.Begin(task_, plan->graph);
    partial->step.AbortRendezvousWhenCancelled();
    if (plan->graph->has_collectives) partial->step.Use(NewCollectives());
    RETURN_IF_ERROR(Enter(partial->step.cancellation()));
    for (size_t i = 0; i < signature.fetches.size(); ++i) ReceiveFetch(partial, i);
    scheduler_.Schedule([this, partial] {
      partial->step.Run([this, partial](absl::Status status) {
        partial->SetEnded(std::move(status));
        Leave(partial->step.cancellation());
      });
    });
    std::string handle = absl::StrCat("partial_run_", id);
    MutexLock lock(mutex_);
    partial_runs_[handle] = std::move(partial);
    return handle;
  }

  absl::StatusOr<std::vector<Tensor>> PartialRun(
      const std::string& handle, const std::vector<std::pair<Output, Tensor>>& feeds,
      const std::vector<Output>& fetches) override {
    std::shared_ptr<PartialStep> partial;
    {
      MutexLock lock(mutex_);
      const auto found = partial_runs_.find(handle);
      if (found == partial_runs_.end())
        return InvalidArgument("Must run 'setup' before performing partial runs!");
      partial = found->second;
    }
    RETURN_IF_ERROR(CheckFeeds(feeds));
    std::vector<std::string> feed_names;
    for (const auto& [output, tensor] : feeds) feed_names.push_back(output.name());
    const std::vector<std::string> fetch_names = NamesOf(fetches);
    bool is_last;
    {
      MutexLock lock(partial->mutex);
      RETURN_IF_ERROR(partial->parts.Take(feed_names, fetch_names));
      is_last = partial->parts.is_over();
    }
    absl::StatusOr<std::vector<Tensor>> results = RunPart(*partial, feeds, fetch_names, is_last);
    if (is_last || !results.ok()) {
      MutexLock lock(mutex_);
      partial_runs_.erase(handle);
    }
    return results;
  }

  void EndStepsWith(const Node* node, std::shared_ptr<Cancellation> cancellation) override {
    links_.Add(node, std::move(cancellation));
  }

  absl::Status Close() override {
    absl::flat_hash_set<std::shared_ptr<Cancellation>> running;
    {
      MutexLock lock(mutex_);
      if (closed_) return absl::OkStatus();
      closed_ = true;
      running = running_;
      partial_runs_.clear();
    }
    for (const auto& cancellation : running) {
      cancellation->Cancel(
          absl::CancelledError("Step was cancelled by an explicit call to `Session::Close()`."));
    }
    return absl::OkStatus();
  }

  bool closed() const override {
    MutexLock lock(mutex_);
    return closed_;
  }

  const Graph& graph() const override { return graph_; }
  bool allows_soft_placement() const override { return options_.allow_soft_placement; }
  absl::StatusOr<std::vector<DeviceAttributes>> ListDevices() const override {
    return task_->devices().attributes();
  }

  absl::Status ClearContainers(const std::vector<std::string>& containers) override {
    if (containers.empty()) resources_->Clear();
    for (const std::string& container : containers) resources_->ClearContainer(container);
    return absl::OkStatus();
  }

 private:
  int64_t NewId() { return next_step_.fetch_add(1, std::memory_order_relaxed); }

  absl::Duration TimeoutOf(const RunOptions& options) const {
    return options.timeout > absl::ZeroDuration() ? options.timeout : options_.operation_timeout;
  }

  RefPtr<StepCollectives> NewCollectives() {
    return MakeRef<StepCollectives>(
        collective_groups_, std::make_shared<LocalCollectiveExchange>(scheduler_), scheduler_);
  }

  absl::Status Enter(const std::shared_ptr<Cancellation>& cancellation) {
    MutexLock lock(mutex_);
    if (closed_) return Closed();
    running_.insert(cancellation);
    ++steps_under_way_;
    return absl::OkStatus();
  }

  void Leave(const std::shared_ptr<Cancellation>& cancellation) {
    MutexLock lock(mutex_);
    running_.erase(cancellation);
    --steps_under_way_;
    idle_.NotifyAll();
  }

  // Waits until `ready`, at most for `timeout` (zero: for ever), before the step is cancelled.
  // This thread counts as one of the pool's while it waits.
  void WaitUntil(absl::FunctionRef<bool()> ready, const TaskStep& step, absl::Duration timeout) {
    std::optional<Scheduler::TimerId> timer;
    if (timeout > absl::ZeroDuration()) {
      timer = scheduler_.ScheduleAfter(timeout, [cancellation = step.cancellation()] {
        cancellation->Cancel(absl::DeadlineExceededError("Timed out waiting for notification"));
      });
    }
    if (!scheduler_.HelpUntil(ready)) {
      // Only a simulation can run out of work: nothing will ever end the step.
      step.cancellation()->Cancel(absl::InternalError("No task is left that could end the step"));
      CHECK(scheduler_.HelpUntil(ready));
    }
    if (timer) scheduler_.CancelTimer(*timer);
  }

  absl::Status RunToEnd(TaskStep& step, absl::Duration timeout) {
    struct Waiting {
      WaitingThread& caller = WaitingThread::Current();
      absl::Status result{};
      std::atomic<bool> finished{false};
    } waiting;
    // After `finished` nothing of `waiting` may be touched.
    step.Run([&waiting](absl::Status status) {
      waiting.result = std::move(status);
      if (&WaitingThread::Current() == &waiting.caller) {
        waiting.finished.store(true, std::memory_order_release);
        return;
      }
      const std::shared_ptr<WaitingThread> caller = waiting.caller.Share();
      waiting.finished.store(true, std::memory_order_release);
      caller->Wake();
    });
    WaitUntil([&waiting] { return waiting.finished.load(std::memory_order_acquire); }, step,
              timeout);
    return std::move(waiting.result);
  }

  absl::StatusOr<std::shared_ptr<LocalPlan>> PrepareWith(const StepSignature& signature,
                                                         StepBoundary boundary) {
    const auto key = std::make_pair(signature, boundary);
    {
      MutexLock lock(mutex_);
      if (closed_) return Closed();
      const auto found = plans_.find(key);
      if (found != plans_.end()) return found->second;
    }
    RETURN_IF_ERROR(CheckExecutorType(options_.executor_type));
    ASSIGN_OR_RETURN(const std::shared_ptr<const Functions> functions, FunctionsOfGraph());
    const LoweredGraph* const lowered = functions == nullptr ? nullptr : functions->lowered.get();
    const StepSignature& runs = lowered == nullptr ? signature : lowered->Translate(signature);
    const Graph& whole = lowered == nullptr ? graph_ : *lowered->graph;
    ASSIGN_OR_RETURN(std::unique_ptr<Graph> step_graph, PruneForStep(whole, runs, boundary));
    RETURN_IF_ERROR(placement_.Apply(whole, *step_graph));
    auto plan = std::make_shared<LocalPlan>(signature);
    TaskSession::GraphOptions options;
    options.partitions = PartitionOptions();
    if (functions != nullptr) options.functions = functions->runtime;
    ASSIGN_OR_RETURN(plan->graph, task_->MakeGraph(std::move(step_graph), std::move(options)));
    if (boundary == StepBoundary::kRendezvous) {
      plan->feed_names = NamesOf(runs.feeds);
      plan->fetch_names = NamesOf(runs.fetches);
      plan->feeds_behind = FeedsBehind(runs.feeds, runs.fetches);
    }
    MutexLock lock(mutex_);
    return plans_.emplace(key, std::move(plan)).first->second;
  }

  LocalPartitions::Options PartitionOptions() const {
    LocalPartitions::Options options;
    options.optimize_graph = options_.optimize_graph;
    options.allow_soft_placement = options_.allow_soft_placement;
    options.log_device_placement = options_.log_device_placement;
    return options;
  }

  // Null: the graph has none. Made again when the graph has grown since.
  absl::StatusOr<std::shared_ptr<const Functions>> FunctionsOfGraph() {
    MutexLock lock(functions_mutex_);
    if (functions_ != nullptr && functions_->num_nodes == graph_.num_nodes() &&
        functions_->num_functions == graph_.functions().size()) {
      return functions_;
    }
    auto functions = std::make_shared<Functions>();
    functions->num_nodes = graph_.num_nodes();
    functions->num_functions = graph_.functions().size();
    ASSIGN_OR_RETURN(functions->lowered, LowerIfNeeded(graph_));
    if (functions->lowered == nullptr && functions->num_functions == 0) return nullptr;
    functions->runtime = task_->MakeFunctions(graph_, PartitionOptions());
    functions_ = std::move(functions);
    return functions_;
  }

  // --- Partial runs

  void ReceiveFetch(const std::shared_ptr<PartialStep>& partial, size_t i) {
    partial->step.rendezvous().RecvAsync(
        StepKey(partial->plan->fetch_names[i], false),
        [partial, name = partial->plan->signature.fetches[i].name()](
            absl::StatusOr<Rendezvous::Value> value) {
          absl::StatusOr<Tensor> tensor =
              InvalidArgument("The tensor returned for ", name, " was not valid.");
          if (!value.ok()) {
            tensor = value.status();
          } else if (!value->is_dead) {
            tensor = std::move(value->tensor);
          }
          partial->SetFetched(name, std::move(tensor));
        });
  }

  absl::StatusOr<std::vector<Tensor>> RunPart(PartialStep& partial,
                                              const std::vector<std::pair<Output, Tensor>>& feeds,
                                              const std::vector<std::string>& fetches,
                                              bool is_last) {
    const std::vector<Output>& announced = partial.plan->signature.feeds;
    for (const auto& [output, tensor] : feeds) {
      const size_t i = static_cast<size_t>(std::find(announced.begin(), announced.end(), output) -
                                           announced.begin());
      const std::string key = StepKey(partial.plan->feed_names[i], true);
      RETURN_IF_ERROR(partial.step.rendezvous().Send(key, {tensor, false}));
    }
    const std::shared_ptr<WaitingThread> thread = WaitingThread::Current().Share();
    {
      MutexLock lock(partial.mutex);
      partial.waiting.push_back(thread);
    }
    WaitUntil([&] { return partial.Has(fetches, is_last); }, partial.step,
              options_.operation_timeout);
    MutexLock lock(partial.mutex);
    partial.waiting.erase(std::find(partial.waiting.begin(), partial.waiting.end(), thread));
    if (partial.ended) RETURN_IF_ERROR(*partial.ended);
    std::vector<Tensor> results;
    for (const std::string& fetch : fetches) {
      const auto found = partial.fetched.find(fetch);
      if (found == partial.fetched.end())
        return Internal("The step has ended without the fetched tensor ", fetch);
      RETURN_IF_ERROR(found->second.status());
      results.push_back(*found->second);
    }
    return results;
  }

  const Graph& graph_;
  const SessionOptions options_;
  Scheduler& scheduler_;
  const std::shared_ptr<ResourceManager> resources_;
  const std::shared_ptr<TaskSession> task_;
  GraphPlacement placement_;
  std::atomic<int64_t> next_step_{1};
  const std::shared_ptr<CollectiveGroups> collective_groups_ =
      std::make_shared<CollectiveGroups>(scheduler_);

  Mutex functions_mutex_;
  std::shared_ptr<const Functions> functions_ ABSL_GUARDED_BY(functions_mutex_);

  mutable Mutex mutex_;
  CondVar idle_;
  StepLinks links_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int steps_under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<std::shared_ptr<Cancellation>> running_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::pair<StepSignature, StepBoundary>, std::shared_ptr<LocalPlan>> plans_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<PartialStep>> partial_runs_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> NewLocalSession(const Graph& graph,
                                                         SessionOptions options) {
  Scheduler& scheduler = options.scheduler != nullptr ? *options.scheduler : DefaultScheduler();
  ASSIGN_OR_RETURN(std::shared_ptr<const TaskDevices> devices,
                   TaskDevices::Create(std::string(kTask), options.devices, scheduler));
  return std::make_unique<LocalSession>(graph, std::move(options), scheduler, std::move(devices));
}

}  // namespace muster
