#include "muster/ops/math/elementwise.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

#include "muster/ops/math/float_math.h"
#include "muster/ops/math/gradient_helpers.h"
#include "muster/ops/math/special_functions.h"

namespace muster {
namespace {

// Element index of each operand for every output element, by plain index arithmetic.
std::vector<int64_t> Expected(const Shape& operand, const Shape& output) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < output.num_elements(); ++i) {
    int64_t rest = i;
    int64_t offset = 0;
    int64_t extent = 1;
    for (int d = output.rank() - 1; d >= 0; --d) {
      const int64_t index = rest % output.dim(d);
      rest /= output.dim(d);
      const int at = d - (output.rank() - operand.rank());
      if (at < 0) continue;
      if (operand.dim(at) != 1) offset += index * extent;
      extent *= operand.dim(at);
    }
    result.push_back(offset);
  }
  return result;
}

TEST(BroadcastPlanTest, VisitsEveryElement) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int rank = static_cast<int>(random() % 6);
    Dims full(rank);
    for (int64_t& size : full) size = static_cast<int64_t>(random() % 4);
    std::array<Shape, 3> shapes;
    for (Shape& shape : shapes) {
      Dims dims = full;
      for (int64_t& size : dims) size = random() % 2 ? size : 1;
      dims.erase(dims.begin(), dims.begin() + (dims.empty() ? 0 : random() % dims.size()));
      shape = Shape(dims);
    }
    const std::array<const Shape*, 3> operands = {&shapes[0], &shapes[1], &shapes[2]};
    const auto plan = BroadcastPlan::Make(operands);
    ASSERT_TRUE(plan.ok());
    for (int k = 0; k < 3; ++k) {
      const std::vector<int64_t> expected = Expected(shapes[k], plan->output());
      std::vector<int64_t> seen;
      // In two parts, as threads do it.
      for (const auto& [begin, end] :
           {std::pair(int64_t{0}, plan->rows() / 2), std::pair(plan->rows() / 2, plan->rows())}) {
        plan->ForEachRow(begin, end, [&](int64_t at, const BroadcastOffsets& offsets) {
          EXPECT_EQ(at, static_cast<int64_t>(seen.size()));
          for (int64_t i = 0; i < plan->inner(); ++i)
            seen.push_back(offsets[k] + (plan->steps(k) ? i : 0));
        });
      }
      EXPECT_EQ(seen, expected);
    }
  }
}

TEST(BroadcastPlanTest, RejectsShapesThatDoNotFit) {
  EXPECT_EQ(BroadcastShape(Shape({2}), Shape({3})).status().message(),
            "Incompatible shapes: [2] vs. [3]");
  EXPECT_EQ(BroadcastShape(Shape({0}), Shape({3})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*BroadcastShape(Shape({0}), Shape({1})), Shape({0}));
}

TEST(BroadcastReductionAxesTest, CountsOnesOfBothSides) {
  EXPECT_TRUE(BroadcastReductionAxes({1}, {1})->x.empty());
  const auto axes = BroadcastReductionAxes({2, 1, 3}, {1, 3});
  EXPECT_EQ(axes->x, Dims({1}));
  EXPECT_EQ(axes->y, Dims({0, 1}));
}

double UnitsInLastPlace(float value, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(value) || std::isnan(rounded))
    return std::isnan(value) && std::isnan(rounded) ? 0 : 1e9;
  if (std::isinf(value) || std::isinf(rounded)) return value == rounded ? 0 : 1e9;
  const float size = std::fabs(rounded);
  return std::fabs(value - exact) /
         (std::nextafterf(size, std::numeric_limits<float>::infinity()) - size);
}

TEST(FloatMathTest, StaysWithinTwoUnitsInTheLastPlace) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65521) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    EXPECT_LE(UnitsInLastPlace(FastExp(x), std::exp(double{x})), 2) << x;
    EXPECT_LE(UnitsInLastPlace(FastLog(x), std::log(double{x})), 2) << x;
    EXPECT_LE(UnitsInLastPlace(FastTanh(x), std::tanh(double{x})), 2) << x;
    EXPECT_LE(UnitsInLastPlace(FastSigmoid(x), 1 / (1 + std::exp(-double{x}))), 2.5) << x;
  }
  EXPECT_TRUE(std::signbit(FastTanh(-0.0f)));
  EXPECT_EQ(FastLog(0.0f), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(FastExp(-std::numeric_limits<float>::infinity()), 0.0f);
}

TEST(SpecialFunctionsTest, KnownValues) {
  EXPECT_NEAR(Digamma(1), -0.57721566490153286, 1e-14);
  EXPECT_NEAR(Digamma(-0.5), 0.03648997397857652, 1e-13);
  EXPECT_NEAR(Zeta(2, 1), 1.6449340668482264, 1e-14);
  EXPECT_NEAR(Polygamma(1, 1), 1.6449340668482264, 1e-14);
  EXPECT_NEAR(LowerGamma(2, 3), 0.80085172652854419, 1e-14);
  EXPECT_NEAR(LowerGamma(2, 3) + UpperGamma(2, 3), 1, 1e-14);
  EXPECT_NEAR(LowerGammaDerivative(2, 3),
              (LowerGamma(2 + 1e-6, 3) - LowerGamma(2 - 1e-6, 3)) / 2e-6, 1e-8);
  EXPECT_NEAR(ScaledBesselI0(2), 0.30850832255367103, 1e-15);
  EXPECT_NEAR(ScaledBesselI1(-2), -0.21526928924893765, 1e-15);
  EXPECT_NEAR(ScaledBesselI0(30.0001), ScaledBesselI0(29.9999), 1e-6);
}

}  // namespace
}  // namespace muster
