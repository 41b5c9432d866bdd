#include "muster/params/shard_ledger.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "muster/base/random.h"

namespace muster {
namespace {

// A shard that takes this many times the median may be given to a second worker.
constexpr double kSlowFactor = 3;

// FNV-1a over lengths and bytes.
class Hash {
 public:
  void Add(absl::string_view text) {
    AddNumber(text.size());
    for (const char c : text) AddByte(static_cast<uint8_t>(c));
  }
  void AddNumber(uint64_t number) {
    for (int i = 0; i < 8; ++i) AddByte(static_cast<uint8_t>(number >> (8 * i)));
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

uint64_t ShardFingerprint(const ShardLedgerOptions& options) {
  Hash hash;
  if (options.shards.empty()) hash.AddNumber(static_cast<uint64_t>(options.count));
  for (const std::string& shard : options.shards) hash.Add(shard);
  return hash.value();
}

int64_t NumShards(const ShardLedgerOptions& options) {
  return options.shards.empty() ? options.count : static_cast<int64_t>(options.shards.size());
}

absl::Status CheckShardLedgerOptions(const ShardLedgerOptions& options) {
  if (!options.shards.empty() && options.count != 0 &&
      options.count != static_cast<int64_t>(options.shards.size())) {
    return InvalidArgument("A shard queue has either shards (", options.shards.size(),
                           " are given) or a count (", options.count, ")");
  }
  const int64_t count = NumShards(options);
  if (count < 1 || count > ShardLedger::kMaxShards) {
    return InvalidArgument("A shard queue must have between 1 and ", ShardLedger::kMaxShards,
                           " shards, not ", count);
  }
  if (options.epochs < 0)
    return InvalidArgument("epochs must be at least 0 (for ever), but is ", options.epochs);
  if (options.lease < absl::Milliseconds(1) || options.lease > absl::Hours(24 * 365)) {
    return InvalidArgument("The lease of a shard must be between 1ms and a year, but is ",
                           absl::FormatDuration(options.lease));
  }
  return absl::OkStatus();
}

// Differs from the last: a ticket given out before is not mistaken for a new one, even when the
// task that keeps the queue has been restarted.
uint64_t ShardLedger::NewGeneration(uint64_t last) {
  const uint64_t drawn = EntropySeed() % (kGenerations - 1) + 1;
  return drawn == last ? drawn % (kGenerations - 1) + 1 : drawn;
}

ShardLedger::ShardLedger(ShardLedgerOptions options)
    : options_(std::move(options)),
      count_(NumShards(options_)),
      fingerprint_(ShardFingerprint(options_)),
      generation_(NewGeneration(0)) {
  MutexLock lock(mutex_);
  seed_ = options_.seed;
  BeginEpochLocked();
}

absl::Duration ShardLedger::Now(Scheduler& scheduler) {
  return absl::Nanoseconds(scheduler.clock().NowNanos());
}

void ShardLedger::Give(std::vector<Answer> answers) {
  for (Answer& answer : answers) std::move(answer.taken)(std::move(answer.shard));
}

int64_t ShardLedger::TicketLocked(uint64_t sequence) const {
  return static_cast<int64_t>(generation_ << kSequenceBits | sequence);
}

// Nothing: the ticket is of another generation.
absl::StatusOr<std::optional<uint64_t>> ShardLedger::SequenceLocked(int64_t ticket) const {
  const auto bits = static_cast<uint64_t>(ticket);
  const uint64_t generation = bits >> kSequenceBits;
  const uint64_t sequence = bits & ((uint64_t{1} << kSequenceBits) - 1);
  if (generation == generation_ && sequence < next_sequence_) return sequence;
  if (generation == 0 || generation >= kGenerations || generation == generation_) {
    return InvalidArgument("Shard queue '", options_.name, "' has never given the ticket ", ticket);
  }
  return std::nullopt;
}

// Invalidates every ticket given out so far.
void ShardLedger::NextGenerationLocked() {
  generation_ = NewGeneration(generation_);
  next_sequence_ = 0;
  held_.clear();
  returned_.clear();
}

std::string ShardLedger::ValueOf(int64_t index) const {
  return options_.shards.empty() ? absl::StrCat(index) : options_.shards[index];
}

bool ShardLedger::IsOver(int64_t epoch) const {
  return options_.epochs > 0 && epoch >= options_.epochs;
}

std::vector<int32_t> ShardLedger::OrderOf(uint64_t seed, int64_t epoch) const {
  std::vector<int32_t> order;
  if (IsOver(epoch) || !options_.shuffle) return order;
  order.resize(static_cast<size_t>(count_));
  std::iota(order.begin(), order.end(), 0);
  Philox random(seed, static_cast<uint64_t>(epoch));
  Philox::Block block{};
  for (size_t i = order.size() - 1; i > 0; --i) {
    const size_t word = i % block.size();
    if (word == block.size() - 1 || i == order.size() - 1) block = random();
    std::swap(order[i], order[(uint64_t{block[word]} * (i + 1)) >> 32]);
  }
  return order;
}

void ShardLedger::BeginEpochLocked() {
  order_ = OrderOf(seed_, epoch_);
  free_.clear();
  holders_.clear();
  next_position_ = 0;
  epoch_done_ = 0;
  done_.assign(static_cast<size_t>(count_), false);
}

void ShardLedger::Take(ShardTaker taker, Scheduler& scheduler, OnWait on_wait, Taken taken) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    const absl::Duration now = Now(scheduler);
    ++changes_;
    ExpireLocked(now);
    NoteLifeLocked(taker, answers);
    // Takers that already wait are served first.
    AdvanceLocked(scheduler, answers);
    std::optional<absl::StatusOr<TakenShard>> shard = TryTakeLocked(taker, now);
    if (shard.has_value()) {
      answers.push_back({std::move(taken), *std::move(shard)});
    } else if (const uint64_t id = ++last_waiter_; !on_wait(id)) {
      answers.push_back({std::move(taken), absl::CancelledError("The take was cancelled")});
    } else {
      waiting_.push_back({id, std::move(taker), std::move(taken)});
      ArmLocked(scheduler);
    }
  }
  Give(std::move(answers));
}

// Names come from clients: without this the table would grow without bound.
void ShardLedger::MakeRoomLocked() {
  std::set<absl::string_view> busy;
  for (const auto& [sequence, held] : held_) busy.insert(held.taker.worker);
  for (const Waiter& waiter : waiting_) busy.insert(waiter.taker.worker);
  WorkerAccount others;
  std::erase_if(workers_, [&](const auto& worker) {
    if (busy.contains(worker.first)) return false;
    others.done += worker.second.done;
    others.seconds += worker.second.seconds;
    return true;
  });
  workers_[kOthers] = others;
}

// A restarted worker has lost what its previous process had taken.
void ShardLedger::NoteLifeLocked(const ShardTaker& taker, std::vector<Answer>& answers) {
  if (workers_.size() >= kWorkersAtMost && !workers_.contains(taker.worker)) MakeRoomLocked();
  WorkerAccount& account = workers_[taker.worker];
  const bool is_new = account.incarnation != taker.incarnation;
  account.incarnation = taker.incarnation;
  for (auto held = held_.begin(); is_new && held != held_.end();) {
    const auto at = held++;
    const ShardTaker& holder = at->second.taker;
    if (holder.worker == taker.worker && holder.incarnation != taker.incarnation)
      ReturnLocked(at, "worker restarted");
  }
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const bool is_same = at->taker.worker == taker.worker;
    const bool asked_again = is_same && taker.request >= 0 && at->taker.request == taker.request;
    if (!asked_again && !(is_same && at->taker.incarnation != taker.incarnation)) {
      ++at;
      continue;
    }
    answers.push_back(
        {std::move(at->taken), absl::AbortedError(absl::StrCat(taker.worker, " has asked again"))});
    at = waiting_.erase(at);
  }
}

std::optional<absl::StatusOr<TakenShard>> ShardLedger::TryTakeLocked(const ShardTaker& taker,
                                                                     absl::Duration now) {
  for (auto& [sequence, held] : held_) {
    if (taker.request < 0) break;
    if (held.taker.worker != taker.worker || held.taker.incarnation != taker.incarnation ||
        held.taker.request != taker.request) {
      continue;
    }
    held.expires = now + options_.lease;
    return TakenShard{held.epoch, held.index, ValueOf(held.index), TicketLocked(sequence)};
  }
  if (IsOverLocked()) {
    return OutOfRange("Shard queue '", options_.name, "': all ", options_.epochs,
                      " epochs are done");
  }
  std::optional<int64_t> position = NextPositionLocked();
  if (!position.has_value() && options_.backup) position = BackupPositionLocked(taker, now);
  if (!position.has_value()) return std::nullopt;
  return HandOutLocked(taker, *position, now);
}

// Returned shards first: they precede the others in the epoch's order.
std::optional<int64_t> ShardLedger::NextPositionLocked() {
  if (!free_.empty()) {
    const int64_t position = *free_.begin();
    free_.erase(free_.begin());
    return position;
  }
  while (next_position_ < count_) {
    const int64_t position = next_position_++;
    if (!done_[IndexAtLocked(position)]) return position;
  }
  return std::nullopt;
}

std::optional<absl::Duration> ShardLedger::SlowLocked() const {
  if (recent_seconds_.empty()) return std::nullopt;
  std::vector<double> seconds(recent_seconds_.begin(), recent_seconds_.end());
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return absl::Seconds(*middle * kSlowFactor);
}

bool ShardLedger::MayBeDoubledLocked(const HandOut& held) const {
  if (held.epoch != epoch_ || done_[held.index]) return false;
  const auto holders = holders_.find(held.index);
  return holders != holders_.end() && holders->second == 1;
}

std::optional<int64_t> ShardLedger::BackupPositionLocked(const ShardTaker& taker,
                                                         absl::Duration now) const {
  const std::optional<absl::Duration> slow = SlowLocked();
  if (!slow.has_value()) return std::nullopt;
  const HandOut* oldest = nullptr;
  for (const auto& [sequence, held] : held_) {
    if (!MayBeDoubledLocked(held) || held.taker.worker == taker.worker || now - held.since < *slow)
      continue;
    if (oldest == nullptr || held.since < oldest->since) oldest = &held;
  }
  if (oldest == nullptr) return std::nullopt;
  return oldest->position;
}

TakenShard ShardLedger::HandOutLocked(const ShardTaker& taker, int64_t position,
                                      absl::Duration now) {
  HandOut hand_out;
  hand_out.taker = taker;
  hand_out.epoch = epoch_;
  hand_out.position = position;
  hand_out.index = IndexAtLocked(position);
  hand_out.since = now;
  hand_out.expires = now + options_.lease;
  ++holders_[hand_out.index];
  ++changes_;
  ++counts_.handed;
  const uint64_t sequence = next_sequence_++;
  TakenShard shard{hand_out.epoch, hand_out.index, ValueOf(hand_out.index), TicketLocked(sequence)};
  held_.emplace(sequence, std::move(hand_out));
  return shard;
}

void ShardLedger::Name(std::deque<Event>& events, Event event) {
  if (events.size() < kNamedAtMost) events.push_back(std::move(event));
}

void ShardLedger::ReturnLocked(std::map<uint64_t, HandOut>::iterator held, absl::string_view why) {
  const HandOut& hand_out = held->second;
  ++changes_;
  ++counts_.returned;
  Name(returned_events_, {hand_out.epoch, hand_out.index, hand_out.taker.worker, std::string(why)});
  if (hand_out.epoch == epoch_ && --holders_[hand_out.index] == 0 && !done_[hand_out.index])
    free_.insert(hand_out.position);
  if (returned_.size() >= kReturnedAtMost) returned_.erase(returned_.begin());
  returned_.insert(held_.extract(held));
}

void ShardLedger::StartLeasesLocked(absl::Duration now) {
  if (!std::exchange(leases_copied_, false)) return;
  for (auto* const hand_outs : {&held_, &returned_}) {
    for (auto& [sequence, hand_out] : *hand_outs) {
      hand_out.since = now;
      hand_out.expires = now + options_.lease;
    }
  }
}

void ShardLedger::ExpireLocked(absl::Duration now) {
  StartLeasesLocked(now);
  for (auto held = held_.begin(); held != held_.end();) {
    const auto at = held++;
    if (at->second.expires <= now) ReturnLocked(at, "lease ended");
  }
}

absl::StatusOr<ShardLedger::Outcome> ShardLedger::Done(int64_t ticket, Scheduler& scheduler) {
  std::vector<Answer> answers;
  Outcome outcome = Outcome::kKnown;
  {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(const std::optional<uint64_t> sequence, SequenceLocked(ticket));
    ++changes_;
    StartLeasesLocked(Now(scheduler));
    if (!sequence.has_value()) {
      ++counts_.outdated;
      return Outcome::kOutdated;
    }
    if (auto held = held_.extract(*sequence); !held.empty()) {
      const HandOut& hand_out = held.mapped();
      if (hand_out.epoch == epoch_) --holders_[hand_out.index];
      outcome = FinishLocked(hand_out, Now(scheduler));
    } else if (auto returned = returned_.extract(*sequence); !returned.empty()) {
      ++counts_.late;
      outcome = FinishLocked(returned.mapped(), Now(scheduler));
    }
    AdvanceLocked(scheduler, answers);
  }
  Give(std::move(answers));
  return outcome;
}

ShardLedger::Outcome ShardLedger::FinishLocked(const HandOut& hand_out, absl::Duration now) {
  if (hand_out.epoch != epoch_ || done_[hand_out.index]) {
    ++counts_.repeated;
    Name(repeated_events_, {hand_out.epoch, hand_out.index, hand_out.taker.worker, "done before"});
    return Outcome::kRepeated;
  }
  const double seconds = absl::ToDoubleSeconds(now - hand_out.since);
  WorkerAccount& account = workers_[hand_out.taker.worker];
  ++account.done;
  account.seconds += seconds;
  recent_seconds_.push_back(seconds);
  if (recent_seconds_.size() > kRecentAtMost) recent_seconds_.pop_front();
  ++counts_.done;
  done_[hand_out.index] = true;
  free_.erase(hand_out.position);
  if (++epoch_done_ == count_) {
    ++epoch_;
    BeginEpochLocked();
  }
  return Outcome::kDone;
}

absl::Status ShardLedger::Return(int64_t ticket, Scheduler& scheduler) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(const std::optional<uint64_t> sequence, SequenceLocked(ticket));
    const auto held = sequence.has_value() ? held_.find(*sequence) : held_.end();
    if (held == held_.end()) return absl::OkStatus();
    ReturnLocked(held, "given back");
    AdvanceLocked(scheduler, answers);
  }
  Give(std::move(answers));
  return absl::OkStatus();
}

