#include "muster/transport/api/step_sequences.h"

#include "muster/transport/api/call.h"

namespace muster {
namespace {

constexpr size_t kMaxKeys = 100'000;
constexpr uint64_t kStepIds = uint64_t{1} << 57;

}  // namespace

absl::StatusOr<int64_t> StepSequences::NextOfLeader(int64_t graph_key) {
  MutexLock lock(mutex_);
  const auto found = next_.find(graph_key);
  if (found != next_.end()) return found->second;
  if (next_.size() >= kMaxKeys) {
    return absl::ResourceExhaustedError(
        absl::StrCat("More than ", kMaxKeys, " collective graph keys on this task"));
  }
  return next_.emplace(graph_key, NewStepId()).first->second;
}

std::optional<int64_t> StepSequences::Next(int64_t graph_key) const {
  MutexLock lock(mutex_);
  const auto found = next_.find(graph_key);
  if (found == next_.end()) return std::nullopt;
  return found->second;
}

void StepSequences::Learn(int64_t graph_key, int64_t next_step_id) {
  MutexLock lock(mutex_);
  next_[graph_key] = next_step_id;
}

void StepSequences::Retire(int64_t graph_key, int64_t step_id) {
  MutexLock lock(mutex_);
  const auto found = next_.find(graph_key);
  if (found == next_.end()) return;
  if (found->second == step_id) {
    found->second = static_cast<int64_t>((static_cast<uint64_t>(step_id) + 1) % kStepIds);
  } else {
    next_.erase(found);
  }
}

void StepSequences::Forget(int64_t graph_key) {
  MutexLock lock(mutex_);
  next_.erase(graph_key);
}

}  // namespace muster
