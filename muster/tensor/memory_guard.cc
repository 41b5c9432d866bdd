#include "muster/tensor/memory_guard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "muster/base/net/descriptor.h"

namespace muster {
namespace {

// How much is taken between two queries of the system.
constexpr int64_t kCreditBytes = int64_t{32} << 20;
constexpr size_t kPageBytes = 4096;
constexpr size_t kSampledPages = 64;

// Besides tensors a process needs memory for messages and for bookkeeping.
int64_t Reserve(int64_t limit_bytes) {
  return std::clamp<int64_t>(limit_bytes / 64, int64_t{16} << 20, int64_t{256} << 20) +
         kCreditBytes;
}

// How much of a block has no pages, from a few places in it.
int64_t UntouchedBytes(const void* base, size_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(base) + kPageBytes - 1) & ~(kPageBytes - 1);
  const size_t pages = bytes / kPageBytes - 1;
  int64_t missing = 0;
  for (size_t i = 0; i < kSampledPages; ++i) {
    // The middle of the i-th of as many equal parts.
    const size_t page = pages * (2 * i + 1) / (2 * kSampledPages);
    unsigned char is_there = 0;
    if (mincore(reinterpret_cast<void*>(begin + page * kPageBytes), kPageBytes, &is_there) != 0 ||
        (is_there & 1) == 0)
      ++missing;
  }
  return static_cast<int64_t>(bytes / kSampledPages) * missing;
}

// So that the system counts it.
void WriteToEachPage(void* block, size_t bytes) {
  auto* const begin = static_cast<volatile char*>(block);
  for (size_t at = 0; at < bytes; at += kPageBytes) begin[at] = 0;
  begin[bytes - 1] = 0;
}

// While it lives other processes that share `path` wait for theirs. Nobody waits for long: the
// lock is open to every process that sees the path.
class AloneAt {
 public:
  explicit AloneAt(const std::string& path)
      : file_(path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    constexpr absl::Duration kMostWait = absl::Seconds(2);
    const absl::Time end = absl::Now() + kMostWait;
    while (file_.get() >= 0 && flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(1));
  }

 private:
  const Descriptor file_;  // unlocked when it is closed
};

std::string TextOf(const SystemMemory::Room& room, int64_t left_bytes) {
  return absl::StrCat(room.holder, " has ", std::max<int64_t>(left_bytes, 0), " bytes left of ",
                      room.limit_bytes);
}

std::string& Shortage() {
  thread_local std::string text;
  return text;
}

}  // namespace

std::string TakeShortage() {
  return std::exchange(Shortage(), "");
}

void SetShortage(std::string why) {
  Shortage() = std::move(why);
}

MemoryGuard& MemoryGuard::Global() {
  static auto* guard = new MemoryGuard([system = SystemMemory()] { return system.Available(); });
  return *guard;
}

std::string MemoryGuard::LimitText() const {
  return absl::StrCat("the tensors of this process may take ", limit_bytes(), " bytes and have ",
                      held_bytes());
}

bool MemoryGuard::TakeFromLimit(int64_t bytes, absl::FunctionRef<void()> give_back) {
  const auto exceeds_limit = [&] { return held_bytes() > limit_bytes(); };
  held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (!exceeds_limit()) return true;
  give_back();
  if (!exceeds_limit()) return true;
  held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  Shortage() = LimitText();
  return false;
}

bool MemoryGuard::Adopt(size_t bytes, absl::FunctionRef<void()> give_back) {
  return TakeFromLimit(static_cast<int64_t>(bytes), give_back);
}

void* MemoryGuard::Take(size_t bytes, absl::FunctionRef<void()> give_back, Place place) {
  const auto wanted = static_cast<int64_t>(bytes);
  if (!TakeFromLimit(wanted, give_back)) return nullptr;
  if (bytes < kLargeBytes && TakeCredit(wanted)) return PlaceTaken(wanted, place);
  std::string shared_path;
  Answer answer = TakeFromSystem(wanted, &shared_path);
  if (answer == Answer::kNo) {
    give_back();
    answer = TakeFromSystem(wanted, &shared_path);
    if (answer != Answer::kNo) TakeShortage();  // there is none after all
  }
  if (answer == Answer::kYes) return PlaceTaken(wanted, place);
  if (answer == Answer::kOnlyAlone) return TakeAlone(wanted, shared_path, place);
  held_bytes_.fetch_sub(wanted, std::memory_order_relaxed);
  return nullptr;
}

