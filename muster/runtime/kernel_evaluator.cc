// Computes nodes with known inputs for graph/, by running their CPU kernels.
#include <algorithm>

#include "muster/base/float_mode.h"
#include "muster/graph/evaluator.h"
#include "muster/runtime/kernel.h"

namespace muster {
namespace {

// Runs everything at once on the calling thread: folding must not depend on a pool.
class InlineScheduler : public Scheduler {
 public:
  void Schedule(Task task) override { std::move(task)(); }
  TimerId ScheduleAfter(absl::Duration, Task) override { return 0; }
  bool CancelTimer(TimerId) override { return false; }
  // Everything has run when Schedule returns.
  bool HelpUntil(absl::FunctionRef<bool()> done, absl::Duration) override { return done(); }
  int parallelism() const override { return 1; }
  Clock& clock() override { return Clock::Real(); }
  void ParallelFor(int64_t count, double, absl::FunctionRef<void(int64_t, int64_t)> body) override {
    if (count > 0) body(0, count);
  }
};

class KernelEvaluator : public ConstantEvaluator {
 public:
  KernelEvaluator() : device_(NewCpuDevice("/device:CPU:0", scheduler_)) { Install(this); }

  absl::StatusOr<std::vector<Tensor>> Evaluate(const Node& node,
                                               absl::Span<const Tensor> inputs) override {
    ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, MakeKernel(node, *device_, resources_));
    if (kernel->is_async()) return Unimplemented("Asynchronous kernels are not folded");
    Step step;
    step.resources = &resources_;
    step.step_resources = &resources_;
    step.scheduler = &scheduler_;
    std::vector<Entry> in(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      in[i].tensor = inputs[i];
      in[i].state = Entry::State::kValue;
    }
    std::vector<Entry> out(node.num_outputs());
    KernelContext context(step, *device_, node, absl::MakeSpan(in), absl::MakeSpan(out));
    const FlushDenormals flush;
    RETURN_IF_ERROR(kernel->Compute(context));
    std::vector<Tensor> outputs;
    for (Entry& entry : out) {
      if (entry.state != Entry::State::kValue)
        return FailedPrecondition("No value from ", node.name());
      outputs.push_back(std::move(entry.tensor));
    }
    return outputs;
  }

 private:
  InlineScheduler scheduler_;
  ResourceManager resources_;
  std::unique_ptr<Device> device_;
};

// Lives as long as the process, like the op registry; installed before main.
const auto* const evaluator = new KernelEvaluator;

}  // namespace
}  // namespace muster
