#include "muster/runtime/executor.h"

#include <atomic>

#include "muster/base/mutex.h"
#include "muster/runtime/executor_run.h"

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

}  // namespace muster
