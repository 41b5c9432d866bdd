// Replies that arrive.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/tensor/memory_guard.h"
#include "muster/transport/grpc/waiting_calls.h"

namespace muster {

// While calls wait for their replies a thread looks how much memory is left. When it runs out while
// a large reply arrives, the calls to the address from which most arrives are refused. Tasks of
// Muster ask for large replies in parts and find memory for each part first; this is for those of
// stock TensorFlow. Thread-safe.
class GrpcReplies {
 public:
  using Call = WaitingCalls::Call;

  // Shorter replies are not refused: `guard` keeps that much room for allocations that are not
  // asked about.
  static constexpr int64_t kFewBytes = int64_t{16} << 20;

  // Those of the process.
  static GrpcReplies& Global();

  // Requires, for its end: no call waits.
  explicit GrpcReplies(MemoryGuard& guard);

  // From now on until End it may be refused.
  void Begin(Call& call) { calls_.Begin(call); }
  // False: it is refused.
  bool End(Call& call) { return calls_.End(call); }
  // A call has ended with `bytes` of a reply, or with an error and an unknown number of them. To be
  // called for all calls, also those that are not watched: their replies arrive from the same
  // addresses. Costs next to nothing while there is memory.
  void NoteReply(const Call& call, size_t bytes) {
    if (is_counting_.load(std::memory_order_relaxed)) Count(call, bytes);
  }
  static constexpr size_t kUnknownBytes = SIZE_MAX;

 private:
  struct Traffic {
    uint64_t received_bytes = 0;  // over all connections, at the last look
    uint64_t arriving_bytes = 0;  // of replies that are not complete
  };
  using Traffics = std::map<std::string, Traffic>;  // by address

  // Bytes that have come over all connections to an address.
  static std::map<std::string, uint64_t> LookAtSockets();

  absl::Duration Look();
  void Count(const Call& call, size_t bytes);
  void StopCounting();
  void UpdateTraffic();
  // The address from which most arrives for calls that wait; null where that is little.
  const Traffics::value_type* FindBusiest() const;
  void RefuseAllOf(const std::string& address, const std::string& why);

  MemoryGuard& guard_;
  Traffics traffic_;  // of the thread alone; while it counts

  std::atomic<bool> is_counting_{false};  // while little memory is left
  Mutex mutex_;
  // By address, since the last look: what replies took on the way at most.
  std::map<std::string, uint64_t> replied_bytes_ ABSL_GUARDED_BY(mutex_);
  WaitingCalls calls_;  // last: its thread uses the others
};

}  // namespace muster
