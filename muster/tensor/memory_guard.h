// Limits on the memory of tensors: of the process, of a session, and of the system. The system
// overcommits: it grants memory and kills the process later, when more is written to than there is.
// So every allocator asks here first.
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

// Thread-safe. Counts what was taken from the system, in use or cached.
class MemoryGuard {
 public:
  using Look = std::function<SystemMemory::Room()>;

  // The one of the process, never destroyed.
  static MemoryGuard& Global();
  explicit MemoryGuard(Look look) : look_(std::move(look)) {}

  // At most this many bytes may be taken, whatever the system has.
  void Limit(int64_t bytes) { limit_bytes_.store(bytes, std::memory_order_relaxed); }
  int64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }
  int64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }

  using Place = absl::FunctionRef<void*()>;

  // The block that `place` allocates; null where that fails or where no more may be taken. Before a
  // refusal `give_back` is called once, which may release cached blocks. Sizes below kLargeBytes
  // mostly cost an addition or two. A large block that is much of what the system has left is
  // written to before it is handed out, while other processes that ask for as much wait: the system
  // promises the same memory to all of them.
  void* Take(size_t bytes, absl::FunctionRef<void()> give_back, Place place);
  // Whether the process may keep `bytes` that it has already: a message that becomes a tensor
  // without a copy. Only the limit is checked, not the system.
  bool Adopt(size_t bytes, absl::FunctionRef<void()> give_back);
  // For callers that cannot fail.
  void* TakeAnyway(size_t bytes, Place place);
  // Before the memory goes.
  void Return(const void* base, size_t bytes);

  // For memory that fills without being asked for, such as arriving messages: empty where `bytes`,
  // of which `missing` are yet to come, fit into memory; otherwise why they do not. `left_bytes`
  // becomes what is left beyond them.
  std::string WhyNoRoom(int64_t bytes, int64_t missing, int64_t& left_bytes);

  static constexpr size_t kLargeBytes = size_t{32} << 20;
  // This part of what is left may be taken and not written to.
  static constexpr int64_t kUnseenPart = 8;

 private:
  enum class Answer : uint8_t { kNo, kYes, kOnlyAlone };
  std::string LimitText() const;
  bool TakeFromLimit(int64_t bytes, absl::FunctionRef<void()> give_back);
  bool TakeCredit(int64_t bytes);
  // kOnlyAlone: it is much of what is left, and nothing is taken yet; `shared_path` is the file on
  // which other processes can be made to wait. Null: they wait already.
  Answer TakeFromSystem(int64_t bytes, std::string* shared_path);
  void* TakeAlone(int64_t bytes, const std::string& shared_path, Place place);
  void* PlaceTaken(int64_t bytes, Place place);
  // The part of the large blocks that has not been written to: the system does not count it yet.
  int64_t UntouchedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Look look_;
  std::atomic<int64_t> limit_bytes_{INT64_MAX};
  std::atomic<int64_t> held_bytes_{0};
  std::atomic<int64_t> credit_{0};  // what may be taken before the system is queried again
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

  // The account that this thread's allocations are charged to; null: none.
  static MemoryAccount* Current() { return current_; }
  // Sets it for its own lifetime.
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

// While one exists, no limit holds for what its thread allocates: for callers that have no way to
// report a lack of memory.
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

// What a tensor's constructor throws when memory is refused.
class LackOfMemory : public std::bad_alloc {
 public:
  explicit LackOfMemory(absl::Status status)
      : status_(std::make_shared<const absl::Status>(std::move(status))) {}
  const absl::Status& status() const { return *status_; }

 private:
  std::shared_ptr<const absl::Status> status_;  // copies of exceptions must not throw
};

// While one exists, its thread catches LackOfMemory, so that constructors respect the limits too.
// With `on` false it does not: for calls into code of others in between.
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
void SetShortage(std::string why);

}  // namespace muster
