#include "muster/tensor/tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "muster/base/address_sanitizer.h"

namespace muster {
namespace {

TEST(ShapeTest, RejectsWhatCannotBe) {
  EXPECT_FALSE(Shape::Make({-1, 2}).ok());
  EXPECT_FALSE(Shape::Make({int64_t{1} << 40, int64_t{1} << 40}).ok());
  // A zero makes the tensor empty, but the other sizes must still fit.
  EXPECT_FALSE(Shape::Make({0, int64_t{1} << 40, int64_t{1} << 40}).ok());
  EXPECT_FALSE(Shape::Make(Dims(300, 1)).ok());
  ASSERT_TRUE(Shape::Make({2, 0, 3}).ok());
  EXPECT_EQ(Shape::Make({2, 0, 3})->num_elements(), 0);
}

TEST(PartialShapeTest, MergeTakesWhatEitherKnows) {
  EXPECT_EQ(PartialShape({-1, 3}).Merge(PartialShape({2, -1})).value(), PartialShape({2, 3}));
  EXPECT_EQ(PartialShape().Merge(PartialShape({2})).value(), PartialShape({2}));
  EXPECT_FALSE(PartialShape({2}).Merge(PartialShape({3})).ok());
  EXPECT_FALSE(PartialShape({2}).Merge(PartialShape({2, 2})).ok());
  EXPECT_EQ(PartialShape({-1, 3}).ToString(), "[?,3]");
  EXPECT_EQ(PartialShape().ToString(), "<unknown>");
}

TEST(TensorTest, MemoryIsAlignedAndShared) {
  Tensor a(DType::kFloat, Shape({3, 5}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.raw()) % kBufferAlignment, 0u);
  EXPECT_TRUE(a.exclusive());
  Tensor b = a;
  EXPECT_FALSE(a.exclusive());
  EXPECT_EQ(a.raw(), b.raw());
  const Tensor copy = b.Clone();
  EXPECT_NE(copy.raw(), b.raw());
}

TEST(TensorTest, ExternalMemoryIsReleasedOnceAndNeverReused) {
  int released = 0;
  std::vector<float> memory(4, 1.0f);
  {
    Buffer buffer = Buffer::AdoptExternal(memory.data(), 16, [&] { ++released; });
    Tensor tensor = Tensor::FromBuffer(DType::kFloat, Shape({4}), std::move(buffer)).value();
    EXPECT_FALSE(tensor.exclusive());
    EXPECT_EQ(tensor.raw(), reinterpret_cast<char*>(memory.data()));
    EXPECT_FALSE(Tensor::FromBuffer(DType::kFloat, Shape({5}), tensor.buffer()).ok());
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(TensorTest, TooLargeIsAnErrorNotACrash) {
  const absl::StatusOr<Shape> shape = Shape::Make({int64_t{1} << 61});
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(Tensor::Make(DType::kDouble, *shape).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(TensorTest, StringsAreConstructedAndCopied) {
  Tensor a(DType::kString, Shape({2}));
  a.data<std::string>()[1] = std::string(1000, 'x');
  const Tensor b = a.Clone();
  a.data<std::string>()[1] = "changed";
  EXPECT_EQ(b.data<std::string>()[1], std::string(1000, 'x'));
}

TEST(TensorTest, RowsShareMemory) {
  const Tensor a = Tensor::Of<int32_t>(Shape({3, 2}), {1, 2, 3, 4, 5, 6});
  const Tensor rows = a.Rows(1, 3);
  EXPECT_EQ(rows.shape(), Shape({2, 2}));
  EXPECT_EQ(rows.data<int32_t>()[0], 3);
}

TEST(TensorTest, SummaryIsTensorFlows) {
  EXPECT_EQ((Tensor::Vector<int32_t>({1, 2, 3, 4}).SummarizeValues(3)), "1 2 3...");
  EXPECT_EQ((Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4}).SummarizeValues(10)), "[1 2][3 4]");
  EXPECT_EQ(Tensor::Scalar<std::string>("a msg").SummarizeValues(3), "a msg");
}

TEST(HalfTest, RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(Half(1.0f).bits, 0x3C00);
  EXPECT_EQ(Half(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(Half(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Half(1.0f + 0x1p-11f).bits, 0x3C00);
  EXPECT_EQ(Half(1.0f + 3 * 0x1p-11f).bits, 0x3C02);
  EXPECT_EQ(Half(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Half(0x1p-26f).bits, 0x0000);
  EXPECT_EQ(Half(-0.0f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(Half(std::nanf("")))));
  // Every half survives the way through float.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half h = Half::FromBits(static_cast<uint16_t>(bits));
    const float f = static_cast<float>(h);
    if (!std::isnan(f)) {
      EXPECT_EQ(Half(f).bits, bits);
    }
  }
}

TEST(Bfloat16Test, RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(Bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(Bfloat16(std::numeric_limits<float>::infinity()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::nanf("")))));
  EXPECT_EQ(Bfloat16(1.0f + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(Bfloat16(1.0f + 3 * 0x1p-8f).bits, 0x3F82);
}

TEST(AllocatorTest, ReusesFreedBlocks) {
  const void* first;
  {
    const Buffer buffer = HostAllocator().Allocate(100000);
    first = buffer.data();
  }
  if (!kHasAddressSanitizer) {  // blocks of exact size are not kept
    EXPECT_EQ(HostAllocator().Allocate(100000).data(), first);
  }
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{65}, size_t{129}, size_t{1000}, size_t{1} << 20}) {
    const Buffer buffer = HostAllocator().Allocate(size);
    ASSERT_TRUE(static_cast<bool>(buffer));
    EXPECT_GE(buffer.region()->size_bytes(), size);
    std::memset(buffer.data(), 1, size);
  }
}

}  // namespace
}  // namespace muster
