// Loops and conditionals whose nodes are on several devices give what they give on one.
#include "absl/strings/match.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/gradients/gradients.h"

namespace muster {
namespace {

using Outputs = std::vector<Output>;
using Results = std::vector<BranchResult>;

Scope On(const Scope& scope, int device) {
  return scope.WithDevice(absl::StrCat("/cpu:", device));
}

class LoopPartitionsTest : public ::testing::Test {
 protected:
  LoopPartitionsTest() : scope_(graph_) {
    n_ = Placeholder(scope_, "n", DType::kFloat, PartialShape::Scalar());
    x_ = Placeholder(scope_, "x", DType::kFloat, PartialShape::Scalar());
  }

  // Runs on `devices` devices. A run that hangs is stopped.
  absl::StatusOr<std::vector<float>> Run(int devices, bool optimize, const Outputs& fetches,
                                         float n) {
    SessionOptions options;
    options.devices.cpu_devices = devices;
    options.optimize_graph = optimize;
    options.allow_soft_placement = soft_ || devices == 1;
    ASSIGN_OR_RETURN(const auto session, Session::Create(graph_, options));
    ASSIGN_OR_RETURN(const auto plan, session->Prepare({{n_, x_}, fetches, {}}));
    std::vector<float> first;
    for (int step = 0; step < 5; ++step) {
      RunOptions run;
      run.timeout = absl::Seconds(20);
      ASSIGN_OR_RETURN(
          const std::vector<Tensor> results,
          session->Run(*plan, {Tensor::Scalar<float>(n), Tensor::Scalar<float>(1.5f)}, run));
      std::vector<float> values;
      for (const Tensor& result : results) values.push_back(result.scalar<float>());
      if (step == 0) first = values;
      EXPECT_EQ(values, first);
    }
    return first;
  }
  void SameOnAllDevices(const Outputs& fetches) {
    ASSERT_EQ(scope_.status(), absl::OkStatus());
    for (float n : {0.0f, 1.0f, 4.0f, 13.0f}) {
      const auto expected = Run(1, false, fetches, n);
      ASSERT_EQ(expected.status(), absl::OkStatus());
      for (int devices : {2, 3}) {
        for (bool optimize : {false, true}) {
          const auto values = Run(devices, optimize, fetches, n);
          ASSERT_EQ(values.status(), absl::OkStatus())
              << devices << " devices, optimized: " << optimize << ", n: " << n;
          EXPECT_EQ(*values, *expected) << devices << " devices, n: " << n;
        }
      }
    }
  }
  static absl::StatusOr<Outputs> Repeat(const Scope& scope, Output n, Output x,
                                        const std::function<Output(const Scope&, Output)>& body,
                                        int condition_device, WhileOptions options = {}) {
    return WhileLoop(
        scope, {scope.ConstScalar<float>(0), x},
        [=](const Scope& s, const Outputs& v) -> absl::StatusOr<Output> {
          return On(s, condition_device).Op("Less", {v[0], n});
        },
        [=](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
          return Outputs{s.Op("AddV2", {v[0], s.ConstScalar<float>(1)}), body(s, v[1])};
        },
        std::move(options));
  }
  // Two devices at most: a session of two must know them.
  static Output Grow(const Scope& s, Output v) {
    const Scope second = On(s, 1);
    return s.Op("Sub",
                {second.Op("Mul", {v, second.ConstScalar<float>(1.25f)}), s.ConstScalar<float>(1)});
  }

