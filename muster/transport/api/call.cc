#include "muster/transport/api/call.h"

#include <atomic>

#include "muster/base/random.h"

namespace muster {
namespace {

std::atomic<uint64_t>& Counter() {
  static std::atomic<uint64_t> counter{EntropySeed()};
  return counter;
}

// splitmix64: a counter, well mixed, so that ids need no lock and can be repeated from a seed.
uint64_t NextRandom() {
  uint64_t z = Counter().fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void SeedIds(uint64_t seed) {
  Counter().store(seed, std::memory_order_relaxed);
}

int64_t NewRequestId() {
  for (;;) {
    const int64_t id = static_cast<int64_t>(NextRandom());
    if (id != 0) return id;
  }
}

int64_t NewStepId() {
  return static_cast<int64_t>(NextRandom() & ((uint64_t{1} << 57) - 1));
}

absl::Status Derived(absl::Status status) {
  if (!status.ok()) status.SetPayload(kDerivedPayload, absl::Cord());
  return status;
}

bool IsDerived(const absl::Status& status) {
  return status.GetPayload(kDerivedPayload).has_value();
}

absl::Status PossiblyRestarted(absl::Status status) {
  if (!status.ok()) status.SetPayload(kRestartedPayload, absl::Cord());
  return status;
}

}  // namespace muster
