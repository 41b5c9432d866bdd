// Threads that keep a queue filled: each runs an enqueue op again and again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/client/session.h"
#include "muster/train/loop/coordinator.h"

namespace muster {

struct QueueRunnerDef {
  std::string queue_name;
  std::vector<Node*> enqueue_ops;
  Node* close_op = nullptr;   // no more elements will come
  Node* cancel_op = nullptr;  // nor the ones that wait to get in
  // Done before the queue is cancelled when the coordinator stops without an error. May be empty.
  std::function<absl::Status(Session&)> on_clean_stop;
  // Steps that run this node wait for what the runner makes, and closing its queue does not wake
  // them: they end with the error that stops the runner. May be null.
  const Node* waits = nullptr;
  // What an enqueue op says when the queue, or the one it reads from, is closed.
  std::vector<absl::StatusCode> closed_codes = {absl::StatusCode::kOutOfRange};
};

// Thread-safe. The graph must outlive the threads.
class QueueRunner : public std::enable_shared_from_this<QueueRunner> {
 public:
  struct Options {
    // A step that still runs this long after the stop is cancelled; TensorFlow waits for it.
    absl::Duration cancel_after = absl::Seconds(1);
    // Looks at an error, perhaps to replace it, before it is reported.
    std::function<absl::Status(absl::Status)> on_error;
  };

  static std::shared_ptr<QueueRunner> Create(QueueRunnerDef def, Options options);
  static std::shared_ptr<QueueRunner> Create(QueueRunnerDef def) {
    return Create(std::move(def), Options());
  }

  // One thread for each enqueue op and, with a coordinator, one that cancels the queue at the stop;
  // registered there, not started. Empty while threads of an earlier call run for this session.
  std::vector<std::shared_ptr<Thread>> CreateThreads(std::shared_ptr<Session> session,
                                                     std::shared_ptr<Coordinator> coordinator);
  // The same, started.
  std::vector<std::shared_ptr<Thread>> Start(std::shared_ptr<Session> session,
                                             std::shared_ptr<Coordinator> coordinator);

  const QueueRunnerDef& def() const { return def_; }
  // Of threads without a coordinator, since the last CreateThreads.
  std::vector<absl::Status> errors() const;

 private:
  QueueRunner(QueueRunnerDef def, Options options)
      : def_(std::move(def)), options_(std::move(options)) {}

  // What the threads of one CreateThreads share.
  struct Group;
  absl::Status RunEnqueue(Group& group, const absl::StatusOr<std::shared_ptr<StepPlan>>& plan);
  absl::Status EnqueueUntilStop(Group& group, const absl::StatusOr<std::shared_ptr<StepPlan>>& plan,
                                bool& closed);
  void CancelOnStop(Group& group);
  // One thread less for the session. Whether it was the last.
  bool Leave(const Session* session);

  const QueueRunnerDef def_;
  const Options options_;
  mutable Mutex mutex_;
  absl::flat_hash_map<const Session*, int> running_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> errors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
