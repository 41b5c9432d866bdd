// Watches tasks that have done their part of a step while other tasks still run theirs.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/master/cluster_step.h"
#include "muster/master/tasks.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {

// A step needs all of its tasks until it ends: the parts that still run may depend on state that a
// lost task held, as a synchronous worker waits for the update that its gradients went into. Calls
// that are open are watched by the transport; a task whose part is over has none. So while steps
// last, such tasks are asked for their devices once a heartbeat. Steps fail with Aborted when a
// task has restarted since the session was made, with Unavailable when it has refused kRefusals
// times in a row or has not answered for `fail_after`. Steps without a part at the lost task go on.
// Thread-safe.
class StepWatch : public std::enable_shared_from_this<StepWatch> {
 public:
  static constexpr int kRefusals = 2;
  struct UnderWay {
    std::vector<std::shared_ptr<ClusterStep>> runs;
    std::vector<SessionTask> tasks;  // of the session
  };
  struct Options {
    Scheduler* scheduler = nullptr;  // outlives the watch
    LivenessOptions liveness;
    std::function<UnderWay()> under_way;
  };
  explicit StepWatch(Options options) : options_(std::move(options)) {}

  // A step begins: tasks are watched until no step is under way.
  void Wake() {
    if (!awake_.load(std::memory_order_relaxed) && !awake_.exchange(true)) LookLater();
  }

 private:
  struct Asked {
    bool waiting = false;  // for the answer
    int refusals = 0;      // in a row
    absl::Duration silence;
    int64_t since_nanos = 0;  // when it was last asked or not heard
  };

  void LookLater();
  void Look();
  void Ask(const SessionTask& task);
  void Answered(const SessionTask& task,
                const absl::StatusOr<std::vector<DeviceAttributes>>& devices);
  // Why the task is lost; OK while it is not known to be.
  absl::Status LostLocked(const SessionTask& task, Asked& asked,
                          const absl::StatusOr<std::vector<DeviceAttributes>>& devices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::atomic<bool> awake_{false};
  Mutex mutex_;
  std::map<std::string, Asked> asked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
