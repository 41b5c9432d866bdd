#include "muster/runtime/local_partitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using Outputs = std::vector<Output>;
using Results = std::vector<BranchResult>;

class LocalPartitionsTest : public ::testing::Test {
 protected:
  LocalPartitionsTest()
      : scope_(graph_), first_(scope_.WithDevice("/cpu:0")), second_(scope_.WithDevice("/cpu:1")) {}

  std::unique_ptr<Session> NewSession(bool optimize = false) {
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    SessionOptions options;
    options.devices.cpu_devices = 2;
    options.optimize_graph = optimize;
    auto session = Session::Create(graph_, options);
    EXPECT_EQ(session.status(), absl::OkStatus());
    return *std::move(session);
  }
  Output X(const Scope& scope, absl::string_view name = "x") {
    return Placeholder(scope, name, DType::kFloat, PartialShape({2}));
  }
  static std::vector<float> Values(const Tensor& tensor) {
    return {tensor.values<float>().begin(), tensor.values<float>().end()};
  }
  static Tensor Pair(float a, float b) { return Tensor::Vector<float>({a, b}); }

  Graph graph_;
  Scope scope_, first_, second_;
};

TEST_F(LocalPartitionsTest, AnExpressionAcrossDevices) {
  const Output x = X(first_);
  const Output a = second_.Op("AddV2", {x, x}, {}, "a");
  const Output b = first_.Op("Mul", {a, x}, {}, "b");
  const Output c = second_.Op("Sub", {b, a}, {}, "c");
  for (bool optimize : {false, true}) {
    const auto session = NewSession(optimize);
    RunOptions options;
    options.keep_partition_graphs = true;
    RunMetadata metadata;
    auto plan = session->Prepare({{x}, {b, c}, {}});
    ASSERT_EQ(plan.status(), absl::OkStatus());
    for (int step = 0; step < 20; ++step) {
      const auto results = session->Run(**plan, {Pair(1, 3)}, options, &metadata);
      ASSERT_EQ(results.status(), absl::OkStatus());
      EXPECT_THAT(Values((*results)[0]), ElementsAre(2, 18));
      EXPECT_THAT(Values((*results)[1]), ElementsAre(0, 12));
    }
    EXPECT_EQ(metadata.partition_graphs.size(), 2u);
  }
}

TEST_F(LocalPartitionsTest, DevicesHaveMemoryOfTheirOwn) {
  const Output x = X(first_);
  const Output here = first_.Op("Identity", {x}, {}, "here");
  const Output there = second_.Op("Identity", {x}, {}, "there");
  const auto session = NewSession();
  const Tensor fed = Pair(1, 2);
  const auto results = session->Run({{x, fed}}, {here, there});
  ASSERT_EQ(results.status(), absl::OkStatus());
  EXPECT_EQ((*results)[0].raw(), fed.raw());
  EXPECT_NE((*results)[1].raw(), fed.raw());
  EXPECT_THAT(Values((*results)[1]), ElementsAre(1, 2));
}

TEST_F(LocalPartitionsTest, OrderHoldsAcrossDevices) {
  const Output v =
      first_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  const Output start = first_.Op("Assign", {v, first_.Const(Pair(1, 2))}, {}, "start");
  const Output read = second_.Op("Neg", {first_.Op("Identity", {v}, {}, "read")}, {}, "negated");
  const Output add = first_.WithControlDependencies(std::vector<Node*>{read.node})
                         .Op("AssignAdd", {v, first_.Const(Pair(10, 20))}, {}, "add");
  const Output gate =
      second_.WithControlDependencies(std::vector<Node*>{add.node}).ConstScalar<float>(0, "gate");
  const Output after = first_.WithControlDependencies(std::vector<Node*>{gate.node})
                           .Op("Identity", {v}, {}, "after");
  for (bool optimize : {false, true}) {
    const auto session = NewSession(optimize);
    ASSERT_EQ(session->Run({}, {}, {start.node}).status(), absl::OkStatus());
    for (int step = 0; step < 10; ++step) {
      const auto results = session->Run({}, {read, after});
      ASSERT_EQ(results.status(), absl::OkStatus());
      EXPECT_EQ((*results)[0].data<float>()[0], -1.0f - 10.0f * step);
      EXPECT_EQ((*results)[1].data<float>()[0], 11.0f + 10.0f * step);
    }
  }
}

