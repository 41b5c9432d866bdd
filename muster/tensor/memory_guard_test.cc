#include "muster/tensor/memory_guard.h"

#include <cstring>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "muster/tensor/clone.h"
#include "muster/tensor/untouched_tensor_test.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr int64_t kMega = int64_t{1} << 20;
constexpr int64_t kGiga = int64_t{1} << 30;

// A guard over a system that a test describes.
struct Guarded {
  SystemMemory::Room room{10 * kGiga, 10 * kGiga, "the cgroup /x"};
  int looks = 0;
  int given_back = 0;
  MemoryGuard guard{[this] {
    ++looks;
    return room;
  }};
  bool Take(int64_t bytes) {
    return guard.Take(static_cast<size_t>(bytes), [this] { ++given_back; });
  }
  bool Adopt(int64_t bytes) {
    return guard.Adopt(static_cast<size_t>(bytes), [this] { ++given_back; });
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
  g.guard.Return(nullptr, 60 * kMega);
  EXPECT_TRUE(g.Take(60 * kMega));
  // Who cannot do without gets it, and it counts.
  g.guard.TakeAnyway(kMega);
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
  EXPECT_TRUE(g.Take(9 * kGiga));
  EXPECT_EQ(g.guard.held_bytes(), 9 * kGiga);
  g.room.available_bytes = 0;
  EXPECT_FALSE(g.Take(kGiga));
}

TEST(MemoryGuardTest, WhatIsGivenBackHelps) {
  Guarded g;
  g.room.available_bytes = kGiga;
  EXPECT_TRUE(g.guard.Take(2 * kGiga, [&g] { g.room.available_bytes = 4 * kGiga; }));
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
  EXPECT_LT(g.looks, 50);  // not one for each
  g.room.available_bytes = kGiga;
  EXPECT_TRUE(g.Take(kMega));
}

TEST(MemoryGuardTest, WhatIsTakenButNotWrittenToCounts) {
  Guarded g;
  g.room.available_bytes = kGiga;
  EXPECT_TRUE(g.Take(600 * kMega));
  EXPECT_FALSE(g.Take(600 * kMega));  // promised
  const Tensor untouched = UntouchedTensor(DType::kUint8, Shape({600 * kMega}));
  g.guard.Placed(untouched.raw(), 600 * kMega);
  EXPECT_FALSE(g.Take(600 * kMega));
  g.guard.Return(untouched.raw(), 600 * kMega);
  EXPECT_TRUE(g.Take(600 * kMega));
}

TEST(MemoryGuardTest, WhatIsWrittenToCountsOnce) {
  Guarded g;
  g.room.available_bytes = kGiga;
  const size_t bytes = MemoryGuard::kLargeBytes;
  const std::unique_ptr<char[]> block(new char[bytes]);
  std::memset(block.get(), 1, bytes);
  // The system, which here never has less, counts it already.
  ASSERT_TRUE(g.Take(static_cast<int64_t>(bytes)));
  g.guard.Placed(block.get(), bytes);
  EXPECT_TRUE(g.Take(820 * kMega));
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
    EXPECT_TRUE(SameTensor(kept.Clone(), kept)) << "who cannot say that it is refused gets it";
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
