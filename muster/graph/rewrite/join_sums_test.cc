#include "absl/strings/str_cat.h"

#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kGpu[] = "/job:localhost/replica:0/task:0/device:GPU:0";

class JoinSumsTest : public PassTest {
 protected:
  JoinSumsTest() {
    for (int i = 0; i < 5; ++i) {
      a_.push_back(Floats(absl::StrCat("a", i), {2, 3}));
      b_.push_back(Floats(absl::StrCat("b", i), {2, 4}));
      feeds_.push_back(a_.back());
      feeds_.push_back(b_.back());
    }
  }
  Output Product(int i, bool transpose_a = true) {
    return scope_.Op("MatMul", {a_[i], b_[i]}, {{"transpose_a", transpose_a}},
                     absl::StrCat("product", i));
  }
  void PlaceAll(const char* device) {
    for (const auto& node : graph_.nodes()) node->set_device(device);
  }

  std::vector<Output> a_, b_, feeds_;
};

TEST_F(JoinSumsTest, ProductsOfManyPlacesBecomeOne) {
  std::vector<Output> products, columns;
  for (int i = 0; i < 5; ++i) products.push_back(Product(i));
  for (int i = 0; i < 5; ++i)
    columns.push_back(scope_.Op("BiasAddGrad", {b_[i]}, {}, absl::StrCat("columns", i)));
  const Output sum = scope_.Op("AddN", {products}, {}, "sum");
  const Output column_sum = scope_.Op("AddN", {columns}, {}, "column_sum");
  PlaceAll(kGpu);
  Rewrite(JoinSums, feeds_, {sum, column_sum});
  ASSERT_NE(Find("sum"), nullptr);
  EXPECT_EQ(Find("sum")->op(), "MatMul");
  EXPECT_TRUE(*Find("sum")->Attr<bool>("transpose_a"));
  EXPECT_EQ(Find("sum")->input(0).shape().ToString(), "[10,3]");
  EXPECT_EQ(Find("sum")->output_shape(0).ToString(), "[3,4]");
  EXPECT_EQ(Find("column_sum")->op(), "BiasAddGrad");
  // Both read the same rows.
  EXPECT_EQ(Find("column_sum")->input(0), Find("sum")->input(1));
  for (const std::string& line : List()) EXPECT_THAT(line, ::testing::Not(HasSubstr("AddN")));
}

TEST_F(JoinSumsTest, OtherTermsStay) {
  std::vector<Output> terms = {Floats("other", {3, 4})};
  feeds_.push_back(terms[0]);
  for (int i = 0; i < 4; ++i) terms.push_back(Product(i));
  const Output sum = scope_.Op("AddN", {terms}, {}, "sum");
  PlaceAll(kGpu);
  Rewrite(JoinSums, feeds_, {sum});
  ASSERT_EQ(Find("sum")->op(), "AddN");
  EXPECT_EQ(Find("sum")->num_inputs(), 2);
  EXPECT_EQ(Find("sum")->input(1).node->op(), "MatMul");
}

TEST_F(JoinSumsTest, WhatOthersReadOrRunsElsewhereStays) {
  std::vector<Output> products;
  for (int i = 0; i < 4; ++i) products.push_back(Product(i));
  const Output sum = scope_.Op("AddN", {products}, {}, "sum");
  PlaceAll(kGpu);
  Rewrite(JoinSums, feeds_, {sum, products[1]});
  EXPECT_EQ(Find("sum")->op(), "AddN");
  PlaceAll("/job:localhost/replica:0/task:0/device:CPU:0");
  Rewrite(JoinSums, feeds_, {sum});
  EXPECT_EQ(Find("sum")->op(), "AddN");
}

TEST_F(JoinSumsTest, ShapesThatAreNotKnownStay) {
  std::vector<Output> products;
  for (int i = 0; i < 4; ++i) {
    const Output a = Floats(absl::StrCat("free", i), {-1, 3});
    feeds_.push_back(a);
    products.push_back(
        scope_.Op("MatMul", {a, b_[i]}, {{"transpose_a", true}}, absl::StrCat("product", i)));
  }
  const Output sum = scope_.Op("AddN", {products}, {}, "sum");
  PlaceAll(kGpu);
  Rewrite(JoinSums, feeds_, {sum});
  EXPECT_EQ(Find("sum")->op(), "AddN");
}

}  // namespace
}  // namespace muster
