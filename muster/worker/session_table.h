// The sessions of a worker, and the end of those whose masters are gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/worker/worker_session.h"

namespace muster {

// A master that dies leaves its sessions at the workers. The masters of idle sessions are asked at
// intervals whether they are alive, by a call that every task answers. Masters that
// say nothing of themselves (before TensorFlow 2.4), that are in no cluster of ours, or whose
// sessions bring a cluster, where they may have another name, cannot be asked, and their sessions
// stay. Thread-safe.
class SessionTable : public std::enable_shared_from_this<SessionTable> {
 public:
  struct Options {
    std::string task;                // whose worker it is: its own master ends with it
    Scheduler* scheduler = nullptr;  // outlives the table
    // A master that has answered before and is silent now loses its sessions after this time, one
    // that never could be reached after ten times as long.
    absl::Duration master_timeout = absl::Minutes(10);
    // A session has gone by itself; called without locks.
    std::function<void(const std::shared_ptr<WorkerSession>&, const absl::Status&)> dropped;
  };
  explicit SessionTable(Options options) : options_(std::move(options)) {}

  // Null when there is none. Its master lives, as far as that goes.
  std::shared_ptr<WorkerSession> Find(const std::string& handle);
  bool Contains(const std::string& handle) const;
  // Sessions that an earlier life of its master has left behind go.
  void Add(const std::string& handle, std::shared_ptr<WorkerSession> session);
  void DropLeftBehind(const std::string& master_task, uint64_t incarnation);
  void Remove(const std::string& handle);
  std::vector<std::shared_ptr<WorkerSession>> All() const;
  // No master is asked any more.
  void Stop();

 private:
  struct Entry {
    std::shared_ptr<WorkerSession> session;
    absl::Time heard;  // when its master was last heard of
    bool can_ask = false;
    bool reached = false;  // the master has answered us before
  };
  using Dropped = std::vector<std::pair<std::string, std::shared_ptr<WorkerSession>>>;

  absl::Duration period() const;
  bool CanAsk(const WorkerSession& session) const;
  void CheckLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Check();
  void Ask(const std::shared_ptr<WorkerSession>& session);
  void Answered(const WorkerSession& asked, const std::vector<DeviceAttributes>& devices);
  template <typename Condition>
  Dropped TakeLocked(Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(const Dropped& dropped, absl::string_view why);

  const Options options_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Entry> sessions_ ABSL_GUARDED_BY(mutex_);
  bool checking_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
