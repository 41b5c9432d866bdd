#include "muster/task/kernel_support.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

std::string WhyNoKernel(const Node& node, absl::string_view type) {
  bool has_some = false;
  std::vector<std::string> types;
  for (const KernelRegistration& kernel : KernelRegistry::Global().For(node.op())) {
    if (kernel.device_type != type) continue;
    has_some = true;
    for (const auto& [attr, dtype] : kernel.types) {
      const AttrValue* const value = node.FindAttr(attr);
      if (value == nullptr || value->get<DType>() == nullptr) continue;
      std::string text = absl::StrCat(attr, "=", DTypeName(*value->get<DType>()));
      if (!absl::c_linear_search(types, text)) types.push_back(std::move(text));
    }
  }
  if (!has_some) return absl::StrCat("there is no kernel of ", node.op(), " for it");
  return absl::StrCat("there is no kernel of ", node.op(), " for it with ",
                      absl::StrJoin(types, ", "));
}

}  // namespace muster
