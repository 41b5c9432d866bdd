// The state behind ShardQueue: which worker has which shard of the data, and which shards are done.
//
// A work queue with leases. An epoch is a sequence of all shards, in order or shuffled; the next
// epoch begins when every shard of this one is done. A hand-out is one shard given to one worker
// until its lease expires, under a ticket that is never reused. A hand-out ends in one of two ways:
//   done      the first one of its shard and epoch counts; others are counted as repeated
//   returned  the lease expired, the worker gave it back or was restarted, or a checkpoint was
//             restored; unless another worker holds the shard, it is free again and comes first
// So every shard is done at least once per epoch, more often only where a worker was slow or lost,
// and ShardCounts tells how often. Leases are checked when workers ask and by a timer while one
// waits. Tickets carry a generation, which changes with every restore and restart: those of
// an earlier generation are outdated.
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
#include "muster/params/state.h"

namespace muster {

struct ShardLedgerOptions {
  std::string name = {};
  std::vector<std::string> shards = {};  // empty: `count` of them, "0", "1", ...
  int64_t count = 0;
  int64_t epochs = 1;  // 0: for ever
  bool shuffle = false;
  uint64_t seed = 0;  // of the shuffling; every epoch has its own order
  absl::Duration lease = absl::Seconds(30);
  // Near the end of an epoch, a shard that takes much longer than others is also given to an idle
  // worker (a backup task): the epoch ends sooner, and the shard may be done twice.
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
  int64_t ticket = 0;  // of this hand-out; never reused
};

// The worker that takes a shard.
struct ShardTaker {
  std::string worker;       // its task
  int64_t incarnation = 0;  // of its process; a restarted worker has lost what it held
  // Makes a take idempotent: a repeated take with the same number gives the same shard while it is
  // held, since the first answer may have been lost. Negative: no number.
  int64_t request = -1;
};

// The invariant of the account:  handed + late == done + repeated + returned + held.
struct ShardCounts {
  int64_t handed = 0;
  int64_t done = 0;      // every shard once for each epoch
  int64_t repeated = 0;  // done once more
  int64_t returned = 0;  // not done: worker lost, given back, or rolled back by a restore
  int64_t late = 0;      // done after it had been returned, by its former holder
  int64_t outdated = 0;  // done before a restore, which has undone it
  int64_t restored = 0;  // how often a checkpoint was restored
};

// Thread-safe. Time is that of the scheduler's clock.
class ShardLedger : public State {
 public:
  static constexpr const char* kTypeName = "N6muster11ShardLedgerE";
  // A limit, since the order and a mark are kept for every shard.
  static constexpr int64_t kMaxShards = int64_t{1} << 24;
  // All repeated and returned shards are counted; this many are named.
  static constexpr size_t kNamedAtMost = 1000;
  // Workers with accounts of their own. Beyond that, the accounts of idle workers are merged into
  // kOthers.
  static constexpr size_t kWorkersAtMost = 4096;
  static constexpr const char* kOthers = "(others)";
  using Taken = absl::AnyInvocable<void(absl::StatusOr<TakenShard>) &&>;
  using OnWait = absl::FunctionRef<bool(uint64_t)>;  // as Accumulator's

  // Requires: the options were checked.
  explicit ShardLedger(ShardLedgerOptions options);
  std::string Describe() const override { return "shard queue"; }
  const ShardLedgerOptions& options() const { return options_; }

  // Begins with the first epoch and an empty account; if `gentle`, only the first time. A queue
  // works without it, but other workers wait for it before they begin.
  void Initialize(bool gentle, Scheduler& scheduler);
  // Or restored.
  bool initialized() const;

  // Waits while others have the last shards of an epoch, since they may be lost. OutOfRange when
  // all epochs are done; Aborted when the worker has been restarted meanwhile.
  void Take(ShardTaker taker, Scheduler& scheduler, OnWait on_wait, Taken taken);
  bool Cancel(uint64_t waiting);
  void Flush();

