#include "muster/params/change_log.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace muster {
namespace {

constexpr int64_t kAlwaysNoted = 16;
constexpr int64_t kNeverMore = int64_t{1} << 21;

}  // namespace

int64_t ChangeLog::RowsAtMost(int64_t num_rows) {
  return std::clamp(num_rows / 4, kAlwaysNoted, kNeverMore);
}

bool ChangeLog::RemoveWatch(uint64_t watch) {
  seen_.erase(watch);
  Forget();
  return !seen_.empty();
}

void ChangeLog::NoteWhole(int64_t epoch) {
  known_after_ = epoch;
  num_noted_ = 0;
  batches_.clear();
}

// Numbers that repeat take memory until there are twice as many as may be kept; then only the last
// change of each row stays. So the work per noted row is constant.
void ChangeLog::NoteRows(int64_t epoch, absl::Span<const int64_t> rows, int64_t num_rows) {
  if (rows.empty()) return;
  const int64_t limit = RowsAtMost(num_rows);
  if (static_cast<int64_t>(rows.size()) > 2 * limit) return NoteWhole(epoch);
  batches_.push_back({epoch, {rows.begin(), rows.end()}});
  num_noted_ += static_cast<int64_t>(rows.size());
  if (num_noted_ <= 2 * limit) return;
  Deduplicate();
  if (num_noted_ > limit) NoteWhole(epoch);
}

void ChangeLog::Deduplicate() {
  absl::flat_hash_set<int64_t> later;
  for (auto batch = batches_.rbegin(); batch != batches_.rend(); ++batch)
    std::erase_if(batch->rows, [&](int64_t row) { return !later.insert(row).second; });
  std::erase_if(batches_, [](const Batch& batch) { return batch.rows.empty(); });
  num_noted_ = static_cast<int64_t>(later.size());
}

void ChangeLog::Forget() {
  if (seen_.empty()) return;
  int64_t seen_by_all = seen_.begin()->second;
  for (const auto& [watch, epoch] : seen_) seen_by_all = std::min(seen_by_all, epoch);
  for (; !batches_.empty() && batches_.front().epoch <= seen_by_all; batches_.pop_front())
    num_noted_ -= static_cast<int64_t>(batches_.front().rows.size());
  known_after_ = std::max(known_after_, seen_by_all);
}

std::optional<std::vector<int64_t>> ChangeLog::RowsSince(int64_t epoch, uint64_t watch) {
  if (epoch < known_after_) return std::nullopt;
  const auto seen = seen_.find(watch);
  if (seen != seen_.end()) seen->second = std::max(seen->second, epoch);
  Forget();
  std::vector<int64_t> rows;
  for (const Batch& batch : batches_) {
    if (batch.epoch > epoch) rows.insert(rows.end(), batch.rows.begin(), batch.rows.end());
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace muster
