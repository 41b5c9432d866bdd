// Steps on a device with memory and a stream of its own give what they give on the CPU.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/runtime/trace.h"
#include "muster/task/fake_accelerator_test.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Outputs = std::vector<Output>;

class AcceleratorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> NewSession(SessionOptions options = {}) {
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    return Session::Create(graph_, std::move(options)).value();
  }
  Output X(PartialShape shape = PartialShape::Scalar()) {
    return Placeholder(scope_, "x", DType::kFloat, std::move(shape));
  }
  static absl::StatusOr<Tensor> Fetch(Session& session, const Output& x, Tensor value,
                                      const Output& fetch) {
    ASSIGN_OR_RETURN(std::vector<Tensor> results, session.Run({{x, std::move(value)}}, {fetch}));
    return results[0];
  }
  // The step in sessions with and without accelerators, with and without optimization.
  void SameAsOnCpu(const Output& x, const Tensor& value, const Output& fetch) {
    SessionOptions cpu;
    cpu.allow_soft_placement = true;
    std::optional<Tensor> expected;
    for (int count : {0, 1, 2}) {
      std::optional<FakeAccelerators> accelerators;
      if (count > 0) accelerators.emplace(count);
      for (bool optimize : {false, true}) {
        SessionOptions options = cpu;
        options.optimize_graph = optimize;
        const auto session = NewSession(options);
        for (int step = 0; step < 3; ++step) {
          const auto result = Fetch(*session, x, value, fetch);
          ASSERT_EQ(result.status(), absl::OkStatus()) << count << " accelerators";
          if (!expected) expected = *result;
          EXPECT_TRUE(SameTensor(*result, *expected))
              << result->ToString() << " instead of " << expected->ToString() << ", " << count
              << " accelerators, optimized: " << optimize;
        }
        if (count > 0) {
          EXPECT_GT(accelerators->made(0).stream()->num_run(), 0);
        }
      }
    }
  }
  // "node device" of each node of these ops that a step has run.
  static std::vector<std::string> Devices(Session& session, const Output& x, Tensor value,
                                          const Output& fetch, const std::set<std::string>& ops) {
    const auto plan = session.Prepare({{x}, {fetch}, {}});
    EXPECT_EQ(plan.status(), absl::OkStatus());
    RunOptions options;
    options.trace = true;
    RunMetadata metadata;
    const auto result = session.Run(**plan, {std::move(value)}, options, &metadata);
    EXPECT_EQ(result.status(), absl::OkStatus());
    std::vector<std::string> lines;
    for (const NodeTrace& node : metadata.nodes) {
      if (!ops.contains(node.op)) continue;
      lines.push_back(absl::StrCat(node.node, " ", node.device.substr(node.device.rfind('/') + 1)));
    }
    return lines;
  }

  Graph graph_;
  Scope scope_{graph_};
  const Scope gpu_ = scope_.WithDevice("/gpu:0");
  const Scope cpu_ = scope_.WithDevice("/cpu:0");
};

TEST_F(AcceleratorTest, TheHostCannotTouchItsMemory) {
  FakeAccelerator device("/job:w/replica:0/task:0/device:GPU:0", DefaultScheduler());
  const Tensor tensor = device.CopyFromHost(Tensor::Scalar<float>(3)).value();
  EXPECT_TRUE(IsInDeviceMemory(tensor));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], tensor.raw(), tensor.size_bytes()), -1);
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
  std::promise<float> value;
  device.CopyToHost(tensor, [&value](absl::StatusOr<Tensor> copy) {
    value.set_value(copy.value().scalar<float>());
  });
  EXPECT_EQ(value.get_future().get(), 3);
}

