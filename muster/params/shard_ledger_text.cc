// A shard queue as a state: its account as JSON, which is what checkpoints keep, and its hand-outs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "muster/base/json.h"
#include "muster/params/shard_ledger.h"

namespace muster {
namespace {

constexpr int kStateVersion = 1;
constexpr int64_t kLargest = int64_t{1} << 53;  // JSON's numbers are exact up to here

// The parts of a snapshot.
constexpr absl::string_view kAccount = "account";
constexpr absl::string_view kNumbers = "numbers";  // the members of Copy that are numbers, in order
constexpr absl::string_view kFree = "free";
constexpr absl::string_view kRecent = "recent seconds";
constexpr absl::string_view kHeld = "held";  // a row of kNumColumns numbers for each
constexpr absl::string_view kHeldWorkers = "held workers";
constexpr absl::string_view kReturned = "returned";
constexpr absl::string_view kReturnedWorkers = "returned workers";
constexpr int64_t kNumNumbers = 5;
constexpr int64_t kNumColumns = 6;

// Names are bytes; JSON is text.
std::string Quoted(absl::string_view text) {
  if (std::all_of(text.begin(), text.end(), absl::ascii_isascii)) return JsonQuoted(text);
  return JsonQuoted(absl::CHexEscape(text));
}

struct NamedCount {
  const char* name;
  int64_t ShardCounts::*value;
};
constexpr NamedCount kCounts[] = {
    {"handed", &ShardCounts::handed},     {"done", &ShardCounts::done},
    {"repeated", &ShardCounts::repeated}, {"returned", &ShardCounts::returned},
    {"late", &ShardCounts::late},         {"outdated", &ShardCounts::outdated},
    {"restored", &ShardCounts::restored}};

std::string CountsText(const ShardCounts& counts) {
  return absl::StrJoin(kCounts, ", ", [&](std::string* out, const NamedCount& count) {
    absl::StrAppend(out, "\"", count.name, "\": ", counts.*count.value);
  });
}

// "0-5,7": the numbers that are set.
std::string RangesText(const std::vector<bool>& set) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < set.size(); ++i) {
    if (!set[i]) continue;
    const size_t begin = i;
    while (i + 1 < set.size() && set[i + 1]) ++i;
    parts.push_back(begin == i ? absl::StrCat(i) : absl::StrCat(begin, "-", i));
  }
  return absl::StrJoin(parts, ",");
}

absl::Status Bad(absl::string_view what) {
  return InvalidArgument("This is not the state of a shard queue: ", what);
}

absl::StatusOr<std::vector<bool>> ParseRanges(absl::string_view text, int64_t count) {
  std::vector<bool> set(static_cast<size_t>(count));
  int64_t next = 0;
  if (text.empty()) return set;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int64_t first = 0;
    int64_t last = 0;
    if (!absl::SimpleAtoi(ends.first, &first))
      return Bad("a range of shards is not made of numbers");
    if (part.size() == ends.first.size()) {
      last = first;
    } else if (!absl::SimpleAtoi(ends.second, &last)) {
      return Bad("a range of shards is not made of numbers");
    }
    if (first < next || last < first || last >= count)
      return Bad(absl::StrCat("the range of shards ", part, " is not one of ", count, " in order"));
    std::fill(set.begin() + first, set.begin() + last + 1, true);
    next = last + 1;
  }
  return set;
}

absl::StatusOr<int64_t> Whole(const Json& object, absl::string_view name) {
  const Json* member = object.Find(name);
  const double* number = member == nullptr ? nullptr : member->number();
  if (number == nullptr || !(*number >= 0) || *number > static_cast<double>(kLargest) ||
      *number != std::floor(*number)) {
    return Bad(absl::StrCat("it has no number '", name, "'"));
  }
  return static_cast<int64_t>(*number);
}

absl::StatusOr<std::string> Text(const Json& object, absl::string_view name) {
  const Json* member = object.Find(name);
  if (member == nullptr || member->string() == nullptr)
    return Bad(absl::StrCat("it has no text '", name, "'"));
  return *member->string();
}

}  // namespace

std::string ShardLedger::EventsJson(const std::deque<Event>& events, bool with_values) const {
  const auto append = [&](std::string* out, const Event& event) {
    absl::StrAppend(out, "{\"epoch\": ", event.epoch, ", \"index\": ", event.index);
    if (with_values && event.index < count_)
      absl::StrAppend(out, ", \"shard\": ", Quoted(ValueOf(event.index)));
    absl::StrAppend(out, ", \"worker\": ", Quoted(event.worker), ", \"why\": ", Quoted(event.why),
                    "}");
  };
  return absl::StrCat("[", absl::StrJoin(events, ", ", append), "]");
}

