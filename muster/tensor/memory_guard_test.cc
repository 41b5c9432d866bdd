#include "muster/tensor/memory_guard.h"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "muster/base/net/descriptor.h"
#include "muster/tensor/clone.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr int64_t kMega = int64_t{1} << 20;
constexpr int64_t kGiga = int64_t{1} << 30;

// Memory that is promised and not there until somebody writes to it.
class Block {
 public:
  explicit Block(size_t bytes)
      : base_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        bytes_(bytes) {}
  Block(Block&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  ~Block() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }
  void* base() const { return base_; }
  int64_t resident_bytes() const {
    std::vector<unsigned char> pages((bytes_ + 4095) / 4096);
    EXPECT_EQ(mincore(base_, bytes_, pages.data()), 0);
    int64_t there = 0;
    for (const unsigned char page : pages) there += (page & 1) * 4096;
    return there;
  }

 private:
  void* base_;
  size_t bytes_;
};

// A guard over a system that a test describes.
struct Guarded {
  SystemMemory::Room room{10 * kGiga, 10 * kGiga, "the cgroup /x", ""};
  int looks = 0;
  int given_back = 0;
  std::vector<Block> blocks;
  MemoryGuard guard{[this] {
    ++looks;
    return room;
  }};
  void* Place(int64_t bytes) { return blocks.emplace_back(static_cast<size_t>(bytes)).base(); }
  bool Take(int64_t bytes) {
    return guard.Take(
               static_cast<size_t>(bytes), [this] { ++given_back; },
               [&] { return Place(bytes); }) != nullptr;
  }
  bool Adopt(int64_t bytes) {
    return guard.Adopt(static_cast<size_t>(bytes), [this] { ++given_back; });
  }
  bool HasRoomFor(int64_t bytes) {
    int64_t left = 0;
    return guard.WhyNoRoom(0, bytes, left).empty();
  }
};

TEST(MemoryGuardTest, ALimitHoldsForAllTogether) {
  Guarded g;
  g.guard.Limit(100 * kMega);
  EXPECT_TRUE(g.Take(60 * kMega));
  EXPECT_FALSE(g.Take(60 * kMega));
  EXPECT_EQ(g.given_back, 1);
  EXPECT_EQ(TakeShortage(),
            "the tensors of this process may take 104857600 bytes and have 62914560");
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(g.Take(kMega));
  EXPECT_FALSE(g.Take(1));
  g.guard.Return(g.blocks[0].base(), 60 * kMega);
  EXPECT_TRUE(g.Take(60 * kMega));
  // A caller that cannot fail gets it, and it counts.
  EXPECT_NE(g.guard.TakeAnyway(kMega, [&] { return g.Place(kMega); }), nullptr);
  EXPECT_EQ(g.guard.held_bytes(), 101 * kMega);
}

TEST(MemoryGuardTest, WhatTheProcessHasAlreadyKeepsToTheLimitOnly) {
  Guarded g;
  g.room.available_bytes = 0;
  g.guard.Limit(100 * kMega);
  const char there = 0;
  EXPECT_TRUE(g.Adopt(60 * kMega));
  EXPECT_FALSE(g.Adopt(60 * kMega));
  EXPECT_EQ(g.given_back, 1);
  EXPECT_THAT(TakeShortage(), HasSubstr("may take 104857600 bytes and have 62914560"));
  g.guard.Return(&there, 60 * kMega);
  EXPECT_EQ(g.guard.held_bytes(), 0);
  EXPECT_TRUE(g.Adopt(60 * kMega));
  EXPECT_EQ(g.looks, 0);
}

TEST(MemoryGuardTest, WhatTheSystemDoesNotHaveIsRefused) {
  Guarded g;
  EXPECT_FALSE(g.Take(11 * kGiga));
  EXPECT_THAT(TakeShortage(), HasSubstr("the cgroup /x has "));
  EXPECT_TRUE(g.Take(kGiga));
  EXPECT_EQ(g.guard.held_bytes(), kGiga);
  g.room.available_bytes = 0;
  EXPECT_FALSE(g.Take(kGiga));
}

