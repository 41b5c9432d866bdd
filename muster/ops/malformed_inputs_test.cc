// Inputs and attributes that contradict each other. Their shapes are not known before the step, so
// it is the kernel that has to refuse them.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/ops/kernel_test.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHuge = int64_t{1} << 62;
constexpr int32_t kLast = std::numeric_limits<int32_t>::max();

// 1, 2, 3, ...
template <typename T = float>
Tensor Counting(Shape shape) {
  Tensor tensor = Tensor::Zeros(kDTypeOf<T>, std::move(shape));
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.data<T>()[i] = static_cast<T>(static_cast<float>(i + 1));
  return tensor;
}
Tensor Longs(const std::vector<int64_t>& values) {
  return Tensor::Vector<int64_t>(values);
}
Tensor Ints(const std::vector<int32_t>& values) {
  return Tensor::Vector<int32_t>(values);
}
Tensor Pairs(const std::vector<int64_t>& values) {
  return Longs(values).Reshaped(Shape({static_cast<int64_t>(values.size()) / 2, 2}));
}
Tensor Texts(const std::vector<std::string>& values) {
  return Tensor::Vector<std::string>(values);
}
Tensor Text(const std::string& value) {
  return Tensor::Scalar<std::string>(value);
}

struct Malformed {
  std::string op;
  std::vector<Tensor> inputs;
  AttrMap attrs;
  absl::StatusCode code;
  std::string says;
};

