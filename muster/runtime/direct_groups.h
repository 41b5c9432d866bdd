// Groups of Muster tasks that know each other already and are connected directly: the fast path for
// collectives. The op that brings the tasks together (see ops/collective/membership.h) gives each
// the endpoints of the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/runtime/collectives.h"

namespace muster {

struct DirectGroup {
  std::string name;  // a task is in one group of a name at a time
  int32_t key = 0;   // the group key of its collectives
  int rank = 0;
  int source = 0;                      // the rank that broadcasts
  std::vector<std::string> tasks;      // of all ranks, in order
  std::vector<std::string> endpoints;  // what Endpoint says there
};

// Thread-safe.
class DirectGroups {
 public:
  virtual ~DirectGroups() = default;
  // How others reach this task; holds a secret. Unimplemented where there is no direct connection.
  virtual absl::StatusOr<std::string> Endpoint() = 0;
  // Leaves the group of the same name: what is under way there fails at all of its ranks.
  virtual absl::Status Enter(DirectGroup group) = 0;
  virtual void Leave(const std::string& name) = 0;
  // False, with nothing done, when the call is not of such a group.
  virtual bool TryRun(CollectiveCall& call, Done& done) = 0;
  // Bytes to and from other tasks since the beginning.
  struct Moved {
    int64_t sent = 0;
    int64_t received = 0;
  };
  virtual Moved moved() const = 0;
};

}  // namespace muster
