// Who is connected to a server: gRPC tells nobody when a connection without calls ends, nor whether
// a call ended because its caller cancelled it or because the caller is gone.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/runtime/cancellation.h"

namespace muster {

// Looks at the sockets of the process. Thread-safe.
class GrpcConnections : public std::enable_shared_from_this<GrpcConnections> {
 public:
  // `scheduler`, which looks for ended connections, outlives it; null: none is noticed.
  explicit GrpcConnections(Scheduler* scheduler) : scheduler_(scheduler) {}

  void set_port(int port) {
    MutexLock lock(mutex_);
    port_ = port;
  }
  // Cancelled with Unavailable soon after the connection has ended. `peer` is gRPC's name of the
  // other end; null for kinds that the system does not list.
  std::shared_ptr<Cancellation> Track(const std::string& peer);
  // Whether the connection is there at this moment; true where the system does not say.
  bool IsOpen(const std::string& peer) const;

 private:
  void SweepLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sweep();

  Scheduler* const scheduler_;
  mutable Mutex mutex_;
  int port_ ABSL_GUARDED_BY(mutex_) = 0;
  bool sweeping_ ABSL_GUARDED_BY(mutex_) = false;
  // By the other end.
  absl::flat_hash_map<std::string, std::shared_ptr<Cancellation>> tracked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