// A shard whose lease has expired is still its worker's until another worker asks for one.
std::vector<bool> ShardLedger::Renew(absl::Span<const int64_t> tickets, Scheduler& scheduler) {
  std::vector<bool> still_held;
  MutexLock lock(mutex_);
  StartLeasesLocked(Now(scheduler));
  const absl::Duration expires = Now(scheduler) + options_.lease;
  for (const int64_t ticket : tickets) {
    const absl::StatusOr<std::optional<uint64_t>> sequence = SequenceLocked(ticket);
    const auto held = sequence.ok() && sequence->has_value() ? held_.find(**sequence) : held_.end();
    still_held.push_back(held != held_.end());
    if (held != held_.end()) held->second.expires = expires;
  }
  return still_held;
}

void ShardLedger::AdvanceLocked(Scheduler& scheduler, std::vector<Answer>& answers) {
  if (waiting_.empty()) return;
  const absl::Duration now = Now(scheduler);
  ExpireLocked(now);
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    std::optional<absl::StatusOr<TakenShard>> shard = TryTakeLocked(at->taker, now);
    if (!shard.has_value()) {
      ++at;
      continue;
    }
    answers.push_back({std::move(at->taken), *std::move(shard)});
    at = waiting_.erase(at);
  }
  ArmLocked(scheduler);
}

