#include "muster/runtime/kernel.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

#include "muster/base/check.h"
#include "muster/base/mutex.h"
#include "muster/graph/infer.h"
#include "muster/graph/op_registry.h"
#include "muster/runtime/lack_of_memory.h"

namespace muster {
namespace {

class StatelessKernel : public Kernel {
 public:
  explicit StatelessKernel(KernelFunction function) : function_(function) {}
  absl::Status Compute(KernelContext& c) override { return function_(c); }

 private:
  KernelFunction function_;
};

constexpr size_t kMostOps = 8192;

Mutex& RegistryMutex() {
  static auto* mutex = new Mutex;
  return *mutex;
}

bool Fits(const KernelRegistration& kernel, const Node& node) {
  for (const auto& [attr, dtype] : kernel.types) {
    const AttrValue* value = node.FindAttr(attr);
    if (value == nullptr) return false;
    if (const DType* type = value->get<DType>()) {
      if (*type != dtype) return false;
    } else if (const auto* types = value->get<std::vector<DType>>()) {
      for (DType each : *types) {
        if (each != dtype) return false;
      }
    } else {
      return false;
    }
  }
  return true;
}

std::string KernelText(const KernelRegistration& kernel) {
  std::vector<std::string> types;
  for (const auto& [attr, dtype] : kernel.types) {
    types.push_back(absl::StrCat(attr, " in [DT_", absl::AsciiStrToUpper(DTypeName(dtype)), "]"));
  }
  return absl::StrCat("  device='", kernel.device_type, "'", types.empty() ? "" : "; ",
                      absl::StrJoin(types, "; "), "\n");
}

}  // namespace

KernelFactory Stateless(KernelFunction function) {
  return [function] { return std::make_unique<StatelessKernel>(function); };
}

absl::StatusOr<Tensor*> KernelContext::AllocateOutput(int i, const Shape& shape) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(output_type(i), shape, device_.allocator()));
  outputs_[i].tensor = std::move(tensor);
  outputs_[i].state = Entry::State::kValue;
  return &outputs_[i].tensor;
}

absl::StatusOr<Tensor*> KernelContext::ForwardOrAllocate(std::initializer_list<int> inputs, int i,
                                                         const Shape& shape) {
  for (int input : inputs) {
    Entry& entry = inputs_[input];
    if (entry.tensor.dtype() == output_type(i) &&
        entry.tensor.num_elements() == shape.num_elements() && !entry.reference &&
        entry.tensor.exclusive()) {
      // The input stays readable (same memory) until the kernel returns.
      outputs_[i].tensor =
          entry.tensor.shape() == shape ? entry.tensor : entry.tensor.Reshaped(shape);
      outputs_[i].state = Entry::State::kValue;
      return &outputs_[i].tensor;
    }
  }
  return AllocateOutput(i, shape);
}

absl::StatusOr<Tensor> KernelContext::AllocateTemporary(DType dtype, const Shape& shape) {
  return Tensor::Make(dtype, shape, device_.allocator());
}

void KernelContext::SetOutput(int i, Tensor tensor) {
  outputs_[i].tensor = std::move(tensor);
  outputs_[i].state = Entry::State::kValue;
}

void KernelContext::SetOutputReference(int i, RefPtr<Variable> variable) {
  outputs_[i].reference = std::move(variable);
  outputs_[i].state = Entry::State::kReference;
}

std::string KernelContext::frame_and_iteration() const {
  return absl::StrCat(frame_id_, ":", iteration_);
}

KernelRegistry& KernelRegistry::Global() {
  static auto* registry = [] {
    auto* made = new KernelRegistry;
    // Never resized, so that references that For has returned stay valid.
    made->by_op_.reserve(kMostOps);
    return made;
  }();
  return *registry;
}

// The definition of an op adds its kernels before the op can be found.
void KernelRegistry::Add(KernelRegistration registration) {
  MutexLock lock(RegistryMutex());
  CHECK(by_op_.size() < kMostOps);
  by_op_[registration.op].push_back(std::move(registration));
}

const std::vector<KernelRegistration>& KernelRegistry::For(absl::string_view op) const {
  static const auto* none = new std::vector<KernelRegistration>;
  OpRegistry::Global().Find(op);  // its definition has run
  MutexLock lock(RegistryMutex());
  const auto found = by_op_.find(op);
  return found == by_op_.end() ? *none : found->second;
}

absl::StatusOr<const KernelRegistration*> KernelRegistry::Find(
    const Node& node, absl::string_view device_type) const {
  const std::vector<KernelRegistration>& candidates = For(node.op());
  for (const KernelRegistration& kernel : candidates) {
    if (kernel.device_type == device_type && Fits(kernel, node)) return &kernel;
  }
  std::string registered;
  for (const KernelRegistration& kernel : candidates)
    absl::StrAppend(&registered, KernelText(kernel));
  return InvalidArgument(
      "No OpKernel was registered to support Op '", node.op(), "' used by {{node ", node.name(),
      "}} with these attrs: ", SummarizeNode(node), "\nRegistered devices: [", device_type,
      "]\nRegistered kernels:\n", registered.empty() ? "  <no registered kernels>\n" : registered);
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const Node& node, Device& device,
                                                   ResourceManager& resources) {
  ASSIGN_OR_RETURN(const KernelRegistration* registration,
                   KernelRegistry::Global().Find(node, device.type()));
  std::unique_ptr<Kernel> kernel = registration->factory();
  KernelSetup setup(node, device, resources);
  const absl::Status status = EndedByLackOfMemory([&] { return kernel->Init(setup); });
  if (!status.ok()) return Suffixed(status, absl::StrCat("\n\t [[{{node ", node.name(), "}}]]"));
  return kernel;
}

}  // namespace muster
