// Collectives among CPU devices of one process.
#include <cmath>

#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/scope.h"

namespace muster {
namespace {

constexpr DType kReducible[] = {DType::kHalf,   DType::kBfloat16, DType::kFloat,
                                DType::kDouble, DType::kInt32,    DType::kInt64};

class CollectivesTest : public testing::Test {
 protected:
  static std::string Cpu(int i) { return absl::StrCat("/device:CPU:", i); }

  // The op on one device per rank, with keys as inputs.
  Output Reduce(const Output& input, int rank, int size, const char* merge = "Add",
                const char* final = "Id", int group = 1, int instance = 1) {
    return scope_.WithDevice(Cpu(rank)).Op(
        "CollectiveReduceV2",
        {input, scope_.ConstScalar<int32_t>(size), scope_.ConstScalar<int32_t>(group),
         scope_.ConstScalar<int32_t>(instance), std::vector<Output>()},
        {{"T", input.dtype()}, {"merge_op", merge}, {"final_op", final}});
  }

  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Output>& fetches, int devices) {
    RETURN_IF_ERROR(scope_.status());
    SessionOptions options;
    options.devices.cpu_devices = devices;
    ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Create(graph_, options));
    return session->Run({}, fetches);
  }

  Graph graph_;
  Scope scope_{graph_};
};

// Small integers, which every type holds exactly.
Tensor Numbers(DType dtype, int64_t count, int rank) {
  Tensor tensor(dtype, Shape({count}));
  for (int64_t i = 0; i < count; ++i) {
    const int value = static_cast<int>((i * 7 + rank * 3) % 5) + 1;
    switch (dtype) {
      case DType::kHalf:
        tensor.data<Half>()[i] = Half(static_cast<float>(value));
        break;
      case DType::kBfloat16:
        tensor.data<Bfloat16>()[i] = Bfloat16(static_cast<float>(value));
        break;
      case DType::kFloat:
        tensor.data<float>()[i] = static_cast<float>(value);
        break;
      case DType::kDouble:
        tensor.data<double>()[i] = value;
        break;
      case DType::kInt32:
        tensor.data<int32_t>()[i] = value;
        break;
      default:
        tensor.data<int64_t>()[i] = value;
        break;
    }
  }
  return tensor;
}

double At(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kHalf:
      return static_cast<float>(tensor.data<Half>()[i]);
    case DType::kBfloat16:
      return static_cast<float>(tensor.data<Bfloat16>()[i]);
    case DType::kFloat:
      return tensor.data<float>()[i];
    case DType::kDouble:
      return tensor.data<double>()[i];
    case DType::kInt32:
      return tensor.data<int32_t>()[i];
    default:
      return static_cast<double>(tensor.data<int64_t>()[i]);
  }
}

TEST_F(CollectivesTest, ReducesEveryTypeAmongOneToEightRanks) {
  for (const DType dtype : kReducible) {
    for (const int size : {1, 2, 3, 5, 8}) {
      for (const int64_t count : {0, 1, 17, 1000}) {
        Graph graph;
        Scope scope(graph);
        std::vector<Output> fetches;
        for (int rank = 0; rank < size; ++rank) {
          fetches.push_back(scope.WithDevice(Cpu(rank)).Op(
              "CollectiveReduceV2",
              {scope.Const(Numbers(dtype, count, rank)), scope.ConstScalar<int32_t>(size),
               scope.ConstScalar<int32_t>(1), scope.ConstScalar<int32_t>(2), std::vector<Output>()},
              {{"T", dtype}, {"merge_op", "Add"}, {"final_op", "Id"}}));
        }
        SessionOptions options;
        options.devices.cpu_devices = size;
        auto session = Session::Create(graph, options).value();
        const auto results = session->Run({}, fetches);
        ASSERT_TRUE(results.ok()) << results.status();
        std::vector<Tensor> inputs;
        for (int rank = 0; rank < size; ++rank) inputs.push_back(Numbers(dtype, count, rank));
        for (int64_t i = 0; i < count; ++i) {
          double sum = 0;
          for (const Tensor& input : inputs) sum += At(input, i);
          ASSERT_EQ(At((*results)[0], i), sum) << DTypeName(dtype) << " " << size << " " << i;
        }
        for (const Tensor& result : *results) EXPECT_TRUE(SameTensor(result, (*results)[0]));
      }
    }
  }
}

TEST_F(CollectivesTest, MergesAndDividesAsAsked) {
  const struct {
    const char* merge;
    const char* final;
    float value;
  } kCases[] = {{"Add", "Id", 12}, {"Add", "Div", 4}, {"Mul", "Id", 48},
                {"Min", "Id", 2},  {"Max", "Id", 6},  {"Max", "Div", 2}};
  std::vector<Output> fetches;
  int instance = 0;
  for (const auto& c : kCases) {
    ++instance;
    for (int rank = 0; rank < 3; ++rank) {
      const Output input = scope_.ConstScalar<float>(2.0F * static_cast<float>(rank + 1));
      fetches.push_back(Reduce(input, rank, 3, c.merge, c.final, 7, instance));
    }
  }
  const auto results = Run(fetches, 3);
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t i = 0; i < results->size(); ++i)
    EXPECT_EQ((*results)[i].scalar<float>(), kCases[i / 3].value) << kCases[i / 3].merge;
}

