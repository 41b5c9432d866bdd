// The tensors that went between a worker and other tasks: always counted, and those that were
// fetched recorded while a client has asked for it.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/runtime/trace.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

// Thread-safe. Keeps the newest steps and, of each, the first transfers.
class TransferLog {
 public:
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  // The key is "src;incarnation;dst;name;frame:iteration".
  void Record(int64_t step_id, absl::string_view key, const Tensor& tensor, int64_t start_nanos,
              int64_t end_nanos);
  LoggingReply Answer(const LoggingRequest& request, const Clock& clock);

  struct Totals {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  void CountSent(const Tensor& tensor) { sent_.Add(tensor); }
  void CountReceived(const Tensor& tensor) { received_.Add(tensor); }
  // Of collectives, by TensorFlow's protocol.
  void CountCollective(int64_t sent, int64_t received) {
    collective_sent_.fetch_add(sent, std::memory_order_relaxed);
    collective_received_.fetch_add(received, std::memory_order_relaxed);
  }
  int64_t collective_sent() const { return collective_sent_.load(std::memory_order_relaxed); }
  int64_t collective_received() const {
    return collective_received_.load(std::memory_order_relaxed);
  }
  Totals sent() const { return sent_.Read(); }
  Totals received() const { return received_.Read(); }

 private:
  // Only ever added to, without locks.
  struct Counter {
    std::atomic<int64_t> tensors{0};
    std::atomic<int64_t> bytes{0};
    void Add(const Tensor& tensor) {
      tensors.fetch_add(1, std::memory_order_relaxed);
      if (!tensor.valid()) return;
      bytes.fetch_add(static_cast<int64_t>(tensor.size_bytes()), std::memory_order_relaxed);
    }
    Totals Read() const {
      return {tensors.load(std::memory_order_relaxed), bytes.load(std::memory_order_relaxed)};
    }
  };
  static constexpr size_t kSteps = 256;
  static constexpr size_t kTransfersPerStep = 65536;

  std::atomic<bool> enabled_{false};
  Counter sent_;
  Counter received_;
  std::atomic<int64_t> collective_sent_{0};
  std::atomic<int64_t> collective_received_{0};
  Mutex mutex_;
  std::map<int64_t, std::vector<NodeTrace>> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