std::string ShardLedger::WorkersJson(bool with_held) const {
  std::vector<std::string> entries;
  for (const auto& [name, account] : workers_) {
    std::string entry = absl::StrFormat("{\"worker\": %s, \"done\": %d, \"seconds\": %.6f",
                                        Quoted(name), account.done, account.seconds);
    if (with_held) {
      const auto is_its = [&name = name](const auto& held) {
        return held.second.taker.worker == name;
      };
      absl::StrAppend(&entry, ", \"held\": ", std::count_if(held_.begin(), held_.end(), is_its));
    }
    entries.push_back(entry + "}");
  }
  return absl::StrCat("[", absl::StrJoin(entries, ", "), "]");
}

std::string ShardLedger::Report(Scheduler& scheduler) const {
  MutexLock lock(mutex_);
  const absl::Duration now = Now(scheduler);
  double seconds = 0;
  for (const auto& [name, account] : workers_) seconds += account.seconds;
  std::string held;
  for (const auto& [sequence, hand_out] : held_) {
    absl::StrAppendFormat(
        &held,
        "%s{\"epoch\": %d, \"index\": %d, \"shard\": %s, \"worker\": %s, "
        "\"seconds\": %.6f, \"lease_left\": %.6f}",
        held.empty() ? "" : ", ", hand_out.epoch, hand_out.index, Quoted(ValueOf(hand_out.index)),
        Quoted(hand_out.taker.worker),
        absl::ToDoubleSeconds(leases_copied_ ? absl::ZeroDuration() : now - hand_out.since),
        absl::ToDoubleSeconds(leases_copied_ ? options_.lease : hand_out.expires - now));
  }
  return absl::StrCat(
      "{\"name\": ", Quoted(options_.name), ", \"shards\": ", count_,
      ", \"epochs\": ", options_.epochs, ", \"epoch\": ", epoch_, ", \"epoch_done\": ", epoch_done_,
      ", \"waiting\": ", waiting_.size(), ", ", CountsText(counts_),
      absl::StrFormat(", \"mean_seconds\": %.6f", counts_.done > 0 ? seconds / counts_.done : 0.0),
      ", \"held\": [", held, "], \"workers\": ", WorkersJson(true),
      ", \"repeated_shards\": ", EventsJson(repeated_events_, true),
      ", \"returned_shards\": ", EventsJson(returned_events_, true), "}");
}

std::string ShardLedger::AccountLocked() const {
  std::deque<Event> held;
  for (const auto& [sequence, hand_out] : held_)
    held.push_back({hand_out.epoch, hand_out.index, hand_out.taker.worker, "restored"});
  return absl::StrCat("{\"version\": ", kStateVersion, ", \"shards\": ", count_,
                      ", \"fingerprint\": \"", absl::Hex(fingerprint_, absl::kZeroPad16),
                      "\", \"epoch\": ", epoch_, ", \"marks\": \"", RangesText(done_), "\", ",
                      CountsText(counts_), ", \"held\": ", EventsJson(held, false),
                      ", \"workers\": ", WorkersJson(false),
                      ", \"repeated_shards\": ", EventsJson(repeated_events_, false),
                      ", \"returned_shards\": ", EventsJson(returned_events_, false), "}");
}

struct ShardLedger::Account {
  int64_t epoch = 0;
  std::vector<bool> done;
  ShardCounts counts;
  std::deque<Event> held;
  std::deque<Event> repeated;
  std::deque<Event> returned;
  std::map<std::string, WorkerAccount> workers;

  static absl::StatusOr<std::deque<Event>> Events(const Json& object, absl::string_view name) {
    const Json* member = object.Find(name);
    if (member == nullptr || member->list() == nullptr)
      return Bad(absl::StrCat("it has no list '", name, "'"));
    std::deque<Event> events;
    for (const Json& item : *member->list()) {
      Event event;
      ASSIGN_OR_RETURN(event.epoch, Whole(item, "epoch"));
      ASSIGN_OR_RETURN(event.index, Whole(item, "index"));
      ASSIGN_OR_RETURN(event.worker, Text(item, "worker"));
      ASSIGN_OR_RETURN(event.why, Text(item, "why"));
      events.push_back(std::move(event));
    }
    return events;
  }
  static absl::StatusOr<std::map<std::string, WorkerAccount>> Workers(const Json& object) {
    const Json* member = object.Find("workers");
    if (member == nullptr || member->list() == nullptr) return Bad("it has no list 'workers'");
    std::map<std::string, WorkerAccount> workers;
    for (const Json& item : *member->list()) {
      ASSIGN_OR_RETURN(const std::string name, Text(item, "worker"));
      WorkerAccount& account = workers[name];
      ASSIGN_OR_RETURN(account.done, Whole(item, "done"));
      const Json* seconds = item.Find("seconds");
      if (seconds == nullptr || seconds->number() == nullptr || !(*seconds->number() >= 0))
        return Bad("a worker has no 'seconds'");
      account.seconds = *seconds->number();
    }
    return workers;
  }
};

