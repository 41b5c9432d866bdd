// The ids of steps that several masters run together: all of them must use the same one.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"

namespace muster {

// What a task knows of them, as the leader of a group or as a follower. Thread-safe; shared by the
// task's master and worker.
class StepSequences {
 public:
  // The leader's answer; the first one is random. ResourceExhausted after too many keys.
  absl::StatusOr<int64_t> NextOfLeader(int64_t graph_key);
  // What a follower has learnt and counted on.
  std::optional<int64_t> Next(int64_t graph_key) const;
  void Learn(int64_t graph_key, int64_t next_step_id);
  // A step is over. One that is not the next one shows that the count is wrong: it is forgotten.
  void Retire(int64_t graph_key, int64_t step_id);
  void Forget(int64_t graph_key);

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<int64_t, int64_t> next_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
