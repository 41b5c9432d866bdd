#include "muster/ops/control/tensor_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ops/kernel_test.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tensor ListHandle(std::vector<Tensor> items, PartialShape shape = PartialShape(),
                  DType dtype = DType::kFloat) {
  return HandleOf(
      std::make_shared<const TensorList>(dtype, std::move(shape), -1, std::move(items)));
}

absl::StatusOr<std::vector<Tensor>> RunOp(absl::string_view op, std::vector<Tensor> inputs,
                                          AttrMap attrs = {}) {
  KernelRun run;
  for (Tensor& input : inputs) run.AddValue(std::move(input));
  RETURN_IF_ERROR(run.Make(op, std::move(attrs)));
  return run.Run();
}

std::vector<float> Floats(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

Tensor Row(std::initializer_list<float> values) {
  return Tensor::Vector<float>(std::vector<float>(values));
}

const AttrMap& FloatElements() {
  static const auto* attrs = new AttrMap{{"element_dtype", DType::kFloat}};
  return *attrs;
}

TEST(TensorListParts, ConcatJoinsRowsAndFillsWhatWasNeverSet) {
  const Tensor any_shape = Tensor::Scalar<int32_t>(-1);
  const auto joined = RunOp(
      "TensorListConcatV2",
      {ListHandle({Row({1, 2}), Tensor(), Row({3})}), any_shape, Tensor::Vector<int64_t>({0, 2})},
      FloatElements());
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_THAT(Floats((*joined)[0]), ElementsAre(1, 2, 0, 0, 3));
  EXPECT_THAT((*joined)[1].values<int64_t>(), ElementsAre(2, 2, 1));

  const auto fails = [&](Tensor list, std::vector<int64_t> leading = {}) {
    return std::string(RunOp("TensorListConcatV2",
                             {std::move(list), any_shape, Tensor::Vector<int64_t>(leading)},
                             FloatElements())
                           .status()
                           .message());
  };
  EXPECT_THAT(fails(ListHandle({})), HasSubstr("when concating an empty tensor list"));
  EXPECT_THAT(fails(ListHandle({Row({1}), Row({1, 2}), Tensor()})),
              HasSubstr("uninitialized tensor at index 2 but leading_dims has only 0 elements."));
  EXPECT_THAT(fails(ListHandle({Row({1}), Row({1, 2}), Tensor()}), {0, 0, -3}),
              HasSubstr("negative"));
  EXPECT_NE(fails(ListHandle({Row({1}), Row({1, 2}), Tensor()}), {0, 0, int64_t{1} << 62}), "");
  EXPECT_THAT(fails(ListHandle({Tensor::Scalar<float>(1)})),
              HasSubstr("Concat saw a scalar shape at index 0 but requires at least vectors"));
  EXPECT_THAT(fails(ListHandle({}, PartialShape::Scalar())),
              HasSubstr("Concat requires elements to be at least vectors"));
}

TEST(TensorListParts, SplitCutsRows) {
  const auto split = [](std::vector<int64_t> lengths, int32_t shape = -1) {
    return RunOp("TensorListSplit", {Row({1, 2, 3}), Tensor::Scalar<int32_t>(shape),
                                     Tensor::Vector<int64_t>(lengths)});
  };
  const auto list = split({1, 0, 2});
  ASSERT_TRUE(list.ok()) << list.status();
  const auto parts = ListIn((*list)[0]);
  ASSERT_TRUE(parts.ok());
  ASSERT_EQ((*parts)->size(), 3);
  EXPECT_THAT(Floats((*parts)->item(2)), ElementsAre(2, 3));
  EXPECT_EQ((*parts)->item(1).num_elements(), 0);
  EXPECT_THAT(split({1, 3}).status().message(),
              HasSubstr("Attempting to slice [1, 4] from tensor with length 3"));
  EXPECT_THAT(split({-1}).status().message(), HasSubstr("Invalid value in lengths: -1"));
  EXPECT_THAT(split({1}).status().message(),
              HasSubstr("Unused values in tensor. Length of tensor: 3 Values used: 1"));
}

TEST(TensorListParts, ScatterGrowsTheList) {
  const auto scatter = [](std::vector<int32_t> indices) {
    return RunOp(
        "TensorListScatterIntoExistingList",
        {ListHandle({Tensor::Scalar<float>(7)}), Row({1, 2}), Tensor::Vector<int32_t>(indices)});
  };
  const auto list = scatter({2, 1});
  ASSERT_TRUE(list.ok()) << list.status();
  const auto items = ListIn((*list)[0]);
  ASSERT_TRUE(items.ok());
  ASSERT_EQ((*items)->size(), 3);
  EXPECT_EQ((*items)->item(0).scalar<float>(), 7);
  EXPECT_EQ((*items)->item(1).scalar<float>(), 2);
  EXPECT_EQ((*items)->item(2).scalar<float>(), 1);
  EXPECT_THAT(scatter({0, -1}).status().message(), HasSubstr("must all be non-negative; got -1"));
  EXPECT_THAT(scatter({0}).status().message(), HasSubstr("but saw: 1 vs. 2"));
  EXPECT_EQ(scatter({0, 2000000000}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(TensorListParts, ManyListsAtOnce) {
  Tensor lists = Tensor::Vector<Variant>(
      {ListHandle({Tensor::Scalar<float>(1)}).scalar<Variant>(), ListHandle({}).scalar<Variant>()});
  const auto pushed = RunOp("TensorListPushBackBatch", {lists, Row({8, 9})});
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  const auto* first = (*pushed)[0].values<Variant>()[0].get<TensorList>();
  const auto* second = (*pushed)[0].values<Variant>()[1].get<TensorList>();
  ASSERT_EQ(first->size(), 2);
  EXPECT_EQ(first->item(1).scalar<float>(), 8);
  EXPECT_EQ(second->item(0).scalar<float>(), 9);
  EXPECT_FALSE(RunOp("TensorListPushBackBatch", {lists, Row({8})}).ok());
  EXPECT_FALSE(
      RunOp("TensorListPushBackBatch", {Tensor::Vector<Variant>({Variant()}), Row({8})}).ok());

  const auto joined = RunOp("TensorListConcatLists", {lists, (*pushed)[0]}, FloatElements());
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ((*joined)[0].values<Variant>()[0].get<TensorList>()->size(), 3);
  EXPECT_FALSE(RunOp("TensorListConcatLists", {lists, ListHandle({})}, FloatElements()).ok());
  EXPECT_FALSE(RunOp("TensorListConcatLists", {ListHandle({}), ListHandle({})},
                     {{"element_dtype", DType::kInt32}})
                   .ok());
}

TEST(VariantMath, ZerosGoThroughLists) {
  const Tensor inner = ListHandle({Row({1, 2})});
  const Tensor nested = ListHandle({inner, Tensor()}, PartialShape::Scalar(), DType::kVariant);
  const auto zeros = RunOp("ZerosLike", {nested});
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  const auto outer = ListIn((*zeros)[0]);
  ASSERT_TRUE(outer.ok());
  EXPECT_FALSE((*outer)->item(1).valid());
  EXPECT_THAT(Floats((*ListIn((*outer)->item(0)))->item(0)), ElementsAre(0, 0));

  EXPECT_FALSE(RunOp("ZerosLike", {Tensor::Scalar(Variant())}).ok());
}

}  // namespace
}  // namespace muster
