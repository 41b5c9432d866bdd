// Receives of other tasks: tensors of a step that they ask for by key, and bytes of collectives.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"

#include "muster/base/mutex.h"
#include "muster/base/recent_ids.h"
#include "muster/task/task_devices.h"
#include "muster/worker/reply_cache.h"
#include "muster/worker/worker_step.h"

namespace muster {

// The ids of requests that have come, so that one which comes twice is noticed. Thread-safe.
class RequestIds {
 public:
  // True when the id was not seen before; zero never was.
  bool IsNew(int64_t id) {
    if (id == 0) return true;
    MutexLock lock(mutex_);
    return ids_.Insert(id);
  }

 private:
  static constexpr size_t kRemembered = 100'000;
  Mutex mutex_;
  RecentIds ids_ ABSL_GUARDED_BY(mutex_){kRemembered};
};

// Thread-safe. Each call is answered once: with the value, when it is there, or with why not.
// Callers see to it that calls which come after the worker's stop are refused.
class PeerReceives : public std::enable_shared_from_this<PeerReceives> {
 public:
  struct Options {
    std::shared_ptr<const TaskDevices> devices;
    std::shared_ptr<StepTable> steps;
    std::shared_ptr<RequestIds> requests;
    std::shared_ptr<TransferLog> log;
    Scheduler* control = nullptr;  // outlives the object
    absl::Duration cancel_grace;
    bool cache_replies = false;
  };
  explicit PeerReceives(Options options)
      : options_(std::move(options)),
        cache_(options_.cache_replies ? std::make_shared<ReplyCache>() : nullptr) {}

  // All return the step that the call waits for; null where it was refused or answered before.
  std::shared_ptr<WorkerStep> RecvTensor(CallOptions call, RecvTensorRequest request,
                                         CallDone<RecvTensorReply> done);
  std::shared_ptr<WorkerStep> RecvTensors(CallOptions call, RecvTensorsRequest request,
                                          CallDone<RecvTensorsReply> done);
  std::shared_ptr<WorkerStep> RecvBuf(CallOptions call, const RecvBufRequest& request,
                                      CallDone<RecvBufReply> done);
  // The reply of RecvTensor has arrived and need not be kept.
  void Acknowledge(int64_t request_id) {
    if (cache_ != nullptr) cache_->Forget(request_id);
  }
  // The step is over.
  void ForgetStep(int64_t step_id) {
    if (cache_ != nullptr) cache_->ForgetStep(step_id);
  }

 private:
  absl::StatusOr<std::shared_ptr<WorkerStep>> StepOf(const RecvTensorRequest& request);
  absl::StatusOr<std::shared_ptr<WorkerStep>> StepOf(const RecvTensorsRequest& request);
  absl::StatusOr<std::shared_ptr<WorkerStep>> StepOf(const RecvBufRequest& request);
  absl::Status CheckKey(absl::string_view key);
  absl::Status CheckKeys(const KeyList& keys);
  absl::Status CheckNewKey(const std::string& key);
  absl::Status ParseKey(const std::string& text) const;
  void Receive(const std::shared_ptr<WorkerStep>& step, const std::string& key,
               const std::shared_ptr<Cancellation>& caller, CallDone<RecvTensorReply> done);
  void Fetch(const std::shared_ptr<WorkerStep>& step, const RecvBufRequest& request,
             const std::shared_ptr<Cancellation>& caller, CallDone<RecvBufReply> done);
  // A collective cannot go on without `taker`, one of its ranks.
  void GiveUp(WorkerStep& step, const std::string& taker, const absl::Status& reason) const;

  const Options options_;
  const std::shared_ptr<ReplyCache> cache_;  // null: replies are not kept
  Mutex mutex_;
  // By their hash, which a peer cannot predict: it contains a seed of the process.
  absl::flat_hash_set<size_t> good_keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
