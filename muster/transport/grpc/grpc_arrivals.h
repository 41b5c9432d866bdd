// Requests that arrive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/tensor/memory_guard.h"
#include "muster/transport/grpc/grpc_connections.h"
#include "muster/transport/grpc/waiting_calls.h"

namespace muster {

// While calls wait for their requests a thread looks how much has come over their connections, and
// refuses the calls of the connection that has brought most when memory runs out. Thread-safe.
class GrpcArrivals {
 public:
  // A call that waits for its request.
  class Call : public WaitingCalls::Call {
   private:
    friend class GrpcArrivals;
    bool is_seen_ = false;  // by the thread, when:
    std::string name_;
    GrpcConnections::Traffic before_;
  };

  // Less is not looked at: `guard` keeps that much room for allocations that are not asked about.
  static constexpr int64_t kFewBytes = int64_t{16} << 20;

  // Requires, for its end: no call waits.
  GrpcArrivals(std::shared_ptr<GrpcConnections> connections, MemoryGuard& guard);

  // From now on until End it may be refused.
  void Begin(Call& call) { calls_.Begin(call); }
  // Its request has arrived, or will not. False: it is refused.
  bool End(Call& call) { return calls_.End(call); }

 private:
  struct Arriving {
    std::string name;
    int64_t bytes = 0;
  };
  std::vector<Arriving> FindArriving();
  // The pause before the next look.
  absl::Duration Judge(const std::vector<Arriving>& arriving);
  void RefuseAllOf(const Arriving& connection, const std::string& why);

  const std::shared_ptr<GrpcConnections> connections_;
  MemoryGuard& guard_;
  int looks_to_skip_ = 0;  // of the thread alone; while what was refused goes
  WaitingCalls calls_;     // last: its thread uses the others
};

}  // namespace muster
