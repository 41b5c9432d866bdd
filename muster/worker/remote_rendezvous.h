// Where a step of this task meets the same step on others: values are asked of the task that makes
// them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/runtime/rendezvous.h"
#include "muster/transport/api/peers.h"
#include "muster/worker/transfer_log.h"

namespace muster {

// Thread-safe. Peers may ask before the step has started here; this task's own nodes only receive
// after Bind. Nothing is called with a lock held.
class RemoteRendezvous : public Rendezvous, public std::enable_shared_from_this<RemoteRendezvous> {
 public:
  using Token = uint64_t;

  // `scheduler` outlives the object.
  RemoteRendezvous(int64_t step_id, Scheduler& scheduler, std::shared_ptr<TransferLog> log)
      : step_id_(step_id), scheduler_(scheduler), log_(std::move(log)) {}

  // Which task this is ("/job:a/replica:0/task:0") and how to reach the others. Peers that wait for
  // values of another task's devices are turned away. Does nothing the second time.
  void Bind(std::string task, std::shared_ptr<Peers> peers);

  absl::Status Send(absl::string_view key, Value value) override;
  void RecvAsync(absl::string_view key, RecvDone done) override;
  void AliasFrame(uint64_t frame, uint64_t alias) override;
  // Whoever waits, here or elsewhere, gets `reason` as a derived error: it is not the first to
  // fail. Calls to other tasks are cancelled.
  void Abort(absl::Status reason) override;

  // A value that is made here, for another task. `key` has been parsed before.
  Token RecvForPeer(absl::string_view key, RecvDone done);
  // Those that are there already, until they have `enough_bytes`. Values of loops are left out.
  std::vector<RecvTensorsReply::Tensor> TakeReady(const KeyList& keys, size_t enough_bytes);
  // Takes a waiting peer out: true when its `done` will never be called.
  bool StopWaiting(Token token);
  // Ends the receives of this task's own nodes, now and later; peers may still get values.
  void CancelReceives(absl::Status reason);

 private:
  struct Waiting {
    Token token;  // zero: a node of this task
    RecvDone done;
  };
  // One of the two is empty. Nearly always the other one has a single entry.
  struct Slot {
    absl::InlinedVector<Value, 1> values;
    absl::InlinedVector<Waiting, 1> waiting;
  };
  using Answers = std::vector<std::pair<RecvDone, absl::StatusOr<Value>>>;

  void RecvHere(const std::string& key, Token token, RecvDone done);
  // What this task wants of another one.
  struct WantedList {
    KeyList keys;
    std::vector<RecvDone> dones;
    void Add(absl::string_view key, RecvDone done) {
      keys.push_back(key);
      dones.push_back(std::move(done));
    }
    size_t size() const { return dones.size(); }
  };
  struct Asked {
    std::shared_ptr<WorkerApi> worker;
    WantedList wanted;
  };
  using AskedByTask = std::map<std::string, Asked, std::less<>>;

  void RecvFromPeer(absl::string_view key, const std::string& task, std::shared_ptr<Peers> peers,
                    RecvDone done);
  // Asks for all that nodes have wanted in this turn.
  void AskPeers();
  void AskFor(const std::shared_ptr<WorkerApi>& worker, WantedList wanted);
  void AskForOne(std::shared_ptr<WorkerApi> worker, std::string key, RecvDone done);
  void AskForSeveral(std::shared_ptr<WorkerApi> worker, WantedList wanted);
  void Received(const std::shared_ptr<WorkerApi>& worker, WantedList wanted, int64_t start_nanos,
                absl::StatusOr<RecvTensorsReply> reply);
  // Under which number a new call is known; refused when the step is over.
  absl::StatusOr<uint64_t> OpenCall(std::shared_ptr<Cancellation> call);
  void CloseCall(uint64_t id);
  void Log(absl::string_view key, const Tensor& tensor, int64_t start_nanos);
  // The key in this task's numbering of frames; notes it where the number is not known yet.
  std::string CanonicalLocked(absl::string_view key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerSoon(Answers answers);
  static void Refuse(AskedByTask& wanted, const absl::Status& reason);

  const int64_t step_id_;
  Scheduler& scheduler_;
  const std::shared_ptr<TransferLog> log_;

  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  absl::Status receives_cancelled_ ABSL_GUARDED_BY(mutex_);
  std::string task_ ABSL_GUARDED_BY(mutex_);  // empty: not bound
  std::shared_ptr<Peers> peers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Token, std::string> waiting_peers_ ABSL_GUARDED_BY(mutex_);
  // Numbers of frames that have been heard of, and what they are called here.
  absl::flat_hash_map<uint64_t, uint64_t> aliases_ ABSL_GUARDED_BY(mutex_);
  // Keys of waiting peers by a frame that has not been heard of.
  absl::flat_hash_map<uint64_t, std::vector<std::string>> unknown_frames_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Cancellation>> calls_ ABSL_GUARDED_BY(mutex_);
  // Not asked for yet, by the task that has it.
  AskedByTask wanted_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster
