// Who may have how much memory for tensors: the process, a session, and what the system has left.
// The system kills a process that writes to more memory than there is, long after it has promised
// the memory; so whoever takes it asks here first.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "muster/base/mutex.h"
#include "muster/base/ref_counted.h"
#include "muster/base/system_memory.h"

namespace muster {

// Thread-safe. Knows of what was taken from the system, whether somebody uses it or not.
class MemoryGuard {
 public:
  using Look = std::function<SystemMemory::Room()>;

  // The one of the process, never destroyed.
  static MemoryGuard& Global();
  explicit MemoryGuard(Look look) : look_(std::move(look)) {}

  // No more than so many bytes may be taken, as if there were no others.
  void Limit(int64_t bytes) { limit_bytes_.store(bytes, std::memory_order_relaxed); }
  int64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }
  int64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }

  // Whether so many bytes more may be taken. If not, `give_back` is called once, which may return
  // what nobody uses. Taken or returned bytes below kLargeBytes cost an addition or two, mostly.
  bool Take(size_t bytes, absl::FunctionRef<void()> give_back);
  // Whether so many bytes more may be taken that the process has already: what has come over the
  // network and becomes a tensor where it lies. Only the limit is asked.
  bool Adopt(size_t bytes, absl::FunctionRef<void()> give_back);
  // For callers that cannot do without.
  void TakeAnyway(size_t bytes);
  // Where the bytes are that were taken; until then they count as not written to.
  void Placed(const void* base, size_t bytes);
  // Before the memory goes; `base` is null where it was taken and never placed.
  void Return(const void* base, size_t bytes);

  static constexpr size_t kLargeBytes = size_t{32} << 20;

 private:
  bool TakeFromLimit(int64_t bytes, absl::FunctionRef<void()> give_back);
  bool TakeCredit(int64_t bytes);
  bool TakeFromSystem(int64_t bytes, bool is_last);
  // Of the large ones, what nobody has written to: the system does not count it yet.
  int64_t UntouchedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Look look_;
  std::atomic<int64_t> limit_bytes_{INT64_MAX};
  std::atomic<int64_t> held_bytes_{0};
  std::atomic<int64_t> credit_{0};  // what may be taken before the system is looked at again
  Mutex mutex_;
  int64_t promised_ ABSL_GUARDED_BY(mutex_) = 0;  // to large ones that are not placed
  std::map<const void*, size_t> young_ ABSL_GUARDED_BY(mutex_);
};

// What one session may have. Thread-safe.
class MemoryAccount : public RefCounted {
 public:
  MemoryAccount(std::string owner, int64_t limit_bytes)
      : owner_(std::move(owner)), limit_bytes_(limit_bytes) {}
  bool Take(size_t bytes);
  void TakeAnyway(size_t bytes) {
    used_bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  void Return(size_t bytes) {
    used_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

  // To whose account the buffers go that this thread allocates; null: to nobody's.
  static MemoryAccount* Current() { return current_; }
  // Sets it for as long as it lives.
  class Scope {
   public:
    explicit Scope(MemoryAccount* account) : before_(current_) { current_ = account; }
    ~Scope() { current_ = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MemoryAccount* const before_;
  };

 private:
  static inline thread_local MemoryAccount* current_ = nullptr;
  const std::string owner_;
  const int64_t limit_bytes_;
  std::atomic<int64_t> used_bytes_{0};
};

// While one lives no limit holds for what its thread allocates: for callers that have no way to say
// that there is no memory.
class MustHaveMemory {
 public:
  MustHaveMemory() : before_(is_on_) { is_on_ = true; }
  ~MustHaveMemory() { is_on_ = before_; }
  MustHaveMemory(const MustHaveMemory&) = delete;
  MustHaveMemory& operator=(const MustHaveMemory&) = delete;
  static bool is_on() { return is_on_; }

 private:
  static inline thread_local bool is_on_ = false;
  const bool before_;
};

// What a tensor's constructor throws where memory cannot be had.
class LackOfMemory : public std::bad_alloc {
 public:
  explicit LackOfMemory(absl::Status status)
      : status_(std::make_shared<const absl::Status>(std::move(status))) {}
  const absl::Status& status() const { return *status_; }

 private:
  std::shared_ptr<const absl::Status> status_;  // copies of exceptions must not throw
};

// While one lives, its thread catches LackOfMemory: constructors keep to the limits too. Not `on`:
// it does not, as where the work of somebody else is called in between.
class CatchesLackOfMemory {
 public:
  explicit CatchesLackOfMemory(bool on = true) : before_(is_on_) { is_on_ = on; }
  ~CatchesLackOfMemory() { is_on_ = before_; }
  CatchesLackOfMemory(const CatchesLackOfMemory&) = delete;
  CatchesLackOfMemory& operator=(const CatchesLackOfMemory&) = delete;
  static bool is_on() { return is_on_; }

 private:
  static inline thread_local bool is_on_ = false;
  const bool before_;
};

// Why this thread was last refused memory, for an error text; empty where the system itself gave
// none.
std::string TakeShortage();

}  // namespace muster
