#include "muster/graph/rewrite/rewriter.h"

#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using RewriterTest = PassTest;

TEST_F(RewriterTest, SubstituteTakesNamePlaceAndReaders) {
  const Output x = Floats("x", {2});
  const Output a = scope_.Op("Neg", {x}, {}, "a");
  const Output b = scope_.Op("Exp", {a}, {}, "b");
  const Scope after = scope_.WithControlDependencies(std::vector<Node*>{a.node});
  const Output c = after.Op("Log", {x}, {}, "c");
  Rewrite(
      [](GraphRewriter& rewriter) {
        Node* old = rewriter.graph().FindNode("a");
        NodeSpec spec;
        spec.op = "Abs";
        spec.inputs = {old->input(0)};
        RETURN_IF_ERROR(rewriter.Substitute(*old, std::move(spec)).status());
        rewriter.Commit();
        return absl::OkStatus();
      },
      {x}, {b, c});
  EXPECT_THAT(List(), ElementsAre("a Abs _arg_x_0_0", "b Exp a", "c Log _arg_x_0_0,^a",
                                  "_retval_b_0_0 _Retval b", "_retval_c_0_1 _Retval c"));
  EXPECT_EQ(Find("a")->id(), 1);
  EXPECT_EQ(Find("a")->consumers().size(), 1u);
}

TEST_F(RewriterTest, DropsWhatNothingNeedsButNotEffects) {
  const Output shape = scope_.ConstVector({2});
  const Output random = scope_.Op("RandomUniform", {shape}, {{"dtype", DType::kFloat}}, "random");
  const Output b = scope_.Op("Exp", {scope_.Op("Neg", {random}, {}, "a")}, {}, "b");
  const Output other = scope_.Const(Tensor::Vector<float>({1, 2}), "other");
  const Output c = scope_.Op("AddV2", {b, other}, {}, "c");
  Rewrite(
      [](GraphRewriter& rewriter) {
        rewriter.Replace(Output(rewriter.graph().FindNode("b"), 0),
                         Output(rewriter.graph().FindNode("other"), 0));
        rewriter.Commit();
        return absl::OkStatus();
      },
      {}, {c});
  EXPECT_THAT(List(), ElementsAre("Const Const", "random RandomUniform Const", "other Const",
                                  "c AddV2 other,other", "_retval_c_0_0 _Retval c"));
}

TEST_F(RewriterTest, ReplacementsAndWaitsFollowEachOther) {
  const Output x = Floats("x", {2});
  const Output a = scope_.Op("Neg", {x}, {}, "a");
  const Output b = scope_.Op("Exp", {a}, {}, "b");
  const Output c = scope_.Op("Log", {b}, {}, "c");
  Node* group = scope_.WithControlDependencies(std::vector<Node*>{c.node, b.node})
                    .Add("NoOp", {}, {}, "group");
  auto pruned = PruneForStep(graph_, {{x}, {}, {group}});
  ASSERT_EQ(pruned.status(), absl::OkStatus());
  GraphRewriter rewriter(**pruned);
  const auto node = [&](absl::string_view name) { return (*pruned)->FindNode(name); };
  rewriter.Replace(Output(node("b"), 0), Output(node("a"), 0));
  rewriter.Replace(Output(node("a"), 0), Output(node("_arg_x_0_0"), 0));
  rewriter.WaitInstead(*node("c"), {node("b")});
  rewriter.WaitInstead(*node("b"), {node("a")});
  rewriter.WaitInstead(*node("a"), {});
  EXPECT_EQ(rewriter.Input(*node("c"), 0).node, node("_arg_x_0_0"));
  EXPECT_THAT(rewriter.ControlInputs(*node("group")), IsEmpty());
  rewriter.Commit();
  EXPECT_FALSE(rewriter.changed());
  EXPECT_THAT(NodeList(**pruned), ElementsAre("_arg_x_0_0 _Arg", "group NoOp"));
}

}  // namespace
}  // namespace muster
