#include "muster/ops/input/reader.h"

#include <iterator>

#include "absl/strings/escaping.h"

#include "muster/ops/input/example_wire.h"
#include "muster/runtime/lack_of_memory.h"

namespace muster {
namespace {

void AppendVarint(uint64_t value, std::string& to) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

}  // namespace

void Reader::Enter(Scheduler& scheduler, Turn turn) {
  {
    MutexLock lock(mutex_);
    if (occupied_) {
      waiting_.push_back({&scheduler, std::move(turn)});
      return;
    }
    occupied_ = true;
  }
  std::move(turn)();
}

void Reader::Leave() {
  Waiting next;
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) {
      occupied_ = false;
      return;
    }
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  next.scheduler->Schedule(std::move(next.turn));
}

bool Reader::working() const {
  MutexLock lock(mutex_);
  return progress_.finished < progress_.started;
}

absl::Status Reader::StartWork(const std::string& work) {
  {
    MutexLock lock(mutex_);
    progress_.work = work;
  }
  RETURN_IF_ERROR(EndedByLackOfMemory([&] { return source_->Start(work); }));
  MutexLock lock(mutex_);
  ++progress_.started;
  return absl::OkStatus();
}

absl::StatusOr<RecordSource::Next> Reader::ReadRecord() {
  RecordSource::Next next;
  // A record may be as long as its file.
  RETURN_IF_ERROR(EndedByLackOfMemory([&]() -> absl::Status {
    ASSIGN_OR_RETURN(next, source_->Read());
    return absl::OkStatus();
  }));
  if (next.at_end) source_->Stop();
  MutexLock lock(mutex_);
  if (next.has_record) ++progress_.records;
  if (next.at_end) progress_.finished = progress_.started;
  return next;
}

std::optional<RecordSource::Next> Reader::ReadAhead() {
  {
    MutexLock lock(mutex_);
    if (!put_back_.empty()) {
      RecordSource::Next next{true, false, std::move(put_back_.front())};
      put_back_.pop_front();
      ++progress_.records;
      return next;
    }
    if (progress_.finished == progress_.started) return std::nullopt;
  }
  std::optional<RecordSource::Next> next = source_->ReadAhead();
  if (!next) return std::nullopt;
  MutexLock lock(mutex_);
  ++progress_.records;
  return next;
}

void Reader::PutBack(std::vector<Record> records) {
  MutexLock lock(mutex_);
  progress_.records -= static_cast<int64_t>(records.size());
  put_back_.insert(put_back_.begin(), std::make_move_iterator(records.begin()),
                   std::make_move_iterator(records.end()));
}

void Reader::Reset() {
  source_->Stop();
  MutexLock lock(mutex_);
  put_back_.clear();
  progress_ = Progress();
}

int64_t Reader::records_produced() const {
  MutexLock lock(mutex_);
  return progress_.records;
}

int64_t Reader::work_units_completed() const {
  MutexLock lock(mutex_);
  return progress_.finished;
}

// The state is a message of three integers and the work unit.
absl::StatusOr<std::string> Reader::SaveState() const {
  if (!source_->can_save()) return Unimplemented("Reader SerializeState");
  MutexLock lock(mutex_);
  std::string state;
  const int64_t numbers[] = {progress_.started, progress_.finished, progress_.records};
  for (int i = 0; i < 3; ++i) {
    if (numbers[i] == 0) continue;
    AppendVarint(static_cast<uint64_t>(i + 1) << 3, state);
    AppendVarint(static_cast<uint64_t>(numbers[i]), state);
  }
  if (!progress_.work.empty()) {
    AppendVarint(4 << 3 | WireReader::kDelimited, state);
    AppendVarint(progress_.work.size(), state);
    state += progress_.work;
  }
  return state;
}

absl::Status Reader::RestoreState(const std::string& state) {
  if (!source_->can_save()) return Unimplemented("Reader RestoreState");
  const auto invalid = [&] {
    return InvalidArgument("Could not parse state for ", name_, ": ", absl::CEscape(state));
  };
  int64_t numbers[3] = {};
  std::string work;
  WireReader reader(state);
  while (!reader.at_end()) {
    uint32_t field, type;
    uint64_t number;
    absl::string_view bytes;
    if (!reader.ReadTag(&field, &type)) return invalid();
    if (field <= 3 && type == WireReader::kVarint) {
      if (!reader.ReadVarint(&number)) return invalid();
      numbers[field - 1] = static_cast<int64_t>(number);
    } else if (field == 4 && type == WireReader::kDelimited) {
      if (!reader.ReadDelimited(&bytes)) return invalid();
      work = std::string(bytes);
    } else if (!reader.Skip(field, type)) {
      return invalid();
    }
  }
  for (const int64_t number : numbers) {
    if (number < 0) {
      return InvalidArgument("Unexpected negative value when restoring in ", name_, ": ",
                             absl::CEscape(state));
    }
  }
  if (numbers[1] > numbers[0]) {
    return InvalidArgument("Inconsistent work started vs. finished when restoring in ", name_, ": ",
                           absl::CEscape(state));
  }
  if (numbers[0] > numbers[1]) RETURN_IF_ERROR(source_->Start(work));
  MutexLock lock(mutex_);
  put_back_.clear();
  progress_ = {numbers[0], numbers[1], numbers[2], std::move(work)};
  return absl::OkStatus();
}

}  // namespace muster
