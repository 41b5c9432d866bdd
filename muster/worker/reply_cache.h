// Replies of RecvTensor that may have to be sent again: a value leaves the rendezvous only once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/mutex.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

// Thread-safe. Bounded: beyond kMaxReplies new calls are refused until others are acknowledged.
class ReplyCache {
 public:
  static constexpr size_t kMaxReplies = 100'000;
  using ReplyDone = CallDone<RecvTensorReply>;

  // True: the caller computes the reply and hands it to Finish. Otherwise `done` has been or will
  // be called.
  bool Begin(int64_t request_id, int64_t step_id, ReplyDone done);
  void Finish(int64_t request_id, absl::StatusOr<RecvTensorReply> reply);
  // The reply has arrived, or cannot be requested any more.
  void Forget(int64_t request_id);
  void ForgetStep(int64_t step_id);

 private:
  struct Entry {
    int64_t step_id = 0;
    std::optional<absl::StatusOr<RecvTensorReply>> reply;
    std::vector<ReplyDone> waiting;
  };
  Mutex mutex_;
  absl::flat_hash_map<int64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int64_t, absl::flat_hash_set<int64_t>> by_step_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