absl::StatusOr<ShardLedger::Account> ShardLedger::ParseAccount(absl::string_view text) const {
  const absl::StatusOr<Json> json = Json::Parse(text);
  if (!json.ok()) return Bad(json.status().message());
  if (json->object() == nullptr) return Bad("it is not a JSON object");
  ASSIGN_OR_RETURN(const int64_t version, Whole(*json, "version"));
  if (version != kStateVersion)
    return Unimplemented("The state of a shard queue has version ", version, ", not ",
                         kStateVersion);
  ASSIGN_OR_RETURN(const int64_t shards, Whole(*json, "shards"));
  ASSIGN_OR_RETURN(const std::string fingerprint, Text(*json, "fingerprint"));
  if (shards != count_ || fingerprint != absl::StrCat(absl::Hex(fingerprint_, absl::kZeroPad16))) {
    return FailedPrecondition("Shard queue '", options_.name, "' has ", count_,
                              " shards; the state is that of ", shards,
                              shards == count_ ? " others" : "");
  }
  Account state;
  ASSIGN_OR_RETURN(state.epoch, Whole(*json, "epoch"));
  ASSIGN_OR_RETURN(const std::string marks, Text(*json, "marks"));
  ASSIGN_OR_RETURN(state.done, ParseRanges(marks, count_));
  for (const NamedCount& count : kCounts) {
    ASSIGN_OR_RETURN(state.counts.*count.value, Whole(*json, count.name));
  }
  ASSIGN_OR_RETURN(state.held, Account::Events(*json, "held"));
  ASSIGN_OR_RETURN(state.repeated, Account::Events(*json, "repeated_shards"));
  ASSIGN_OR_RETURN(state.returned, Account::Events(*json, "returned_shards"));
  ASSIGN_OR_RETURN(state.workers, Account::Workers(*json));
  const ShardCounts& counts = state.counts;
  const int64_t marked = std::count(state.done.begin(), state.done.end(), true);
  if (marked == count_) return Bad("all shards of its epoch are done");
  if (state.epoch > kLargest / count_ || counts.done != state.epoch * count_ + marked)
    return Bad("the number of done shards is not that of its epochs");
  if (counts.handed + counts.late !=
      counts.done + counts.repeated + counts.returned + static_cast<int64_t>(state.held.size()))
    return Bad("its account does not add up");
  if (std::max(state.repeated.size(), state.returned.size()) > kNamedAtMost)
    return Bad("it names too many shards");
  return state;
}

struct ShardLedger::Copy {
  bool initialized = false;
  uint64_t generation = 0;
  uint64_t next_sequence = 0;
  uint64_t seed = 0;
  int64_t next_position = 0;
  Account account;
  std::vector<int32_t> order;
  std::set<int64_t> free;
  std::deque<double> recent_seconds;
  std::map<uint64_t, HandOut> held;
  std::map<uint64_t, HandOut> returned;
};

std::string ShardLedger::Named() const {
  return absl::StrCat("Shard queue '", options_.name, "'");
}

std::string ShardLedger::Save() const {
  MutexLock lock(mutex_);
  return AccountLocked();
}

int64_t ShardLedger::epoch() const {
  MutexLock lock(mutex_);
  return changes_;
}

