#include "muster/ops/data/captured_function.h"

#include <atomic>

#include "muster/base/cancel_callback.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

// A step of its own for every call: one that fails is cancelled, the others are not.
struct CallState {
  explicit CallState(Cancellation* parent)
      : cancellation(parent), rendezvous(NewLocalRendezvous()) {
    // Apart from the numbers of sessions' steps.
    static std::atomic<int64_t> next{int64_t{1} << 60};
    step.id = next.fetch_add(1, std::memory_order_relaxed);
    step.rendezvous = rendezvous.get();
    step.cancellation = &cancellation.get();
    step.step_resources = &step_resources;
  }
  ChildCancellation cancellation;
  std::unique_ptr<Rendezvous> rendezvous;
  ResourceManager step_resources{"step"};
  Step step;
};

struct Answer {
  Mutex mutex;
  CondVar came;
  std::optional<absl::StatusOr<Element>> value ABSL_GUARDED_BY(mutex);
};

}  // namespace

absl::StatusOr<CapturedFunctionPtr> CapturedFunction::Make(const KernelContext& c, const char* attr,
                                                           absl::Span<const Tensor> captured) {
  ASSIGN_OR_RETURN(const FunctionRef function, c.node().Attr<FunctionRef>(attr));
  auto* const runtime = dynamic_cast<FunctionRuntime*>(c.step().functions);
  if (runtime == nullptr) return NotFound("Function ", function.name, " is not defined.");
  CallSite site;
  site.device = &c.device();
  site.on_device = site.counts_on_device = c.device().has_own_memory();
  ASSIGN_OR_RETURN(const FunctionCaller::Handle handle, runtime->Instantiate(function, site));
  std::vector<Tensor> kept;
  for (const Tensor& tensor : captured) kept.push_back(KeptTensor(tensor));
  return std::make_shared<const CapturedFunction>(
      runtime->shared_from_this(), handle, std::move(kept), c.resources(), *c.step().scheduler,
      OrThisProcess(c.step().caller));
}

void CapturedFunction::CallAsync(const DataContext& context, Element arguments,
                                 FunctionCaller::CallDone done) const {
  auto state = std::make_shared<CallState>(context.cancellation);
  state->step.resources = &resources_;
  state->step.scheduler = &scheduler_;
  state->step.functions = runtime_.get();
  state->step.caller = caller_.get();
  arguments.insert(arguments.end(), captured_.begin(), captured_.end());
  Step& step = state->step;
  runtime_->Call(handle_, std::move(arguments), step,
                 [state, done = std::move(done)](absl::StatusOr<Element> results) mutable {
                   // The thread that waits for the last call may destroy the context after it.
                   state->cancellation.Detach();
                   std::move(done)(std::move(results));
                 });
}

absl::StatusOr<Element> CapturedFunction::Call(const DataContext& context,
                                               Element arguments) const {
  auto answer = std::make_shared<Answer>();
  CallAsync(context, std::move(arguments), [answer](absl::StatusOr<Element> results) {
    MutexLock lock(answer->mutex);
    answer->value = std::move(results);
    answer->came.NotifyAll();
  });
  MutexLock lock(answer->mutex);
  while (!answer->value.has_value()) answer->came.Wait(answer->mutex);
  return *std::move(answer->value);
}

absl::StatusOr<std::vector<Tensor>> CapturedInputs(const KernelContext& c, int first,
                                                   const char* types_attr) {
  ASSIGN_OR_RETURN(const std::vector<DType> types, c.node().Attr<std::vector<DType>>(types_attr));
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < types.size(); ++i) inputs.push_back(c.input(first + static_cast<int>(i)));
  return inputs;
}

}  // namespace muster
