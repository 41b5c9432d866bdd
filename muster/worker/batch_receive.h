// A receive of several values by another task: answered with those that are there first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/base/cancel_callback.h"
#include "muster/worker/worker_step.h"

namespace muster {

// Thread-safe. Values that come in one turn of the step leave in one answer. What has not come by
// then is taken out of the rendezvous again: the peer asks for it anew.
class BatchReceive : public std::enable_shared_from_this<BatchReceive> {
 public:
  struct Options {
    KeyList keys;  // parsed before
    CallDone<RecvTensorsReply> done;
    std::shared_ptr<WorkerStep> step;
    std::shared_ptr<StepTable> steps;
    std::shared_ptr<Cancellation> caller;  // may be null
    absl::Duration cancel_grace;
    Scheduler* control = nullptr;
    std::shared_ptr<TransferLog> log;  // may be null
  };
  // An answer with this many bytes is sent at once.
  static constexpr size_t kEnoughBytes = 4 << 20;

  explicit BatchReceive(Options options)
      : options_(std::move(options)), waiting_(options_.keys.size()) {}
  // The call is answered once.
  void Start();

 private:
  struct Waiting {
    RemoteRendezvous::Token token = 0;
    bool is_over = false;  // it has come, or was taken out again
  };

  void Arrived(size_t index, absl::StatusOr<Rendezvous::Value> value);
  // No more is waited for; the last of those that are on their way answers.
  void Close();
  void Cancel(const absl::Status& reason);
  // Takes out what has not come: how many.
  int64_t StopWaiting();
  void AnswerIfOver();

  Options options_;  // `done` under the lock
  Mutex mutex_;
  bool asking_ ABSL_GUARDED_BY(mutex_) = true;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closes_soon_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // by key
  int64_t left_ ABSL_GUARDED_BY(mutex_) = 0;              // asked for and not over
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  RecvTensorsReply reply_ ABSL_GUARDED_BY(mutex_);
  CancelCallback on_cancel_;
};

}  // namespace muster
