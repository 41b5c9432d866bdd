#include "muster/task/kernel_support.h"

#include "absl/container/flat_hash_set.h"

#include "muster/device/device_name.h"
#include "muster/runtime/kernel.h"

namespace muster {

std::function<int(const Node&, absl::string_view)> KernelSupport(
    absl::Span<const std::string> devices) {
  absl::flat_hash_set<std::string> types;
  for (const std::string& device : devices) {
    const absl::StatusOr<DeviceName> name = DeviceName::Parse(device);
    if (name.ok() && name->type) types.insert(*name->type);
  }
  if (types.size() <= 1) return nullptr;
  return [](const Node& node, absl::string_view type) {
    return KernelRegistry::Global().Preference(node, type);
  };
}

}  // namespace muster