absl::StatusOr<StateSnapshot> ShardLedger::TakeSnapshot() const {
  MutexLock lock(mutex_);
  StateSnapshot snapshot;
  snapshot.epoch = changes_;
  const auto add = [&](absl::string_view name, Tensor tensor) {
    snapshot.parts.push_back({std::string(name), {std::move(tensor)}});
  };
  add(kAccount, Tensor::Scalar<std::string>(AccountLocked()));
  add(kNumbers, Tensor::Vector<int64_t>({initialized_ ? 1 : 0, static_cast<int64_t>(generation_),
                                         static_cast<int64_t>(next_sequence_),
                                         static_cast<int64_t>(seed_), next_position_}));
  add(kFree, Tensor::Vector<int64_t>(std::vector<int64_t>(free_.begin(), free_.end())));
  add(kRecent,
      Tensor::Vector<double>(std::vector<double>(recent_seconds_.begin(), recent_seconds_.end())));
  const auto add_hand_outs = [&](absl::string_view name, absl::string_view workers_name,
                                 const std::map<uint64_t, HandOut>& hand_outs) {
    std::vector<int64_t> rows;
    std::vector<std::string> workers;
    for (const auto& [sequence, h] : hand_outs) {
      rows.insert(rows.end(), {static_cast<int64_t>(sequence), h.epoch, h.index, h.position,
                               h.taker.incarnation, h.taker.request});
      workers.push_back(h.taker.worker);
    }
    add(name,
        Tensor::Of<int64_t>(Shape({static_cast<int64_t>(workers.size()), kNumColumns}), rows));
    add(workers_name, Tensor::Vector<std::string>(workers));
  };
  add_hand_outs(kHeld, kHeldWorkers, held_);
  add_hand_outs(kReturned, kReturnedWorkers, returned_);
  return snapshot;
}

// What is kept of another time besides the hand-outs.
void ShardLedger::SetAccountLocked(Account account) {
  epoch_ = account.epoch;
  BeginEpochLocked();
  done_ = std::move(account.done);
  epoch_done_ = std::count(done_.begin(), done_.end(), true);
  counts_ = account.counts;
  repeated_events_ = std::move(account.repeated);
  returned_events_ = std::move(account.returned);
  for (auto& [name, worker] : account.workers) {
    const auto known = workers_.find(name);
    if (known != workers_.end()) worker.incarnation = known->second.incarnation;
  }
  workers_ = std::move(account.workers);
}

absl::Status ShardLedger::RestoreSnapshot(const StateSnapshot& snapshot) {
  if (snapshot.parts.empty()) return Bad("it has no account");
  RETURN_IF_ERROR(CheckParts(Named(), absl::MakeSpan(snapshot.parts).first(1), {kAccount}));
  ASSIGN_OR_RETURN(const Tensor text, OnlyTensor(Named(), snapshot.parts[0], DType::kString, 0));
  ASSIGN_OR_RETURN(Account account, ParseAccount(text.scalar<std::string>()));
  std::deque<Event> held = std::move(account.held);
  MutexLock lock(mutex_);
  initialized_ = true;
  ++changes_;
  NextGenerationLocked();
  // Workers that came after the checkpoint keep an account.
  for (const auto& [name, worker] : workers_) account.workers.try_emplace(name);
  SetAccountLocked(std::move(account));
  ++counts_.restored;
  counts_.returned += static_cast<int64_t>(held.size());
  for (Event& event : held) Name(returned_events_, std::move(event));
  return absl::OkStatus();
}

absl::Status ShardLedger::Restore(absl::string_view account, Scheduler& scheduler) {
  StateSnapshot snapshot;
  snapshot.parts.push_back(
      {std::string(kAccount), {Tensor::Scalar<std::string>(std::string(account))}});
  RETURN_IF_ERROR(RestoreSnapshot(snapshot));
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    AdvanceLocked(scheduler, answers);
  }
  Give(std::move(answers));
  return absl::OkStatus();
}

absl::StatusOr<std::map<uint64_t, ShardLedger::HandOut>> ShardLedger::ParseHandOuts(
    const StatePart& numbers, const StatePart& workers, const Copy& copy) const {
  ASSIGN_OR_RETURN(const Tensor rows, OnlyTensor(Named(), numbers, DType::kInt64, 2));
  ASSIGN_OR_RETURN(const Tensor names, OnlyTensor(Named(), workers, DType::kString, 1));
  if (rows.dim(1) != kNumColumns || rows.dim(0) != names.dim(0)) {
    return Bad(absl::StrCat("hand-outs of shape ", rows.shape().ToString(), " and ", names.dim(0),
                            " workers"));
  }
  std::map<uint64_t, HandOut> hand_outs;
  for (int64_t i = 0; i < rows.dim(0); ++i) {
    const int64_t* row = rows.data<int64_t>() + i * kNumColumns;
    HandOut h;
    h.epoch = row[1];
    h.index = row[2];
    h.position = row[3];
    h.taker = {names.data<std::string>()[i], row[4], row[5]};
    const auto sequence = static_cast<uint64_t>(row[0]);
    const bool in_range = sequence < copy.next_sequence && h.epoch >= 0 &&
                          h.epoch <= copy.account.epoch && h.index >= 0 && h.index < count_ &&
                          h.position >= 0 && h.position < count_;
    const bool is_current = h.epoch == copy.account.epoch;
    if (!in_range || (is_current && IsOver(h.epoch)) ||
        (is_current && (options_.shuffle ? copy.order[h.position] : h.position) != h.index)) {
      return Bad(absl::StrCat("the hand-out ", row[0], " of shard ", h.index, " of epoch ", h.epoch,
                              " at position ", h.position, " cannot be"));
    }
    if (!hand_outs.emplace(sequence, std::move(h)).second)
      return Bad(absl::StrCat("the hand-out ", row[0], " is there twice"));
  }
  return hand_outs;
}

