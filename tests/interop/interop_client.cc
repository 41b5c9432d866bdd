// The C++ client at a cluster of one ps and two workers, whichever program serves it.
//
//   interop_client TARGET
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/device/device.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/muster.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::string target;

class InteropTest : public testing::Test {
 protected:
  ~InteropTest() override { EXPECT_TRUE(ResetContainers(target, {}, {}).ok()); }

  std::unique_ptr<Session> NewSession() {
    SessionOptions options;
    options.target = target;
    options.operation_timeout = absl::Seconds(30);
    options.master = ConnectMaster(target, options.config).value();
    return Session::Create(graph_, std::move(options)).value();
  }
  Output Fed(DType dtype) { return worker_.Op("Placeholder", {}, {{"dtype", dtype}}); }
  Output Variable(absl::string_view name, Shape shape = {}) {
    return ps_.Op("VariableV2", {}, {{"shape", PartialShape(shape)}, {"dtype", DType::kFloat}},
                  name);
  }

  Graph graph_;
  Scope scope_{graph_};
  Scope ps_ = scope_.WithDevice("/job:ps/task:0");
  Scope worker_ = scope_.WithDevice("/job:worker/task:0");
  Scope other_ = scope_.WithDevice("/job:worker/task:1");
};

float Value(const absl::StatusOr<std::vector<Tensor>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->front().scalar<float>() : 0;
}

TEST_F(InteropTest, ConstantsOfEveryTask) {
  const Output sum = worker_.Op("Add", {ps_.ConstScalar<float>(1), other_.ConstScalar<float>(2)});
  const auto session = NewSession();
  EXPECT_EQ(Value(session->Run({}, {sum})), 3);
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(InteropTest, VariablesAreSharedAndTheGraphGrows) {
  const Output v = Variable("v");
  Node* const init = ps_.Op("Assign", {v, ps_.ConstScalar<float>(1)}).node;
  const Output x = Fed(DType::kFloat);
  const Output add = ps_.Op("AssignAdd", {v, worker_.Op("Add", {x, x})});
  const auto first = NewSession();
  const auto second = NewSession();
  ASSERT_TRUE(first->Run({}, {}, {init}).ok());
  for (int i = 1; i <= 5; ++i)
    EXPECT_EQ(Value(first->Run({{x, Tensor::Scalar<float>(1)}}, {add})), 1 + 2 * i);
  const Output more = other_.Op("Neg", {other_.Op("Identity", {v})});
  EXPECT_EQ(Value(first->Run({}, {more})), -11);
  EXPECT_EQ(Value(second->Run({}, {more})), -11);
  EXPECT_THAT(first->ListDevices().value(), testing::Not(SizeIs(testing::Lt(3))));
  EXPECT_TRUE(first->Close().ok());
  EXPECT_TRUE(second->Close().ok());
}

TEST_F(InteropTest, EveryTypeOfNumber) {
  const auto session = NewSession();
  for (const DType dtype :
       {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBfloat16, DType::kInt8, DType::kInt16,
        DType::kInt32, DType::kInt64, DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64,
        DType::kBool, DType::kComplex64, DType::kComplex128}) {
    const Output x = Fed(dtype);
    const Output y = other_.Op("Identity", {ps_.Op("Identity", {x})});
    for (const Shape& shape : {Shape(), Shape({0}), Shape({3, 5}), Shape({2, 0, 4})}) {
      Tensor value = Tensor::Make(dtype, shape).value();
      for (size_t i = 0; i < value.size_bytes(); ++i)
        value.raw()[i] = dtype == DType::kBool ? (i % 2) : static_cast<char>(i % 50);
      const auto result = session->Run({{x, value}}, {y});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->front().shape(), shape) << DTypeName(dtype);
      EXPECT_EQ(absl::string_view(result->front().raw(), value.size_bytes()),
                absl::string_view(value.raw(), value.size_bytes()))
          << DTypeName(dtype);
    }
  }
}

TEST_F(InteropTest, StringsAndBigTensors) {
  const Output s = Fed(DType::kString);
  const Output back = other_.Op("Identity", {ps_.Op("Identity", {s})});
  const Output x = Fed(DType::kFloat);
  const Output doubled = ps_.Op("Add", {x, x});
  const auto session = NewSession();
  const std::vector<std::string> texts = {"", std::string("a\0b\0", 4), "\xff",
                                          std::string(100000, 'x')};
  const auto got = session->Run({{s, Tensor::Vector<std::string>(texts)}}, {back});
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(got->front().data<std::string>()[i], texts[i]);
  Tensor big = Tensor::Make(DType::kFloat, Shape({16 << 20})).value();
  std::fill_n(big.data<float>(), big.num_elements(), 1.5f);
  const auto twice = session->Run({{x, big}}, {doubled});
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(twice->front().num_elements(), big.num_elements());
  EXPECT_EQ(twice->front().data<float>()[big.num_elements() - 1], 3);
}

