#include "muster/client/session.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "muster/base/check.h"
#include "muster/client/explain.h"
#include "muster/client/linked_cancellation.h"
#include "muster/client/plan.h"
#include "muster/client/remote_session.h"
#include "muster/client/step_links.h"
#include "muster/device/device.h"
#include "muster/graph/function_gradient.h"
#include "muster/graph/function_proto.h"
#include "muster/graph/lower.h"
#include "muster/runtime/collective_groups.h"
#include "muster/runtime/executor.h"
#include "muster/runtime/executor_type.h"
#include "muster/runtime/function_runtime.h"
#include "muster/runtime/local_partitions.h"
#include "muster/runtime/step_collectives.h"
#include "muster/runtime/trace.h"
#include "muster/runtime/vector_call_frame.h"

namespace muster {

RunMetadata::RunMetadata() = default;
RunMetadata::~RunMetadata() = default;

namespace {

// The session's graph with calls and functional control flow written out, and what runs the rest.
struct Lowered {
  int num_nodes = 0;  // of the graph it was made from
  size_t num_functions = 0;
  LoweredGraph graph;  // empty: no node of the graph had to be written out
  std::shared_ptr<FunctionRuntime> functions;

  // Feeds go where the readers of the output are; fetches come from the node of that name, which
  // waits for its effects.
  StepSignature Translate(const StepSignature& signature) const {
    StepSignature translated;
    for (const Output& feed : signature.feeds) translated.feeds.push_back(graph.outputs.at(feed));
    for (const Output& fetch : signature.fetches) {
      const bool is_fed =
          std::find(signature.feeds.begin(), signature.feeds.end(), fetch) != signature.feeds.end();
      translated.fetches.push_back(is_fed ? graph.outputs.at(fetch)
                                          : Output(graph.nodes.at(fetch.node), fetch.index));
    }
    for (const Node* target : signature.targets)
      translated.targets.push_back(graph.nodes.at(target));
    return translated;
  }
};

class LocalPlan : public StepPlan {
 public:
  using StepPlan::StepPlan;
  std::shared_ptr<const Lowered> lowered;  // null: the graph has no functions
  std::unique_ptr<LocalPartitions> partitions;
  bool has_collectives = false;

  std::string FeedKey(const Output& feed) const {
    const bool same = lowered == nullptr || lowered->graph.graph == nullptr;
    return StepKey(same ? feed.name() : lowered->graph.outputs.at(feed).name(), true);
  }
};

// Everything a step owns. Its address stays put while the step runs.
struct StepState {
  explicit StepState(ResourceManager& resources, Scheduler& scheduler, int64_t id) {
    step.id = id;
    step.rendezvous = rendezvous.get();
    step.cancellation = cancellation.get();
    step.resources = &resources;
    step.step_resources = &step_resources;
    step.scheduler = &scheduler;
  }
  // A cancelled step lets go of whoever waits at its rendezvous.
  void AbortRendezvousOnCancel() {
    cancellation->Register(cancellation->NewToken(),
                           [r = rendezvous, c = cancellation.get()] { r->Abort(c->reason()); });
  }
  void UseCollectives(std::shared_ptr<CollectiveGroups> groups) {
    const absl::Status added = step_resources.Create(
        "", CollectiveExecutor::kStepName,
        MakeRef<StepCollectives>(std::move(groups),
                                 std::make_shared<LocalCollectiveExchange>(*step.scheduler),
                                 *step.scheduler));
    CHECK(added.ok());
  }
  std::shared_ptr<Rendezvous> rendezvous = NewLocalRendezvous();
  // Shared with whoever is about to cancel the step.
  std::shared_ptr<Cancellation> cancellation = std::make_shared<Cancellation>();
  ResourceManager step_resources{"step"};
  Step step;
};

struct PartialStep {
  PartialStep(ResourceManager& resources, Scheduler& scheduler, int64_t id)
      : state(resources, scheduler, id) {}
  std::shared_ptr<LocalPlan> plan;
  StepState state;
  Mutex mutex;
  CondVar changed;
  absl::flat_hash_set<Output> pending_feeds ABSL_GUARDED_BY(mutex);
  absl::flat_hash_set<Output> pending_fetches ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<Output, Tensor> fetched ABSL_GUARDED_BY(mutex);
  std::optional<absl::Status> finished ABSL_GUARDED_BY(mutex);
};

class LocalSession : public Session {
 public:
  LocalSession(const Graph& graph, SessionOptions options)
      : graph_(graph),
        options_(options),
        scheduler_(options.scheduler != nullptr ? *options.scheduler : DefaultScheduler()) {
    for (int i = 0; i < options.cpu_devices; ++i) {
      devices_.push_back(
          NewCpuDevice(absl::StrCat("/job:localhost/replica:0/task:0/device:CPU:", i), scheduler_));
    }
  }