// Sets the timer to the next moment at which a lease expires or a shard becomes slow.
void ShardLedger::ArmLocked(Scheduler& scheduler) {
  if (waiting_.empty()) return;
  const absl::Duration now = Now(scheduler);
  const std::optional<absl::Duration> slow = options_.backup ? SlowLocked() : std::nullopt;
  absl::Duration due = absl::InfiniteDuration();
  for (const auto& [sequence, held] : held_) {
    due = std::min(due, held.expires);
    if (slow.has_value() && MayBeDoubledLocked(held) && held.since + *slow > now)
      due = std::min(due, held.since + *slow);
  }
  if (due >= armed_) return;
  armed_ = due;
  scheduler.ScheduleAfter(std::max(due - now, absl::ZeroDuration()),
                          [self = RefPtr<ShardLedger>::Share(this), &scheduler, due] {
                            self->OnTimer(scheduler, due);
                          });
}

void ShardLedger::OnTimer(Scheduler& scheduler, absl::Duration due) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    if (armed_ == due) armed_ = absl::InfiniteDuration();
    AdvanceLocked(scheduler, answers);
  }
  Give(std::move(answers));
}

bool ShardLedger::Cancel(uint64_t waiting) {
  MutexLock lock(mutex_);
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (at->id != waiting) continue;
    withdrawn_.push_back(std::move(at->taken));
    waiting_.erase(at);
    return true;
  }
  return false;
}

void ShardLedger::Flush() {
  std::vector<Taken> withdrawn;
  {
    MutexLock lock(mutex_);
    withdrawn.swap(withdrawn_);
  }
  for (Taken& taken : withdrawn) std::move(taken)(absl::CancelledError("The take was cancelled"));
}

void ShardLedger::Initialize(bool gentle, Scheduler& scheduler) {
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    if (gentle && initialized_) return;
    initialized_ = true;
    ++changes_;
    NextGenerationLocked();
    epoch_ = 0;
    BeginEpochLocked();
    counts_ = ShardCounts();
    repeated_events_.clear();
    returned_events_.clear();
    workers_.clear();
    AdvanceLocked(scheduler, answers);
  }
  Give(std::move(answers));
}

bool ShardLedger::initialized() const {
  MutexLock lock(mutex_);
  return initialized_;
}

ShardCounts ShardLedger::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

int64_t ShardLedger::num_held() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(held_.size());
}

}  // namespace muster
