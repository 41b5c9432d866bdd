#include "muster/runtime/function_runtime.h"

#include "muster/base/cancel_callback.h"
#include "muster/graph/gradients/function_gradient.h"
#include "muster/graph/rewrite/lower.h"
#include "muster/runtime/vector_call_frame.h"

namespace muster {
namespace {

// Deeper recursion is an error, before it takes all memory.
constexpr int kDeepest = 1000;
// Calls and their returns nest on the stack of one thread; after this many levels the work moves to
// a new stack.
constexpr int kLevelsPerStack = 16;

// One call under way.
class FunctionCall : public VectorCallFrame {
 public:
  FunctionCall(const Step& caller, std::vector<Tensor> arguments, size_t num_results)
      : VectorCallFrame(std::move(arguments), num_results),
        step(caller),
        depth(DepthBelow(caller)) {
    step.call_frame = this;
  }

  // False when the step is cancelled already.
  bool UseOwnRendezvous() {
    rendezvous_ = NewLocalRendezvous();
    step.rendezvous = rendezvous_.get();
    return on_cancel_.Start(
        step.cancellation,
        [rendezvous = rendezvous_](const absl::Status& reason) { rendezvous->Abort(reason); });
  }
  void ReleaseRendezvous() { on_cancel_.Release(); }

  // Runs `task` here, or on a new stack where this one has grown enough.
  template <typename Task>
  void RunOrSchedule(Task task) {
    if (depth % kLevelsPerStack != 0) {
      task();
    } else {
      step.scheduler->Schedule(std::move(task));
    }
  }

  Step step;
  const int depth;

 private:
  static int DepthBelow(const Step& caller) {
    const auto* const outer = dynamic_cast<const FunctionCall*>(caller.call_frame);
    return outer == nullptr ? 1 : outer->depth + 1;
  }

  std::shared_ptr<Rendezvous> rendezvous_;
  CancelCallback on_cancel_;
};

std::string KeyOf(const FunctionRef& function) {
  std::string key = function.name;
  for (const auto& [name, value] : function.attrs)
    absl::StrAppend(&key, ";", name, "=", value.ToString());
  return key;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FunctionRuntime::Instance>> FunctionRuntime::Make(
    const FunctionRef& function) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<Graph> body, InstantiateCallee(*library_, function));
  auto instance = std::make_unique<Instance>();
  instance->name = function.name;
  for (const auto& node : body->nodes()) {
    if (node->op() == "_Arg") instance->argument_types.push_back(node->output_types()[0]);
    if (node->op() == "_Retval") ++instance->num_results;
  }
  ASSIGN_OR_RETURN(LoweredGraph lowered, LowerFunctions(*body, *library_));
  ASSIGN_OR_RETURN(
      instance->partitions,
      LocalPartitions::Create(std::move(lowered.graph), devices_, options_,
                              [&resources = resources_](const Node& node, Device& device)
                                  -> absl::StatusOr<std::shared_ptr<Kernel>> {
                                return MakeKernel(node, device, resources);
                              }));
  return instance;
}

absl::StatusOr<FunctionCaller::Handle> FunctionRuntime::Instantiate(const FunctionRef& function) {
  const std::string key = KeyOf(function);
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) return found->second;
  ASSIGN_OR_RETURN(std::unique_ptr<Instance> instance, Make(function));
  const auto handle = static_cast<Handle>(instances_.size());
  instances_.push_back(std::move(instance));
  by_key_.emplace(key, handle);
  return handle;
}

void FunctionRuntime::Call(Handle handle, std::vector<Tensor> arguments, Step& step,
                           CallDone done) {
  const Instance* instance = nullptr;
  {
    MutexLock lock(mutex_);
    if (handle >= 0 && handle < static_cast<Handle>(instances_.size()))
      instance = instances_[handle].get();
  }
  if (instance == nullptr) {
    std::move(done)(InvalidArgument("No function has the handle ", handle));
    return;
  }
  if (arguments.size() != instance->argument_types.size()) {
    std::move(done)(InvalidArgument("Expects ", instance->argument_types.size(), " arguments, but ",
                                    arguments.size(), " is provided"));
    return;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].dtype() == BaseType(instance->argument_types[i])) continue;
    std::move(done)(InvalidArgument("Expects arg[", i, "] to be ",
                                    DTypeName(instance->argument_types[i]), " but ",
                                    DTypeName(arguments[i].dtype()), " is provided"));
    return;
  }
  auto call = std::make_shared<FunctionCall>(step, std::move(arguments), instance->num_results);
  if (call->depth > kDeepest) {
    std::move(done)(absl::ResourceExhaustedError(
        absl::StrCat("Function ", instance->name, " is called ", call->depth,
                     " levels deep: at most ", kDeepest, " calls may be nested")));
    return;
  }
  if (instance->partitions->has_transfers() && !call->UseOwnRendezvous()) {
    std::move(done)(step.cancellation->reason());
    return;
  }
  auto finish = [call, done = std::move(done)](const absl::Status& status) mutable {
    call->ReleaseRendezvous();
    call->RunOrSchedule([call, status, done = std::move(done)]() mutable {
      if (!status.ok()) {
        std::move(done)(status);
      } else {
        std::move(done)(call->TakeResults());
      }
    });
  };
  call->RunOrSchedule([call, instance, finish = std::move(finish)]() mutable {
    instance->partitions->Run(call->step, std::move(finish));
  });
}

}  // namespace muster
