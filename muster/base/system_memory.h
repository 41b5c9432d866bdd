// How much memory this process could still get: of the machine, and of the control groups (cgroups,
// version 1 and 2) around it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// Thread-compatible: reads files, and keeps only their paths.
class SystemMemory {
 public:
  // `root` is prepended to every path, so that tests can use files of their own.
  explicit SystemMemory(std::string root = "");

  struct Room {
    int64_t available_bytes = INT64_MAX;  // free, or used by caches that the system can drop
    int64_t limit_bytes = INT64_MAX;      // of the machine or group that has least left
    std::string holder;                   // "the machine" or "the cgroup PATH"
    std::string path;                     // a file or folder that every process in it can open
  };
  // Of the machine and every group on the way up, the one that has least left. Unlimited where
  // nothing can be read.
  Room Available() const;

 private:
  enum class Version : uint8_t { kV1, kV2 };
  struct Group {
    Version version;
    std::string folder;
  };
  void FindGroups();
  void Narrow(const Group& group, Room& room) const;

  const std::string root_;
  std::vector<Group> groups_;  // from the innermost up
};

}  // namespace muster