  bool soft_ = false;
  Graph graph_;
  Scope scope_;
  Output n_, x_;
};

TEST_F(LoopPartitionsTest, BodyElsewhere) {
  const auto loop = Repeat(On(scope_, 0), n_, x_, Grow, 0);
  ASSERT_EQ(loop.status(), absl::OkStatus());
  SameOnAllDevices(*loop);
}

TEST_F(LoopPartitionsTest, ConditionElsewhere) {
  const auto loop = Repeat(On(scope_, 0), n_, x_, Grow, 1);
  ASSERT_EQ(loop.status(), absl::OkStatus());
  SameOnAllDevices(*loop);
}

TEST_F(LoopPartitionsTest, OneIterationAtATime) {
  WhileOptions options;
  options.parallel_iterations = 1;
  const auto loop = Repeat(On(scope_, 0), n_, x_, Grow, 1, options);
  ASSERT_EQ(loop.status(), absl::OkStatus());
  SameOnAllDevices(*loop);
}

TEST_F(LoopPartitionsTest, Nested) {
  for (int parallel : {1, 10}) {
    WhileOptions options;
    options.parallel_iterations = parallel;
    const auto loop = Repeat(
        On(scope_, 0), n_, x_,
        [=, this](const Scope& s, Output v) {
          const Scope second = On(s, 1);
          // As often as the outer loop: not at all, or with a dead last pass.
          const auto inner = Repeat(s, n_, v, Grow, parallel == 1 ? 1 : 0, options);
          EXPECT_EQ(inner.status(), absl::OkStatus());
          return second.Op("Mul", {(*inner)[1], second.ConstScalar<float>(0.5f)});
        },
        1, options);
    ASSERT_EQ(loop.status(), absl::OkStatus());
    SameOnAllDevices(*loop);
  }
}

TEST_F(LoopPartitionsTest, InnerLoopWhollyElsewhere) {
  const auto loop = Repeat(
      On(scope_, 0), n_, x_,
      [this](const Scope& s, Output v) {
        const auto inner = Repeat(
            On(s, 1), n_, v,
            [](const Scope& i, Output w) {
              return i.Op("Mul", {w, i.ConstScalar<float>(0.75f)});
            },
            1);
        EXPECT_EQ(inner.status(), absl::OkStatus());
        return s.Op("AddV2", {(*inner)[1], s.ConstScalar<float>(1)});
      },
      0);
  ASSERT_EQ(loop.status(), absl::OkStatus());
  SameOnAllDevices(*loop);
}

TEST_F(LoopPartitionsTest, LoopInCond) {
  const Output pred = On(scope_, 1).Op("Less", {n_, scope_.ConstScalar<float>(3)});
  const auto merged = Cond(
      On(scope_, 0), pred,
      [&](const Scope& s) -> absl::StatusOr<Results> {
        ASSIGN_OR_RETURN(const Outputs loop, Repeat(s, n_, x_, Grow, 1));
        return Results{loop[1]};
      },
      [&](const Scope& s) -> absl::StatusOr<Results> { return Results{On(s, 1).Op("Neg", {x_})}; });
  ASSERT_EQ(merged.status(), absl::OkStatus());
  SameOnAllDevices(*merged);
}

TEST_F(LoopPartitionsTest, CondInLoop) {
  const auto loop = Repeat(
      On(scope_, 0), n_, x_,
      [this](const Scope& s, Output v) {
        const Output pred = On(s, 1).Op("Less", {v, s.ConstScalar<float>(2)});
        const auto merged = Cond(
            s, pred,
            [&](const Scope& c) -> absl::StatusOr<Results> {
              return Results{On(c, 1).Op("AddV2", {v, x_})};
            },
            [&](const Scope& c) -> absl::StatusOr<Results> {
              ASSIGN_OR_RETURN(const Outputs inner, Repeat(c, n_, v, Grow, 1));
              return Results{On(c, 0).Op("Tanh", {inner[1]})};
            });
        EXPECT_EQ(merged.status(), absl::OkStatus());
        return (*merged)[0];
      },
      0);
  ASSERT_EQ(loop.status(), absl::OkStatus());
  SameOnAllDevices(*loop);
}

TEST_F(LoopPartitionsTest, Gradients) {
  for (bool colocate : {false, true}) {
    const auto loop = Repeat(
        On(scope_, 0), n_, x_,
        [](const Scope& s, Output v) {
          const Scope second = On(s, 1);
          return s.Op("Mul", {second.Op("Tanh", {v}), v});
        },
        0);
    ASSERT_EQ(loop.status(), absl::OkStatus());
    GradientOptions options;
    options.colocate_gradients_with_ops = colocate;
    soft_ =
        colocate;  // stacks are to be with what they keep and with what reads it, as in TensorFlow
    const auto gradients = Gradients(scope_, Outputs{(*loop)[1]}, Outputs{x_}, options);
    ASSERT_EQ(gradients.status(), absl::OkStatus());
    SameOnAllDevices({(*loop)[1], std::get<Output>((*gradients)[0])});
  }
}

TEST_F(LoopPartitionsTest, GradientsOfNestedLoops) {
  for (bool colocate : {false, true}) {
    const auto loop = Repeat(
        On(scope_, 0), n_, x_,
        [](const Scope& s, Output v) {
          const auto inner = Repeat(
              s, s.ConstScalar<float>(2), v,
              [](const Scope& i, Output w) {
                const Scope second = On(i, 1);
                return i.Op("Mul", {second.Op("Tanh", {w}), second.ConstScalar<float>(1.5f)});
              },
              0);
          EXPECT_EQ(inner.status(), absl::OkStatus());
          return (*inner)[1];
        },
        0);
    ASSERT_EQ(loop.status(), absl::OkStatus());
    GradientOptions options;
    options.colocate_gradients_with_ops = colocate;
    soft_ =
        colocate;  // stacks are to be with what they keep and with what reads it, as in TensorFlow
    const auto gradients = Gradients(scope_, Outputs{(*loop)[1]}, Outputs{x_}, options);
    ASSERT_EQ(gradients.status(), absl::OkStatus());
    SameOnAllDevices({(*loop)[1], std::get<Output>((*gradients)[0])});
  }
}

}  // namespace
}  // namespace muster
