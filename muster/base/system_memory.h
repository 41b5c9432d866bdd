// How much memory this process could still get: of the machine, and of the control groups (cgroups,
// version 1 and 2) around it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// Thread-compatible: reads files, and keeps nothing but where they are.
class SystemMemory {
 public:
  // `root` stands before every path, so that tests can have a system of their own.
  explicit SystemMemory(std::string root = "");

  struct Room {
    int64_t available_bytes = INT64_MAX;  // what is free, and what the system would give up for it
    int64_t limit_bytes = INT64_MAX;      // of the one that has least left
    std::string holder;                   // "the machine" or "the cgroup PATH"
  };
  // Of the machine and every group on the way up, the one that has least left. Where nothing can be
  // read nothing is known to be short.
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
