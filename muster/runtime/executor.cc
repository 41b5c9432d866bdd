#include "muster/runtime/executor.h"

#include <atomic>

#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/runtime/executor_run.h"
#include "muster/runtime/trace.h"

namespace muster {
namespace {

constexpr int64_t kShortNanos = 5000000;

// Keeps runs that are over for later steps.
class PlannedExecutor : public Executor, public ExecutorRun::Owner {
 public:
  PlannedExecutor(ExecutorPlan plan, Device& device) : plan_(std::move(plan)), device_(device) {}

  void Run(Step& step, Done done) override {
    if (plan_.nodes.empty()) {
      std::move(done)(absl::OkStatus());
      return;
    }
    std::unique_ptr<ExecutorRun> run;
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        run = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (run == nullptr) run = std::make_unique<ExecutorRun>(*this, plan_, device_);
    run.release()->Start(step, std::move(done));
  }

  bool is_brief() const override { return is_brief_.load(std::memory_order_relaxed); }
  bool is_short() const override { return is_short_.load(std::memory_order_relaxed); }

 private:
  void Return(std::unique_ptr<ExecutorRun> run) override {
    MutexLock lock(mutex_);
    // Soon after the first step, then now and then: what nodes take changes with their inputs.
    if (const uint64_t step = ++steps_run_; step == 2 || step % 64 == 0) Estimate();
    if (idle_.size() < 8) idle_.push_back(std::move(run));
  }

  void Estimate() {
    int64_t total_nanos = 0;
    for (const PlanNode& node : plan_.nodes)
      if (node.kind != NodeKind::kConstant)
        total_nanos += 200 + node.cost_nanos.load(std::memory_order_relaxed);
    // How often a loop goes round is not known.
    const bool is_known = plan_.frames.size() == 1;
    is_brief_.store(is_known && total_nanos < kBriefNanos, std::memory_order_relaxed);
    is_short_.store(is_known && total_nanos < kShortNanos, std::memory_order_relaxed);
  }

  const ExecutorPlan plan_;
  Device& device_;
  std::atomic<bool> is_brief_{false};
  std::atomic<bool> is_short_{false};
  Mutex mutex_;
  uint64_t steps_run_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<ExecutorRun>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const Graph& graph, Device& device,
                                                           KernelSource kernels) {
  ASSIGN_OR_RETURN(ExecutorPlan plan, ExecutorPlan::Make(graph, device, kernels));
  return std::make_unique<PlannedExecutor>(std::move(plan), device);
}

// --- What is no part of the way of a step

void ExecutorRun::PlaceConstants() {
  for (size_t i = 0; i < plan_.constants.size(); ++i) {
    if (!plan_.constants[i].valid()) continue;
    root_iteration_.inputs[i].tensor = plan_.constants[i];
    root_iteration_.inputs[i].state = Entry::State::kValue;
  }
}

void ExecutorRun::TraceConstants() {
  for (const PlanNode& item : plan_.nodes) {
    if (item.kind != NodeKind::kConstant) continue;
    NodeOutputs value(1);
    value[0].tensor = item.node->Attr<Tensor>("value").value_or(Tensor());
    Trace(item, value, step_->scheduler->clock().NowNanos());
  }
}

absl::Status ExecutorRun::Compute(const PlanNode& item, KernelContext& context) const {
  const RunningNode running = AtWork(item);
  return item.kernel->Compute(context);
}

// For what a device with a stream says of the node.
RunningNode ExecutorRun::AtWork(const PlanNode& item) const {
  if (!plan_.keeps_order) return RunningNode();
  return RunningNode(NodeAtWork{&item.node->name(), &item.node->op(), &device_.name(),
                                step_->trace == nullptr ? nullptr : &step_->trace->gpu_times()});
}

void ExecutorRun::Trace(const PlanNode& item, const NodeOutputs& outputs,
                        int64_t start_nanos) const {
  NodeTrace trace;
  trace.device = device_.name();
  trace.node = item.node->name();
  trace.op = item.node->op();
  trace.scheduled_nanos = start_nanos;
  trace.start_nanos = start_nanos;
  trace.end_nanos = step_->scheduler->clock().NowNanos();
  trace.thread_id = static_cast<uint32_t>(gettid());
  for (int i = 0; i < item.num_outputs; ++i) {
    const Tensor& tensor = outputs[i].tensor;
    if (tensor.valid()) {
      trace.outputs.push_back({i, tensor.dtype(), tensor.shape(),
                               static_cast<int64_t>(tensor.size_bytes()),
                               IsInDeviceMemory(tensor)});
    }
  }
  step_->trace->Add(std::move(trace));
}

}  // namespace muster