TEST_F(AcceleratorTest, ComputesWhatTheCpuComputes) {
  const Output x = X(PartialShape({2, 3}));
  const Output w = gpu_.Const(Tensor::Of<float>(Shape({3, 2}), {1, -2, 3, -4, 5, -6}));
  const Output product = gpu_.Op("MatMul", {x, w});
  const Output bias = gpu_.Const(Tensor::Vector<float>({0.5f, -0.5f}));
  const Output y = gpu_.Op("Relu", {gpu_.Op("BiasAdd", {product, bias})});
  // Reads an argument in host memory, and a tensor of the CPU.
  const Output axes = cpu_.ConstVector({1});
  const Output sum = gpu_.Op("Sum", {y, axes});
  const Output halves = cpu_.Op("Mul", {sum, cpu_.ConstScalar<float>(0.5f)});
  const Output result = gpu_.Op("AddV2", {gpu_.Op("Square", {halves}), sum});
  SameAsOnCpu(x, Tensor::Of<float>(Shape({2, 3}), {1, 2, 3, 4, 5, 6}), result);
}

TEST_F(AcceleratorTest, ShapesAreOfTheHost) {
  const Output x = X(PartialShape());
  const Output y = gpu_.Op("Neg", {x});
  const Output size = gpu_.Op("Size", {y});
  const Output flat = gpu_.Op("Reshape", {y, gpu_.Op("ExpandDims", {size, gpu_.ConstScalar<int32_t>(0)})});
  const Output ones = gpu_.Op("Fill", {gpu_.Op("Shape", {flat}), gpu_.ConstScalar<float>(1)});
  const Output sum = gpu_.Op("AddV2", {ones, flat});
  SameAsOnCpu(x, Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4}), sum);
  SameAsOnCpu(x, Tensor(DType::kFloat, Shape({0, 2})), sum);
}

TEST_F(AcceleratorTest, LoopsDecideOnTheHost) {
  const Output x = X();
  const auto loop = WhileLoop(
      gpu_, {gpu_.ConstScalar<int32_t>(0), x},
      [](const Scope& s, const Outputs& v) -> absl::StatusOr<Output> {
        return s.Op("Less", {v[1], s.ConstScalar<float>(100)});
      },
      [](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        const Output next = s.Op("Mul", {v[1], s.ConstScalar<float>(1.5f)});
        return Outputs{s.WithDevice("/cpu:0").Op("AddV2", {v[0], s.ConstScalar<int32_t>(1)}), next};
      });
  ASSERT_EQ(loop.status(), absl::OkStatus());
  const auto gradient = Gradients(scope_, {(*loop)[1]}, {x});
  ASSERT_EQ(gradient.status(), absl::OkStatus());
  SameAsOnCpu(x, Tensor::Scalar<float>(2), (*loop)[1]);
  SameAsOnCpu(x, Tensor::Scalar<float>(2), (*loop)[0]);
  SameAsOnCpu(x, Tensor::Scalar<float>(2), std::get<Output>((*gradient)[0]));
  SameAsOnCpu(x, Tensor::Scalar<float>(200), (*loop)[1]);
}

TEST_F(AcceleratorTest, BranchesDecideOnTheHost) {
  const Output x = X();
  const Output y = gpu_.Op("Square", {x});
  const auto made = Cond(
      gpu_, gpu_.Op("Greater", {y, gpu_.ConstScalar<float>(10)}),
      [&](const Scope& s) -> absl::StatusOr<std::vector<BranchResult>> {
        return std::vector<BranchResult>{s.Op("Neg", {y})};
      },
      [&](const Scope& s) -> absl::StatusOr<std::vector<BranchResult>> {
        return std::vector<BranchResult>{s.Op("Exp", {y})};
      });
  ASSERT_EQ(made.status(), absl::OkStatus());
  SameAsOnCpu(x, Tensor::Scalar<float>(2), (*made)[0]);
  SameAsOnCpu(x, Tensor::Scalar<float>(4), (*made)[0]);
}

