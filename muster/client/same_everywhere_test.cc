// The same program, run in this process and through the master of a task: results and errors agree.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/master/master.h"
#include "muster/transport/inproc/in_process_transport.h"
#include "muster/worker/worker.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class SameEverywhereTest : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Session> NewSession() {
    EXPECT_TRUE(scope_.status().ok()) << scope_.status();
    SessionOptions options;
    options.scheduler = scheduler_.get();
    options.operation_timeout = absl::Minutes(1);
    if (GetParam()) {
      StartTask();
      options.target = "grpc://w0:1";
      options.master = network_->ConnectMaster(options.target).value();
    }
    return Session::Create(graph_, std::move(options)).value();
  }
  void StartTask() {
    WorkerOptions worker;
    worker.self = TaskName{"w", 0, 0};
    worker.cluster = ClusterSpec({{"w", {{0, "w0:1"}}}});
    worker.scheduler = scheduler_.get();
    worker.transport = network_.get();
    worker_ = Worker::Create(std::move(worker)).value();
    MasterOptions master;
    master.self = TaskName{"w", 0, 0};
    master.scheduler = scheduler_.get();
    master.transport = network_.get();
    master.peers = worker_->peers();
    master.local_worker = worker_;
    master_ = Master::Create(std::move(master));
    network_->Listen("w0:1", {worker_, master_});
  }
  Output Fed(const char* name, const PartialShape& shape = {}) {
    return scope_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", shape}}, name);
  }
  static float Value(const absl::StatusOr<std::vector<Tensor>>& result) {
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0].scalar<float>() : 0;
  }
  static std::string Text(const absl::StatusOr<std::vector<Tensor>>& result) {
    return result.status().ToString();
  }
  static Tensor Number(float value) { return Tensor::Scalar<float>(value); }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(5);
  std::unique_ptr<InProcessTransport> network_ = InProcessTransport::Create(*scheduler_);
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Master> master_;
  Graph graph_;
  Scope scope_{graph_};
};

INSTANTIATE_TEST_SUITE_P(LocallyAndThroughAMaster, SameEverywhereTest, testing::Bool());

TEST_P(SameEverywhereTest, FeedsAreChecked) {
  const Output x = Fed("x", PartialShape({2}));
  const Output y = scope_.Op("Neg", {x}, {}, "y");
  auto session = NewSession();
  EXPECT_EQ(Text(session->Run({{x, Tensor::Vector<int32_t>({1, 2})}}, {y})),
            "INVALID_ARGUMENT: Expects arg[0] to be float but int32 is provided");
  EXPECT_EQ(Text(session->Run({{x, Tensor::Vector<float>({1, 2, 3})}}, {y})),
            "INVALID_ARGUMENT: Cannot feed value of shape (3,) for Tensor 'x:0', which has shape "
            "'(2,)'");
  EXPECT_TRUE(session->Run({{x, Tensor::Vector<float>({1, 2})}}, {y}).ok());
}

TEST_P(SameEverywhereTest, PartialRunsTakeTheirPartsOnce) {
  const Output a = Fed("a"), b = Fed("b"), c = Fed("c");
  const Output doubled = scope_.Op("Add", {a, a}, {}, "doubled");
  const Output sum = scope_.Op("Add", {doubled, b}, {}, "sum");
  const Output other = scope_.Op("Neg", {a}, {}, "other");
  auto session = NewSession();
  const std::string handle = session->PartialRunSetup({{a, b}, {doubled, sum}, {}}).value();
  const auto run = [&](const std::vector<std::pair<Output, Tensor>>& feeds,
                       const std::vector<Output>& fetches) {
    return session->PartialRun(handle, feeds, fetches);
  };
  EXPECT_EQ(Text(run({{c, Number(1)}}, {})),
            "INVALID_ARGUMENT: The feed c:0 was not specified in partial_run_setup.");
  EXPECT_EQ(Text(run({{a, Number(1)}}, {other})),
            "INVALID_ARGUMENT: The fetch other:0 was not specified in partial_run_setup.");
  EXPECT_EQ(Text(run({{a, Tensor::Scalar<int32_t>(1)}}, {doubled})),
            "INVALID_ARGUMENT: Expects arg[0] to be float but int32 is provided");
  EXPECT_EQ(Text(run({{a, Number(1)}}, {sum})),
            "INVALID_ARGUMENT: Fetch b:0 can't be computed from the feeds that have been fed so "
            "far.");
  // The refused feed does not count as fed.
  EXPECT_EQ(Value(run({{a, Number(1)}}, {doubled})), 2);
  EXPECT_EQ(Text(run({{a, Number(1)}}, {})),
            "INVALID_ARGUMENT: The feed a:0 has already been fed.");
  EXPECT_EQ(Text(run({}, {doubled})),
            "INVALID_ARGUMENT: The fetch doubled:0 has already been fetched.");
  EXPECT_EQ(Value(run({{b, Number(5)}}, {sum})), 7);
  // It is over.
  EXPECT_EQ(run({}, {sum}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(SameEverywhereTest, APartThatFailsEndsThePartialRun) {
  const Output a = Fed("a"), b = Fed("b");
  const Output checked = scope_.Op("CheckNumerics", {a}, {{"message", "bad"}}, "checked");
  const Output sum = scope_.Op("Add", {a, b}, {}, "sum");
  auto session = NewSession();
  const std::string handle = session->PartialRunSetup({{a, b}, {checked, sum}, {}}).value();
  const absl::Status failed =
      session->PartialRun(handle, {{a, Number(std::numeric_limits<float>::infinity())}}, {checked})
          .status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("bad : Tensor had Inf values"));
  const absl::Status later = session->PartialRun(handle, {{b, Number(1)}}, {sum}).status();
  EXPECT_THAT(std::string(later.message()), HasSubstr("Must run "));
}

TEST_P(SameEverywhereTest, StatefulKernelsGoOnInOtherSteps) {
  const Output shape = scope_.Const(Tensor::Vector<int32_t>({}), "shape");
  const Output random = scope_.Op("RandomUniform", {shape},
                                  {{"dtype", DType::kFloat}, {"seed", int64_t{1}}}, "random");
  const Output more = scope_.Op("Add", {random, scope_.ConstScalar<float>(1)}, {}, "more");
  auto session = NewSession();
  const float first = Value(session->Run({}, {random}));
  EXPECT_NE(Value(session->Run({}, {more})) - 1, first);
  EXPECT_EQ(Value(NewSession()->Run({}, {random})), first);
}

}  // namespace
}  // namespace muster
