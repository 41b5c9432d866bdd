#include "muster/graph/place/device_index.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/base/status.h"

namespace muster {
namespace {

// Names in an explanation; the others are counted.
constexpr size_t kNamesShown = 4;

int Rank(absl::string_view type) {
  return type == "GPU" ? 0 : type == "CPU" ? 1 : 2;
}

std::string Shortened(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace

absl::StatusOr<DeviceIndex> DeviceIndex::Make(absl::Span<const std::string> names,
                                              absl::string_view local_task) {
  DeviceIndex index;
  for (const std::string& text : names) {
    ASSIGN_OR_RETURN(DeviceName name, DeviceName::Parse(text));
    if (!name.full()) return InvalidArgument("'", text, "' is not the whole name of a device");
    auto type = std::find(index.types_.begin(), index.types_.end(), *name.type);
    if (type == index.types_.end()) {
      if (index.types_.size() == 32) {
        return InvalidArgument("There are more than 32 types of devices: '", text, "'");
      }
      type = index.types_.insert(index.types_.end(), *name.type);
    }
    const int number = static_cast<int>(type - index.types_.begin());
    index.order_.push_back(static_cast<int>(index.devices_.size()));
    index.devices_.push_back({text, std::move(name), number});
  }
  const auto is_remote = [&](const Device& device) {
    return local_task.empty() ||
           absl::string_view(device.text).substr(0, device.text.find("/device:")) != local_task;
  };
  std::stable_sort(index.order_.begin(), index.order_.end(), [&](int a, int b) {
    const Device& x = index.devices_[a];
    const Device& y = index.devices_[b];
    return std::make_tuple(Rank(*x.name.type), is_remote(x), absl::string_view(x.text)) <
           std::make_tuple(Rank(*y.name.type), is_remote(y), absl::string_view(y.text));
  });
  for (int device : index.order_) {
    const DeviceName& name = index.devices_[device].name;
    index.by_task_[{*name.job, *name.task}].push_back(device);
  }
  return index;
}

std::string DeviceIndex::TypesText(TypeSet types) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < types_.size(); ++i) {
    if ((types >> i & 1) != 0) names.push_back(types_[i]);
  }
  return absl::StrJoin(names, ", ");
}

const std::vector<int>& DeviceIndex::Bucket(const DeviceName& wanted) const {
  if (!wanted.job || !wanted.task) return order_;
  static const auto* none = new std::vector<int>;
  const auto found = by_task_.find(std::make_pair(*wanted.job, *wanted.task));
  return found == by_task_.end() ? *none : found->second;
}

bool DeviceIndex::Fits(int device, const DeviceName& wanted, TypeSet types) const {
  return (types >> devices_[device].type & 1) != 0 && wanted.Matches(devices_[device].name);
}

int DeviceIndex::First(const DeviceName& wanted, TypeSet types) const {
  const auto [memo, added] = first_.try_emplace({wanted.ToString(), types}, -1);
  if (!added) return memo->second;
  for (int device : Bucket(wanted)) {
    if (!Fits(device, wanted, types)) continue;
    memo->second = device;
    break;
  }
  return memo->second;
}

const std::string& DeviceIndex::Explain(const DeviceName& wanted, TypeSet types) const {
  const auto [memo, added] = explained_.try_emplace({wanted.ToString(), types});
  std::string& text = memo->second;
  if (!added) return text;
  std::vector<std::string> candidates;
  std::vector<std::string> unmatched;
  std::vector<std::string> unsupported;
  for (int device : order_) {
    std::vector<std::string>& list = Fits(device, wanted, types)             ? candidates
                                     : wanted.Matches(devices_[device].name) ? unsupported
                                                                             : unmatched;
    list.push_back(devices_[device].text);
  }
  text = absl::StrCat("candidates: ", candidates.empty() ? "none" : Shortened(candidates));
  if (!unmatched.empty()) {
    absl::StrAppend(&text, "; not ", Shortened(unmatched), ": not in '", wanted.ToString(), "'");
  }
  if (!unsupported.empty()) {
    absl::StrAppend(&text, "; not ", Shortened(unsupported), ": kernels only for ",
                    TypesText(types));
  }
  return text;
}

std::string DeviceIndex::AllText() const {
  std::vector<std::string> names;
  for (const Device& device : devices_) names.push_back(device.text);
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, ", ");
}

}  // namespace muster