TEST_F(AcceleratorTest, SeveralOfThemShareAModel) {
  const Scope other = scope_.WithDevice("/gpu:1");
  const Output x = X(PartialShape({2}));
  const Output first = gpu_.Op("Mul", {x, gpu_.ConstScalar<float>(3)});
  const Output second = other.Op("Square", {first});
  const Output third = gpu_.Op("AddV2", {second, first});
  SameAsOnCpu(x, Tensor::Vector<float>({1, 2}), third);
  const FakeAccelerators accelerators(2);
  const auto session = NewSession();
  EXPECT_EQ(Fetch(*session, x, Tensor::Vector<float>({1, 2}), third)->data<float>()[1], 42);
  EXPECT_GT(accelerators.made(1).stream()->num_run(), 0);
}

TEST_F(AcceleratorTest, NodesGoWhereTheirKernelsAre) {
  const FakeAccelerators accelerators(1);
  const Output x = X(PartialShape({2}));
  const Output y = scope_.Op("Square", {x}, {}, "has_kernel");
  const Output z = scope_.Op("Cumsum", {y, scope_.ConstScalar<int32_t>(0)}, {}, "has_none");
  const Output w = scope_.Op("Neg", {z}, {}, "has_kernel_too");
  SessionOptions options;
  options.optimize_graph = false;
  const auto session = NewSession(options);
  EXPECT_THAT(Devices(*session, x, Tensor::Vector<float>({1, 2}), w, {"Square", "Cumsum", "Neg"}),
              UnorderedElementsAre("has_kernel device:GPU:0", "has_none device:CPU:0",
                                   "has_kernel_too device:GPU:0"));
}

TEST_F(AcceleratorTest, ANodeWithoutAKernelNeedsSoftPlacement) {
  const FakeAccelerators accelerators(1);
  const Output x = X(PartialShape({2}));
  const Output y = gpu_.Op("Cumsum", {x, scope_.ConstScalar<int32_t>(0)}, {}, "sums");
  const auto strict = NewSession();
  const absl::Status status =
      Fetch(*strict, x, Tensor::Vector<float>({1, 2}), y).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Cannot assign a device for operation sums"));
  SessionOptions options;
  options.allow_soft_placement = true;
  const auto soft = NewSession(options);
  const auto result = Fetch(*soft, x, Tensor::Vector<float>({1, 2}), y);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->data<float>()[1], 3);
}

TEST_F(AcceleratorTest, VariablesOfTheCpuAreTrainedFromIt) {
  const FakeAccelerators accelerators(1);
  const Output x = X();
  const Output w = cpu_.Op("VarHandleOp", {},
                           {{"dtype", DType::kFloat}, {"shape", PartialShape::Scalar()}}, "w");
  Node* const init =
      cpu_.Add("AssignVariableOp", {w, cpu_.ConstScalar<float>(1)}, {{"dtype", DType::kFloat}});
  const Output value = cpu_.Op("ReadVariableOp", {w}, {{"dtype", DType::kFloat}});
  const Output loss = gpu_.Op("Square", {gpu_.Op("Mul", {value, x})});
  const auto gradients = Gradients(gpu_, {loss}, {value});
  ASSERT_EQ(gradients.status(), absl::OkStatus());
  const Output gradient = std::get<Output>((*gradients)[0]);
  Node* const train = cpu_.Add("ResourceApplyGradientDescent",
                               {w, cpu_.ConstScalar<float>(0.1f), gradient});
  const auto session = NewSession();
  ASSERT_EQ(session->Run({}, {}, {init}).status(), absl::OkStatus());
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(session->Run({{x, Tensor::Scalar<float>(2)}}, {}, {train}).status(),
              absl::OkStatus());
  }
  // Each step: w -= 0.1 * 2 * w * x * x.
  const auto result = session->Run({}, {value});
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_FLOAT_EQ((*result)[0].scalar<float>(), 0.2f * 0.2f * 0.2f);
}

TEST_F(AcceleratorTest, AStepEndsWithItsStream) {
  FakeAccelerators accelerators(1);
  const Output x = X();
  const Output y = gpu_.Op("Square", {x});
  const auto session = NewSession();
  ASSERT_EQ(session->Run({{x, Tensor::Scalar<float>(2)}}, {}, {y.node}).status(), absl::OkStatus());
  // Nobody has fetched anything: the end of the step alone has waited for the stream.
  EXPECT_GE(accelerators.made(0).stream()->num_run(), 2);
}