TEST_F(InteropTest, Errors) {
  const Output x = Fed(DType::kFloat);
  const Output bad = ps_.Op("Reshape", {x, ps_.ConstVector({2, 3})}, {}, "bad");
  const Output after = worker_.Op("Neg", {bad});
  const Output unset = worker_.Op("Identity", {Variable("unset")});
  const auto session = NewSession();
  const auto failed = session->Run({{x, Tensor::Vector<float>({1, 2})}}, {after});
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInvalidArgument) << failed.status();
  EXPECT_THAT(failed.status().message(), HasSubstr("bad"));
  EXPECT_EQ(session->Run({}, {unset}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->Run({}, {after}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(session->Run({{x, Tensor::Vector<float>({1, 2, 3, 4, 5, 6})}}, {after}).ok());
}

TEST_F(InteropTest, PartialRunsAndPlans) {
  const Output a = Fed(DType::kFloat);
  const Output b = Fed(DType::kFloat);
  const Output sum = ps_.Op("Add", {a, a});
  const Output product = worker_.Op("Mul", {sum, b});
  const auto session = NewSession();
  StepSignature signature;
  signature.feeds = {a, b};
  signature.fetches = {sum, product};
  const auto handle = session->PartialRunSetup(signature);
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(Value(session->PartialRun(*handle, {{a, Tensor::Scalar<float>(2)}}, {sum})), 4);
  EXPECT_EQ(Value(session->PartialRun(*handle, {{b, Tensor::Scalar<float>(3)}}, {product})), 12);
  const auto plan = session->Prepare(signature);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (float i = 0; i < 5; ++i) {
    const auto result = session->Run(**plan, {Tensor::Scalar<float>(i), Tensor::Scalar<float>(10)});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[1].scalar<float>(), 20 * i);
  }
}

TEST_F(InteropTest, LoopsAndGradientsAcrossTasks) {
  const Output x = Fed(DType::kFloat);
  const auto loop = WhileLoop(
      ps_, {ps_.ConstScalar<int32_t>(0), x},
      [&](const Scope& scope, const std::vector<Output>& in) -> absl::StatusOr<Output> {
        return scope.Op("Less", {in[0], scope.ConstScalar<int32_t>(5)});
      },
      [&](const Scope& scope,
          const std::vector<Output>& in) -> absl::StatusOr<std::vector<Output>> {
        const Scope far = scope.WithDevice("/job:worker/task:1");
        return std::vector<Output>{scope.Op("Add", {in[0], scope.ConstScalar<int32_t>(1)}),
                                   far.Op("Mul", {in[1], far.ConstScalar<float>(2)})};
      });
  ASSERT_TRUE(loop.ok()) << loop.status();
  const auto gradients = Gradients(scope_, {(*loop)[1]}, {x});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const auto session = NewSession();
  const auto result = session->Run({{x, Tensor::Scalar<float>(3)}},
                                   {(*loop)[1], std::get<Output>(gradients->front())});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<float>(), 96);
  EXPECT_EQ((*result)[1].scalar<float>(), 32);
}

TEST_F(InteropTest, ThreadsShareASession) {
  const Output v = Variable("v");
  Node* const init = ps_.Op("Assign", {v, ps_.ConstScalar<float>(0)}).node;
  const Output add =
      ps_.Op("AssignAdd", {v, worker_.ConstScalar<float>(1)}, {{"use_locking", true}});
  const Output read = ps_.Op("Identity", {v});
  const auto session = NewSession();
  ASSERT_TRUE(session->Run({}, {}, {init}).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) EXPECT_TRUE(session->Run({}, {add}).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Value(session->Run({}, {read})), 100);
}

TEST_F(InteropTest, TimeoutsAndClosing) {
  const auto loop = WhileLoop(
      ps_, {ps_.ConstScalar<int32_t>(0)},
      [&](const Scope& scope, const std::vector<Output>& in) -> absl::StatusOr<Output> {
        return scope.Op("GreaterEqual", {in[0], scope.ConstScalar<int32_t>(0)});
      },
      [&](const Scope& scope,
          const std::vector<Output>& in) -> absl::StatusOr<std::vector<Output>> {
        return std::vector<Output>{scope.Op("Add", {in[0], scope.ConstScalar<int32_t>(1)})};
      });
  ASSERT_TRUE(loop.ok()) << loop.status();
  const auto session = NewSession();
  const auto plan = session->Prepare({.feeds = {}, .fetches = *loop, .targets = {}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  RunOptions options;
  options.timeout = absl::Milliseconds(500);
  EXPECT_EQ(session->Run(**plan, {}, options).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(session->Close().ok());
  EXPECT_TRUE(session->closed());
  EXPECT_FALSE(session->Run(**plan, {}).ok());
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "interop_client TARGET\n");
    return 2;
  }
  muster::target = argv[1];
  return RUN_ALL_TESTS();
}
