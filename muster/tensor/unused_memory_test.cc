#include "muster/tensor/unused_memory.h"

#include <cstring>

#include "gtest/gtest.h"
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/address_sanitizer.h"
#include "muster/tensor/memory_guard.h"
#include "muster/tensor/shared_memory.h"
#include "muster/tensor/tensor.h"

namespace muster {
namespace {

constexpr size_t kBlock = size_t{8} << 20;

TEST(UnusedMemoryTest, IsKeptForAWhileAndThenGivenBack) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  ReleaseUnusedMemory();
  const int64_t before = MemoryGuard::Global().held_bytes();
  Tensor small(DType::kUint8, Shape({1000}));
  { const Tensor large(DType::kUint8, Shape({kBlock})); }
  const int64_t kept = MemoryGuard::Global().held_bytes();
  if (!kHasAddressSanitizer) {  // blocks of exact size are not kept
    EXPECT_GE(kept, before + static_cast<int64_t>(kBlock));
  }
  TrimUnusedMemory(start);
  TrimUnusedMemory(start + kKeepUnusedFor / 2);
  EXPECT_EQ(MemoryGuard::Global().held_bytes(), kept);
  // Another use restarts the idle period.
  { const Tensor large(DType::kUint8, Shape({kBlock})); }
  TrimUnusedMemory(start + kKeepUnusedFor);
  EXPECT_EQ(MemoryGuard::Global().held_bytes(), kept);
  TrimUnusedMemory(start + 2 * kKeepUnusedFor);
  EXPECT_LT(MemoryGuard::Global().held_bytes(), before + static_cast<int64_t>(kBlock));
}

int64_t PagesOf(const SharedMemory& memory, uint64_t segment) {
  const auto opened = memory.Open(segment);
  EXPECT_TRUE(opened.ok()) << opened.status();
  struct stat status = {};
  EXPECT_EQ(fstat(opened->descriptor, &status), 0);
  close(opened->descriptor);
  return status.st_blocks * 512 / 4096;
}

TEST(SharedMemoryTest, WhatIsFreeBetweenBlocksInUseGoesBack) {
  SharedMemory memory;
  auto* const first = static_cast<char*>(memory.Allocate(5000));
  auto* const middle = static_cast<char*>(memory.Allocate(kBlock));
  auto* const last = static_cast<char*>(memory.Allocate(5000));
  std::memset(first, 1, 5000);
  std::memset(middle, 2, kBlock);
  std::memset(last, 3, 5000);
  const uint64_t segment = memory.Find(first)->segment;
  ASSERT_EQ(memory.Find(last)->segment, segment);
  memory.Free(middle, kBlock);
  EXPECT_GE(PagesOf(memory, segment), static_cast<int64_t>(kBlock / 4096));
  memory.Trim();
  EXPECT_LE(PagesOf(memory, segment), 8);
  EXPECT_EQ(first[4999], 1);
  EXPECT_EQ(last[0], 3);
  EXPECT_EQ(last[4999], 3);
  // It can be allocated again.
  auto* const again = static_cast<char*>(memory.Allocate(kBlock));
  EXPECT_EQ(again, middle);
  EXPECT_EQ(again[kBlock / 2], 0);
  memory.Free(again, kBlock);
  memory.Free(first, 5000);
  memory.Free(last, 5000);
}

TEST(SharedMemoryTest, TheLastSegmentGoesBackToo) {
  SharedMemory memory;
  void* const large = memory.Allocate(size_t{100} << 20);
  memory.Free(large, size_t{100} << 20);
  EXPECT_GT(memory.size_bytes(), 0);
  const uint64_t returned = memory.num_returned();
  memory.Trim();
  EXPECT_EQ(memory.size_bytes(), 0);
  EXPECT_EQ(memory.num_returned(), returned + 1);
}

}  // namespace
}  // namespace muster