TEST_F(LocalPartitionsTest, DeadBranchesCross) {
  const Output x = X(first_);
  const Output p = Placeholder(first_, "p", DType::kBool, PartialShape::Scalar());
  const auto merged = Cond(
      first_, p,
      [&](const Scope& s) -> absl::StatusOr<Results> {
        return Results{s.WithDevice("/cpu:1").Op("Neg", {x}, {}, "yes")};
      },
      [&](const Scope& s) -> absl::StatusOr<Results> {
        const Scope there = s.WithDevice("/cpu:1");
        return Results{there.Op("AddV2", {there.ConstScalar<float>(1), x}, {}, "no")};
      });
  ASSERT_EQ(merged.status(), absl::OkStatus());
  for (bool optimize : {false, true}) {
    const auto session = NewSession(optimize);
    const auto yes = session->Run({{x, Pair(1, 2)}, {p, Tensor::Scalar(true)}}, {(*merged)[0]});
    ASSERT_EQ(yes.status(), absl::OkStatus());
    EXPECT_THAT(Values((*yes)[0]), ElementsAre(-1, -2));
    const auto no = session->Run({{x, Pair(1, 2)}, {p, Tensor::Scalar(false)}}, {(*merged)[0]});
    ASSERT_EQ(no.status(), absl::OkStatus());
    EXPECT_THAT(Values((*no)[0]), ElementsAre(2, 3));
  }
}

TEST_F(LocalPartitionsTest, TheFirstErrorIsReportedOnce) {
  const Output i = Placeholder(second_, "i", DType::kInt32, PartialShape::Scalar());
  const Output bad = second_.Op("FloorDiv", {i, i}, {}, "bad");
  const Output user = first_.Op("Neg", {bad}, {}, "user");
  const Output more = second_.Op("Abs", {user}, {}, "more");
  const auto session = NewSession();
  for (int step = 0; step < 50; ++step) {
    const absl::Status status =
        session->Run({{i, Tensor::Scalar<int32_t>(0)}}, {user, more}).status();
    EXPECT_EQ(status, absl::InvalidArgumentError("Integer division by zero\n\t [[{{node bad}}]]"));
  }
  const auto good = session->Run({{i, Tensor::Scalar<int32_t>(3)}}, {user, more});
  ASSERT_EQ(good.status(), absl::OkStatus());
  EXPECT_EQ((*good)[1].scalar<int32_t>(), 1);
}

TEST_F(LocalPartitionsTest, DeadlinesReachThoseWhoWait) {
  const auto endless = WhileLoop(
      second_, {second_.ConstScalar<float>(0)},
      [](const Scope& s, const Outputs& v) -> absl::StatusOr<Output> {
        return s.Op("Less", {v[0], s.ConstScalar<float>(1)});
      },
      [](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        return Outputs{s.Op("Abs", {v[0]})};
      });
  ASSERT_EQ(endless.status(), absl::OkStatus());
  const Output user = first_.Op("Neg", {(*endless)[0]}, {}, "user");
  const auto session = NewSession();
  auto plan = session->Prepare({{}, {user}, {}});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  RunOptions options;
  options.timeout = absl::Milliseconds(100);
  const absl::Status status = session->Run(**plan, {}, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(LocalPartitionsTest, UnknownDevicesAreErrors) {
  const Output y = scope_.WithDevice("/cpu:2").Op("Neg", {X(first_)}, {}, "y");
  const absl::Status status = NewSession()->Run({}, {y}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              ::testing::HasSubstr("{{node y}} was explicitly assigned to /device:CPU:2"));
}

}  // namespace
}  // namespace muster
