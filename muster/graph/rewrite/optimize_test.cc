#include "muster/graph/rewrite/optimize.h"

#include "muster/client/session.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

using Feeds = std::vector<std::pair<Output, Tensor>>;
using Outputs = std::vector<Output>;
using Results = std::vector<BranchResult>;

class OptimizeTest : public PassTest {
 protected:
  // One step of a fresh session after `before` has run, or its error.
  absl::StatusOr<std::vector<Tensor>> Run(bool optimize, const Feeds& feeds, const Outputs& fetches,
                                          const std::vector<Node*>& before, int steps) {
    SessionOptions options;
    options.optimize_graph = optimize;
    ASSIGN_OR_RETURN(auto session, Session::Create(graph_, options));
    if (!before.empty()) RETURN_IF_ERROR(session->Run({}, {}, before).status());
    for (int i = 1; i < steps; ++i) RETURN_IF_ERROR(session->Run(feeds, fetches).status());
    return session->Run(feeds, fetches);
  }
  // Rewriting must not show.
  void ExpectSame(const Feeds& feeds, const Outputs& fetches, const std::vector<Node*>& before = {},
                  int steps = 1) {
    ASSERT_EQ(scope_.status(), absl::OkStatus());
    const auto plain = Run(false, feeds, fetches, before, steps);
    const auto rewritten = Run(true, feeds, fetches, before, steps);
    ASSERT_EQ(plain.status(), rewritten.status());
    if (!plain.ok()) return;
    for (size_t i = 0; i < fetches.size(); ++i) {
      EXPECT_TRUE(SameTensor((*plain)[i], (*rewritten)[i]))
          << fetches[i].name() << ": " << (*plain)[i].ToString() << " became "
          << (*rewritten)[i].ToString();
    }
  }
  int NodesLeft(const Outputs& feeds, const Outputs& fetches) {
    auto pruned = PruneForStep(graph_, {feeds, fetches, {}});
    EXPECT_EQ(pruned.status(), absl::OkStatus());
    auto graph = OptimizeGraph(*std::move(pruned));
    EXPECT_EQ(graph.status(), absl::OkStatus());
    return (*graph)->num_nodes();
  }
  Outputs GradientsOf(Output y, const Outputs& xs) {
    const auto gradients = Gradients(scope_, {y}, xs);
    EXPECT_EQ(gradients.status(), absl::OkStatus());
    Outputs list;
    for (const auto& gradient : *gradients) list.push_back(std::get<Output>(gradient));
    return list;
  }
  Output Predicate() { return Placeholder(scope_, "p", DType::kBool, PartialShape::Scalar()); }
  static Tensor Pair(float a, float b) { return Tensor::Vector<float>({a, b}); }
};

TEST_F(OptimizeTest, ExpressionsWithGradients) {
  const Output x = Floats("x", {2, 3});
  const Output b = Floats("b", {3});
  const Output shape = scope_.Op("Shape", {x}, {}, "shape");
  const Output y = scope_.Op("Mul", {scope_.Op("AddV2", {x, b}), scope_.Op("Reshape", {x, shape})});
  const Output twice = scope_.Op("Identity", {scope_.Op("Tanh", {y})});
  Outputs fetches = GradientsOf(scope_.Op("AddV2", {twice, scope_.Op("Tanh", {y})}), {x, b});
  fetches.push_back(twice);
  const Feeds feeds = {{x, Tensor::Of<float>(Shape({2, 3}), {1, -2, 3, -0.0f, 0.5, 7})},
                       {b, Tensor::Vector<float>({0.1f, -0.0f, 4})}};
  ExpectSame(feeds, fetches);
  EXPECT_LT(NodesLeft({x, b}, fetches), graph_.num_nodes() - 8);
}

TEST_F(OptimizeTest, BranchesDeadOrAlive) {
  const Output x = Floats("x", {2});
  const Output p = Predicate();
  const auto merged = Cond(
      scope_, p,
      [&](const Scope& s) -> absl::StatusOr<Results> {
        // Constant inside the branch, from a shape and from numbers: both must die with it.
        const Output y = s.Op("Neg", {x});
        const Output size = s.Op("Cast", {s.Op("Size", {y})}, {{"DstT", DType::kFloat}});
        return Results{s.Op("Mul", {size, s.Op("Neg", {s.ConstScalar<float>(3)})}), y};
      },
      [&](const Scope& s) -> absl::StatusOr<Results> {
        return Results{s.Op("Exp", {s.ConstScalar<float>(2)}), s.Op("Identity", {x})};
      });
  ASSERT_EQ(merged.status(), absl::OkStatus());
  Outputs fetches = {(*merged)[0], (*merged)[1]};
  const Outputs gradients = GradientsOf((*merged)[1], {x});
  fetches.insert(fetches.end(), gradients.begin(), gradients.end());
  for (bool taken : {false, true}) {
    ExpectSame({{x, Pair(1, 2)}, {p, Tensor::Scalar(taken)}}, fetches);
  }
}