  enum class Outcome { kDone, kRepeated, kKnown, kOutdated };
  // kKnown: reported before. kOutdated: taken before a restore. InvalidArgument for a ticket that
  // was never given.
  absl::StatusOr<Outcome> Done(int64_t ticket, Scheduler& scheduler);
  // Gives the shard back for another worker.
  absl::Status Return(int64_t ticket, Scheduler& scheduler);
  // Renews the leases. Returns whether each is still held.
  std::vector<bool> Renew(absl::Span<const int64_t> tickets, Scheduler& scheduler);

  ShardCounts counts() const;
  int64_t num_held() const;
  // The whole account, as a JSON object.
  std::string Report(Scheduler& scheduler) const;

  // The state for a checkpoint, as text: the account of TakeSnapshot, without the hand-outs. Shards
  // in hand count as free in it.
  std::string Save() const;
  // RestoreSnapshot of such a text, and serves the takers that wait.
  absl::Status Restore(absl::string_view account, Scheduler& scheduler);

  absl::string_view state_kind() const override { return "shard ledger"; }
  int64_t epoch() const override;
  // The account as text, and the hand-outs with their tickets. Takers that wait are no part of it.
  absl::StatusOr<StateSnapshot> TakeSnapshot() const override;
  // Rolls back to the account, the first part; the others are not used: shards in hand are free
  // again, tickets are outdated. InvalidArgument for text that is not an account,
  // FailedPrecondition for that of other shards; on error nothing changes.
  absl::Status RestoreSnapshot(const StateSnapshot& snapshot) override;
  // Workers keep what they hold, under the same tickets. Clocks of two tasks have nothing in
  // common: the leases begin anew when the ledger is next used.
  absl::Status ApplyDelta(const StateDelta& delta) override;

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
  struct Account;  // as read from text

  // Tickets are a generation and a sequence number.
  static constexpr int kSequenceBits = 40;
  static constexpr uint64_t kGenerations = uint64_t{1} << 22;
  // Hand-outs that ended without being done are remembered, up to here, so that one that is done
  // late is recognized.
  static constexpr size_t kReturnedAtMost = 10000;
  static constexpr size_t kRecentAtMost = 64;
  static uint64_t NewGeneration(uint64_t last);
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
  // The index at each position of an epoch; empty when shards are not shuffled.
  std::vector<int32_t> OrderOf(uint64_t seed, int64_t epoch) const;
  void BeginEpochLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOver(int64_t epoch) const;
  bool IsOverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return IsOver(epoch_); }
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
  // Serves the waiting takers; arms the timer for those that still wait.
  void AdvanceLocked(Scheduler& scheduler, std::vector<Answer>& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmLocked(Scheduler& scheduler) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTimer(Scheduler& scheduler, absl::Duration due);
  void Name(std::deque<Event>& events, Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string EventsJson(const std::deque<Event>& events, bool with_values) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WorkersJson(bool with_held) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Named() const;  // "Shard queue 'q'"
  std::string AccountLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Account> ParseAccount(absl::string_view text) const;
  void SetAccountLocked(Account account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Copy;  // as read from a snapshot
  absl::StatusOr<Copy> ParseCopy(absl::Span<const StatePart> parts) const;
  absl::StatusOr<std::map<uint64_t, HandOut>> ParseHandOuts(const StatePart& numbers,
                                                            const StatePart& workers,
                                                            const Copy& copy) const;
  void StartLeasesLocked(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ShardLedgerOptions options_;
  const int64_t count_;
  const uint64_t fingerprint_;

  mutable Mutex mutex_;
  bool initialized_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;  // the epoch as a state
  uint64_t seed_ ABSL_GUARDED_BY(mutex_) = 0;    // of the orders: that of the options, or copied
  // The hand-outs come from another ledger; their leases begin with the next use.
  bool leases_copied_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // a new one after every restore
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int32_t> order_ ABSL_GUARDED_BY(mutex_);  // the index at each position; when shuffled
  std::vector<bool> done_ ABSL_GUARDED_BY(mutex_);      // by index
  int64_t epoch_done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_position_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int64_t> free_ ABSL_GUARDED_BY(mutex_);  // positions of returned shards
  // How many workers hold each shard of this epoch, by index.
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
