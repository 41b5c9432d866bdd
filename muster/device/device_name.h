// Device names: "/job:worker/replica:0/task:1/device:CPU:0", whole or in part.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string> type;  // upper case; "*" in a name leaves a part out
  std::optional<int> index;

  // Accepts whole and partial names, also the old forms "/cpu:0" and "/gpu:0". InvalidArgument
  // otherwise.
  static absl::StatusOr<DeviceName> Parse(absl::string_view text);
  std::string ToString() const;
  // Parts of `inner` win; what it leaves open comes from this one.
  DeviceName Override(const DeviceName& inner) const;
  // Every part that this name fixes is the same in `full`.
  bool Matches(const DeviceName& full) const;
  bool full() const { return job && replica && task && type && index; }
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// "/job:worker/replica:0/task:1" of the name of one of its devices; empty for a name without a
// task.
absl::string_view TaskOf(absl::string_view device);

}  // namespace muster
