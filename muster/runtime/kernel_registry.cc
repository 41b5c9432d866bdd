// Which kernels there are: KernelRegistry, and how the kernel of a node is made.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/base/check.h"
#include "muster/base/mutex.h"
#include "muster/device/device_copies.h"
#include "muster/graph/infer.h"
#include "muster/graph/op_registry.h"
#include "muster/runtime/kernel.h"
#include "muster/runtime/lack_of_memory.h"

namespace muster {
namespace {

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

const KernelRegistration* KernelRegistry::FindOrNull(const Node& node,
                                                     absl::string_view device_type) const {
  for (const KernelRegistration& kernel : For(node.op())) {
    if (kernel.needs_card && without_cards_) continue;
    if (kernel.device_type == device_type && Fits(kernel, node)) return &kernel;
  }
  return nullptr;
}

int KernelRegistry::Preference(const Node& node, absl::string_view device_type) const {
  const KernelRegistration* const kernel = FindOrNull(node, device_type);
  return kernel == nullptr ? 0 : kernel->is_last_choice ? 1 : 2;
}

absl::StatusOr<const KernelRegistration*> KernelRegistry::Find(
    const Node& node, absl::string_view device_type) const {
  if (const KernelRegistration* const found = FindOrNull(node, device_type)) return found;
  std::string registered;
  for (const KernelRegistration& kernel : For(node.op()))
    absl::StrAppend(&registered, KernelText(kernel));
  return InvalidArgument(
      "No OpKernel was registered to support Op '", node.op(), "' used by {{node ", node.name(),
      "}} with these attrs: ", SummarizeNode(node), "\nRegistered devices: [", device_type,
      "]\nRegistered kernels:\n", registered.empty() ? "  <no registered kernels>\n" : registered);
}

absl::StatusOr<HostArgs> HostArgsOf(const Node& node, absl::string_view device_type) {
  ASSIGN_OR_RETURN(const KernelRegistration* const kernel,
                   KernelRegistry::Global().Find(node, device_type));
  HostArgs host;
  const auto is_on_host = [kernel](DType dtype) {
    return StaysOnHost(BaseType(dtype)) ||
           (kernel->counts_on_host && BaseType(dtype) == DType::kInt32);
  };
  for (DType dtype : node.input_types()) host.inputs.push_back(is_on_host(dtype));
  for (DType dtype : node.output_types()) host.outputs.push_back(is_on_host(dtype));
  const auto mark = [&](const std::vector<ArgDef>& args,
                        std::vector<bool>& marked) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<ArgRange> ranges, ArgRanges(args, node.attrs()));
    for (size_t i = 0; i < args.size(); ++i) {
      if (!absl::c_linear_search(kernel->host_memory_args, args[i].name)) continue;
      std::fill(marked.begin() + ranges[i].begin, marked.begin() + ranges[i].end, true);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(mark(node.def().inputs, host.inputs));
  RETURN_IF_ERROR(mark(node.def().outputs, host.outputs));
  return host;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const Node& node, Device& device,
                                                   ResourceManager& resources) {
  ASSIGN_OR_RETURN(const KernelRegistration* registration,
                   KernelRegistry::Global().Find(node, device.type()));
  std::unique_ptr<Kernel> kernel = registration->factory();
  bool has_device_outputs = false;
  if (device.has_own_memory()) {
    ASSIGN_OR_RETURN(const HostArgs host, HostArgsOf(node, device.type()));
    has_device_outputs = absl::c_linear_search(host.outputs, false);
  }
  KernelSetup setup(node, device, resources, has_device_outputs);
  const absl::Status status = EndedByLackOfMemory([&] { return kernel->Init(setup); });
  if (!status.ok()) return Suffixed(status, absl::StrCat("\n\t [[{{node ", node.name(), "}}]]"));
  return kernel;
}

}  // namespace muster
