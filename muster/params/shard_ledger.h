// Which worker has which shard of the data, and which shards are done: the state behind
// ShardQueue. A shard that a worker has taken is its own for a while (the lease); one that is
// neither done nor renewed in time goes to the next who asks, and all of that is counted.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/status.h"
#include "muster/tensor/handles.h"

namespace muster {

struct ShardLedgerOptions {
  std::string name = {};
  std::vector<std::string> shards = {};  // empty: `count` of them, "0", "1", ...
  int64_t count = 0;
  int64_t epochs = 1;  // 0: for ever
  bool shuffle = false;
  uint64_t seed = 0;  // of the orders; every epoch has its own
  absl::Duration lease = absl::Seconds(30);
  // Near the end of an epoch a shard that takes much longer than others is given to an idle worker
  // too: the epoch ends sooner, the shard is perhaps done twice.
  bool backup = false;
};
// InvalidArgument naming what is out of range.
absl::Status CheckShardLedgerOptions(const ShardLedgerOptions& options);
int64_t NumShards(const ShardLedgerOptions& options);
// Of the names of all shards, in order.
uint64_t ShardFingerprint(const ShardLedgerOptions& options);

struct TakenShard {
  int64_t epoch = 0;
  int64_t index = 0;
  std::string value;
  int64_t ticket = 0;  // of this handing out; never the same twice
};

// Who takes.
struct ShardTaker {
  std::string worker;       // its task
  int64_t incarnation = 0;  // of its process: a new one has lost what the old one had
  // Taking again under the same number gives the same shard while it is held: the answer to the
  // first may have been lost. Negative: no number.
  int64_t request = -1;
};

// How handing out and coming back add up:  handed + late == done + repeated + returned + held.
struct ShardCounts {
  int64_t handed = 0;
  int64_t done = 0;      // every shard once for each epoch
  int64_t repeated = 0;  // done once more
  int64_t returned = 0;  // not done: lost with its worker, given back, or rolled back by a restore
  int64_t late = 0;      // done all the same after that, by whoever had it
  int64_t outdated = 0;  // done before a restore, which has undone it
  int64_t restored = 0;  // how often a checkpoint was restored
};

// Thread-safe. Time is that of the scheduler's clock.
class ShardLedger : public Resource {
 public:
  static constexpr const char* kTypeName = "N6muster11ShardLedgerE";
  // Not more: orders and marks are kept for every shard.
  static constexpr int64_t kMaxShards = int64_t{1} << 24;
  // Repeated and returned shards are counted without end and named up to here.
  static constexpr size_t kNamedAtMost = 1000;
  // Workers with accounts of their own. When more come, those that have nothing share one, kOthers.
  static constexpr size_t kWorkersAtMost = 4096;
  static constexpr const char* kOthers = "(others)";
  using Taken = absl::AnyInvocable<void(absl::StatusOr<TakenShard>) &&>;
  using OnWait = absl::FunctionRef<bool(uint64_t)>;  // as Accumulator's

  // Requires: the options were checked.
  explicit ShardLedger(ShardLedgerOptions options);
  std::string Describe() const override { return "shard queue"; }
  const ShardLedgerOptions& options() const { return options_; }

  // Begins with the first epoch and an empty account; a gentle one does so the first time only. A
  // queue works without, but others wait for it before they begin.
  void Initialize(bool gentle, Scheduler& scheduler);
  // Or restored.
  bool initialized() const;

  // Waits while others have the last shards of an epoch, since they may be lost. OutOfRange when
  // all epochs are done; Aborted when the worker has begun a new life meanwhile.
  void Take(ShardTaker taker, Scheduler& scheduler, OnWait on_wait, Taken taken);
  bool Cancel(uint64_t waiting);
  void Flush();

  enum class Outcome { kDone, kRepeated, kKnown, kOutdated };
  // kKnown: said before. kOutdated: taken before a restore. InvalidArgument for a ticket that was
  // never given.
  absl::StatusOr<Outcome> Done(int64_t ticket, Scheduler& scheduler);
  // For another one to do.
  absl::Status Return(int64_t ticket, Scheduler& scheduler);
  // The leases begin anew. Whether each is still held.
  std::vector<bool> Renew(absl::Span<const int64_t> tickets, Scheduler& scheduler);

