#include "muster/runtime/function_runtime.h"

#include "absl/algorithm/container.h"

#include "muster/base/cancel_callback.h"
#include "muster/device/device_copies.h"
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

std::string KeyOf(const FunctionRef& function, const CallSite& site) {
  std::string key = function.name;
  for (const auto& [name, value] : function.attrs)
    absl::StrAppend(&key, ";", name, "=", value.ToString());
  if (site.device == nullptr) return key;
  absl::StrAppend(&key, "@", site.device->name(), ";", site.on_device, site.results_on_host,
                  site.counts_on_device);
  for (const std::string& device : site.handle_devices) absl::StrAppend(&key, ";", device);
  return key;
}

// Arguments and results that are in the memory of the caller's device become _DeviceArg and
// _DeviceRetval there; handles go to what they point to.
absl::Status SetBorder(Graph& body, const CallSite& site, const std::vector<Device*>& devices) {
  const auto is_here = [&](absl::string_view name) {
    return absl::c_any_of(devices, [&](const Device* device) { return device->name() == name; });
  };
  absl::flat_hash_map<const Node*, Node*> replaced;
  const int num_nodes = body.num_nodes();
  for (int id = 0; id < num_nodes; ++id) {
    Node& node = *body.nodes()[id];
    const bool is_argument = node.op() == "_Arg";
    if (!is_argument && node.op() != "_Retval") continue;
    const DType dtype = is_argument ? node.output_types()[0] : node.input_types()[0];
    if (is_argument && dtype == DType::kResource) {
      ASSIGN_OR_RETURN(const int64_t index, node.Attr<int64_t>("index"));
      if (index >= 0 && index < static_cast<int64_t>(site.handle_devices.size()) &&
          is_here(site.handle_devices[index]))
        node.set_device(site.handle_devices[index]);
    }
    if (!site.on_device || (!is_argument && site.results_on_host) || StaysOnHost(BaseType(dtype)) ||
        (dtype == DType::kInt32 && !site.counts_on_device))
      continue;
    NodeSpec spec;
    spec.name = body.UniqueName(absl::StrCat(node.name(), "/device"));
    spec.op = is_argument ? "_DeviceArg" : "_DeviceRetval";
    spec.flat_inputs = node.inputs();
    spec.attrs = node.attrs();
    spec.device = site.device->name();
    ASSIGN_OR_RETURN(replaced[&node], body.AddNode(std::move(spec)));
  }
  if (replaced.empty()) return absl::OkStatus();
  const auto now = [&](Node* node) {
    const auto found = replaced.find(node);
    return found == replaced.end() ? node : found->second;
  };
  std::vector<Graph::Wiring> wiring;
  for (int id = 0; id < num_nodes; ++id) {
    const Node& before = *body.nodes()[id];
    Graph::Wiring wires{now(body.nodes()[id].get()), before.inputs(), before.control_inputs(), ""};
    for (Output& input : wires.inputs) input.node = now(input.node);
    for (Node*& control : wires.control_inputs) control = now(control);
    wiring.push_back(std::move(wires));
  }
  body.Rewire(std::move(wiring));
  return absl::OkStatus();
}

}  // namespace

CallSite CallSiteOf(Device& device, absl::Span<const Tensor> arguments) {
  CallSite site;
  site.device = &device;
  site.on_device = device.has_own_memory();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].dtype() != DType::kResource || arguments[i].num_elements() != 1) continue;
    site.handle_devices.resize(i + 1);
    site.handle_devices[i] = arguments[i].data<ResourceHandle>()->device;
  }
  return site;
}

absl::StatusOr<std::unique_ptr<FunctionRuntime::Instance>> FunctionRuntime::Make(
    const FunctionRef& function, const CallSite& site) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<Graph> body, InstantiateCallee(*library_, function));
  auto instance = std::make_unique<Instance>();
  instance->name = function.name;
  for (const auto& node : body->nodes()) {
    if (node->op() == "_Arg") instance->argument_types.push_back(node->output_types()[0]);
    if (node->op() == "_Retval") ++instance->num_results;
  }
  ASSIGN_OR_RETURN(LoweredGraph lowered, LowerFunctions(*body, *library_));
  LocalPartitions::Options options = options_;
  if (devices_.size() > 1 && site.device != nullptr) {
    RETURN_IF_ERROR(SetBorder(*lowered.graph, site, devices_));
    options.default_device = site.device->name();
  }
  ASSIGN_OR_RETURN(
      instance->partitions,
      LocalPartitions::Create(std::move(lowered.graph), devices_, options,
                              [&resources = resources_](const Node& node, Device& device)
                                  -> absl::StatusOr<std::shared_ptr<Kernel>> {
                                return MakeKernel(node, device, resources);
                              }));
  return instance;
}

Device* FunctionRuntime::FindDevice(absl::string_view name) const {
  const auto found =
      absl::c_find_if(devices_, [&](const Device* device) { return device->name() == name; });
  return found == devices_.end() ? nullptr : *found;
}

absl::StatusOr<FunctionCaller::Handle> FunctionRuntime::Instantiate(const FunctionRef& function,
                                                                    const CallSite& site) {
  const std::string key = KeyOf(function, site);
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) return found->second;
  ASSIGN_OR_RETURN(std::unique_ptr<Instance> instance, Make(function, site));
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