TEST(MemoryGuardTest, WhatIsGivenBackHelps) {
  Guarded g;
  g.room.available_bytes = kGiga;
  EXPECT_NE(
      g.guard.Take(
          kGiga, [&g] { g.room.available_bytes = 20 * kGiga; }, [&] { return g.Place(kGiga); }),
      nullptr);
  EXPECT_EQ(TakeShortage(), "");
}

TEST(MemoryGuardTest, WhatCannotBePlacedIsNotTaken) {
  Guarded g;
  g.room.available_bytes = 10 * kGiga;
  EXPECT_EQ(g.guard.Take(
                kGiga, [] {}, []() -> void* { return nullptr; }),
            nullptr);
  EXPECT_EQ(g.guard.held_bytes(), 0);
  EXPECT_TRUE(g.HasRoomFor(9 * kGiga));
}

TEST(MemoryGuardTest, ManyOfMiddlingSizeAreRefusedWhenTheyAddUp) {
  Guarded g;
  g.room.available_bytes = kGiga;
  int64_t taken = 0;
  // The system counts what was written to, which is soon after it was taken.
  while (taken < 2 * kGiga && g.Take(kMega)) {
    taken += kMega;
    g.room.available_bytes = kGiga - taken;
  }
  EXPECT_GT(taken, kGiga / 2);
  EXPECT_LT(taken, kGiga);
  EXPECT_LT(g.looks, 100);  // not one for each
  g.room.available_bytes = kGiga;
  EXPECT_TRUE(g.Take(kMega));
}

TEST(MemoryGuardTest, WhatIsTakenButNotWrittenToCounts) {
  Guarded g;
  EXPECT_TRUE(g.HasRoomFor(9 * kGiga));
  EXPECT_TRUE(g.Take(kGiga));
  EXPECT_EQ(g.blocks[0].resident_bytes(), 0);
  EXPECT_FALSE(g.HasRoomFor(9 * kGiga));
  g.guard.Return(g.blocks[0].base(), kGiga);
  EXPECT_TRUE(g.HasRoomFor(9 * kGiga));
}

TEST(MemoryGuardTest, WhatIsWrittenToCountsOnce) {
  Guarded g;
  g.room.available_bytes = kGiga;
  const auto bytes = static_cast<int64_t>(MemoryGuard::kLargeBytes);
  ASSERT_TRUE(g.Take(bytes));
  EXPECT_FALSE(g.HasRoomFor(820 * kMega));
  std::memset(g.blocks[0].base(), 1, MemoryGuard::kLargeBytes);
  // The system, which here never has less, counts it already.
  EXPECT_TRUE(g.HasRoomFor(820 * kMega));
}

TEST(MemoryGuardTest, WhatArrivesUnaskedKeepsToLimitAndSystem) {
  Guarded g;
  g.guard.Limit(100 * kMega);
  int64_t left = 0;
  EXPECT_EQ(g.guard.WhyNoRoom(60 * kMega, 0, left), "");
  EXPECT_EQ(left, 40 * kMega);
  EXPECT_TRUE(g.Take(50 * kMega));
  EXPECT_THAT(g.guard.WhyNoRoom(60 * kMega, 0, left), HasSubstr("may take 104857600 bytes"));
  g.room.available_bytes = 10 * kMega;
  EXPECT_THAT(g.guard.WhyNoRoom(kMega, kMega, left), HasSubstr("the cgroup /x has 0 bytes left"));
}

