#include "muster/tensor/shared_memory.h"

#include <cstring>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "muster/tensor/buffer.h"

namespace muster {
namespace {

TEST(SharedMemoryTest, AnotherMappingSeesWhatIsWritten) {
  SharedMemory memory;
  auto* const block = static_cast<char*>(memory.Allocate(100'000));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kBufferAlignment, 0u);
  std::memset(block, 7, 100'000);
  const auto place = memory.Find(block + 5);
  ASSERT_TRUE(place.has_value());
  const auto opened = memory.Open(place->segment);
  ASSERT_TRUE(opened.ok()) << opened.status();
  // The other process can neither write to it nor truncate it.
  EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, opened->descriptor, 0), MAP_FAILED);
  const auto mapping = SharedMapping::Map(opened->descriptor, opened->size_bytes);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(mapping->data()[place->offset], 7);
  block[5] = 8;
  EXPECT_EQ(mapping->data()[place->offset], 8);
  memory.Free(block, 100'000);
}

TEST(SharedMemoryTest, OtherMemoryIsNotFound) {
  SharedMemory memory;
  const int here = 0;
  EXPECT_FALSE(memory.Find(&here).has_value());
  void* const block = memory.Allocate(64);
  EXPECT_FALSE(memory.Find(static_cast<char*>(block) - 1).has_value());
  EXPECT_EQ(memory.Open(99).status().code(), absl::StatusCode::kNotFound);
}

TEST(SharedMemoryTest, FreedBlocksJoin) {
  SharedMemory memory;
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(memory.Allocate(1000 * (i + 1)));
  const int64_t size = memory.size_bytes();
  for (int i = 0; i < 100; i += 2) memory.Free(blocks[i], 1000 * (i + 1));
  for (int i = 1; i < 100; i += 2) memory.Free(blocks[i], 1000 * (i + 1));
  // All of the segment is one block again.
  void* const whole = memory.Allocate(static_cast<size_t>(size));
  EXPECT_NE(whole, nullptr);
  EXPECT_EQ(memory.size_bytes(), size);
}

TEST(SharedMemoryTest, LargeSegmentsGoBack) {
  SharedMemory memory;
  void* const small = memory.Allocate(1);
  const int64_t before = memory.size_bytes();
  void* const large = memory.Allocate(size_t{200} << 20);
  ASSERT_NE(large, nullptr);
  const uint64_t segment = memory.Find(large)->segment;
  EXPECT_TRUE(memory.Has(segment));
  memory.Free(large, size_t{200} << 20);
  EXPECT_EQ(memory.size_bytes(), before);
  EXPECT_FALSE(memory.Has(segment));
  EXPECT_EQ(memory.num_returned(), 1u);
  memory.Free(small, 1);
}

// A device that has the addresses of the pages would read others than the owner writes.
TEST(SharedMemoryTest, PagesThatAreKeptStay) {
  SharedMemory memory;
  constexpr size_t kBytes = size_t{1} << 20;
  void* const used = memory.Allocate(1);
  void* const block = memory.Allocate(kBytes);
  const SharedMemory::Place place = *memory.Find(block);
  const auto opened = memory.Open(place.segment);
  ASSERT_TRUE(opened.ok());
  const absl::StatusOr<SharedMapping> mapping =
      SharedMapping::Map(opened->descriptor, opened->size_bytes);
  ASSERT_TRUE(mapping.ok());
  const char* const middle = mapping->data() + place.offset + kBytes / 2;
  std::memset(block, 7, kBytes);
  memory.Free(block, kBytes);
  EXPECT_TRUE(memory.KeepPages(place.segment));
  memory.Trim();
  EXPECT_EQ(*middle, 7);
  memory.ReleasePages(place.segment);
  memory.Trim();
  EXPECT_EQ(*middle, 0);
  EXPECT_FALSE(memory.KeepPages(place.segment + 1));
  memory.Free(used, 1);
}

TEST(SharedMappingTest, ADeviceStopsReadingBeforeItGoes) {
  struct Reader : MappingReader {
    bool Begin(const char* data, size_t) override {
      begun = data;
      return accepts;
    }
    void End(const char* data) override { ended += *data; }
    bool accepts = true;
    const char* begun = nullptr;
    int ended = 0;
  } reader;
  SharedMemory memory;
  char* const block = static_cast<char*>(memory.Allocate(10));
  *block = 3;
  for (const bool accepts : {true, false}) {
    reader.accepts = accepts;
    const auto opened = memory.Open(memory.Find(block)->segment);
    ASSERT_TRUE(opened.ok());
    const absl::StatusOr<SharedMapping> mapping =
        SharedMapping::Map(opened->descriptor, opened->size_bytes);
    ASSERT_TRUE(mapping.ok());
    mapping->LetRead(reader);
    EXPECT_EQ(reader.begun, mapping->data());
  }
  EXPECT_EQ(reader.ended, 3) << "once, while the memory was there";
  memory.Free(block, 10);
}

TEST(SharedMappingTest, OnlySegmentsOfOurKind) {
  const int plain = memfd_create("plain", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(plain, 4096), 0);
  // Its owner could truncate it, which would kill its readers.
  EXPECT_EQ(SharedMapping::Map(plain, 4096).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMapping::Map(-1, 4096).status().code(), absl::StatusCode::kInvalidArgument);
  SharedMemory memory;
  void* const block = memory.Allocate(10);
  const auto opened = memory.Open(memory.Find(block)->segment);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(SharedMapping::Map(opened->descriptor, opened->size_bytes + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
