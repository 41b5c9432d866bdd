// Finds the devices that a node may be placed on.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

#include "muster/device/device_name.h"

namespace muster {

// A set of device types, as bits.
using TypeSet = uint32_t;

// Thread-compatible.
class DeviceIndex {
 public:
  // Whole names. InvalidArgument where one is not, or there are more types than a TypeSet holds.
  static absl::StatusOr<DeviceIndex> Make(absl::Span<const std::string> names,
                                          absl::string_view local_task);

  const std::vector<std::string>& types() const { return types_; }
  TypeSet all_types() const { return static_cast<TypeSet>((uint64_t{1} << types_.size()) - 1); }
  const DeviceName& name(int device) const { return devices_[device].name; }
  const std::string& text(int device) const { return devices_[device].text; }
  int size() const { return static_cast<int>(devices_.size()); }
  // "CPU, GPU".
  std::string TypesText(TypeSet types) const;

  // The best device that fits; -1 when none does.
  int First(const DeviceName& wanted, TypeSet types) const;
  bool Fits(int device, const DeviceName& wanted, TypeSet types) const;
  // "candidates: A, B; not C (does not match '/job:ps'), D (no kernel for GPU)". Long lists are
  // cut.
  const std::string& Explain(const DeviceName& wanted, TypeSet types) const;
  // All names in order, as error texts list them.
  std::string AllText() const;

 private:
  struct Device {
    std::string text;
    DeviceName name;
    int type = 0;
  };
  // In order of preference: those that may match `wanted`.
  const std::vector<int>& Bucket(const DeviceName& wanted) const;

  std::vector<Device> devices_;
  std::vector<std::string> types_;
  std::vector<int> order_;                                                      // by preference
  absl::flat_hash_map<std::pair<std::string, int>, std::vector<int>> by_task_;  // job, task
  // Answers given before: many nodes ask for the same.
  using Request = std::pair<std::string, TypeSet>;
  mutable absl::flat_hash_map<Request, int> first_;
  mutable absl::flat_hash_map<Request, std::string> explained_;
};

}  // namespace muster