TEST_F(CollectivesTest, GathersInTheOrderOfRanks) {
  std::vector<Output> fetches;
  for (int rank = 0; rank < 4; ++rank) {
    const Output input =
        scope_.Const(Tensor::Of<int32_t>(Shape({1, 3}), {rank * 10, rank * 10 + 1, rank * 10 + 2}));
    fetches.push_back(scope_.WithDevice(Cpu(rank)).Op("CollectiveGather", {input},
                                                      {{"T", DType::kInt32},
                                                       {"group_size", int64_t{4}},
                                                       {"group_key", int64_t{3}},
                                                       {"instance_key", int64_t{9}},
                                                       {"shape", PartialShape({4, 3})}}));
  }
  const auto results = Run(fetches, 4);
  ASSERT_TRUE(results.ok()) << results.status();
  const Tensor expected =
      Tensor::Of<int32_t>(Shape({4, 3}), {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32});
  for (const Tensor& result : *results) EXPECT_TRUE(SameTensor(result, expected));
}

TEST_F(CollectivesTest, BroadcastsFromAnyRank) {
  for (int size = 1; size <= 8; ++size) {
    for (int source = 0; source < size; ++source) {
      Graph graph;
      Scope scope(graph);
      std::vector<Output> fetches;
      const auto key = [&](int32_t value) { return scope.ConstScalar<int32_t>(value); };
      const Output shape = scope.Const(Tensor::Vector<int32_t>({2}));
      for (int rank = 0; rank < size; ++rank) {
        Scope at = scope.WithDevice(Cpu(rank));
        fetches.push_back(
            rank == source
                ? at.Op("CollectiveBcastSendV2",
                        {scope.Const(Tensor::Vector<double>({2.5, 3})), key(size), key(1), key(1)},
                        {{"T", DType::kDouble}})
                : at.Op("CollectiveBcastRecvV2", {key(size), key(1), key(1), shape},
                        {{"T", DType::kDouble}, {"Tshape", DType::kInt32}}));
      }
      SessionOptions options;
      options.devices.cpu_devices = size;
      auto session = Session::Create(graph, options).value();
      for (int step = 0; step < 2; ++step) {
        const auto results = session->Run({}, fetches);
        ASSERT_TRUE(results.ok()) << results.status();
        for (const Tensor& result : *results)
          EXPECT_TRUE(SameTensor(result, Tensor::Vector<double>({2.5, 3})));
      }
    }
  }
}

TEST_F(CollectivesTest, ExchangesAndScatters) {
  std::vector<Output> fetches;
  const auto key = [&](int32_t value) { return scope_.ConstScalar<int32_t>(value); };
  for (int rank = 0; rank < 2; ++rank) {
    const Output input =
        scope_.Const(Tensor::Vector<int64_t>({rank * 10, rank * 10 + 1, rank * 10 + 2, 3}));
    Scope at = scope_.WithDevice(Cpu(rank));
    fetches.push_back(at.Op("CollectiveAllToAllV2",
                            {input, key(2), key(1), key(1), std::vector<Output>()},
                            {{"T", DType::kInt64}}));
    fetches.push_back(at.Op("CollectiveReduceScatterV2",
                            {input, key(2), key(1), key(2), std::vector<Output>()},
                            {{"T", DType::kInt64}, {"merge_op", "Add"}, {"final_op", "Id"}}));
  }
  const auto results = Run(fetches, 2);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE(SameTensor((*results)[0], Tensor::Vector<int64_t>({0, 1, 10, 11})));
  EXPECT_TRUE(SameTensor((*results)[1], Tensor::Vector<int64_t>({10, 12})));
  EXPECT_TRUE(SameTensor((*results)[2], Tensor::Vector<int64_t>({2, 3, 12, 3})));
  EXPECT_TRUE(SameTensor((*results)[3], Tensor::Vector<int64_t>({14, 6})));
}

TEST_F(CollectivesTest, ARankThatFailsFailsAll) {
  const Output good = Reduce(scope_.ConstScalar<float>(1), 0, 2);
  const Output bad =
      scope_.WithDevice(Cpu(1)).Op("CheckNumerics", {scope_.ConstScalar<float>(std::nanf(""))},
                                   {{"T", DType::kFloat}, {"message", "broken"}});
  const Output other = Reduce(bad, 1, 2);
  const auto results = Run({good, other}, 2);
  EXPECT_EQ(results.status().code(), absl::StatusCode::kInvalidArgument) << results.status();
}

TEST_F(CollectivesTest, RanksThatDisagreeAreToldSo) {
  const auto sizes = Run(
      {Reduce(scope_.ConstScalar<float>(1), 0, 2), Reduce(scope_.ConstScalar<float>(1), 1, 3)}, 3);
  EXPECT_EQ(sizes.status().code(), absl::StatusCode::kInternal) << sizes.status();
  const auto shapes =
      Run({Reduce(scope_.ConstScalar<float>(1), 0, 2, "Add", "Id", 4),
           Reduce(scope_.Const(Tensor::Vector<float>({1, 2})), 1, 2, "Add", "Id", 4)},
          2);
  EXPECT_EQ(shapes.status().code(), absl::StatusCode::kInvalidArgument) << shapes.status();
  const auto none = Run({Reduce(scope_.ConstScalar<float>(1), 0, 0)}, 1);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument) << none.status();
}

TEST_F(CollectivesTest, ALateRankIsGivenUp) {
  const Output alone = scope_.WithDevice(Cpu(0)).Op(
      "CollectiveReduceV2",
      {scope_.ConstScalar<float>(1), scope_.ConstScalar<int32_t>(2), scope_.ConstScalar<int32_t>(1),
       scope_.ConstScalar<int32_t>(1), std::vector<Output>()},
      {{"T", DType::kFloat}, {"merge_op", "Add"}, {"final_op", "Id"}, {"timeout_seconds", 0.05F}});
  const auto results = Run({alone}, 2);
  EXPECT_EQ(results.status().code(), absl::StatusCode::kDeadlineExceeded) << results.status();
}

}  // namespace
}  // namespace muster
