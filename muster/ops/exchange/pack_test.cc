#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ops/kernel_test.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

Tensor Numbers(DType dtype, const Shape& shape, char first) {
  Tensor tensor(dtype, shape);
  for (size_t i = 0; i < tensor.size_bytes(); ++i) tensor.raw()[i] = static_cast<char>(first + i);
  return tensor;
}

absl::StatusOr<std::vector<Tensor>> Unpack(Tensor packed, const std::vector<DType>& types) {
  KernelRun run;
  run.AddValue(std::move(packed));
  RETURN_IF_ERROR(run.Make("_MusterUnpack", {{"T", types}}));
  return run.Run();
}

absl::StatusOr<Tensor> Pack(const std::vector<Tensor>& values) {
  KernelRun run;
  std::vector<DType> types;
  for (const Tensor& value : values) {
    run.AddValue(value);
    types.push_back(value.dtype());
  }
  RETURN_IF_ERROR(run.MakeWithList("_MusterPack", {{"T", types}}));
  ASSIGN_OR_RETURN(std::vector<Tensor> results, run.Run());
  return results[0];
}

TEST(PackTest, ComesBackAsItWas) {
  const std::vector<Tensor> values = {
      Numbers(DType::kFloat, Shape({3, 5}), 1), Numbers(DType::kInt64, Shape(), 2),
      Numbers(DType::kUint8, Shape({7}), 3), Numbers(DType::kDouble, Shape({0, 4}), 4),
      Numbers(DType::kHalf, Shape({1, 1, 33}), 5)};
  std::vector<DType> types;
  for (const Tensor& value : values) types.push_back(value.dtype());
  const absl::StatusOr<Tensor> packed = Pack(values);
  ASSERT_EQ(packed.status(), absl::OkStatus());
  EXPECT_EQ(packed->dtype(), DType::kUint8);
  const absl::StatusOr<std::vector<Tensor>> unpacked = Unpack(*packed, types);
  ASSERT_EQ(unpacked.status(), absl::OkStatus());
  ASSERT_EQ(unpacked->size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor& value = (*unpacked)[i];
    EXPECT_EQ(value.dtype(), values[i].dtype());
    EXPECT_EQ(value.shape(), values[i].shape());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(value.raw()) % kBufferAlignment, 0u);
    EXPECT_EQ(std::memcmp(value.raw(), values[i].raw(), values[i].size_bytes()), 0) << i;
  }
}

TEST(PackTest, StringsAndBoolsAreRefused) {
  EXPECT_THAT(Pack({Tensor::Scalar<std::string>("text")}).status().message(),
              HasSubstr("Tensors of type string cannot be packed"));
  EXPECT_THAT(Pack({Tensor::Scalar<bool>(true)}).status().message(),
              HasSubstr("Tensors of type bool cannot be packed"));
  for (const DType dtype : {DType::kString, DType::kBool}) {
    EXPECT_THAT(Unpack(Tensor(DType::kUint8, Shape({64})), {dtype}).status().message(),
                HasSubstr("cannot be packed"));
  }
}

// Whatever a peer may send.
TEST(PackTest, BadBytesAreRefused) {
  const std::vector<DType> types = {DType::kFloat, DType::kFloat};
  const auto unpack = [&](std::vector<int64_t> numbers, int64_t bytes) {
    Tensor packed(DType::kUint8, Shape({bytes}));
    std::memset(packed.raw(), 0, packed.size_bytes());
    std::memcpy(packed.raw(), numbers.data(),
                std::min(packed.size_bytes(), numbers.size() * sizeof(int64_t)));
    return Unpack(std::move(packed), types).status();
  };
  EXPECT_EQ(unpack({1, 4, 1, 16}, 192), absl::OkStatus());
  for (const int64_t bytes : {0, 7, 8, 31, 32, 64, 128, 191})
    EXPECT_THAT(unpack({1, 4, 1, 16}, bytes).message(), HasSubstr("too few for 2 packed tensors"));
  EXPECT_THAT(unpack({-1}, 192).message(), HasSubstr("Packed tensor 0 has -1 dimensions"));
  EXPECT_THAT(unpack({0, 1 << 20}, 192).message(), HasSubstr("Packed tensor 1 has 1048576"));
  EXPECT_FALSE(unpack({1, -4, 1, 16}, 192).ok());
  EXPECT_FALSE(unpack({2, INT64_MAX, INT64_MAX, 1, 16}, 192).ok());
  EXPECT_FALSE(unpack({1, INT64_MAX / 4 + 1, 0}, 192).ok());
  EXPECT_FALSE(unpack({1, INT64_MAX / 4 - 8, 1, INT64_MAX / 4 - 8}, 192).ok());
}

}  // namespace
}  // namespace muster
