#include "muster/task/feeds.h"

#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"

namespace muster {
namespace {

class FeedsTest : public ::testing::Test {
 protected:
  Output Fed(absl::string_view name, const PartialShape& shape) {
    return Placeholder(Scope(graph_), name, DType::kFloat, shape);
  }
  Graph graph_;
};

TEST_F(FeedsTest, TypesAndShapesMustAgree) {
  const Output any = Fed("any", PartialShape());
  const Output pair = Fed("pair", PartialShape({2}));
  const Output rows = Fed("rows", PartialShape({-1, 3}));
  const Tensor vector = Tensor::Vector<float>({1, 2});
  const Tensor matrix = Tensor::Zeros(DType::kFloat, Shape({5, 3}));
  EXPECT_EQ(CheckFeeds({any, pair, rows}, {vector, vector, matrix}), absl::OkStatus());
  EXPECT_EQ(CheckFeeds({any, pair}, {matrix, Tensor::Vector<int32_t>({1, 2})}),
            InvalidArgument("Expects arg[1] to be float but int32 is provided"));
  EXPECT_EQ(CheckFeeds({pair}, {Tensor::Vector<float>({1, 2, 3})}),
            InvalidArgument("Cannot feed value of shape (3,) for Tensor 'pair:0', which has shape "
                            "'(2,)'"));
  EXPECT_EQ(CheckFeeds({{rows, vector}}),
            InvalidArgument("Cannot feed value of shape (2,) for Tensor 'rows:0', which has shape "
                            "'(?, 3)'"));
  EXPECT_EQ(CheckFeeds({pair}, {Tensor::Scalar<float>(1)}).message(),
            "Cannot feed value of shape () for Tensor 'pair:0', which has shape '(2,)'");
  EXPECT_EQ(CheckFeeds({any, pair}, {vector}),
            InvalidArgument("Expects 2 arguments, but 1 is provided"));
}

}  // namespace
}  // namespace muster