  ~LocalSession() override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Close().IgnoreError();
    // Partial runs hold pointers into this object until their executors are done.
    {
      MutexLock lock(mutex_);
      while (steps_under_way_ > 0) idle_.Wait(mutex_);
    }
    // Iterators may still read ahead, with functions that need the devices; whoever holds a plan
    // must not keep them.
    for (const auto& [key, plan] : plans_) {
      plan->partitions.reset();
      plan->lowered.reset();
    }
    kernels_.clear();
    lowered_.reset();
    resources_.Clear();
  }

  absl::StatusOr<std::shared_ptr<StepPlan>> Prepare(const StepSignature& signature) override {
    return PrepareWith(signature, StepBoundary::kCallFrame);
  }

  absl::StatusOr<std::vector<Tensor>> Run(StepPlan& step_plan, std::vector<Tensor> feeds,
                                          const RunOptions& options,
                                          RunMetadata* metadata) override {
    auto& plan = static_cast<LocalPlan&>(step_plan);
    if (feeds.size() != plan.signature.feeds.size()) {
      return InvalidArgument("The step takes ", plan.signature.feeds.size(), " fed tensors, got ",
                             feeds.size());
    }
    for (size_t i = 0; i < feeds.size(); ++i) {
      const DType wanted = plan.signature.feeds[i].base_dtype();
      if (feeds[i].dtype() != wanted) {
        return InvalidArgument("Tensor ", plan.signature.feeds[i].name(), " has type ",
                               DTypeName(wanted), ", but was fed a value of type ",
                               DTypeName(feeds[i].dtype()));
      }
      // What follows from static shapes has been computed already.
      const PartialShape& shape = plan.signature.feeds[i].shape();
      if (!shape.CompatibleWith(feeds[i].shape())) {
        return InvalidArgument("Cannot feed value of shape ", feeds[i].shape().ToString(),
                               " for Tensor '", plan.signature.feeds[i].name(),
                               "', which has shape '", shape.ToString(), "'");
      }
    }
    StepState state(resources_, scheduler_, next_step_.fetch_add(1, std::memory_order_relaxed));
    VectorCallFrame frame(std::move(feeds), plan.signature.fetches.size());
    state.step.call_frame = &frame;
    if (plan.lowered != nullptr) state.step.functions = plan.lowered->functions.get();
    std::optional<StepTrace> trace;
    if (metadata != nullptr) {
      metadata->start_nanos = scheduler_.clock().NowNanos();
      if (options.trace) {
        trace.emplace();
        state.step.trace = &*trace;
      }
    }
    if (plan.partitions->has_transfers()) state.AbortRendezvousOnCancel();
    if (plan.has_collectives) state.UseCollectives(collective_groups_);
    RETURN_IF_ERROR(Enter(state.cancellation));
    const LinkedCancellation link(options.cancellation, state.cancellation);
    const LinkedCancellation ended(links_.Of(plan), state.cancellation);
    const absl::Status status = RunToEnd(plan, state, options);
    Leave(state.cancellation);
    if (metadata != nullptr) {
      if (trace) metadata->nodes = trace->Take();
      if (options.keep_partition_graphs) metadata->partition_graphs = plan.partitions->graphs();
    }
    RETURN_IF_ERROR(status);
    return frame.TakeResults();
  }

