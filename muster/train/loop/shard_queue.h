// A work queue of data shards (files, say) that lives on the cluster: workers take shards, work on
// them and report them done. Faster workers get more; shards of a lost worker are handed out again;
// the account lists the shards that were done more than once, and checkpoints keep it.
//
//   ASSIGN_OR_RETURN(auto queue, ShardQueue::Make(scope, {.shards = files, .epochs = 3}));
//   model.shard_queues.push_back(queue);  // saved, initialized and renewed with the model
//   ...
//   while (true) {
//     ASSIGN_OR_RETURN(const std::optional<DataShard> shard, queue->Take(*session));
//     if (!shard.has_value()) break;
//     ... train on shard->value
//     RETURN_IF_ERROR(queue->Done(*session, *shard).status());
//   }
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/train/hooks/hook.h"
#include "muster/train/loop/monitored_session.h"
#include "muster/train/saving/saveable.h"

namespace muster {

struct ShardQueueOptions {
  std::vector<std::string> shards = {};  // empty: `count` of them, "0", "1", ...
  int64_t count = 0;
  int64_t epochs = 1;  // 0: for ever
  bool shuffle = false;
  int64_t seed = 0;  // 0: another one in every run
  // A shard that is neither done nor renewed for this long is handed out again.
  absl::Duration lease = absl::Seconds(30);
  // At the end of an epoch an idle worker is given what another one takes very long for.
  bool backup = false;
  std::string name = "shard_queue";
  // Where the queue lives. "": where a variable would be at a parameter server; at task 0 of its
  // job elsewhere, so that all workers find the same one.
  std::string device = {};
};

struct DataShard {
  int64_t epoch = 0;
  int64_t index = 0;
  std::string value;
  int64_t ticket = 0;  // of this hand-out
};

// A session, or a monitored one: then lost tasks are recovered from, and no hook is called.
class SessionOrMonitored {
 public:
  SessionOrMonitored(Session& session) : session_(&session) {}                 // NOLINT
  SessionOrMonitored(MonitoredSession& monitored) : monitored_(&monitored) {}  // NOLINT
  absl::Status Call(absl::FunctionRef<absl::Status(Session&)> call) const;

 private:
  Session* session_ = nullptr;
  MonitoredSession* monitored_ = nullptr;
};

// Thread-safe, once made.
class ShardQueue {
 public:
  // Every worker makes it in the same way. InvalidArgument for options out of range.
  static absl::StatusOr<std::shared_ptr<ShardQueue>> Make(const Scope& scope,
                                                          ShardQueueOptions options);

  // --- Nodes
  const Output& handle() const { return handle_; }
  const ShardQueueOptions& options() const { return options_; }
  const std::string& name() const { return handle_.node->name(); }
  // Begins with the first epoch. The gentle one only where that has not happened yet.
  Node* initializer() const { return initializer_; }
  Node* gentle_initializer() const { return gentle_initializer_; }
  Output is_initialized() const { return is_initialized_->output(0); }
  // Its name in a vector when it is not initialized, nothing otherwise.
  Output missing() const { return is_initialized_->output(1); }
  Saveable ToSaveable() const;
  struct Taken {
    Output epoch, index, value, ticket;
  };
  // For programs that take within a step of their own. Their leases are not renewed automatically.
  absl::StatusOr<Taken> AddTake(const Scope& scope) const;
  absl::StatusOr<Output> AddDone(const Scope& scope, Output ticket) const;
  absl::StatusOr<Output> AddRenew(const Scope& scope, Output tickets) const;

  // --- Use
  // The next shard, the same as before when the answer to the last call was lost. Waits while other
  // workers have the last shards of an epoch. Nothing when all epochs are done.
  absl::StatusOr<std::optional<DataShard>> Take(SessionOrMonitored session);
  // False: another worker had done it, or a restore has undone it.
  absl::StatusOr<bool> Done(SessionOrMonitored session, const DataShard& shard);
  // For others to do.
  absl::Status Return(SessionOrMonitored session, const DataShard& shard);
  // Keeps what was taken here; a ShardQueueHook does so all the time.
  absl::Status Renew(Session& session);
  // The account, a JSON object: see docs/training.md.
  absl::StatusOr<std::string> Report(SessionOrMonitored session) const;

 private:
  explicit ShardQueue(ShardQueueOptions options) : options_(std::move(options)) {}
  absl::Status AddNodes(const Scope& scope);
  absl::Status PlaceHandle(const Scope& own);
  Node* AddTakeNode(const Scope& scope, Output request) const;
  int64_t BeginRequest() ABSL_LOCKS_EXCLUDED(mutex_);
  void Forget(int64_t ticket) ABSL_LOCKS_EXCLUDED(mutex_);

  const ShardQueueOptions options_;
  Output handle_;
  Node* identity_ = nullptr;
  Node* initializer_ = nullptr;
  Node* gentle_initializer_ = nullptr;
  Node* is_initialized_ = nullptr;
  Output request_, ticket_, tickets_, report_, done_, renew_;
  Node* take_ = nullptr;
  Node* return_ = nullptr;

  Mutex mutex_;
  int64_t next_request_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int64_t> unanswered_ ABSL_GUARDED_BY(mutex_);  // requests, to be asked again
  std::set<int64_t> held_ ABSL_GUARDED_BY(mutex_);           // tickets
};

// Renews the leases of what was taken, on a thread of its own: a step may take longer than that.
class ShardQueueHook : public SessionRunHook {
 public:
  explicit ShardQueueHook(std::shared_ptr<ShardQueue> queue) : queue_(std::move(queue)) {}
  absl::Status AfterCreateSession(const std::shared_ptr<Session>& session,
                                  const std::shared_ptr<Coordinator>& coordinator) override;

 private:
  const std::shared_ptr<ShardQueue> queue_;
};

}  // namespace muster
