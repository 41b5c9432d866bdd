#include "muster/ops/linalg/gemm.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

// Every item on its own: results must not depend on how the work is cut.
void RunItemByItem(int64_t count, double /*cost*/, absl::FunctionRef<void(int64_t, int64_t)> body) {
  for (int64_t i = 0; i < count; ++i) body(i, i + 1);
}

template <typename T>
class GemmTest : public testing::Test {};
using Elements = testing::Types<float, double, int16_t, int32_t, int64_t, Complex64>;
TYPED_TEST_SUITE(GemmTest, Elements);

TYPED_TEST(GemmTest, AgreesWithTheDefinition) {
  using T = TypeParam;
  struct Case {
    int64_t m, n, k;
  };
  for (const Case& size : {Case{1, 1, 1},
                           {3, 5, 7},
                           {1, 200, 33},
                           {200, 1, 33},
                           {29, 70, 65},
                           {100, 10, 100},
                           {30, 66, 65},
                           {29, 68, 40},
                           {57, 300, 600},
                           {4, 3, 0}}) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      GemmShape shape;
      shape.m = size.m;
      shape.n = size.n;
      shape.k = size.k;
      shape.transpose_a = transposes & 1;
      shape.transpose_b = transposes & 2;
      std::vector<T> a(static_cast<size_t>(size.m * size.k + 1));
      std::vector<T> b(static_cast<size_t>(size.n * size.k + 1));
      for (size_t i = 0; i < a.size(); ++i)
        a[i] = T(static_cast<float>(static_cast<int>(i * 7 % 13) - 6));
      for (size_t i = 0; i < b.size(); ++i)
        b[i] = T(static_cast<float>(static_cast<int>(i * 5 % 11) - 5));
      std::vector<T> serial(static_cast<size_t>(size.m * size.n));
      std::vector<T> cut = serial;
      ASSERT_TRUE(Gemm(shape, a.data(), b.data(), serial.data(), RunSerially).ok());
      ASSERT_TRUE(Gemm(shape, a.data(), b.data(), cut.data(), RunItemByItem).ok());
      EXPECT_EQ(serial, cut);
      for (int64_t i = 0; i < size.m; ++i) {
        for (int64_t j = 0; j < size.n; ++j) {
          T sum(0);
          for (int64_t p = 0; p < size.k; ++p) {
            const T x = a[static_cast<size_t>(shape.transpose_a ? p * size.m + i : i * size.k + p)];
            const T y = b[static_cast<size_t>(shape.transpose_b ? j * size.k + p : p * size.n + j)];
            sum = static_cast<T>(sum + x * y);
          }
          ASSERT_EQ(serial[static_cast<size_t>(i * size.n + j)], sum)
              << i << " " << j << " of " << size.m << "x" << size.n;
        }
      }
    }
  }
}

TEST(GemmTest, AddsToItsOutputAndHonoursSteps) {
  // 2x2 corners of 2x3 matrices.
  const std::vector<float> a = {1, 2, 9, 3, 4, 9};
  const std::vector<float> b = {5, 6, 9, 7, 8, 9};
  std::vector<float> c = {1, 1, -1, 1, 1, -1};
  GemmShape shape;
  shape.m = shape.n = shape.k = 2;
  shape.lda = shape.ldb = shape.ldc = 3;
  shape.accumulate = true;
  ASSERT_TRUE(Gemm(shape, a.data(), b.data(), c.data(), RunSerially).ok());
  EXPECT_THAT(c, testing::ElementsAre(20, 23, -1, 44, 51, -1));
}

}  // namespace
}  // namespace muster
