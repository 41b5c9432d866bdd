// What of a run is no part of the way of most steps: traces, names for devices with a stream,
// sharing many nodes among threads, and what a step that failed has left.
#include <unistd.h>

#include "muster/runtime/executor_run.h"
#include "muster/runtime/trace.h"

namespace muster {
namespace {

// Threads that share smaller nodes would mostly wait for the counts and references which all of
// them change.
constexpr uint32_t kNanosWorthSharing = 500;

}  // namespace

bool ExecutorRun::IsWorthSharing(const ReadyNodes& here) const {
  constexpr size_t kLookedAt = 16;
  uint64_t nanos = 0;
  for (size_t i = 0; i < kLookedAt; ++i) {
    const ReadyNode& at = here[i * here.size() / kLookedAt];
    nanos += plan_.nodes[at.node].cost_nanos.load(std::memory_order_relaxed);
  }
  return nanos >= kLookedAt * kNanosWorthSharing;
}

// Many nodes are divided among the threads; the last share stays here.
void ExecutorRun::Share(ReadyNodes& here) {
  const auto shares = static_cast<size_t>(step_->scheduler->parallelism());
  const size_t size = here.size() / shares;
  for (size_t i = 1; i < shares; ++i) {
    ReadyNodes share(here.end() - static_cast<int64_t>(size), here.end());
    here.resize(here.size() - size);
    step_->scheduler->Schedule(
        [this, handed = std::move(share)]() mutable { Loop(std::move(handed), true); });
  }
}

void ExecutorRun::PlaceConstants() {
  for (size_t i = 0; i < plan_.constants.size(); ++i) {
    if (!plan_.constants[i].valid()) continue;
    root_iteration_.inputs[i].tensor = plan_.constants[i];
    root_iteration_.inputs[i].state = Entry::State::kValue;
  }
}

absl::Status ExecutorRun::ComputeInOrder(const PlanNode& item, KernelContext& context) const {
  const RunningNode running(AtWork(item));
  return item.kernel->Compute(context);
}

// For what a device with a stream says of the node.
NodeAtWork ExecutorRun::AtWork(const PlanNode& item) const {
  return {&item.node->name(), &item.node->op(), &device_.name(),
          step_->trace == nullptr ? nullptr : &step_->trace->gpu_times()};
}

void ExecutorRun::TraceConstants() {
  for (const PlanNode& item : plan_.nodes) {
    if (item.kind != NodeKind::kConstant) continue;
    NodeOutputs value(1);
    value[0].tensor = item.node->Attr<Tensor>("value").value_or(Tensor());
    Trace(item, value, step_->scheduler->clock().NowNanos());
  }
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

absl::Status CheckExecutorType(absl::string_view name) {
  if (name.empty() || name == "DEFAULT" || name == "SINGLE_THREADED_EXECUTOR")
    return absl::OkStatus();
  return NotFound("No executor factory registered for the given executor type: ", name,
                  " Registered factories are {DEFAULT, , SINGLE_THREADED_EXECUTOR}.");
}

}  // namespace muster