TEST_F(OptimizeTest, LoopsWithGradients) {
  const Output x = Floats("x", {2});
  const auto loop = WhileLoop(
      scope_, {scope_.ConstScalar<int32_t>(0), x, scope_.ConstScalar<float>(1)},
      [&](const Scope& s, const Outputs& v) { return WithNumber(s, "Less", "Less", v[0], 5); },
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        const Output two = s.Op("AddV2", {s.ConstScalar<float>(1), s.ConstScalar<float>(1)});
        const Output size = s.Op("Cast", {s.Op("Size", {v[1]})}, {{"DstT", DType::kFloat}});
        const Output unchanged = s.Op("Identity", {s.Op("Reshape", {v[1], s.ConstVector({2})})});
        return Outputs{WithNumber(s, "AddV2", "add", v[0], 1),
                       s.Op("Mul", {s.Op("AddV2", {unchanged, x}), s.Op("RealDiv", {two, size})}),
                       s.Op("AddV2", {v[2], size})};
      });
  ASSERT_EQ(loop.status(), absl::OkStatus());
  Outputs fetches = *loop;
  const Outputs gradients = GradientsOf((*loop)[1], {x});
  fetches.insert(fetches.end(), gradients.begin(), gradients.end());
  ExpectSame({{x, Pair(1.5, -2)}}, fetches);
}

TEST_F(OptimizeTest, VariablesAndOrder) {
  const AttrMap attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}};
  const Output v = scope_.Op("VariableV2", {}, attrs, "v");
  const Output start = scope_.Op("Assign", {v, scope_.Const(Pair(1, 2))}, {}, "start");
  const Output read = scope_.Op("Identity", {v}, {}, "read");
  const Output copy = scope_.WithControlDependencies(std::vector<Node*>{read.node})
                          .Op("Mul", {read, scope_.ConstScalar<float>(1)});
  const Output add =
      scope_.WithControlDependencies(std::vector<Node*>{copy.node})
          .Op("AssignAdd", {v, scope_.Op("Neg", {scope_.Const(Pair(3, 4))})}, {}, "add");
  Node* group =
      scope_.WithControlDependencies(std::vector<Node*>{add.node}).Add("NoOp", {}, {}, "group");
  const Output after =
      scope_.WithControlDependencies(std::vector<Node*>{group}).Op("Identity", {v}, {}, "after");
  ExpectSame({}, {read, copy, after}, {start.node}, 3);
  // Nothing has been assigned: the same error with the same node.
  ExpectSame({}, {after});
}

TEST_F(OptimizeTest, ResourceVariablesAndRandomNumbers) {
  const AttrMap attrs = {
      {"dtype", DType::kFloat}, {"shape", PartialShape({2})}, {"shared_name", "r"}};
  const Output handle = scope_.Op("VarHandleOp", {}, attrs, "handle");
  Node* start = scope_.Add("AssignVariableOp", {handle, scope_.Const(Pair(1, 2))}, {}, "start");
  const AttrMap dtype = {{"dtype", DType::kFloat}};
  const Output before = scope_.Op("ReadVariableOp", {handle}, dtype, "before");
  const Output random = scope_.Op("RandomUniform", {scope_.ConstVector({2})},
                                  {{"dtype", DType::kFloat}, {"seed", 1}, {"seed2", 2}}, "random");
  const Output again = scope_.Op("RandomUniform", {scope_.ConstVector({2})},
                                 {{"dtype", DType::kFloat}, {"seed", 1}, {"seed2", 2}}, "again");
  Node* add = scope_.WithControlDependencies(std::vector<Node*>{before.node})
                  .Add("AssignAddVariableOp", {handle, random}, {}, "add");
  const Output after = scope_.WithControlDependencies(std::vector<Node*>{add})
                           .Op("ReadVariableOp", {handle}, dtype, "after");
  const Output unused = scope_.Op("Shape", {again}, {}, "unused");
  ExpectSame({}, {before, after, scope_.Op("Identity", {before}), unused}, {start}, 2);
}

TEST_F(OptimizeTest, ErrorsStayErrors) {
  const Output zero = scope_.ConstScalar<int32_t>(0, "zero");
  ExpectSame({}, {scope_.Op("FloorDiv", {scope_.ConstScalar<int32_t>(1, "one"), zero}, {}, "bad")});
  ExpectSame({}, {scope_.Op("Size", {Floats("missing", {2})}, {}, "size")});
}

TEST_F(OptimizeTest, FedConstantsAreNotFolded) {
  const Output a = scope_.ConstScalar<float>(1, "a");
  const Output b = scope_.Op("Neg", {a}, {}, "b");
  ExpectSame({{a, Tensor::Scalar<float>(5)}}, {scope_.Op("Exp", {b})});
  ExpectSame({{b, Tensor::Scalar<float>(5)}}, {scope_.Op("Log", {b})});
}

TEST_F(OptimizeTest, LongChainsAreFolded) {
  const Output x = Floats("x", {8});
  Output y = x;
  for (int i = 0; i < 2000; ++i) {
    const Output c = scope_.ConstScalar<float>(static_cast<float>(i % 7));
    y = scope_.Op("AddV2",
                  {scope_.Op("Identity", {scope_.Op("Mul", {y, scope_.Op("Neg", {c})})}), x});
  }
  auto pruned = PruneForStep(graph_, {{x}, {y}, {}});
  ASSERT_EQ(pruned.status(), absl::OkStatus());
  ASSERT_GE((*pruned)->num_nodes(), 10000);
  auto graph = OptimizeGraph(*std::move(pruned));
  ASSERT_EQ(graph.status(), absl::OkStatus());
  EXPECT_LT((*graph)->num_nodes(), 4100);
}

}  // namespace
}  // namespace muster