// Two processes in one cgroup, of which each knows its own promises only.
TEST(MemoryGuardTest, MuchOfWhatIsLeftIsThereBeforeOthersLook) {
  Guarded first, second;
  const auto look = [&] {
    int64_t there = 0;
    for (const Guarded* g : {&first, &second})
      for (const Block& block : g->blocks) there += block.resident_bytes();
    return SystemMemory::Room{300 * kMega - there, 300 * kMega, "the cgroup /x", ""};
  };
  MemoryGuard one(look), other(look);
  const auto take = [](MemoryGuard& guard, Guarded& g, int64_t bytes) {
    return guard.Take(
               static_cast<size_t>(bytes), [] {}, [&] { return g.Place(bytes); }) != nullptr;
  };
  EXPECT_TRUE(take(one, first, 160 * kMega));
  EXPECT_FALSE(take(other, second, 160 * kMega));
  EXPECT_TRUE(take(other, second, 60 * kMega));
}

TEST(MemoryGuardTest, WhoeverWantsMuchOfWhatIsLeftWaitsForTheOthers) {
  std::string folder = testing::TempDir() + "/muster_guard_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::atomic<int> looks = 0;
  std::atomic<int64_t> available = 300 * kMega;
  MemoryGuard guard([&] {
    const SystemMemory::Room room{available, 300 * kMega, "the cgroup /x", folder};
    ++looks;
    return room;
  });
  Descriptor held(open(folder.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  bool is_placed = false;
  std::thread other([&] {
    const void* const block = guard.Take(
        160 * kMega, [] {},
        [&]() -> void* {
          is_placed = true;
          return nullptr;
        });
    EXPECT_EQ(block, nullptr);
  });
  while (looks < 1) absl::SleepFor(absl::Milliseconds(1));
  available = 100 * kMega;  // another process has taken the rest
  held = Descriptor();
  other.join();
  EXPECT_FALSE(is_placed);
  std::filesystem::remove(folder);
}

TEST(MemoryAccountTest, WhatAThreadAllocatesGoesToItsAccount) {
  const auto account = MakeRef<MemoryAccount>("this session", 3 * kMega);
  Tensor kept;
  {
    const MemoryAccount::Scope scope(account.get());
    kept = *Tensor::Make(DType::kUint8, Shape({2 * kMega}));
    EXPECT_GE(account->used_bytes(), 2 * kMega);
    const absl::Status refused = Tensor::Make(DType::kUint8, Shape({2 * kMega})).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.message(), HasSubstr("OOM when allocating tensor with shape[2097152]"));
    EXPECT_THAT(refused.message(), HasSubstr("the tensors of this session may take 3145728"));
    EXPECT_EQ(TryClone(kept).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(SameTensor(kept.Clone(), kept))
        << "a caller that cannot report the refusal gets it";
    const CatchesLackOfMemory catches;
    try {
      kept.Clone();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const LackOfMemory& lack) {
      EXPECT_EQ(lack.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(lack.status().message(), HasSubstr("tensor with shape[2097152]"));
    }
  }
  EXPECT_TRUE(Tensor::Make(DType::kUint8, Shape({8 * kMega})).ok());
  kept = Tensor();
  EXPECT_EQ(account->used_bytes(), 0);
}

TEST(HostAllocatorTest, ATensorLargerThanMemoryIsRefused) {
  // 400 GB, which the system would promise.
  const absl::Status status = Tensor::Make(DType::kFloat, Shape({100'000'000, 1000})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("OOM when allocating tensor with shape[100000000,1000] and type float"));
  EXPECT_THAT(status.message(), HasSubstr(" bytes left of "));
}

TEST(HostAllocatorTest, WhatIsFreedIsCountedBack) {
  MemoryGuard& guard = MemoryGuard::Global();
  const int64_t before = guard.held_bytes();
  for (int i = 0; i < 3; ++i) {
    const Tensor large = *Tensor::Make(DType::kUint8, Shape({512 * kMega}));
    EXPECT_GE(guard.held_bytes(), before + 512 * kMega);
  }
  EXPECT_LT(guard.held_bytes(), before + 512 * kMega);
}

}  // namespace
}  // namespace muster
