// A shard queue's account and its state in a checkpoint, as JSON.
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
    if (!absl::SimpleAtoi(ends.first, &first)) return Bad("its ranges of shards are no numbers");
    if (part.size() == ends.first.size()) {
      last = first;
    } else if (!absl::SimpleAtoi(ends.second, &last)) {
      return Bad("its ranges of shards are no numbers");
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
    absl::StrAppendFormat(&held,
                          "%s{\"epoch\": %d, \"index\": %d, \"shard\": %s, \"worker\": %s, "
                          "\"seconds\": %.6f, \"lease_left\": %.6f}",
                          held.empty() ? "" : ", ", hand_out.epoch, hand_out.index,
                          Quoted(ValueOf(hand_out.index)), Quoted(hand_out.taker.worker),
                          absl::ToDoubleSeconds(now - hand_out.since),
                          absl::ToDoubleSeconds(hand_out.expires - now));
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

std::string ShardLedger::Save() const {
  MutexLock lock(mutex_);
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

struct ShardLedger::State {
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

absl::StatusOr<ShardLedger::State> ShardLedger::ParseState(absl::string_view text) const {
  const absl::StatusOr<Json> json = Json::Parse(text);
  if (!json.ok()) return Bad(json.status().message());
  if (json->object() == nullptr) return Bad("it is no object");
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
  State state;
  ASSIGN_OR_RETURN(state.epoch, Whole(*json, "epoch"));
  ASSIGN_OR_RETURN(const std::string marks, Text(*json, "marks"));
  ASSIGN_OR_RETURN(state.done, ParseRanges(marks, count_));
  for (const NamedCount& count : kCounts) {
    ASSIGN_OR_RETURN(state.counts.*count.value, Whole(*json, count.name));
  }
  ASSIGN_OR_RETURN(state.held, State::Events(*json, "held"));
  ASSIGN_OR_RETURN(state.repeated, State::Events(*json, "repeated_shards"));
  ASSIGN_OR_RETURN(state.returned, State::Events(*json, "returned_shards"));
  ASSIGN_OR_RETURN(state.workers, State::Workers(*json));
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

absl::Status ShardLedger::Restore(absl::string_view text, Scheduler& scheduler) {
  ASSIGN_OR_RETURN(State state, ParseState(text));
  std::vector<Answer> answers;
  {
    MutexLock lock(mutex_);
    initialized_ = true;
    NextGenerationLocked();
    epoch_ = state.epoch;
    BeginEpochLocked();
    done_ = std::move(state.done);
    epoch_done_ = std::count(done_.begin(), done_.end(), true);
    counts_ = state.counts;
    ++counts_.restored;
    counts_.returned += static_cast<int64_t>(state.held.size());
    repeated_events_ = std::move(state.repeated);
    returned_events_ = std::move(state.returned);
    for (Event& event : state.held) Name(returned_events_, std::move(event));
    for (const auto& [name, account] : workers_)
      state.workers[name].incarnation = account.incarnation;
    workers_ = std::move(state.workers);
    AdvanceLocked(scheduler, answers);
  }
  Give(std::move(answers));
  return absl::OkStatus();
}

}  // namespace muster