void* MemoryGuard::TakeAlone(int64_t bytes, const std::string& shared_path, Place place) {
  const AloneAt alone(shared_path);
  if (TakeFromSystem(bytes, nullptr) == Answer::kNo) {
    held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  void* const block = PlaceTaken(bytes, place);
  if (block != nullptr) WriteToEachPage(block, static_cast<size_t>(bytes));
  return block;
}

void* MemoryGuard::TakeAnyway(size_t bytes, Place place) {
  const auto wanted = static_cast<int64_t>(bytes);
  held_bytes_.fetch_add(wanted, std::memory_order_relaxed);
  credit_.fetch_sub(wanted, std::memory_order_relaxed);
  if (bytes >= kLargeBytes) {
    MutexLock lock(mutex_);
    promised_ += wanted;
  }
  return PlaceTaken(wanted, place);
}

void* MemoryGuard::PlaceTaken(int64_t bytes, Place place) {
  void* const block = place();
  if (block == nullptr) held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  if (static_cast<size_t>(bytes) < kLargeBytes) return block;
  MutexLock lock(mutex_);
  promised_ -= bytes;
  if (block != nullptr) young_.emplace(block, static_cast<size_t>(bytes));
  return block;
}

bool MemoryGuard::TakeCredit(int64_t bytes) {
  int64_t credit = credit_.load(std::memory_order_relaxed);
  while (credit >= bytes) {
    if (credit_.compare_exchange_weak(credit, credit - bytes, std::memory_order_relaxed))
      return true;
  }
  return false;
}

MemoryGuard::Answer MemoryGuard::TakeFromSystem(int64_t bytes, std::string* shared_path) {
  const bool is_large = bytes >= static_cast<int64_t>(kLargeBytes);
  MutexLock lock(mutex_);
  // Another thread may have looked meanwhile.
  if (!is_large && TakeCredit(bytes)) return Answer::kYes;
  const SystemMemory::Room room = look_();
  const int64_t unseen = promised_ + UntouchedLocked();
  const int64_t left = room.available_bytes - Reserve(room.limit_bytes) - unseen;
  if (bytes > left) {
    Shortage() = TextOf(room, left);
    return Answer::kNo;
  }
  if (is_large && shared_path != nullptr && unseen + bytes > left / kUnseenPart) {
    *shared_path = room.path;
    return Answer::kOnlyAlone;
  }
  if (is_large) promised_ += bytes;
  credit_.store(std::min(kCreditBytes, (left - bytes) / kUnseenPart), std::memory_order_relaxed);
  return Answer::kYes;
}

std::string MemoryGuard::WhyNoRoom(int64_t bytes, int64_t missing, int64_t& left_bytes) {
  left_bytes = limit_bytes() - held_bytes() - bytes;
  if (left_bytes < 0) return LimitText();
  MutexLock lock(mutex_);
  const SystemMemory::Room room = look_();
  const int64_t left =
      room.available_bytes - Reserve(room.limit_bytes) - promised_ - UntouchedLocked();
  left_bytes = std::min(left_bytes, left);
  if (missing <= left) return "";
  return TextOf(room, left);
}

int64_t MemoryGuard::UntouchedLocked() {
  int64_t all = 0;
  for (auto block = young_.begin(); block != young_.end();) {
    const int64_t untouched = UntouchedBytes(block->first, block->second);
    all += untouched;
    block = untouched == 0 ? young_.erase(block) : std::next(block);
  }
  return all;
}

void MemoryGuard::Return(const void* base, size_t bytes) {
  held_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  if (bytes < kLargeBytes) return;
  MutexLock lock(mutex_);
  young_.erase(base);
}

bool MemoryAccount::Take(size_t bytes) {
  const auto wanted = static_cast<int64_t>(bytes);
  const int64_t used = used_bytes_.fetch_add(wanted, std::memory_order_relaxed) + wanted;
  if (used <= limit_bytes_) return true;
  used_bytes_.fetch_sub(wanted, std::memory_order_relaxed);
  Shortage() = absl::StrCat("the tensors of ", owner_, " may take ", limit_bytes_,
                            " bytes and have ", used - wanted);
  return false;
}

}  // namespace muster
