// A set of recent numbers, of limited size: the oldest are evicted.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace muster {

// Thread-compatible.
class RecentIds {
 public:
  explicit RecentIds(size_t limit) : limit_(limit) {}
  // False when it is remembered already.
  bool Insert(int64_t id) {
    if (!known_.insert(id).second) return false;
    if (ring_.size() < limit_) {
      ring_.push_back(id);
    } else {
      known_.erase(ring_[oldest_]);
      ring_[oldest_] = id;
      oldest_ = (oldest_ + 1) % limit_;
    }
    return true;
  }
  bool Contains(int64_t id) const { return known_.contains(id); }
  void Erase(int64_t id) { known_.erase(id); }

 private:
  const size_t limit_;
  absl::flat_hash_set<int64_t> known_;
  std::vector<int64_t> ring_;
  size_t oldest_ = 0;
};

}  // namespace muster