absl::StatusOr<ShardLedger::Copy> ShardLedger::ParseCopy(absl::Span<const StatePart> parts) const {
  RETURN_IF_ERROR(CheckParts(
      Named(), parts,
      {kAccount, kNumbers, kFree, kRecent, kHeld, kHeldWorkers, kReturned, kReturnedWorkers}));
  ASSIGN_OR_RETURN(const Tensor text, OnlyTensor(Named(), parts[0], DType::kString, 0));
  ASSIGN_OR_RETURN(const Tensor numbers, OnlyTensor(Named(), parts[1], DType::kInt64, 1));
  ASSIGN_OR_RETURN(const Tensor free, OnlyTensor(Named(), parts[2], DType::kInt64, 1));
  ASSIGN_OR_RETURN(const Tensor recent, OnlyTensor(Named(), parts[3], DType::kDouble, 1));
  if (numbers.dim(0) != kNumNumbers) return Bad("its numbers are not five");
  const int64_t* number = numbers.data<int64_t>();
  Copy copy;
  copy.initialized = number[0] != 0;
  copy.generation = static_cast<uint64_t>(number[1]);
  copy.next_sequence = static_cast<uint64_t>(number[2]);
  copy.seed = static_cast<uint64_t>(number[3]);
  copy.next_position = number[4];
  ASSIGN_OR_RETURN(copy.account, ParseAccount(text.scalar<std::string>()));
  if (copy.generation == 0 || copy.generation >= kGenerations ||
      copy.next_sequence >> kSequenceBits != 0 || copy.next_position < 0 ||
      copy.next_position > count_) {
    return Bad("its numbers are out of range");
  }
  copy.order = OrderOf(copy.seed, copy.account.epoch);
  for (const int64_t position : free.values<int64_t>()) {
    if (position < 0 || position >= copy.next_position || IsOver(copy.account.epoch))
      return Bad(absl::StrCat("the shard at position ", position, " cannot be free again"));
    copy.free.insert(position);
  }
  if (recent.dim(0) > static_cast<int64_t>(kRecentAtMost)) return Bad("it has too many times");
  for (const double seconds : recent.values<double>()) {
    if (!(seconds >= 0)) return Bad("a time is negative");
    copy.recent_seconds.push_back(seconds);
  }
  ASSIGN_OR_RETURN(copy.held, ParseHandOuts(parts[4], parts[5], copy));
  ASSIGN_OR_RETURN(copy.returned, ParseHandOuts(parts[6], parts[7], copy));
  if (copy.held.size() != copy.account.held.size())
    return Bad("its account and its hand-outs differ");
  if (copy.returned.size() > kReturnedAtMost) return Bad("it has too many returned shards");
  return copy;
}

absl::Status ShardLedger::ApplyDelta(const StateDelta& delta) {
  Copy copy;
  if (delta.whole) {
    ASSIGN_OR_RETURN(copy, ParseCopy(delta.parts));
  }
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckFollowsAsWhole(Named(), changes_, delta));
  changes_ = delta.to;
  if (!delta.whole) return absl::OkStatus();
  initialized_ = copy.initialized;
  generation_ = copy.generation;
  next_sequence_ = copy.next_sequence;
  seed_ = copy.seed;
  SetAccountLocked(std::move(copy.account));
  next_position_ = copy.next_position;
  free_ = std::move(copy.free);
  recent_seconds_ = std::move(copy.recent_seconds);
  held_ = std::move(copy.held);
  returned_ = std::move(copy.returned);
  for (const auto& [sequence, hand_out] : held_) {
    if (hand_out.epoch == epoch_) ++holders_[hand_out.index];
  }
  leases_copied_ = true;
  return absl::OkStatus();
}

}  // namespace muster
