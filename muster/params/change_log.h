// Which rows of a state have changed since an epoch: batches of row numbers in the order of the
// epochs in which they changed. Bounded: what all watches have seen is forgotten, and beyond a
// share of the rows the log falls back to "the whole has changed".
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace muster {

// Confined to the lock of its state.
class ChangeLog {
 public:
  // More distinct rows than this are noted as the whole: a copy of a quarter of the rows with
  // their numbers is no longer much cheaper than one of all.
  static int64_t RowsAtMost(int64_t num_rows);

  // Knows all that changes after `epoch`.
  explicit ChangeLog(int64_t epoch) : known_after_(epoch) {}

  void AddWatch(uint64_t watch, int64_t epoch) { seen_[watch] = epoch; }
  // Returns whether another watch is left.
  bool RemoveWatch(uint64_t watch);

  void NoteWhole(int64_t epoch);
  // The rows changed in `epoch`, the latest so far; they may repeat. `num_rows` is how many the
  // state has.
  void NoteRows(int64_t epoch, absl::Span<const int64_t> rows, int64_t num_rows);

  // The rows that changed after `epoch`, ascending; nothing: the whole may have. The watch has seen
  // all before.
  std::optional<std::vector<int64_t>> RowsSince(int64_t epoch, uint64_t watch);
  // Row numbers that are kept.
  int64_t num_noted() const { return num_noted_; }

 private:
  struct Batch {
    int64_t epoch = 0;
    std::vector<int64_t> rows;
  };
  void Forget();
  void Deduplicate();

  int64_t known_after_ = 0;  // what changed later is in the batches
  int64_t num_noted_ = 0;
  std::deque<Batch> batches_;
  absl::flat_hash_map<uint64_t, int64_t> seen_;  // by watch: the epoch up to which it asks no more
};

}  // namespace muster