  absl::StatusOr<std::string> PartialRunSetup(const StepSignature& signature) override {
    ASSIGN_OR_RETURN(std::shared_ptr<LocalPlan> plan,
                     PrepareWith(signature, StepBoundary::kRendezvous));
    const int64_t id = next_step_.fetch_add(1, std::memory_order_relaxed);
    auto partial = std::make_shared<PartialStep>(resources_, scheduler_, id);
    partial->plan = plan;
    if (plan->lowered != nullptr) partial->state.step.functions = plan->lowered->functions.get();
    {
      MutexLock lock(partial->mutex);
      partial->pending_feeds.insert(signature.feeds.begin(), signature.feeds.end());
      partial->pending_fetches.insert(signature.fetches.begin(), signature.fetches.end());
    }
    partial->state.AbortRendezvousOnCancel();
    if (plan->has_collectives) partial->state.UseCollectives(collective_groups_);
    RETURN_IF_ERROR(Enter(partial->state.cancellation));
    for (const Output& fetch : signature.fetches) ReceiveFetch(partial, fetch);
    scheduler_.Schedule([this, partial] {
      partial->plan->partitions->Run(partial->state.step, [this, partial](absl::Status status) {
        {
          MutexLock lock(partial->mutex);
          partial->finished = std::move(status);
          partial->changed.NotifyAll();
        }
        Leave(partial->state.cancellation);
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
    RETURN_IF_ERROR(TakePending(*partial, feeds, fetches));
    for (const auto& [output, tensor] : feeds) {
      RETURN_IF_ERROR(
          partial->state.rendezvous->Send(partial->plan->FeedKey(output), {tensor, false}));
    }
    return WaitForFetches(*partial, handle, fetches);
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
    std::vector<DeviceAttributes> list;
    for (const auto& device : devices_) list.push_back(device->attributes());
    return list;
  }

  absl::Status ClearContainers(const std::vector<std::string>& containers) override {
    if (containers.empty()) resources_.Clear();
    for (const std::string& container : containers) resources_.ClearContainer(container);
    return absl::OkStatus();
  }

 private:
  absl::Status Enter(const std::shared_ptr<Cancellation>& cancellation) {
    MutexLock lock(mutex_);
    if (closed_) return absl::CancelledError("Session has been closed.");
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

  absl::Status RunToEnd(LocalPlan& plan, StepState& state, const RunOptions& options) {
    const absl::Duration timeout =
        options.timeout > absl::ZeroDuration() ? options.timeout : options_.operation_timeout;
    std::optional<Scheduler::TimerId> timer;
    if (timeout > absl::ZeroDuration()) {
      timer = scheduler_.ScheduleAfter(timeout, [cancellation = state.cancellation] {
        cancellation->Cancel(absl::DeadlineExceededError("Timed out waiting for notification"));
      });
    }
    std::atomic<bool> finished{false};
    absl::Status result;
    // The scheduler outlives the session: after `finished` nothing else may be touched.
    plan.partitions->Run(state.step, [&finished, &result, scheduler = &scheduler_,
                                      caller = std::this_thread::get_id()](absl::Status status) {
      result = std::move(status);
      finished.store(true, std::memory_order_release);
      if (std::this_thread::get_id() != caller) scheduler->Wake();
    });
    // This thread counts as one of the pool's while it waits.
    scheduler_.HelpUntil([&finished] { return finished.load(std::memory_order_acquire); });
    if (!finished.load(std::memory_order_acquire)) {
      // Only a simulation can run out of work: what the step waits for never comes.
      state.cancellation->Cancel(
          absl::InternalError("The step waits for something that never comes"));
      scheduler_.HelpUntil([&finished] { return finished.load(std::memory_order_acquire); });
      CHECK(finished.load(std::memory_order_acquire));
    }
    if (timer) scheduler_.CancelTimer(*timer);
    // What a cancelled kernel says is not why the step ended.
    if (result.code() == absl::StatusCode::kCancelled && state.cancellation->cancelled()) {
      return state.cancellation->reason();
    }
    return result;
  }

  absl::StatusOr<std::shared_ptr<LocalPlan>> PrepareWith(const StepSignature& signature,
                                                         StepBoundary boundary) {
    const auto key = std::make_pair(signature, boundary);
    {
      MutexLock lock(mutex_);
      if (closed_) return absl::CancelledError("Session has been closed.");
      const auto found = plans_.find(key);
      if (found != plans_.end()) return found->second;
    }
    RETURN_IF_ERROR(CheckExecutorType(options_.executor_type));
    auto plan = std::make_shared<LocalPlan>(signature);
    ASSIGN_OR_RETURN(plan->lowered, LowerIfNeeded());
    const bool is_lowered = plan->lowered != nullptr && plan->lowered->graph.graph != nullptr;
    ASSIGN_OR_RETURN(
        std::unique_ptr<Graph> step_graph,
        PruneForStep(is_lowered ? *plan->lowered->graph.graph : graph_,
                     is_lowered ? plan->lowered->Translate(signature) : signature, boundary));
    ASSIGN_OR_RETURN(plan->partitions,
                     LocalPartitions::Create(std::move(step_graph), Devices(), PartitionOptions(),
                                             [this](const Node& node, Device& device) {
                                               return KernelFor(node, device);
                                             }));
    plan->has_collectives = HasCollectives(*plan);
    MutexLock lock(mutex_);
    return plans_.emplace(key, std::move(plan)).first->second;
  }

  // Functions may be called from anywhere: a library that has them counts.
  bool HasCollectives(const LocalPlan& plan) const {
    const auto is_collective = [](const auto& node) {
      return absl::StartsWith(node->op(), "Collective");
    };
    for (const auto& graph : plan.partitions->graphs()) {
      if (std::any_of(graph->nodes().begin(), graph->nodes().end(), is_collective)) return true;
    }
    return plan.lowered != nullptr;
  }

  std::vector<Device*> Devices() const {
    std::vector<Device*> devices;
    for (const auto& device : devices_) devices.push_back(device.get());
    return devices;
  }

  LocalPartitions::Options PartitionOptions() const {
    LocalPartitions::Options options;
    options.optimize_graph = options_.optimize_graph;
    options.allow_soft_placement = options_.allow_soft_placement;
    options.log_device_placement = options_.log_device_placement;
    return options;
  }

  // Made anew when the graph has grown since.
  absl::StatusOr<std::shared_ptr<const Lowered>> LowerIfNeeded() {
    if (graph_.functions().empty() && !HasSymbolicGradient(graph_)) return nullptr;
    MutexLock lock(lowered_mutex_);
    if (lowered_ != nullptr && lowered_->num_nodes == graph_.num_nodes() &&
        lowered_->num_functions == graph_.functions().size()) {
      return lowered_;
    }
    auto lowered = std::make_shared<Lowered>();
    lowered->num_nodes = graph_.num_nodes();
    lowered->num_functions = graph_.functions().size();
    const bool needed =
        std::any_of(graph_.nodes().begin(), graph_.nodes().end(),
                    [this](const auto& node) { return IsFunctional(*node, graph_); });
    if (needed) {
      ASSIGN_OR_RETURN(lowered->graph, LowerFunctions(graph_, graph_));
    }
    // The library must stay as it is while steps run; the session's graph may grow.
    auto library = std::make_shared<Graph>();
    library->versions() = graph_.versions();
    CopyFunctions(graph_, *library);
    lowered->functions = std::make_shared<FunctionRuntime>(std::move(library), Devices(),
                                                           resources_, PartitionOptions());
    lowered_ = std::move(lowered);
    return lowered_;
  }

  // Stateful kernels live as long as the session and belong to the node's name, whatever step runs
  // them.
  absl::StatusOr<std::shared_ptr<Kernel>> KernelFor(const Node& node, Device& device) {
    // Nodes at the border of a partition are stateful to the graph only, and their names mean
    // something else in another step.
    static const auto* borders =
        new absl::flat_hash_set<absl::string_view>{"_Arg", "_Retval", "_Send", "_Recv"};
    const bool shared = node.def().is_stateful && !borders->contains(node.op());
    if (shared) {
      MutexLock lock(kernels_mutex_);
      const auto found = kernels_.find(node.name());
      if (found != kernels_.end()) return found->second;
    }
    ASSIGN_OR_RETURN(std::shared_ptr<Kernel> kernel, MakeKernel(node, device, resources_));
    if (!shared) return kernel;
    MutexLock lock(kernels_mutex_);
    return kernels_.emplace(node.name(), std::move(kernel)).first->second;
  }

  void ReceiveFetch(const std::shared_ptr<PartialStep>& partial, const Output& fetch) {
    partial->state.rendezvous->RecvAsync(StepKey(fetch.name(), false),
                                         [partial, fetch](absl::StatusOr<Rendezvous::Value> value) {
                                           MutexLock lock(partial->mutex);
                                           if (value.ok())
                                             partial->fetched[fetch] = std::move(value->tensor);
                                           partial->changed.NotifyAll();
                                         });
  }

  static absl::Status TakePending(PartialStep& partial,
                                  const std::vector<std::pair<Output, Tensor>>& feeds,
                                  const std::vector<Output>& fetches) {
    MutexLock lock(partial.mutex);
    for (const auto& [output, tensor] : feeds) {
      if (!partial.pending_feeds.erase(output)) {
        return InvalidArgument("The feed ", output.name(),
                               " had already been fed, or was not specified in "
                               "partial_run_setup.");
      }
      if (tensor.dtype() != output.base_dtype()) {
        return InvalidArgument("Tensor ", output.name(), " has type ",
                               DTypeName(output.base_dtype()), ", but was fed a value of type ",
                               DTypeName(tensor.dtype()));
      }
    }
    for (const Output& fetch : fetches) {
      if (!partial.pending_fetches.erase(fetch)) {
        return InvalidArgument("The fetch ", fetch.name(),
                               " had already been fetched, or was not specified in "
                               "partial_run_setup.");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Tensor>> WaitForFetches(PartialStep& partial,
                                                     const std::string& handle,
                                                     const std::vector<Output>& fetches) {
    std::vector<Tensor> results;
    bool over;
    {
      MutexLock lock(partial.mutex);
      for (const Output& fetch : fetches) {
        while (!partial.fetched.contains(fetch)) {
          if (partial.finished && !partial.finished->ok()) return *partial.finished;
          if (partial.finished)
            return InvalidArgument("The tensor ", fetch.name(), " has no value: it is dead");
          if (!partial.changed.WaitFor(partial.mutex, absl::Seconds(1)) &&
              NeedsFeeds(partial, fetch)) {
            // Nothing moves, and feeds are missing on which the fetch may depend: say so instead of
            // waiting for ever.
            return InvalidArgument("Fetch ", fetch.name(),
                                   " can't be computed from the feeds that have been fed so far.");
          }
        }
        results.push_back(std::move(partial.fetched[fetch]));
      }
      over = partial.pending_feeds.empty() && partial.pending_fetches.empty();
    }
    if (over) {
      MutexLock lock(mutex_);
      partial_runs_.erase(handle);
    }
    return results;
  }

  // Whether `fetch` depends on something that has not been fed yet.
  static bool NeedsFeeds(PartialStep& partial, const Output& fetch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(partial.mutex) {
    absl::flat_hash_set<Output> all(partial.plan->signature.feeds.begin(),
                                    partial.plan->signature.feeds.end());
    absl::flat_hash_set<const Node*> seen;
    std::vector<const Node*> open = {fetch.node};
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      if (!seen.insert(node).second) continue;
      for (const Output& input : node->inputs()) {
        if (partial.pending_feeds.contains(input)) return true;
        if (!all.contains(input)) open.push_back(input.node);
      }
      for (const Node* before : node->control_inputs()) open.push_back(before);
    }
    return false;
  }

  const Graph& graph_;
  const SessionOptions options_;
  Scheduler& scheduler_;
  ResourceManager resources_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::atomic<int64_t> next_step_{1};
  const std::shared_ptr<CollectiveGroups> collective_groups_ =
      std::make_shared<CollectiveGroups>(scheduler_);

  Mutex lowered_mutex_;
  std::shared_ptr<const Lowered> lowered_ ABSL_GUARDED_BY(lowered_mutex_);

  Mutex kernels_mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Kernel>> kernels_
      ABSL_GUARDED_BY(kernels_mutex_);

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

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const Graph& graph,
                                                         SessionOptions options) {
  if (options.master != nullptr) return NewRemoteSession(graph, std::move(options));
  if (options.cpu_devices < 1 || options.cpu_devices > 1024) {
    return InvalidArgument("device_count CPU is ", options.cpu_devices,
                           "; a session has between 1 and 1024 CPU devices");
  }
  return std::make_unique<LocalSession>(graph, options);
}

absl::StatusOr<std::vector<std::string>> Session::ExplainPlacement(absl::string_view node) const {
  ASSIGN_OR_RETURN(const std::vector<DeviceAttributes> all, ListDevices());
  std::vector<std::string> devices;
  for (const DeviceAttributes& device : all) devices.push_back(device.name);
  ExplainOptions options;
  options.allow_soft_placement = allows_soft_placement();
  // Masters name their own devices first.
  if (!devices.empty()) options.local_task = std::string(TaskOfDevice(devices.front()));
  options.node = std::string(node);
  return muster::ExplainPlacement(graph(), devices, options);
}

absl::StatusOr<std::vector<Tensor>> Session::Run(
    const std::vector<std::pair<Output, Tensor>>& feeds, const std::vector<Output>& fetches,
    const std::vector<Node*>& targets, const RunOptions& options) {
  StepSignature signature;
  std::vector<Tensor> values;
  for (const auto& [output, tensor] : feeds) {
    signature.feeds.push_back(output);
    values.push_back(tensor);
  }
  signature.fetches = fetches;
  signature.targets = targets;
  ASSIGN_OR_RETURN(std::shared_ptr<StepPlan> plan, Prepare(signature));
  return Run(*plan, std::move(values), options);
}

}  // namespace muster