void ExpectRefused(const std::vector<Malformed>& cases) {
  for (const Malformed& malformed : cases) {
    SCOPED_TRACE(malformed.op + ": " + malformed.says);
    KernelRun run;
    for (const Tensor& input : malformed.inputs) run.AddValue(input);
    absl::Status status = run.MakeFlat(malformed.op, malformed.attrs);
    if (status.ok()) status = run.Run().status();
    EXPECT_EQ(status.code(), malformed.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(malformed.says));
  }
}
// For counterparts of the above that make sense.
void ExpectAccepted(const std::string& op, const std::vector<Tensor>& inputs, AttrMap attrs) {
  SCOPED_TRACE(op);
  KernelRun run;
  for (const Tensor& input : inputs) run.AddValue(input);
  ASSERT_EQ(run.MakeFlat(op, std::move(attrs)), absl::OkStatus());
  EXPECT_EQ(run.Run().status(), absl::OkStatus());
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
const AttrMap kFloat = {{"T", DType::kFloat}};

TEST(MalformedInputsTest, RowsThatAreNotThere) {
  std::vector<Malformed> cases;
  for (const char* op : {"InplaceUpdate", "InplaceAdd", "InplaceSub"}) {
    cases.push_back({op,
                     {Counting({3, 2}), Ints({0, 3}), Counting({2, 2})},
                     kFloat,
                     kInvalid,
                     "i[1] = 3 is not a row of x, which has 3"});
    cases.push_back({op,
                     {Counting({3, 2}), Ints({-4}), Counting({1, 2})},
                     kFloat,
                     kInvalid,
                     "i[0] = -4 is not a row of x, which has 3"});
    cases.push_back({op,
                     {Counting({0, 2}), Ints({0}), Counting({1, 2})},
                     kFloat,
                     kInvalid,
                     "i[0] = 0 is not a row of x, which has 0"});
    ExpectAccepted(op, {Counting({3, 2}), Ints({-3, 2}), Counting({2, 2})}, kFloat);
  }
  cases.push_back({"InplaceAdd",
                   {Texts({"a"}), Ints({}), Texts({})},
                   {{"T", DType::kString}},
                   kInvalid,
                   "Unsupported dtype: string"});
  const AttrMap two = {{"T", DType::kFloat}, {"N", int64_t{1}}};
  for (const char* op : {"DynamicStitch", "ParallelDynamicStitch"}) {
    cases.push_back({op,
                     {Ints({0, kLast}), Counting({2})},
                     two,
                     kInvalid,
                     "Index 2147483647 is too large: the result may have up to 2147483647 rows"});
    cases.push_back({op,
                     {Ints({0, kLast - 1}), Counting({2})},
                     two,
                     kInvalid,
                     "Index 2147483646 asks for 2147483647 rows, but only 2 are given"});
    ExpectAccepted(op, {Ints({0, 5}), Counting({2})}, two);
    ExpectAccepted(op, {Ints({0, kLast - 1}), Counting({2, 0})}, two);
  }
  cases.push_back({"Reverse",
                   {Counting({0, 3}), Tensor::Vector<bool>({true, false})},
                   kFloat,
                   kInvalid,
                   "Invalid input first dimension. Found 0."});
  ExpectRefused(cases);
}

TEST(MalformedInputsTest, SparseTensors) {
  const Tensor indices = Pairs({0, 0, 0, 2, 1, 1, 2, 0});
  const Tensor values = Counting({4});
  const Tensor outside = Pairs({0, 0, 0, 2, 1, 1, 3, 0});
  const AttrMap split = {{"T", DType::kFloat}, {"num_split", int64_t{2}}};
  const Tensor axis = Tensor::Scalar<int64_t>(1);
  const Tensor dense = Counting({3, 4});
  Tensor with_zero = Counting({3, 4});
  with_zero.data<float>()[2] = 0;
  const std::string overflow = "Encountered overflow when multiplying";
  std::vector<Malformed> cases = {
      {"SparseSplit", {axis, indices, values, Longs({kHuge, 4})}, split, kInvalid, overflow},
      {"SparseSplit", {axis, indices, values, Longs({3, kHuge})}, split, kInvalid, overflow},
      {"SparseReorder", {indices, values, Longs({kHuge, 4})}, kFloat, kInvalid, overflow},
      {"SparseReorder", {indices, values, Longs({-3, 4})}, kFloat, kInvalid, "must be >= 0"},
      {"SparseReorder",
       {outside, values, Longs({3, 4})},
       kFloat,
       kInvalid,
       "indices[3] = [3,0] is out of bounds: need 0 <= index < [3,4]"},
      {"SparseDenseCwiseDiv",
       {indices, values, Longs({3, 4}), with_zero},
       kFloat,
       kInvalid,
       "SparseDenseCwiseDiv cannot divide by zero"},
      {"SparseAddGrad",
       {Counting({2}), Pairs({0, 0}), Pairs({0, 1}), Pairs({0, 0, 9, 9})},
       kFloat,
       kInvalid,
       "sum_indices[1] is in neither a_indices nor b_indices"},
      {"SparseAddGrad",
       {Counting({2}), Pairs({0, 0}), Pairs({0, 1}), Pairs({0, 1, 0, 0})},
       kFloat,
       kInvalid,
       "sum_indices[1] is in neither a_indices nor b_indices, or they are not in order"},
  };
  for (const char* op : {"SerializeManySparse", "AddManySparseToTensorsMap"}) {
    cases.push_back(
        {op,
         {Pairs({1, 0, 0, 0}), Counting({2}), Longs({3, 4})},
         kFloat,
         kInvalid,
         "indices[1] = [0,0] is out of order. Many sparse ops require sorted indices."});
    cases.push_back({op,
                     {Pairs({1, 0, 1, 0}), Counting({2}), Longs({3, 4})},
                     kFloat,
                     kInvalid,
                     "indices[1] = [1,0] is repeated"});
  }
  for (const char* op : {"SparseReduceSum", "SparseReduceMaxSparse"}) {
    cases.push_back({op,
                     {indices, values, Longs({3, 4}), Ints({1}).Reshaped(Shape({1, 1}))},
                     kFloat,
                     kInvalid,
                     "Expected reduction_axes to be a scalar or a vector; got shape: [1,1]"});
  }
  cases.push_back(
      {"SparseSliceGrad",
       {Counting({2}), indices, Longs({0, 1}), Pairs({0, 1, 9, 9})},
       kFloat,
       kInvalid,
       "Elements of backprop_val_grad aren't all propagated. Num elements: 2, used: 1"});
  cases.push_back(
      {"SparseSoftmax", {indices, values, Longs({kHuge, 4})}, kFloat, kInvalid, overflow});
  for (const char* op : {"SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"}) {
    cases.push_back({op,
                     {indices, values, Longs({kHuge, 4}), Tensor::Scalar<float>(2)},
                     kFloat,
                     kInvalid,
                     overflow});
  }
  ExpectRefused(cases);
  ExpectAccepted("SparseReorder", {indices, values, Longs({3, 4})}, kFloat);
  ExpectAccepted("SparseDenseCwiseDiv", {indices, values, Longs({3, 4}), dense}, kFloat);
  // An entry that the threshold has removed from the sum.
  ExpectAccepted("SparseAddGrad",
                 {Counting({1}), Pairs({0, 0, 1, 1}), Pairs({0, 1}), Pairs({0, 1})}, kFloat);
}

TEST(MalformedInputsTest, ConvolutionsAndPooling) {
  const std::vector<int64_t> ones = {1, 1, 1, 1};
  const AttrMap conv = {{"T", DType::kFloat}, {"strides", ones}, {"padding", "VALID"}};
  const auto filter = [&](std::vector<int32_t> sizes, std::string says) {
    return Malformed{"Conv2DBackpropFilter",
                     {Counting({1, 5, 5, 2}), Ints(sizes), Counting({1, 3, 3, 4})},
                     conv,
                     kInvalid,
                     std::move(says)};
  };
  const std::vector<int64_t> window = {1, 2, 2, 1}, deep = {1, 2, 2, 2};
  const Tensor image = Counting({1, 4, 4, 2}), pooled = Counting({1, 2, 2, 2});
  const AttrMap attrs = {
      {"T", DType::kFloat}, {"ksize", window}, {"strides", deep}, {"padding", "VALID"}};
  ExpectRefused({
      filter({0, 3, 2, 4}, "Size of out_backprop doesn't match computed: actual = 3, computed = 6"),
      filter({3, 3, 2, 0}, "filter and out_backprop must have the same out_depth"),
      filter({3, 3, 0, 4}, "filter depth must be strictly greated than zero"),
      {"MaxPoolGradGrad",
       {image, pooled, image},
       attrs,
       kUnimplemented,
       "MaxPoolingGradGrad is not yet supported on the depth dimension."},
      {"MaxPoolGrad",
       {image, pooled, pooled},
       attrs,
       kUnimplemented,
       "MaxPoolingGrad is not yet supported on the depth dimension."},
  });
  // A small output between paddings that do not fit 32 bits.
  const int64_t far = int64_t{1} << 40, stride = (int64_t{1} << 31) - 1;
  ExpectRefused({{"Conv2D",
                  {image, Counting({2, 2, 2, 3})},
                  {{"T", DType::kFloat},
                   {"strides", std::vector<int64_t>{1, stride, 1, 1}},
                   {"padding", "EXPLICIT"},
                   {"explicit_paddings", std::vector<int64_t>{0, 0, far, 0, 0, 0, 0, 0}}},
                  kInvalid,
                  "explicit_paddings are too large: 1099511627776"}});
  // Not a division by zero, should the shape rule have been kept from refusing it.
  const std::vector<int64_t> no_channels = {1, 2, 2, 0};
  ExpectRefused(
      {{"MaxPoolWithArgmax",
        {image},
        {{"T", DType::kFloat}, {"ksize", no_channels}, {"strides", window}, {"padding", "VALID"}},
        kInvalid,
        "ksize must be a positive int32 value, got:0"}});
  ExpectAccepted("Conv2DBackpropFilter",
                 {Counting({1, 5, 5, 2}), Ints({3, 3, 2, 0}), Counting({1, 3, 3, 0})}, conv);
  ExpectAccepted("Conv2DBackpropFilter",
                 {Counting({1, 5, 5, 2}), Ints({0, 3, 2, 4}), Counting({1, 6, 3, 4})}, conv);
}

TEST(MalformedInputsTest, Images) {
  std::vector<Malformed> cases;
  for (const char* op :
       {"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"}) {
    cases.push_back({op,
                     {Counting({1, 2, 2, 0}), Ints({3, 3})},
                     kFloat,
                     kInvalid,
                     "image must have at least one channel"});
  }
  for (const char* op : {"ResizeBilinearGrad", "ResizeBicubicGrad"}) {
    cases.push_back({op,
                     {Counting({1, 0, 2, 1}), Counting({1, 4, 4, 1})},
                     kFloat,
                     kInvalid,
                     "resized dimensions must be positive: [1,0,2,1]"});
    cases.push_back({op,
                     {Counting({1, 2, 2, 1}), Counting({1, 4, 0, 1})},
                     kFloat,
                     kInvalid,
                     "original dimensions must be positive: [1,4,0,1]"});
  }
  Tensor box = Counting({1, 4});
  box.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  cases.push_back({"CropAndResize",
                   {Counting({1, 4, 4, 1}), box, Ints({0}), Ints({2, 2})},
                   kFloat,
                   kInvalid,
                   "Boxes contains at least one element that is not finite: nan"});
  ExpectRefused(cases);
}

TEST(MalformedInputsTest, WhatIsTooLarge) {
  const auto sampler = [](const char* op, int64_t sampled, int64_t range, AttrMap more,
                          std::string says) {
    more.insert({{"num_true", int64_t{1}},
                 {"num_sampled", sampled},
                 {"unique", true},
                 {"range_max", range}});
    return Malformed{op, {Longs({0}).Reshaped(Shape({1, 1}))}, more, kInvalid, std::move(says)};
  };
  const std::string unique = "num_sampled must be at most 16777216 where unique is set, got ";
  ExpectRefused({
      sampler("UniformCandidateSampler", kHuge, kHuge, {}, unique),
      sampler("LogUniformCandidateSampler", 1 << 28, kHuge, {}, unique),
      sampler("LearnedUnigramCandidateSampler", 2, kHuge, {}, "range_max must be below 2**31 - 1"),
      sampler("FixedUnigramCandidateSampler", 2, kHuge,
              {{"unigrams", std::vector<float>{1, 2}}, {"num_reserved_ids", kHuge}},
              "range_max must be below 2**31 - 1"),
      sampler("FixedUnigramCandidateSampler", 2, 1 << 30,
              {{"unigrams", std::vector<float>{1, 2}}, {"num_reserved_ids", int64_t{1 << 30}}},
              "range is 1073741824 must be equal to weights size 1073741826"),
  });
}

TEST(MalformedInputsTest, ElementsOfAnotherLength) {
  KernelRun reserve;
  reserve.AddValue(Ints({-1, 2}));
  reserve.AddValue(Tensor::Scalar<int32_t>(2));
  ASSERT_EQ(reserve.Make("TensorListReserve", {{"element_dtype", DType::kFloat}}),
            absl::OkStatus());
  const Tensor list = reserve.Run().value()[0];
  const AttrMap attrs = {{"element_dtype", DType::kFloat}, {"shape_type", DType::kInt32}};
  ExpectRefused({
      {"TensorListConcatV2",
       {list, Ints({2, 2}), Longs({2, 3})},
       attrs,
       kInvalid,
       "leading_dims[1] = 3 contradicts the first dimension 2 of element 1"},
      {"TensorListConcatV2",
       {list, Ints({-1, 2}), Longs({1, 2, 3})},
       attrs,
       kInvalid,
       "leading_dims has 3 elements, but the list has 2"},
  });
  ExpectAccepted("TensorListConcatV2", {list, Ints({2, 2}), Longs({2, 2})}, attrs);
  ExpectAccepted("TensorListConcatV2", {list, Ints({-1, 2}), Longs({1, 5})}, attrs);
}

TEST(MalformedInputsTest, Checkpoints) {
  const std::string file = ::testing::TempDir() + "/malformed_inputs";
  std::vector<Malformed> cases;
  const auto save = [&](const char* op, Tensor value, absl::StatusCode code, std::string says) {
    std::vector<Tensor> inputs = {Text(file), Texts({"a"})};
    if (std::string(op) == "SaveSlices") inputs.push_back(Texts({""}));
    const AttrMap attrs = {{"T", std::vector<DType>{value.dtype()}}};
    inputs.push_back(std::move(value));
    cases.push_back({op, std::move(inputs), attrs, code, std::move(says)});
  };
  for (const char* op : {"Save", "SaveSlices"}) {
    save(op, Counting<Bfloat16>({2}), kUnimplemented,
         "Saving data type bfloat16 not yet supported");
    save(op, Counting<uint32_t>({2}), kInvalid,
         "Tensor slice serialization not implemented for dtype 22 (uint32)");
    save(op, Counting<uint64_t>({2}), kInvalid,
         "Tensor slice serialization not implemented for dtype 23 (uint64)");
  }
  const AttrMap shard = {{"dt", DType::kFloat}, {"preferred_shard", int64_t{-2}}};
  const std::string says = "Attribute 'preferred_shard' must be greater or equal to -1, but is -2";
  cases.push_back({"Restore", {Text(file), Text("a")}, shard, kInvalid, says});
  cases.push_back({"RestoreSlice", {Text(file), Text("a"), Text("")}, shard, kInvalid, says});
  ExpectRefused(cases);
}

TEST(MalformedInputsTest, ComponentsOfAnotherType) {
  for (const char* op : {"MapStage", "OrderedMapStage"}) {
    Graph graph;
    Scope scope(graph);
    const std::vector<Output> values = {scope.ConstScalar<float>(1), scope.ConstScalar<int32_t>(2)};
    Node* const stage =
        scope.Add(op, {scope.ConstScalar<int64_t>(7), scope.ConstVector({0, 1}), values},
                  {{"dtypes", std::vector<DType>{DType::kFloat, DType::kString}}});
    ASSERT_EQ(scope.status(), absl::OkStatus());
    const auto session = Session::Create(graph, {});
    ASSERT_EQ(session.status(), absl::OkStatus());
    const absl::Status status = (*session)->Run({}, {}, {stage}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("values[1] is of type int32, but component 1 of the area is of type string"));
  }
}

TEST(MalformedInputsTest, AnEndlessTimeoutIsNone) {
  Graph graph;
  Scope scope(graph);
  const Output gathered = scope.Op("CollectiveGather", {scope.Const(Counting({2}))},
                                   {{"group_size", int64_t{1}},
                                    {"group_key", int64_t{1}},
                                    {"instance_key", int64_t{1}},
                                    {"shape", PartialShape()},
                                    {"timeout_seconds", std::numeric_limits<float>::infinity()}});
  ASSERT_EQ(scope.status(), absl::OkStatus());
  const auto session = Session::Create(graph, {});
  ASSERT_EQ(session.status(), absl::OkStatus());
  EXPECT_EQ((*session)->Run({}, {gathered}).status(), absl::OkStatus());
}

}  // namespace
}  // namespace muster
