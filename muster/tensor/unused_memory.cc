#include "muster/tensor/unused_memory.h"

#include <atomic>

#include "muster/base/mutex.h"

namespace muster {
namespace {

std::atomic<uint64_t> large_uses{0};

struct Trimmer {
  Mutex mutex;
  uint64_t seen ABSL_GUARDED_BY(mutex) = 0;
  bool is_due ABSL_GUARDED_BY(mutex) = false;
  absl::Time since ABSL_GUARDED_BY(mutex);  // nothing large was used
};

}  // namespace

void NoteLargeUse() {
  large_uses.fetch_add(1, std::memory_order_relaxed);
}

void TrimUnusedMemory(absl::Time now) {
  static auto* trimmer = new Trimmer;
  {
    MutexLock lock(trimmer->mutex);
    const uint64_t uses = large_uses.load(std::memory_order_relaxed);
    if (uses != trimmer->seen) {
      trimmer->seen = uses;
      trimmer->since = now;
      trimmer->is_due = true;
    }
    if (!trimmer->is_due || now - trimmer->since < kKeepUnusedFor) return;
    trimmer->is_due = false;
  }
  ReleaseUnusedMemory();
}

}  // namespace muster
