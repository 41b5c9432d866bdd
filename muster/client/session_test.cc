#include "muster/client/session.h"

#include <thread>

#include <gtest/gtest.h>

#include "muster/base/cancellation.h"
#include "muster/device/device.h"
#include "muster/graph/build/scope.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/runtime/resource_manager.h"
#include "muster/runtime/trace.h"

namespace muster {
namespace {

class SessionTest : public testing::Test {
 protected:
  Output Placeholder(DType dtype, const char* name) {
    return scope_.Op("Placeholder", {}, {{"dtype", dtype}}, name);
  }
  Output Float(float value) { return scope_.ConstScalar<float>(value); }
  std::unique_ptr<Session> NewSession(SessionOptions options = {}) {
    EXPECT_TRUE(scope_.status().ok()) << scope_.status();
    return Session::Create(graph_, options).value();
  }
  static float Value(const absl::StatusOr<std::vector<Tensor>>& result) {
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0].scalar<float>() : 0;
  }

  Graph graph_;
  Scope scope_{graph_};
};

TEST_F(SessionTest, FeedsAnyTensorAndFetchesAny) {
  const Output x = Placeholder(DType::kFloat, "x");
  const Output y = scope_.Op("Square", {x});
  const Output z = scope_.Op("Add", {y, Float(1)});
  auto session = NewSession();
  EXPECT_EQ(Value(session->Run({{x, Tensor::Scalar<float>(3)}}, {z})), 10);
  // An intermediate value is fed: x is not needed.
  EXPECT_EQ(Value(session->Run({{y, Tensor::Scalar<float>(5)}}, {z})), 6);
  // What is fed can be fetched.
  EXPECT_EQ(Value(session->Run({{y, Tensor::Scalar<float>(5)}}, {y})), 5);
}

TEST_F(SessionTest, ErrorsNameTheNodeOnce) {
  const Output x = Placeholder(DType::kFloat, "input");
  const Output y = scope_.Op("Square", {x});
  auto session = NewSession();
  const absl::Status status = session->Run({}, {y}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "You must feed a value for placeholder tensor 'input' with dtype float\n\t [[{{node "
            "input}}]]");
}

TEST_F(SessionTest, ARunCanBeCancelledByItsCaller) {
  const Output queue =
      scope_.Op("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat}}});
  const Output got = scope_.Op("QueueDequeueV2", {queue},
                               {{"component_types", std::vector<DType>{DType::kFloat}}}, "dequeue");
  const Output one = Float(1);
  auto session = NewSession();
  RunOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  std::thread canceller([&] { options.cancellation->Cancel(absl::AbortedError("enough")); });
  const absl::Status status = session->Run({}, {got}, {}, options).status();
  canceller.join();
  EXPECT_EQ(status.message(), "enough");
  // Once is for ever, for the runs that share it.
  EXPECT_EQ(session->Run({}, {got}, {}, options).status().message(), "enough");
  EXPECT_EQ(Value(session->Run({}, {one})), 1);
}

TEST_F(SessionTest, StepsThroughANodeEndWithWhoeverGivesUp) {
  const Output queue =
      scope_.Op("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat}}});
  const Output got = scope_.Op("QueueDequeueV2", {queue},
                               {{"component_types", std::vector<DType>{DType::kFloat}}}, "dequeue");
  const Output after = scope_.Op("Neg", {got});
  const Output one = Float(1);
  auto session = NewSession();
  const auto given_up = std::make_shared<Cancellation>();
  session->EndStepsWith(got.node, given_up);
  EXPECT_EQ(Value(session->Run({}, {one})), 1);
  RunOptions options;
  options.timeout = absl::Seconds(30);  // for a step that nothing else ends
  std::thread canceller([&] { given_up->Cancel(absl::UnavailableError("nobody feeds it")); });
  EXPECT_EQ(session->Run({}, {after}, {}, options).status(),
            absl::UnavailableError("nobody feeds it"));
  canceller.join();
  EXPECT_EQ(session->Run({}, {}, {got.node}, options).status(),
            absl::UnavailableError("nobody feeds it"));
  EXPECT_EQ(Value(session->Run({}, {one})), 1);
}

TEST_F(SessionTest, WrongFeedsAreRefused) {
  const Output x = Placeholder(DType::kFloat, "x");
  auto session = NewSession();
  EXPECT_EQ(session->Run({{x, Tensor::Scalar<int32_t>(3)}}, {x}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(
      session->Run({{x, Tensor::Scalar<float>(3)}, {x, Tensor::Scalar<float>(4)}}, {x}).ok());
}

TEST_F(SessionTest, TheGraphMayGrowBetweenRuns) {
  const Output a = Float(2);
  auto session = NewSession();
  EXPECT_EQ(Value(session->Run({}, {a})), 2);
  const Output b = scope_.Op("Mul", {a, a});
  EXPECT_EQ(Value(session->Run({}, {b})), 4);
}

TEST_F(SessionTest, VariablesKeepTheirValueAndMustBeInitialized) {
  const Output v = scope_.Op("VariableV2", {},
                             {{"shape", PartialShape::Scalar()}, {"dtype", DType::kFloat}}, "v");
  const Output assign = scope_.Op("Assign", {v, Float(1)});
  const Output add = scope_.Op("AssignAdd", {v, Float(2)});
  const Output read = scope_.Op("Identity", {v}, {}, "read");
  auto session = NewSession();
  const absl::Status status = session->Run({}, {read}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "Attempting to use uninitialized value v\n\t [[{{node read}}]]");
  ASSERT_TRUE(session->Run({}, {}, {assign.node}).ok());
  ASSERT_TRUE(session->Run({}, {}, {add.node}).ok());
  EXPECT_EQ(Value(session->Run({}, {read})), 3);
  // Another session has its own variables.
  EXPECT_FALSE(NewSession()->Run({}, {read}).ok());
}

TEST_F(SessionTest, LoopsRunAndCanBeDifferentiated) {
  const Output x = scope_.Op("Placeholder", {},
                             {{"dtype", DType::kFloat}, {"shape", PartialShape::Scalar()}}, "x");
  absl::StatusOr<std::vector<Output>> exits = WhileLoop(
      scope_, {scope_.ConstScalar<int32_t>(0), Float(1)},
      [](const Scope& s, const std::vector<Output>& v) -> absl::StatusOr<Output> {
        return s.Op("Less", {v[0], s.ConstScalar<int32_t>(5)});
      },
      [&](const Scope& s, const std::vector<Output>& v) -> absl::StatusOr<std::vector<Output>> {
        return std::vector<Output>{s.Op("Add", {v[0], s.ConstScalar<int32_t>(1)}),
                                   s.Op("Mul", {v[1], x})};
      });
  ASSERT_TRUE(exits.ok()) << exits.status();
  const Output power = (*exits)[1];
  absl::StatusOr<std::vector<Gradient>> gradients = Gradients(scope_, {power}, {x});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  auto session = NewSession();
  const std::vector<std::pair<Output, Tensor>> feeds = {{x, Tensor::Scalar<float>(2)}};
  EXPECT_EQ(Value(session->Run(feeds, {power})), 32);
  EXPECT_EQ(Value(session->Run(feeds, {std::get<Output>((*gradients)[0])})), 80);
}

TEST_F(SessionTest, OnlyTheChosenBranchRuns) {
  const Output pred = Placeholder(DType::kBool, "pred");
  const Output x = Float(3);
  absl::StatusOr<std::vector<Output>> result = Cond(
      scope_, pred,
      [&](const Scope& s) -> absl::StatusOr<std::vector<BranchResult>> {
        return std::vector<BranchResult>{s.Op("Square", {x})};
      },
      [&](const Scope& s) -> absl::StatusOr<std::vector<BranchResult>> {
        return std::vector<BranchResult>{
            s.Op("CheckNumerics", {s.Op("Log", {s.Op("Neg", {x})})}, {{"message", "bad"}})};
      });
  ASSERT_TRUE(result.ok()) << result.status();
  auto session = NewSession();
  EXPECT_EQ(Value(session->Run({{pred, Tensor::Scalar<bool>(true)}}, {(*result)[0]})), 9);
  EXPECT_FALSE(session->Run({{pred, Tensor::Scalar<bool>(false)}}, {(*result)[0]}).ok());
}

TEST_F(SessionTest, PartialRunsTakeFeedsOneByOne) {
  const Output a = Placeholder(DType::kFloat, "a"), b = Placeholder(DType::kFloat, "b");
  const Output doubled = scope_.Op("Add", {a, a});
  const Output sum = scope_.Op("Add", {doubled, b});
  auto session = NewSession();
  absl::StatusOr<std::string> handle = session->PartialRunSetup({{a, b}, {doubled, sum}, {}});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(Value(session->PartialRun(*handle, {{a, Tensor::Scalar<float>(1)}}, {doubled})), 2);
  EXPECT_FALSE(session->PartialRun(*handle, {{a, Tensor::Scalar<float>(1)}}, {}).ok())
      << "fed twice";
  EXPECT_EQ(Value(session->PartialRun(*handle, {{b, Tensor::Scalar<float>(5)}}, {sum})), 7);
  EXPECT_FALSE(session->PartialRun("no such handle", {}, {}).ok());
}

// A step that waits for ever.
Output Forever(const Scope& scope) {
  return scope.Op("_Recv", {},
                  {{"tensor_type", DType::kFloat},
                   {"tensor_name", "never"},
                   {"send_device", ""},
                   {"send_device_incarnation", int64_t{1}},
                   {"recv_device", ""}},
                  "_never");
}

TEST_F(SessionTest, ADeadlineEndsAStepThatWaits) {
  const Output forever = Forever(scope_);
  auto session = NewSession();
  absl::StatusOr<std::shared_ptr<StepPlan>> plan = session->Prepare({{}, {forever}, {}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  RunOptions options;
  options.timeout = absl::Milliseconds(50);
  EXPECT_EQ(session->Run(**plan, {}, options).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SessionTest, AStepMaySendWhatNothingReceives) {
  const Output sent = scope_.Op("_Send", {Float(1)},
                                {{"tensor_name", "unwanted"},
                                 {"send_device", ""},
                                 {"send_device_incarnation", int64_t{1}},
                                 {"recv_device", ""}},
                                "_unwanted");
  EXPECT_EQ(NewSession()->Run({}, {}, {sent.node}).status(), absl::OkStatus());
}

TEST_F(SessionTest, ClosingCancelsStepsUnderWay) {
  const Output forever = Forever(scope_);
  auto session = NewSession();
  absl::StatusOr<std::vector<Tensor>> result = absl::UnknownError("");
  std::thread runner([&] { result = session->Run({}, {forever}); });
  // Whether the step has started by now or not: it ends cancelled.
  EXPECT_TRUE(session->Close().ok());
  runner.join();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
  EXPECT_EQ(session->Run({}, {forever}).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(SessionTest, ManyThreadsMayRunAtOnce) {
  const Output x = Placeholder(DType::kFloat, "x");
  const Output v = scope_.Op("VariableV2", {},
                             {{"shape", PartialShape::Scalar()}, {"dtype", DType::kFloat}}, "v");
  const Output assign = scope_.Op("Assign", {v, Float(0)});
  const Output add = scope_.Op("AssignAdd", {v, Float(1)}, {{"use_locking", true}});
  const Output y = scope_.Op("Mul", {x, x});
  auto session = NewSession();
  ASSERT_TRUE(session->Run({}, {}, {assign.node}).ok());
  absl::StatusOr<std::shared_ptr<StepPlan>> plan = session->Prepare({{x}, {y}, {add.node}});
  ASSERT_TRUE(plan.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto value = static_cast<float>(t * 1000 + i);
        auto result = session->Run(**plan, {Tensor::Scalar<float>(value)});
        ASSERT_TRUE(result.ok());
        EXPECT_EQ((*result)[0].scalar<float>(), value * value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Value(session->Run({}, {v})), 800);
}

TEST_F(SessionTest, ATraceNamesEveryKernel) {
  const Output x = Placeholder(DType::kFloat, "x");
  const Output y = scope_.Op("Square", {x}, {}, "squared");
  auto session = NewSession();
  absl::StatusOr<std::shared_ptr<StepPlan>> plan = session->Prepare({{x}, {y}, {}});
  ASSERT_TRUE(plan.ok());
  RunOptions options;
  options.trace = true;
  RunMetadata metadata;
  ASSERT_TRUE(session->Run(**plan, {Tensor::Scalar<float>(2)}, options, &metadata).ok());
  bool found = false;
  for (const NodeTrace& node : metadata.nodes) {
    if (node.node != "squared") continue;
    found = true;
    EXPECT_EQ(node.op, "Square");
    EXPECT_GE(node.end_nanos, node.start_nanos);
    ASSERT_EQ(node.outputs.size(), 1u);
    EXPECT_EQ(node.outputs[0].bytes, 4);
  }
  EXPECT_TRUE(found);
}

TEST_F(SessionTest, RunsOnASimulatedScheduler) {
  const Output x = Placeholder(DType::kFloat, "x");
  Output y = x;
  for (int i = 0; i < 20; ++i) y = scope_.Op("Add", {y, x});
  auto scheduler = SimulatedScheduler::Create(3);
  SessionOptions options;
  options.scheduler = scheduler.get();
  auto session = NewSession(options);
  EXPECT_EQ(Value(session->Run({{x, Tensor::Scalar<float>(1)}}, {y})), 21);
}

}  // namespace
}  // namespace muster
