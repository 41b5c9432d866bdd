#include "muster/base/system_memory.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include <fcntl.h>
#include <unistd.h>

namespace muster {
namespace {

// Empty for a file that cannot be read. Such files are short.
std::string Contents(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  std::string text;
  char block[4096];
  for (ssize_t got; (got = read(descriptor, block, sizeof(block))) > 0;)
    text.append(block, static_cast<size_t>(got));
  close(descriptor);
  return text;
}

std::optional<int64_t> Number(absl::string_view text) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &number)) return std::nullopt;
  return number;
}

// The number after `name` at the beginning of a line; zero where there is none.
int64_t Field(absl::string_view text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (!words.empty()) return Number(words[0]).value_or(0);
  }
  return 0;
}

// Page cache, which the system drops before it kills a process.
int64_t Reclaimable(absl::string_view stat, absl::string_view prefix) {
  return Field(stat, absl::StrCat(prefix, "inactive_file ")) +
         Field(stat, absl::StrCat(prefix, "active_file "));
}

// The path of this process in a hierarchy: of version 2, or of version 1's memory.
std::optional<std::string> PathIn(absl::string_view cgroups, bool version_2) {
  for (const absl::string_view line : absl::StrSplit(cgroups, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    const bool has_memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (version_2 ? parts[0] == "0" && parts[1].empty() : has_memory) return std::string(parts[2]);
  }
  return std::nullopt;
}

struct Mount {
  std::string root;    // which part of the hierarchy is seen
  std::string folder;  // where
};

std::optional<Mount> MountOf(absl::string_view mounts, bool version_2) {
  for (const absl::string_view line : absl::StrSplit(mounts, '\n')) {
    // "36 35 98:0 ROOT FOLDER options fields... - type source super-options"
    const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<absl::string_view> left = absl::StrSplit(halves[0], ' ');
    const std::vector<absl::string_view> right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const std::vector<absl::string_view> options = absl::StrSplit(right[2], ',');
    const bool has_memory = std::find(options.begin(), options.end(), "memory") != options.end();
    if (version_2 ? right[0] != "cgroup2" : right[0] != "cgroup" || !has_memory) continue;
    return Mount{std::string(left[3]), std::string(left[4])};
  }
  return std::nullopt;
}

}  // namespace

SystemMemory::SystemMemory(std::string root) : root_(std::move(root)) {
  FindGroups();
}

void SystemMemory::FindGroups() {
  const std::string cgroups = Contents(absl::StrCat(root_, "/proc/self/cgroup"));
  const std::string mounts = Contents(absl::StrCat(root_, "/proc/self/mountinfo"));
  for (const Version version : {Version::kV2, Version::kV1}) {
    const bool is_2 = version == Version::kV2;
    const std::optional<std::string> path = PathIn(cgroups, is_2);
    const std::optional<Mount> mount = MountOf(mounts, is_2);
    if (!path || !mount) continue;
    // A container may see its own part of the hierarchy only, under the name that it has outside.
    absl::string_view below = *path;
    if (mount->root != "/" && !absl::ConsumePrefix(&below, mount->root)) below = "";
    for (below = absl::StripSuffix(below, "/");; below = below.substr(0, below.rfind('/'))) {
      groups_.push_back({version, absl::StrCat(mount->folder, below)});
      if (below.rfind('/') == absl::string_view::npos) break;
    }
  }
}

void SystemMemory::Narrow(const Group& group, Room& room) const {
  const bool is_2 = group.version == Version::kV2;
  const auto contents = [&](absl::string_view name) {
    return Contents(absl::StrCat(root_, group.folder, "/", name));
  };
  // "max" in version 2, and more than any machine has in version 1: none.
  const std::optional<int64_t> limit =
      Number(contents(is_2 ? "memory.max" : "memory.limit_in_bytes"));
  const std::optional<int64_t> used =
      Number(contents(is_2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used || *limit > (int64_t{1} << 60)) return;
  const int64_t reclaimable = Reclaimable(contents("memory.stat"), is_2 ? "" : "total_");
  const int64_t available = std::max<int64_t>(*limit - *used + std::min(reclaimable, *used), 0);
  if (available >= room.available_bytes) return;
  room = {available, *limit, absl::StrCat("the cgroup ", group.folder),
          absl::StrCat(root_, group.folder)};
}

SystemMemory::Room SystemMemory::Available() const {
  Room room;
  room.path = absl::StrCat(root_, "/proc/meminfo");
  const std::string machine = Contents(room.path);
  if (const int64_t total = Field(machine, "MemTotal:"); total > 0) {
    room.available_bytes = (Field(machine, "MemAvailable:") + Field(machine, "SwapFree:")) * 1024;
    room.limit_bytes = total * 1024;
    room.holder = "the machine";
  }
  for (const Group& group : groups_) Narrow(group, room);
  return room;
}

}  // namespace muster
