// Where the ranks of one step hand bytes to each other: one offers them under a key, another takes
// them, in either order.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"

#include "muster/base/mutex.h"
#include "muster/device/device.h"
#include "muster/tensor/buffer.h"

namespace muster {

// Thread-safe. Nothing is called with a lock held.
class CollectiveBuffers {
 public:
  using Token = uint64_t;
  using Taken = absl::AnyInvocable<void(absl::StatusOr<Buffer>) &&>;

  // `consumed` is called when the bytes have been taken, or with the reason of Abort.
  void Provide(const std::string& key, Buffer bytes, Done consumed);
  // Each key can be taken once.
  Token Consume(const std::string& key, Taken done);
  // True when the callback of Consume will never be called.
  bool StopWaiting(Token token);
  // Pending and later calls get `reason`.
  void Abort(const absl::Status& reason);
  absl::Status aborted() const;

 private:
  // Offered, or waited for.
  struct Slot {
    Buffer bytes;
    Done consumed;
    Token token = 0;
    Taken taken;
  };

  mutable Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Token, std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  Token last_token_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster
