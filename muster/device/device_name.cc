#include "muster/device/device_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "muster/base/status.h"

namespace muster {
namespace {

absl::Status Malformed(absl::string_view text, absl::string_view part) {
  return InvalidArgument(
      "'", text, "' is not a device name: '", part,
      "' is not one of job:NAME, replica:N, task:N, device:TYPE:N, cpu:N, gpu:N");
}

// "3" or "*"; anything else is malformed.
bool ParseNumber(absl::string_view text, std::optional<int>& out) {
  if (text == "*") return true;
  int value;
  if (!absl::SimpleAtoi(text, &value) || value < 0) return false;
  out = value;
  return true;
}

}  // namespace

absl::StatusOr<DeviceName> DeviceName::Parse(absl::string_view text) {
  DeviceName name;
  // Empty parts are nothing, as for TensorFlow's DeviceSpec: programs put a slash before "/cpu:0".
  for (absl::string_view part : absl::StrSplit(text, '/', absl::SkipEmpty())) {
    const std::vector<absl::string_view> pieces = absl::StrSplit(part, ':');
    const std::string kind = absl::AsciiStrToLower(pieces[0]);
    bool good = false;
    if (kind == "job" && pieces.size() == 2 && !pieces[1].empty()) {
      if (pieces[1] != "*") name.job = std::string(pieces[1]);
      good = true;
    } else if (kind == "replica" && pieces.size() == 2) {
      good = ParseNumber(pieces[1], name.replica);
    } else if (kind == "task" && pieces.size() == 2) {
      good = ParseNumber(pieces[1], name.task);
    } else if (kind == "device" && (pieces.size() == 2 || pieces.size() == 3) &&
               !pieces[1].empty()) {
      if (pieces[1] != "*") name.type = absl::AsciiStrToUpper(pieces[1]);
      good = pieces.size() == 2 || ParseNumber(pieces[2], name.index);
    } else if ((kind == "cpu" || kind == "gpu") && pieces.size() <= 2) {
      name.type = absl::AsciiStrToUpper(kind);
      good = pieces.size() == 1 || ParseNumber(pieces[1], name.index);
    }
    if (!good) return Malformed(text, part);
  }
  return name;
}

std::string DeviceName::ToString() const {
  std::string out;
  if (job) absl::StrAppend(&out, "/job:", *job);
  if (replica) absl::StrAppend(&out, "/replica:", *replica);
  if (task) absl::StrAppend(&out, "/task:", *task);
  if (type) {
    absl::StrAppend(&out, "/device:", *type, ":");
    index ? absl::StrAppend(&out, *index) : absl::StrAppend(&out, "*");
  }
  return out;
}

DeviceName DeviceName::Override(const DeviceName& inner) const {
  DeviceName merged = *this;
  if (inner.job) merged.job = inner.job;
  if (inner.replica) merged.replica = inner.replica;
  if (inner.task) merged.task = inner.task;
  if (inner.type) merged.type = inner.type;
  if (inner.index) merged.index = inner.index;
  return merged;
}

bool DeviceName::Matches(const DeviceName& full) const {
  return (!job || job == full.job) && (!replica || replica == full.replica) &&
         (!task || task == full.task) && (!type || type == full.type) &&
         (!index || index == full.index);
}

absl::string_view TaskOf(absl::string_view device) {
  constexpr absl::string_view kTask = "/task:";
  const size_t at = device.find(kTask);
  if (at == absl::string_view::npos || !absl::StartsWith(device, "/job:")) return {};
  size_t end = at + kTask.size();
  while (end < device.size() && absl::ascii_isdigit(device[end])) ++end;
  return end == at + kTask.size() ? absl::string_view() : device.substr(0, end);
}

}  // namespace muster