  ShardCounts counts() const;
  int64_t num_held() const;
  // All of the account, as a JSON object.
  std::string Report(Scheduler& scheduler) const;

  // What a checkpoint keeps, as text. What is handed out counts as free in it.
  std::string Save() const;
  // InvalidArgument for text that is no such state, FailedPrecondition for that of other shards;
  // nothing has changed then.
  absl::Status Restore(absl::string_view state, Scheduler& scheduler);

 private:
  struct HandOut {
    ShardTaker taker;
    int64_t epoch = 0;
    int64_t index = 0;
    int64_t position = 0;  // of the index in the epoch's order
    absl::Duration since;
    absl::Duration expires;
  };
  struct Waiter {
    uint64_t id = 0;
    ShardTaker taker;
    Taken taken;
  };
  struct Answer {
    Taken taken;
    absl::StatusOr<TakenShard> shard;
  };
  struct Event {
    int64_t epoch = 0;
    int64_t index = 0;
    std::string worker;
    std::string why;
  };
  struct WorkerAccount {
    int64_t incarnation = 0;
    int64_t done = 0;
    double seconds = 0;
  };
  struct State;  // as read from text

  static absl::Duration Now(Scheduler& scheduler);
  static void Give(std::vector<Answer> answers);
  int64_t TicketLocked(uint64_t sequence) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<uint64_t>> SequenceLocked(int64_t ticket) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NextGenerationLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ValueOf(int64_t index) const;
  int64_t IndexAtLocked(int64_t position) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return options_.shuffle ? order_[position] : position;
  }
  void BeginEpochLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteLifeLocked(const ShardTaker& taker, std::vector<Answer>& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<absl::StatusOr<TakenShard>> TryTakeLocked(const ShardTaker& taker,
                                                          absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<int64_t> NextPositionLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<int64_t> BackupPositionLocked(const ShardTaker& taker, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayBeDoubledLocked(const HandOut& held) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<absl::Duration> SlowLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TakenShard HandOutLocked(const ShardTaker& taker, int64_t position, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnLocked(std::map<uint64_t, HandOut>::iterator held, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Outcome FinishLocked(const HandOut& hand_out, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLocked(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tries all who wait; arms the timer for those who still do.
  void AdvanceLocked(Scheduler& scheduler, std::vector<Answer>& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmLocked(Scheduler& scheduler) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTimer(Scheduler& scheduler, absl::Duration due);
  void Name(std::deque<Event>& events, Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string EventsJson(const std::deque<Event>& events, bool with_values) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WorkersJson(bool with_held) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<State> ParseState(absl::string_view text) const;

  const ShardLedgerOptions options_;
  const int64_t count_;
  const uint64_t fingerprint_;

  mutable Mutex mutex_;
  bool initialized_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // another one after every restore
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int32_t> order_ ABSL_GUARDED_BY(mutex_);  // the index at each position; when shuffled
  std::vector<bool> done_ ABSL_GUARDED_BY(mutex_);      // by index
  int64_t epoch_done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_position_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int64_t> free_ ABSL_GUARDED_BY(mutex_);  // positions that have come back
  // How many hold a shard of this epoch, by index.
  absl::flat_hash_map<int64_t, int> holders_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, HandOut> held_ ABSL_GUARDED_BY(mutex_);      // by sequence number
  std::map<uint64_t, HandOut> returned_ ABSL_GUARDED_BY(mutex_);  // may be done late
  std::list<Waiter> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Taken> withdrawn_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration armed_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  ShardCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::deque<double> recent_seconds_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, WorkerAccount> workers_ ABSL_GUARDED_BY(mutex_);
  std::deque<Event> repeated_events_ ABSL_GUARDED_BY(mutex_);
  std::deque<Event> returned_events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