TEST_F(AcceleratorTest, AnErrorOfTheStreamEndsTheStep) {
  const FakeAccelerators accelerators(1);
  const Output x = X();
  const Output bad = gpu_.Op("CheckNumerics", {x}, {{"message", std::string("x is bad")}});
  const Output y = gpu_.Op("Neg", {bad});
  for (const bool is_fetched : {true, false}) {
    const auto session = NewSession();
    EXPECT_EQ(Fetch(*session, x, Tensor::Scalar<float>(1), y).status(), absl::OkStatus());
    const Outputs fetches = is_fetched ? Outputs{y} : Outputs{};
    const absl::Status status =
        session->Run({{x, Tensor::Scalar<float>(NAN)}}, fetches, {y.node}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("x is bad"));
    // As on a GPU, the device is of no use any more.
    EXPECT_FALSE(Fetch(*session, x, Tensor::Scalar<float>(1), y).ok());
  }
}

TEST_F(AcceleratorTest, ACancelledStepWaitsForTheStream) {
  FakeAccelerators accelerators(1);
  const Output x = X();
  const Output y = gpu_.Op("Square", {x});
  const auto session = NewSession();
  ASSERT_EQ(Fetch(*session, x, Tensor::Scalar<float>(1), y).status(), absl::OkStatus());
  accelerators.made(0).stream()->Hold(true);
  const auto cancellation = std::make_shared<Cancellation>();
  const auto plan = session->Prepare({{x}, {y}, {}});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  std::atomic<bool> ended{false};
  absl::Status status;
  std::thread runner([&] {
    RunOptions options;
    options.cancellation = cancellation;
    status = session->Run(**plan, {Tensor::Scalar<float>(3)}, options).status();
    ended = true;
  });
  while (accelerators.made(0).stream()->num_waiting() < 3) std::this_thread::yield();
  cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_FALSE(ended);  // its tensors are still in use
  accelerators.made(0).stream()->Hold(false);
  runner.join();
  // The value may have been on its way when the step was cancelled.
  if (!status.ok()) {
    EXPECT_EQ(status, absl::AbortedError("enough"));
  }
  const auto result = Fetch(*session, x, Tensor::Scalar<float>(3), y);
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->scalar<float>(), 9);
}

TEST_F(AcceleratorTest, TooLargeATensorLeavesTheSessionAlive) {
  const FakeAccelerators accelerators(1);
  const Output x = Placeholder(scope_, "x", DType::kInt32, PartialShape({1}));
  const Output y = gpu_.Op("Fill", {x, gpu_.ConstScalar<float>(1)});
  const Output sum = gpu_.Op("Sum", {y, gpu_.ConstVector({0})});
  const auto session = NewSession();
  const absl::Status status =
      Fetch(*session, x, Tensor::Vector<int32_t>({100 << 20}), sum).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("on the device"));
  for (int step = 0; step < 20; ++step) {
    const auto result = Fetch(*session, x, Tensor::Vector<int32_t>({1 << 20}), sum);
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(result->scalar<float>(), 1 << 20);
  }
}

TEST_F(AcceleratorTest, MemoryIsGivenBack) {
  FakeAccelerators accelerators(1);
  const Output x = X(PartialShape({1000}));
  const Output y = gpu_.Op("Neg", {gpu_.Op("Square", {x})});
  const auto session = NewSession();
  const Tensor value = Tensor::Zeros(DType::kFloat, Shape({1000}));
  for (int step = 0; step < 50; ++step)
    ASSERT_EQ(Fetch(*session, x, value, y).status(), absl::OkStatus());
  EXPECT_EQ(accelerators.made(0).allocator().usage().bytes_in_use, 0);
}

}  // namespace
}  // namespace muster
