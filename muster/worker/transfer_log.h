// The tensors that a worker fetched from other tasks, while somebody wants to know.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/runtime/trace.h"
#include "muster/transport/worker_api.h"

namespace muster {

// Thread-safe. Keeps the newest steps and, of each, the first transfers.
class TransferLog {
 public:
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  // The key is "src;incarnation;dst;name;frame:iteration".
  void Record(int64_t step_id, absl::string_view key, const Tensor& tensor, int64_t start_nanos,
              int64_t end_nanos);
  LoggingReply Answer(const LoggingRequest& request, const Clock& clock);

 private:
  static constexpr size_t kSteps = 256;
  static constexpr size_t kTransfersPerStep = 65536;

  std::atomic<bool> enabled_{false};
  Mutex mutex_;
  std::map<int64_t, std::vector<NodeTrace>> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
